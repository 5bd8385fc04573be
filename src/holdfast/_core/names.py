"""Make the keys of a lock on the server from the lock's name.

Different names have different keys. Special characters are encoded, so that no name can place its keys in the Cluster slot of
another lock.
"""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

MAX_NAME = 512
"""Maximum number of bytes in a name, before special characters are encoded."""

PROCESS = 12
"""Number of hex digits at the start of a process id. They identify the process.

In a Cluster with sharded pub/sub, a hash tag follows the digits. It puts the inbox (the channel for messages) into a slot of
the right server (`_net/slots.py`). In a lock's token, ``@`` and the key prefix in hex follow if the prefix cannot be read from
the lock's key (``key=``).
"""

PREFIX = b"hf:"
"""Default prefix of all keys."""

_SPECIAL = rb"[*?\[\]\\]"
"""A pattern for `re`, which compiles it at its first use: the start of ``holdfast run`` needs none but `_ESCAPE`."""

_ESCAPE = re.compile(rb"[{}%\x00-\x1f\x7f]")


def _bytes(value: object, parameter: str) -> bytes:
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{parameter} is not valid Unicode: {value!r}", parameter=parameter) from None
    if not isinstance(value, bytes):
        raise ConfigError(f"{parameter} must be str or bytes, not {type(value).__name__}", parameter=parameter)
    if not 1 <= len(value) <= MAX_NAME:
        raise ConfigError(
            f"{parameter} must have 1 to {MAX_NAME} bytes in UTF-8, this one has {len(value)}", parameter=parameter
        )
    return value


def encoded(value: str | bytes, parameter: str) -> bytes:
    """Return a name as it is written in keys, with braces, % and control characters percent-encoded.

    Raises ConfigError if the name is empty, too long or not valid Unicode. ``parameter``: parameter that the error names.
    """
    return _ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], _bytes(value, parameter))


def start(prefix: str) -> bytes:
    """Return the prefix of all keys as bytes. Raises ConfigError if the prefix contains a brace, or is empty or too long."""
    text = _bytes(prefix, "prefix")
    if b"{" in text or b"}" in text:
        raise ConfigError(
            "prefix must not contain { or }: braces mark the part that decides a Cluster slot", parameter="prefix"
        )
    return text


def name_of(key: bytes, prefix: bytes) -> bytes | None:
    """Return the name of a lock, decoded from its ``key``; None if ``key`` is not the key of a lock under this prefix."""
    name = key[len(prefix) + 1 : -1]
    if not key.startswith(prefix + b"{") or not key.endswith(b"}") or b"{" in name or b"}" in name or not name:
        return None
    return re.sub(rb"%([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), name)


def lock_keys(name: str | bytes, prefix: str, key: str | bytes | None) -> tuple[bytes, bytes, bytes]:
    """Return the three keys of a lock: for the lock itself, its state and its queue. Raises ConfigError if a name is not valid.

    ``key``: first of the three keys, to exclude clients of another lock library that use this key; None: make the key from
    ``name``.
    """
    if key is not None:
        _bytes(name, "name")
        lock = raw_key(key)
    else:
        lock = start(prefix) + b"{" + encoded(name, "name") + b"}"
    return lock, side_key(lock, b"state"), side_key(lock, b"queue")


def prefix_of(key: bytes) -> bytes:
    """Return the part of a lock's key before its first brace, which is the prefix if the key was made from a name."""
    return key.partition(b"{")[0]


def home(public: str, key: bytes) -> bytes:
    """Return the key prefix under which a process has its inbox and its process record.

    ``public``: the part of the token that identifies the process. It contains the prefix if the lock has a ``key=``. Otherwise
    the prefix is the beginning of ``key``, the lock's key. `_lua/shared/_inbox.lua` finds the prefix in the same way.
    """
    digits = public.partition("@")[2]
    try:
        return bytes.fromhex(digits) if digits else prefix_of(key)
    except ValueError:
        return prefix_of(key)  # the value of another lock library, or forged


def channel(prefix: bytes, inbox: str) -> bytes:
    """Return the name of a process's inbox (pub/sub channel) under a key prefix. ``inbox``: id of the process."""
    return prefix + b"inbox:" + inbox.encode()


def records(prefix: bytes) -> bytes:
    return prefix + b"proc:"


def record_key(prefix: bytes, process: str) -> bytes:
    return records(prefix) + process[:PROCESS].encode()


def literal(text: bytes) -> bytes:
    """Return a pattern for SCAN that matches exactly ``text``, with special characters escaped."""
    return re.sub(_SPECIAL, rb"\\\g<0>", text)


def quarantine_key(prefix: bytes) -> bytes:
    """Return the key that shows whether a server may have lost its data, for locks with ``quarantine=``.

    It is lost together with the data. `_lua/shared/_marker.lua` reads and writes it.
    """
    return prefix + b"guard"


def marker_key(prefix: bytes) -> bytes:
    """Return the key that shows whether a voting server may have lost its votes. It is lost together with them."""
    return prefix + b"marker"


def raw_key(key: str | bytes) -> bytes:
    """Return a lock's key that the user has chosen, as bytes. Raises ConfigError if it is empty or too long."""
    return _bytes(key, "key")


def side_key(key: bytes, what: bytes) -> bytes:
    """Return another key for the lock ``key``, in the same Cluster slot. ``what``: kind of its data, such as "queue".

    Raises ConfigError if no such key exists, because ``key`` contains a closing brace but no hash tag.
    """
    if hash_tag(key):
        return key + b":" + what
    if b"}" in key:
        raise ConfigError("key must not contain a } without a hash tag such as {tag}; use another key", parameter="key")
    # The ending differs from the one above, because the keys `a` and `{a}` are two locks.
    return b"{" + key + b"}:" + what + b":raw"


def hash_tag(key: bytes) -> bytes:
    """Return the hash tag of a key, the part in braces that decides its Cluster slot; empty if the whole key decides."""
    found = re.search(rb"\{([^}]*)\}", key)
    return found[1] if found else b""
