"""The locks that are compared, by name: ours, and those that people use today. A rival that is not installed is left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import redis

import holdfast

TTL = 60.0
"""Seconds; long enough for no holder to renew while waiting processes are watched."""


class AnyLock(Protocol):
    """What all of them have in common."""

    def acquire(self) -> bool | None: ...

    def release(self) -> None: ...


def _holdfast(url: str, name: str) -> AnyLock:
    return holdfast.Lock(url, name, ttl=TTL)


def _redis_py(url: str, name: str) -> AnyLock:
    lock: AnyLock = redis.Redis.from_url(url).lock(name, timeout=TTL)
    return lock


def _python_redis_lock(url: str, name: str) -> AnyLock:
    # It waits in BLPOP, which redis-py 8's default socket_timeout of 5 s would cut off.
    client = redis.Redis.from_url(url, socket_timeout=None)
    lock: AnyLock = importlib.import_module("redis_lock").Lock(client, name, expire=int(TTL))
    return lock


RIVALS: dict[str, Callable[[str, str], AnyLock]] = {"holdfast": _holdfast, "redis-py Lock": _redis_py}
if find_spec("redis_lock") is not None:
    RIVALS["python-redis-lock"] = _python_redis_lock
