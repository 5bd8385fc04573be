"""The asyncio lock as a user sees it: the same as the synchronous one, in a loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import HoldfastWarning, LockTimeout, NotHeld, ServerError, aio
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import connections, queue_length, until, until_in_loop, warned_of_drop

if TYPE_CHECKING:
    from conftest import NewServer

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


# async with


def test_an_async_with_statement(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=30)
        assert lock.lease is None
        async with lock as lease:
            assert lock.lease is lease
            assert (lease.name, lease.key) == (lock.name, lock.key) == (name, f"hf:{{{name}}}")
            assert 29 < lease.remaining() < 30
            assert isinstance(lease.lost, asyncio.Event)
            assert not lease.lost.is_set()
            lease.check()
            assert await lock.locked()
            assert 29_000 < look.pttl(lock.key) <= 30_000
            await lease.renew(60)
            assert 59_000 < look.pttl(lock.key) <= 60_000
            first = lease.fence
        assert lock.lease is None
        assert not await lock.locked()
        assert lease.remaining() == 0
        async with lock as second:
            assert second.fence > first == lease.fence

    asyncio.run(main())


def test_a_body_that_fails_gives_the_lock_back(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name)
        with pytest.raises(ZeroDivisionError):
            async with lock:
                raise ZeroDivisionError
        assert not await lock.locked()

    asyncio.run(main())


def test_leaving_releases_that_lease_and_no_other(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name)
        async with lock as first:
            await first.release()
            assert await asyncio.create_task(lock.acquire())
            second = lock.lease
            assert second is not None
        assert lock.lease is second
        second.check()
        await lock.release()

    asyncio.run(main())


def test_acquire_and_release(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock, other = aio.Lock(server.url, name), aio.Lock(server.url, name, wait=0)
        with pytest.raises(NotHeld, match="has not been acquired by this object"):
            await lock.release()
        assert await lock.acquire() is True
        assert await lock.acquire(False) is False
        assert await lock.acquire(True, 0.01) is False
        assert await other.acquire() is False
        with pytest.raises(LockTimeout):
            async with other:
                pass
        with pytest.raises(NotHeld):
            await other.release()
        await asyncio.create_task(lock.release())
        with pytest.raises(NotHeld):
            await lock.release()
        assert await other.acquire() is True
        lease = other.lease
        assert lease is not None
        await lease.release()
        for again in (lease.release, lease.renew):
            with pytest.raises(NotHeld, match="released already"):
                await again()

    asyncio.run(main())


def test_the_time_out_says_who_holds_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main(holder: str) -> None:
        with pytest.raises(LockTimeout) as caught:
            async with aio.Lock(server.url, name, wait=0.1):
                pass
        assert (caught.value.holder, caught.value.name) == (holder, name)
        assert 0.1 <= caught.value.waited < 1

    with Peer("asyncio", server.url, name, label="nightly backup") as peer:
        assert peer.ask("lock.acquire()") is True
        until(lambda: any(f'"pid": {peer.pid},' in str(look.get(key)) for key in look.keys("hf:proc:*")))
        asyncio.run(main(f"{socket.gethostname()}:{peer.pid} (nightly backup)"))
        peer.ask("lock.release()")


# Tasks


def test_one_object_shared_by_tasks(server: PrivateServer, name: str) -> None:
    async def main() -> int:
        lock = aio.Lock(server.url, name)
        counter = 0

        async def work() -> None:
            nonlocal counter
            for _ in range(10):
                async with lock as lease:
                    lease.check()
                    seen = counter
                    await asyncio.sleep(0)
                    counter = seen + 1

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(work())
        assert not await lock.locked()
        return counter

    assert asyncio.run(main()) == 50


def test_tasks_take_it_in_the_order_in_which_they_came(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def work(number: int) -> None:
            async with aio.FairLock(server.url, name):
                order.append(number)

        async with asyncio.TaskGroup() as group, aio.FairLock(server.url, name):
            for number in range(8):
                group.create_task(work(number))
                await until_in_loop(lambda: queue_length(look, name) == number + 1)  # noqa: B023
        return order

    assert asyncio.run(main()) == list(range(8))


def test_many_waiters_need_two_connections_more(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The inbox, and the keeper's own."""

    async def main() -> None:
        lock = aio.FairLock(server.url, name)
        before = connections(look)
        async with lock:
            tasks = [asyncio.create_task(aio.FairLock(server.url, name).acquire(True, 60)) for _ in range(200)]
            await until_in_loop(lambda: queue_length(look, name) == 200)
            assert len(connections(look) - before) <= 3
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert queue_length(look, name) == 0
        assert not await lock.locked()

    holdfast.close()
    asyncio.run(main())


def test_a_cancelled_wait_leaves_no_place(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def other() -> None:
        async with asyncio.timeout(0.1):
            await aio.FairLock(server.url, name).acquire()

    async def main() -> None:
        async with aio.FairLock(server.url, name):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.create_task(aio.FairLock(server.url, name).acquire()), 0.1)
            assert queue_length(look, name) == 0
            with pytest.raises(TimeoutError):
                await asyncio.create_task(other())
            assert queue_length(look, name) == 0
            task = asyncio.create_task(aio.FairLock(server.url, name).acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert queue_length(look, name) == 0

    asyncio.run(main())


# Trouble


def test_the_server_dies_while_we_hold(new_server: NewServer, name: str) -> None:
    server = new_server()

    async def main() -> None:
        lock = aio.Lock(server.url, name)
        with pytest.warns(HoldfastWarning, match="ends with its lease"):
            async with lock:
                server.kill()
        server.restart()
        await lock.acquire()
        server.kill()
        with pytest.raises(ServerError):
            await lock.release()
        assert lock.lease is None
        server.restart()
        assert not await lock.locked()

    asyncio.run(main())


def test_no_server() -> None:
    async def main() -> None:
        lock = aio.Lock("redis://user:canary@127.0.0.1:1", "x")
        uses: list[Callable[[], Awaitable[object]]] = [lock.acquire, lock.locked, lock.__aenter__]
        for use in uses:
            with pytest.raises(ServerError, match=r"127\.0\.0\.1:1") as caught:
                await use()
            assert "canary" not in str(caught.value)

    asyncio.run(main())


def test_a_dropped_lease_warns(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=2)
        await lock.acquire()
        keep = [lock]
        del lock
        with warned_of_drop(name):
            keep.clear()

    asyncio.run(main())


def test_threads_end_with_close(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        async with aio.Lock(server.url, name):
            pass

    asyncio.run(main())
    holdfast.close()
    until(lambda: not [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")])
