"""One semaphore, or read-write lock, object that many threads or tasks use: whose permit is given back."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import RWLock, aio
from support.owners import OWNERS, Either, Owners, done
from support.servers import PrivateServer
from support.witness import in_thread

each = pytest.mark.parametrize("owners", OWNERS[:2], ids=lambda owners: type(owners).__name__)


@each
def test_leaving_with_gives_back_its_own_permit_only(owners: Owners, server: PrivateServer, name: str) -> None:
    """Also where the inner one was given back in its body: the outer body goes on with its permit."""

    async def steps() -> None:
        semaphore = Either(owners.api.Semaphore(server.url, name, 3))
        async with semaphore as outer:
            async with semaphore as inner:
                await done(inner.release())
            outer.check()
            assert await done(semaphore.lock.available()) == 2
        assert await done(semaphore.lock.available()) == 3

    owners.run(steps())


@each
def test_release_gives_back_the_callers_own(owners: Owners, server: PrivateServer, name: str) -> None:
    """Not a permit that another thread acquired later and that is still inside its ``with``."""

    async def steps() -> None:
        semaphore = Either(owners.api.Semaphore(server.url, name, 3))

        async def other() -> None:
            async with semaphore as lease:
                assert await done(semaphore.lock.available()) == 1
                await owners.other(give_back)
                lease.check()
                assert await done(semaphore.lock.available()) == 2

        async def give_back() -> None:
            await semaphore.release()  # what acquire took goes before that whose with is not left

        await semaphore.acquire()
        await owners.other(other)
        await semaphore.acquire()
        async with semaphore as lease:
            await semaphore.release()
            lease.check()
        async with semaphore as lease:
            await owners.other(semaphore.acquire)
            await semaphore.release()  # the other's, rather than leave this body without
            lease.check()
        assert await done(semaphore.lock.available()) == 3

    owners.run(steps())


@each
def test_readers_of_one_object(owners: Owners, server: PrivateServer, name: str) -> None:
    """Each thread releases its own permit, and may read again while the other one reads on."""

    async def steps() -> None:
        lock = owners.api.RWLock(server.url, name)
        reader = Either(lock.read)
        await reader.acquire()

        async def other() -> None:
            await reader.acquire()

        await owners.other(other)
        await reader.release()
        await reader.acquire()
        with pytest.raises(RuntimeError, match="held for reading by this thread or task already"):
            await reader.acquire()
        await reader.release()
        assert not await Either(lock.write).acquire(blocking=False)
        await reader.release()  # the other's
        assert await Either(lock.write).acquire(blocking=False)
        await Either(lock.write).release()
        with pytest.raises(RuntimeError):
            await reader.release()

    owners.run(steps())


def test_a_thread_is_not_taken_for_one_that_has_ended(server: PrivateServer, name: str) -> None:
    """Python gives the number of a thread to the next one."""
    lock = RWLock(server.url, name)
    idents = set()

    def read() -> None:
        idents.add(threading.get_ident())
        assert lock.read.acquire()

    for _ in range(4):
        in_thread(read).result(10)
    assert len(idents) < 4
    for _ in range(4):
        lock.read.release()
    assert not lock.read.locked()


def test_a_task_is_not_taken_for_one_that_has_ended(server: PrivateServer, name: str) -> None:
    """Python reuses the address of a task that has ended, so the address alone does not identify a reader."""

    async def steps() -> None:
        lock = aio.RWLock(server.url, name)

        async def read() -> None:
            assert await lock.read.acquire()

        for _ in range(50):
            await asyncio.create_task(read())
        for _ in range(50):
            await lock.read.release()
        assert not await lock.read.locked()

    asyncio.run(steps())
