"""`statistics()` of every lock object: counts and times of what has happened to it."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import FairLock, LeaseLost, Lock, LockStatistics, LockTimeout, Redlock, RLock, aio, declare_new
from support.owners import Either, Tasks, Threads, done
from support.servers import PrivateServer
from support.witness import in_thread, until, warned_of_drop

if TYPE_CHECKING:
    from conftest import NewServer


KINDS = [Lock, FairLock, RLock, aio.Lock, aio.FairLock, aio.RLock]


@pytest.mark.parametrize("cls", KINDS)
def test_what_one_owner_does(cls: Any, server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock, other = (Either(cls(server.url, name, wait=0)) for _ in range(2))

    async def steps() -> None:
        assert lock.lock.statistics() == LockStatistics(0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0)
        async with lock:
            assert lock.lock.statistics().held == 1
            if "RLock" not in cls.__name__:
                assert await other.acquire() is False
                assert await other.acquire(timeout=0.05) is False
                with pytest.raises(LockTimeout):
                    async with other:
                        pass
            time.sleep(0.02)
        assert await lock.acquire()
        await lock.release()
        found = lock.lock.statistics()
        assert (found.acquisitions, found.contended, found.timeouts, found.losses, found.held) == (2, 0, 0, 0, 0)
        assert 0.02 <= found.longest_hold <= found.total_hold < 5
        assert found.total_wait == found.longest_wait == 0
        with pytest.raises(LeaseLost):
            async with lock as lease:
                look.delete(lease.key)
                await done(lease.renew())
        assert await lock.acquire()
        look.delete(lock.lock.key)
        with pytest.raises(LeaseLost):
            await lock.release()
        found = lock.lock.statistics()
        assert (found.acquisitions, found.losses, found.held) == (4, 2, 0)

    (Tasks() if hasattr(cls, "__aenter__") else Threads()).run(steps())
    found = other.lock.statistics()
    if "RLock" not in cls.__name__:
        assert (found.acquisitions, found.timeouts, found.contended, found.waiting) == (0, 3, 0, 0)
        assert 0 < found.longest_wait <= found.total_wait < 5


@pytest.mark.parametrize("cls", [Lock, FairLock, RLock, Redlock])
def test_who_has_to_wait(cls: Any, server: PrivateServer, new_server: NewServer, name: str) -> None:
    where: Any = server.url
    if cls is Redlock:
        where = [server.url, new_server().url, new_server().url]
        declare_new(where)
    lock, other = cls(where, name), cls(where, name)

    def wait() -> int:
        with other:
            return int(other.statistics().held)

    with lock:
        waiting = in_thread(wait)
        until(lambda: other.statistics().waiting == 1)
        time.sleep(0.03)
        assert lock.statistics().waiting == 0
    assert waiting.result(10) == 1
    found = other.statistics()
    assert (found.acquisitions, found.contended, found.timeouts, found.waiting, found.held) == (1, 1, 0, 0, 0)
    assert 0.03 <= found.longest_wait == found.total_wait < 10
    assert lock.statistics().contended == 0


def test_what_is_dropped_is_held_no_more(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name, ttl=2)

    def drop() -> None:
        lock.acquire()
        lock._current = None
        gc.collect()

    with warned_of_drop(name):
        drop()
    found = lock.statistics()
    assert (found.acquisitions, found.held, found.losses) == (1, 0, 0)


def test_threads_that_share_an_object(server: PrivateServer, name: str) -> None:
    """Numbers that the holder counts are exact."""
    lock = Lock(server.url, name)
    together = threading.Barrier(4)

    def work() -> None:
        together.wait(10)
        for _ in range(100):
            with lock:
                pass

    for one in [in_thread(work) for _ in range(4)]:
        one.result(30)
    found = lock.statistics()
    assert (found.acquisitions, found.held, found.waiting, found.timeouts) == (400, 0, 0, 0)
    assert 0 < found.contended < 400
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.held = 7  # type: ignore[misc]
