"""Turn the name of a lock into its keys on the server.

Different names have different keys, and no name can force its keys into the Cluster slot of another lock.
"""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

MAX_NAME = 512
"""Maximum number of bytes in a name, before encoding."""

PROCESS = 12
"""Number of hex digits at the start of a process id, which identify the process.

In a Cluster with sharded pub/sub, a hash tag follows, which puts the inboxes into a slot of the server (`_net/slots.py`). If
the prefix cannot be read from the lock's key (``key=``), ``@`` and the prefix in hex follow.
"""

PREFIX = b"hf:"
"""Default prefix of all keys."""

_SPECIAL = re.compile(rb"[*?\[\]\\]")

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
    """Return a name as it is written in keys: characters that could end a hash tag or a line are percent-encoded."""
    return _ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], _bytes(value, parameter))


def start(prefix: str) -> bytes:
    """Return the prefix, with which all keys begin, as bytes. Raises ConfigError if it contains a brace."""
    text = _bytes(prefix, "prefix")
    if b"{" in text or b"}" in text:
        raise ConfigError(
            "prefix must not contain { or }: braces mark the part that decides a Cluster slot", parameter="prefix"
        )
    return text


_ENCODED = re.compile(rb"%([0-9A-F]{2})")


def name_of(key: bytes, prefix: bytes) -> bytes | None:
    """Return the name from which the key of a lock was made; None if it is not the key of a lock under this prefix."""
    name = key[len(prefix) + 1 : -1]
    if not key.startswith(prefix + b"{") or not key.endswith(b"}") or b"{" in name or b"}" in name or not name:
        return None
    return _ENCODED.sub(lambda found: bytes.fromhex(found[1].decode()), name)


def lock_keys(name: str | bytes, prefix: str, key: str | bytes | None) -> tuple[bytes, bytes, bytes]:
    """Return three keys: of the lock, of its state and of its queue.

    ``key``: name of the first one, to exclude clients of another lock library; None: the key is made from ``name``.
    """
    if key is not None:
        _bytes(name, "name")
        lock = raw_key(key)
    else:
        lock = start(prefix) + b"{" + encoded(name, "name") + b"}"
    return lock, side_key(lock, b"state"), side_key(lock, b"queue")


def prefix_of(key: bytes) -> bytes:
    """Return the prefix of a key that was made from a name: the part before its first brace, as in the scripts."""
    return key.partition(b"{")[0]


def public_part(token: str) -> str:
    """Return the public part of a token, which names its process; empty if another lock library wrote the token."""
    public, dot, _ = token.partition(".")
    return public if dot else ""


def home(public: str, key: bytes) -> bytes:
    """Return the key prefix under which a process has its inbox and its record.

    ``public``: public part of the token, which contains the prefix of a lock with a ``key=``. Otherwise ``key``, the lock's
    key, begins with the prefix. `_lua/shared/_inbox.lua` does the same.
    """
    digits = public.partition("@")[2]
    try:
        return bytes.fromhex(digits) if digits else prefix_of(key)
    except ValueError:
        return prefix_of(key)  # the value of another lock library, or forged


def channel(prefix: bytes, inbox: str) -> bytes:
    """Return the pub/sub channel of a process's inbox under one prefix. ``inbox``: id of the process."""
    return prefix + b"inbox:" + inbox.encode()


def records(prefix: bytes) -> bytes:
    """Return the beginning of the keys of all process records under this prefix."""
    return prefix + b"proc:"


def record_key(prefix: bytes, process: str) -> bytes:
    """Return the key of a process's record under this prefix."""
    return records(prefix) + process[:PROCESS].encode()


def literal(text: bytes) -> bytes:
    """Return the pattern for KEYS or SCAN that matches this text and nothing else."""
    return _SPECIAL.sub(rb"\\\g<0>", text)


def guard_key(prefix: bytes) -> bytes:
    """Return the key of a marker for locks with ``quarantine=``: a server that has lost its data has lost the marker, too.

    The marker is read and written in `_lua/shared/_marker.lua`.
    """
    return prefix + b"guard"


def marker_key(prefix: bytes) -> bytes:
    """Return the key of a marker on a server that votes: if the marker is gone, the server has lost its votes
    (`_lua/shared/_marker.lua`)."""
    return prefix + b"marker"


def raw_key(key: str | bytes) -> bytes:
    """Return a key that the user has chosen, as bytes. Raises ConfigError if it is not a valid key."""
    return _bytes(key, "key")


def side_key(key: bytes, what: bytes) -> bytes:
    """Return the key of further data of the lock ``key``, in the same Cluster slot. ``what``: kind of data, such as "queue"."""
    if hash_tag(key):
        return key + b":" + what
    if b"}" in key:
        raise ConfigError("key must not contain a } without a hash tag such as {tag}; use another key", parameter="key")
    # Another ending than above, because the keys `a` and `{a}` are two locks.
    return b"{" + key + b"}:" + what + b":raw"


def hash_tag(key: bytes) -> bytes:
    """Return the part of a key that decides its Cluster slot (Redis Cluster specification, "hash tags"); empty: the whole key
    does."""
    found = re.search(rb"\{([^}]*)\}", key)
    return found[1] if found else b""
