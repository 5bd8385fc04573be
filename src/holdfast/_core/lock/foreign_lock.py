"""Recognise a lock of another library, such as redis-py's, under the name of one of ours.

The key of such a lock is the name itself. Our lock of that name has another key, so the two locks do not exclude each other.
"""

from __future__ import annotations

from holdfast._core import names
from holdfast._core.lock.spec import Spec

LONGEST = 64
"""Length in bytes of the longest value that a lock of another library is expected to have."""

_TOKEN = 32
"""Number of hex digits of a UUID, which is the token of a lock of redis-py or valkey-py."""


_NO_EXPIRY = -1
"""Reply to PTTL for a key without an expiry. A lock of redis-py has no expiry by default. The reply for a missing key is -2."""


def key_of(spec: Spec) -> bytes | None:
    """Return the key that another library's lock of the same name would have; None if the key need not be checked.

    A program that passes ``prefix=`` or ``key=`` has chosen its keys on purpose, so these keys are not checked.
    """
    return None if spec.home or spec.prefix != names.PREFIX else names.name_of(spec.keys[0], names.PREFIX)


def may_be_lock(value: bytes) -> bool:
    """Return True if this value has the length of a lock's token. `is_lock` then checks the value and the expiry of its key."""
    return 0 < len(value) <= LONGEST


def is_lock(value: bytes, left_ms: int) -> bool:
    """Return True if a key with this value looks like a lock, because it has an expiry or its value is a UUID.

    ``left_ms``: reply to PTTL for the key; negative: the key has no expiry or does not exist.
    """
    is_token = len(value) == _TOKEN and all(digit in b"0123456789abcdef" for digit in value)
    return left_ms >= 0 or (is_token and left_ms == _NO_EXPIRY)
