"""Both APIs behind one shape, so that a fault is described once; and what all these tests look at.

``api.call(lock.acquire)`` and ``api.start(lock.acquire)`` do the same for a `holdfast.Lock` (here, and in a thread) and for
a `holdfast.aio.Lock` (in an event loop that runs in a thread of its own).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import redis

import holdfast
import holdfast.aio
from holdfast._core.lock.replies import BLOCK
from holdfast._core.names import lock_keys
from support.servers import PrivateServer

PATIENCE = 10.0
"""Seconds after which something that should have happened counts as never happening."""


class Sync:
    """`holdfast.Lock`."""

    name = "sync"
    Lock: Any = holdfast.Lock
    FairLock: Any = holdfast.FairLock
    Redlock: Any = holdfast.Redlock
    redeem: Any = staticmethod(holdfast.redeem)

    def call(self, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return what(*args, **kwargs)

    def start(self, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(what(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="api", daemon=True).start()
        return future

    def taken_and_given_back(self, lock: Any) -> bool:
        """Whether it could be taken."""
        if not lock.acquire():
            return False
        lock.release()
        return True

    def close(self) -> None:
        pass


class Aio:
    """`holdfast.aio.Lock`."""

    name = "asyncio"
    Lock: Any = holdfast.aio.Lock
    FairLock: Any = holdfast.aio.FairLock
    Redlock: Any = holdfast.aio.Redlock
    redeem: Any = staticmethod(holdfast.aio.redeem)

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self._runner.close()

    def call(self, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.start(what, *args, **kwargs).result(PATIENCE)

    def start(self, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(what(*args, **kwargs), self.loop)

    async def taken_and_given_back(self, lock: Any) -> bool:
        if not await lock.acquire():
            return False
        await lock.release()
        return True

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


Api = Sync | Aio


class Place(NamedTuple):
    """One entry of a queue."""

    token: str
    arrival: float


class Admin:
    """Looks at the keys of one lock, by a client of its own."""

    def __init__(self, server: PrivateServer, name: str, url: str = "") -> None:
        self.redis: Any = redis.Redis.from_url(url or server.url, decode_responses=True)
        self.lock, self.state, self.queue = (key.decode() for key in lock_keys(name, "hf:", None))

    def close(self) -> None:
        self.redis.close()

    def token(self) -> str | None:
        """Value of the lock's key."""
        value = self.redis.get(self.lock)
        assert value is None or isinstance(value, str)
        return value

    def places(self) -> list[str]:
        """The tokens in the queue, in order."""
        return list(self.redis.zrange(self.queue, 0, -1))

    def last_fence(self) -> int:
        """Last fence issued."""
        return int(self.redis.hget(self.state, "fence") or 0)

    def fence(self) -> int:
        """The one of whoever was given the lock last: the first of its block."""
        return max(0, self.last_fence() - BLOCK + 1)

    def ttl_ms(self) -> int:
        return int(self.redis.pttl(self.lock))

    def renewed(self) -> None:
        """Returns when the lease has been renewed by whoever holds it."""
        left = self.ttl_ms()
        while (now := self.ttl_ms()) <= left:
            assert now > 0, "it ended instead"
            left = now
            time.sleep(0.002)

    def listeners(self, process: str) -> int:
        """How many clients listen on the inbox of a process."""
        return int(self.redis.pubsub_numsub(f"hf:inbox:{process}")[0][1])

    def nothing_left(self) -> None:
        """The lock is free and nobody stands in line."""
        assert self.token() is None
        assert self.places() == []
        assert not [field for field in self.redis.hkeys(self.state) if field.startswith("at:")]


def until(condition: Callable[[], object], seconds: float = PATIENCE, every: float = 0.002) -> float:
    """Wait until it holds; answers how long that took, in seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + seconds, "waited in vain"
        time.sleep(every)
    return time.monotonic() - started


def stays(condition: Callable[[], object], seconds: float, every: float = 0.01) -> None:
    """It holds, and goes on holding for that long."""
    started = time.monotonic()
    while time.monotonic() < started + seconds:
        assert condition(), f"no longer, after {time.monotonic() - started:.3f} s"
        time.sleep(every)


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """The block takes no longer than that."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took <= seconds, f"took {took:.3f} s instead of at most {seconds:g}"
