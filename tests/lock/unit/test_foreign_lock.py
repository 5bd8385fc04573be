"""Which keys look like a lock of another library, and which names are looked at."""

from __future__ import annotations

import pytest
import redis.lock

import holdfast
from holdfast._core.lock import foreign_lock
from holdfast._core.lock.foreign_lock import is_lock, may_be_lock

URL = "redis://127.0.0.1:1"
TOKEN = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("value", "left_ms", "found"),
    [
        (TOKEN, -1, True),  # redis-py's lock without a timeout
        (TOKEN, 5000, True),
        (b"worker-7", 5000, True),
        (b"x" * 64, 0, True),
        (b"worker-7", -1, False),  # a counter or a setting
        (TOKEN[:-1] + b"g", -1, False),
        (TOKEN.upper(), -1, False),
        (TOKEN, -2, False),  # it is gone
        (b"worker-7", -2, False),
    ],
)
def test_what_looks_like_a_lock(value: bytes, left_ms: int, found: bool) -> None:
    assert may_be_lock(value)
    assert is_lock(value, left_ms) == found


@pytest.mark.parametrize("value", [b"", b"x" * 65])
def test_what_cannot_be_a_lock(value: bytes) -> None:
    assert not may_be_lock(value)


def test_the_token_of_redis_py() -> None:
    """It is what the search expects."""
    seen: list[bytes | str] = []

    class Lock(redis.lock.Lock):
        def do_acquire(self, token: str) -> bool:
            seen.append(token)
            return True

    assert Lock(redis.Redis(port=1), "x").acquire()
    assert is_lock(seen[0] if isinstance(seen[0], bytes) else seen[0].encode(), -1)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("invoice:42", {}, b"invoice:42"),
        ("a{b}", {}, b"a{b}"),
        (b"\xff\n", {}, b"\xff\n"),
        ("x", {"prefix": "app:"}, None),
        ("x", {"key": "y"}, None),
    ],
)
def test_names_that_are_looked_at(name: str | bytes, options: dict[str, str], key: bytes | None) -> None:
    assert foreign_lock.key_of(holdfast.Lock(URL, name, **options)._spec) == key  # type: ignore[arg-type]
