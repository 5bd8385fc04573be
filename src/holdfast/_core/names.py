"""From the name of a lock to its keys on the server. Injective: no name can reach another lock's keys or another slot."""

from __future__ import annotations

import re

from holdfast.errors import ConfigError

MAX_NAME = 512
"""Bytes of a name, before encoding."""

PROCESS = 12
"""Hex digits of the id that names a process. What follows says where it listens."""

RECORDS = "hf:proc:"
"""What the keys begin with under which processes say who they are."""

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
    """What keys begin with."""
    text = _bytes(prefix, "prefix")
    if b"{" in text or b"}" in text:
        raise ConfigError(
            "prefix must not contain { or }: braces mark the part that decides a Cluster slot", parameter="prefix"
        )
    return text


def lock_keys(name: str | bytes, prefix: str, key: str | bytes | None) -> tuple[bytes, bytes, bytes]:
    """Keys of a lock: the lock itself, its state, its queue. ``key`` overrides the first, to meet peers of another make."""
    if key is not None:
        _bytes(name, "name")
        lock = raw_key(key)
    else:
        lock = start(prefix) + b"{" + encoded(name, "name") + b"}"
    return lock, side_key(lock, b"state"), side_key(lock, b"queue")


def record_key(process: str) -> str:
    """The key under which a process says who it is."""
    return RECORDS + process[:PROCESS]


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
