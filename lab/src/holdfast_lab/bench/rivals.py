"""The locks that the benchmark compares. Libraries that are not installed are left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Protocol, Self

import redis
import redis.asyncio

import holdfast
import holdfast.aio
from holdfast_lab.bench.plan import TTL

OURS, FAIR = "holdfast.Lock", "holdfast.FairLock"
REDIS_PY, PYTHON_REDIS_LOCK = "redis-py Lock", "python-redis-lock"
OURS_AIO, FAIR_AIO, REDIS_AIO = "holdfast.aio.Lock", "holdfast.aio.FairLock", "redis.asyncio Lock"

CONNECTIONS = 20_000
"""Maximum size of connection pools, so large that no contender waits for a connection, or fails for lack of one."""


class AnyLock(Protocol):
    def acquire(self) -> bool | None: ...

    def release(self) -> Any: ...


class AnyAsyncLock(Protocol):
    async def acquire(self) -> bool: ...

    async def release(self) -> Any: ...


def missing() -> list[str]:
    """Return a line of text for each library that is left out, because it is not installed."""
    lines = []
    if find_spec("redis_lock") is None:
        lines.append('python-redis-lock is left out: run pip install "holdfast-lab[bench]" to include it')
    if find_spec("redlock") is None:
        lines.append('redlock-py is left out: run pip install "holdfast-lab[bench]" to include it')
    return lines


class Threads:
    """Functions that create locks for threads. All threads of a process share a client, as in most programs."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        # python-redis-lock waits in BLPOP, which would fail at redis-py's default socket timeout.
        self._patient = redis.Redis.from_url(url, max_connections=CONNECTIONS, socket_timeout=None)
        self.make: dict[str, Callable[[str], AnyLock]] = {
            OURS: lambda name: holdfast.Lock(url, name, ttl=TTL),
            FAIR: lambda name: holdfast.FairLock(url, name, ttl=TTL),
            REDIS_PY: lambda name: self._client.lock(name, timeout=TTL),
        }
        if find_spec("redis_lock") is not None:
            theirs = importlib.import_module("redis_lock")
            self.make[PYTHON_REDIS_LOCK] = lambda name: theirs.Lock(self._patient, name, expire=int(TTL))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._patient.close()


class Tasks:
    """Functions that create locks for the tasks of one event loop."""

    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS)
        self.make: dict[str, Callable[[str], AnyAsyncLock]] = {
            OURS_AIO: lambda name: holdfast.aio.Lock(url, name, ttl=TTL),
            FAIR_AIO: lambda name: holdfast.aio.FairLock(url, name, ttl=TTL),
            REDIS_AIO: lambda name: self._client.lock(name, timeout=TTL),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        await holdfast.aio.close()


def fence(lock: object) -> int | None:
    """Return the fence of a held lock; None if its library has no fences."""
    lease = getattr(lock, "lease", None)
    return None if lease is None else lease.fence
