"""From the name of a lock to its keys on the server. Injective: no name can reach another lock's keys or another slot."""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

MAX_NAME = 512
"""Bytes of a name, before encoding."""

PROCESS = 12
"""Hex digits of the id that names a process. In a Cluster with sharded pub/sub, a hash tag follows, which puts its inboxes into
a slot of the server (`_net/slots.py`); then ``@`` and a prefix in hex, where the key of the lock does not show it."""

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
    """A name as it stands in keys: without what could end a hash tag, or a line."""
    return _ESCAPE.sub(lambda found: b"%%%02X" % found[0][0], _bytes(value, parameter))


def start(prefix: str) -> bytes:
    """The beginning of keys."""
    text = _bytes(prefix, "prefix")
    if b"{" in text or b"}" in text:
        raise ConfigError(
            "prefix must not contain { or }: braces mark the part that decides a Cluster slot", parameter="prefix"
        )
    return text


_ENCODED = re.compile(rb"%([0-9A-F]{2})")


def name_of(key: bytes, prefix: bytes) -> bytes | None:
    """The name that the key of a lock was made of; None: it is not the key of a lock under this prefix."""
    name = key[len(prefix) + 1 : -1]
    if not key.startswith(prefix + b"{") or not key.endswith(b"}") or b"{" in name or b"}" in name or not name:
        return None
    return _ENCODED.sub(lambda found: bytes.fromhex(found[1].decode()), name)


def lock_keys(name: str | bytes, prefix: str, key: str | bytes | None) -> tuple[bytes, bytes, bytes]:
    """Keys of a lock: the lock itself, its state, its queue. ``key`` overrides the first, to meet peers of another make."""
    if key is not None:
        _bytes(name, "name")
        lock = raw_key(key)
    else:
        lock = start(prefix) + b"{" + encoded(name, "name") + b"}"
    return lock, side_key(lock, b"state"), side_key(lock, b"queue")


def prefix_of(key: bytes) -> bytes:
    """Return the prefix of a key that was made from a name: what stands before its first brace, as the scripts read it."""
    return key.partition(b"{")[0]


def public_part(token: str) -> str:
    """Return the part of a token that says which process it belongs to; empty for the value of a client of another library."""
    public, dot, _ = token.partition(".")
    return public if dot else ""


def home(public: str, key: bytes) -> bytes:
    """Return the prefix to which the inbox and the record of a process belong, from the public part of its token and the key of
    the lock. As `_lua/shared/_inbox.lua` does: a lock with a key of the user's own names its prefix in the token."""
    digits = public.partition("@")[2]
    try:
        return bytes.fromhex(digits) if digits else prefix_of(key)
    except ValueError:
        return prefix_of(key)  # the value of a client of another library, or forged


def channel(prefix: bytes, inbox: str) -> bytes:
    """Return the channel on which a process is told something: of each prefix that it uses there is one."""
    return prefix + b"inbox:" + inbox.encode()


def records(prefix: bytes) -> bytes:
    """Return what the keys begin with under which processes describe themselves."""
    return prefix + b"proc:"


def record_key(prefix: bytes, process: str) -> bytes:
    """Return the key under which a process describes itself to those who use this prefix."""
    return records(prefix) + process[:PROCESS].encode()


def literal(text: bytes) -> bytes:
    """Return the pattern of keys that matches this text and nothing else."""
    return _SPECIAL.sub(rb"\\\g<0>", text)


def guard_key(prefix: bytes) -> bytes:
    """Return the key with which a server remembers, for locks with ``quarantine=``, that it has lost nothing
    (`_lua/shared/_marker.lua`)."""
    return prefix + b"guard"


def marker_key(prefix: bytes) -> bytes:
    """Return the key with which a server that votes remembers that it has lost nothing (`_lua/shared/_marker.lua`)."""
    return prefix + b"marker"


def raw_key(key: str | bytes) -> bytes:
    """A key of the user's own choice, as it is."""
    return _bytes(key, "key")


def side_key(key: bytes, what: bytes) -> bytes:
    """A key beside ``key``, in the same Cluster slot."""
    if hash_tag(key):
        return key + b":" + what
    if b"}" in key:
        raise ConfigError("key: a } must end a hash tag, as in {tag}, or its side keys had another slot", parameter="key")
    # Another ending than above: the keys `a` and `{a}` are two locks.
    return b"{" + key + b"}:" + what + b":raw"


def hash_tag(key: bytes) -> bytes:
    """The part of a key that decides its Cluster slot, if it has one (Redis Cluster specification, "hash tags")."""
    found = re.search(rb"\{([^}]*)\}", key)
    return found[1] if found else b""
