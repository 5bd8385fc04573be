"""The asyncio lock as a user sees it: the same as the synchronous one, in a loop; and how the two meet."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from faults.peer import Peer
from holdfast import HoldfastWarning, LockTimeout, NotHeld, ServerError, aio
from holdfast._servers.process import PrivateServer
from live.witness import PATIENCE, Monitor, connections, in_thread, queue_length, until

if TYPE_CHECKING:
    from conftest import NewServer

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


async def until_in_loop(condition: Callable[[], object]) -> None:
    """Wait until it holds, and let other tasks run meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


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
        with pytest.raises(NotHeld, match="not held by this object"):
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
            with pytest.raises(NotHeld, match="given back already"):
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
            async with aio.Lock(server.url, name):
                order.append(number)

        async with asyncio.TaskGroup() as group, aio.Lock(server.url, name):
            for number in range(8):
                group.create_task(work(number))
                await until_in_loop(lambda: queue_length(look, name) == number + 1)  # noqa: B023
        return order

    assert asyncio.run(main()) == list(range(8))


def test_many_waiters_need_two_connections_more(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The inbox, and the keeper's own."""

    async def main() -> None:
        lock = aio.Lock(server.url, name)
        before = connections(look)
        async with lock:
            tasks = [asyncio.create_task(aio.Lock(server.url, name).acquire(True, 60)) for _ in range(200)]
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
    async def main() -> None:
        async with aio.Lock(server.url, name):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(aio.Lock(server.url, name).acquire(), 0.1)
            assert queue_length(look, name) == 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await aio.Lock(server.url, name).acquire()
            assert queue_length(look, name) == 0
            task = asyncio.create_task(aio.Lock(server.url, name).acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert queue_length(look, name) == 0

    asyncio.run(main())


# Loops


def test_an_idle_lock_moves_between_loops(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = aio.Lock(server.url, name)
    holdfast.close()
    before = connections(look)

    async def main() -> int:
        async with lock as lease:
            return lease.fence

    fences = [asyncio.run(main()) for _ in range(3)]
    assert fences == sorted(set(fences))
    until(lambda: len(connections(look) - before) <= 1)  # the keeper's, perhaps


def test_a_held_lock_does_not_move(server: PrivateServer, name: str) -> None:
    lock = aio.Lock(server.url, name)

    async def main() -> None:
        async with lock:
            for use in (lock.acquire, lock.locked, lock.__aenter__):
                with pytest.raises(RuntimeError, match="another event loop"):
                    await asyncio.to_thread(asyncio.run, use())
        assert await asyncio.to_thread(asyncio.run, lock.locked()) is False

    asyncio.run(main())


def test_an_awaited_lock_does_not_move(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = aio.Lock(server.url, name)

    async def main() -> None:
        async with aio.Lock(server.url, name):
            waiting = asyncio.create_task(lock.acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, lock.locked())
        assert await waiting
        await lock.release()

    asyncio.run(main())


def test_connections_of_a_loop_end_with_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holdfast.close()
    before = connections(look)

    async def main(close: bool) -> None:
        async with aio.Lock(server.url, name):
            assert connections(look) > before
        if close:
            await aio.close()
            until(lambda: len(connections(look) - before) <= 1)

    for close in (False, True):
        asyncio.run(main(close))
        holdfast.close()
        until(lambda: connections(look) == before)


def test_every_way_of_running_a_loop(server: PrivateServer, name: str) -> None:
    lock = aio.Lock(server.url, name)
    with asyncio.Runner() as runner:
        assert runner.run(lock.acquire())
        runner.run(lock.release())
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(lock.acquire())
        loop.run_until_complete(lock.release())
        loop.run_until_complete(aio.close())
    finally:
        loop.close()
    in_thread(asyncio.run, lock.locked()).result()


# Both faces


def test_both_faces_on_one_lock_in_one_process(server: PrivateServer, look: redis.Redis, name: str) -> None:
    counter, turns = 0, []

    def count(face: str) -> None:
        nonlocal counter
        seen = counter
        time.sleep(0.0005)
        counter = seen + 1
        turns.append(face)

    def with_threads() -> None:
        for _ in range(20):
            with holdfast.Lock(server.url, name):
                count("sync")

    async def with_tasks() -> None:
        for _ in range(20):
            async with aio.Lock(server.url, name):
                count("asyncio")

    holder = holdfast.Lock(server.url, name)
    holder.acquire()
    futures = [in_thread(with_threads), in_thread(asyncio.run, with_tasks())]
    until(lambda: queue_length(look, name) == 2)
    holder.release()
    for future in futures:
        future.result(20)
    assert counter == 40
    assert turns[:6] in (["sync", "asyncio"] * 3, ["asyncio", "sync"] * 3), "in turns, as both always wait"


@short_lease
def test_a_blocked_loop_keeps_its_lock(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """For three lease times: the renewal is not the loop's business."""

    async def main() -> None:
        async with aio.Lock(server.url, name, ttl=0.5) as lease:
            token = look.get(lease.key)
            time.sleep(1.5)
            assert look.get(lease.key) == token
            lease.check()
            assert not lease.lost.is_set()

    asyncio.run(main())


def test_one_trip_to_take_and_one_to_give_back(server: PrivateServer, monitor: Monitor, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name)
        async with lock:
            pass
        monitor.commands()
        for _ in range(5):
            async with lock:
                pass
        assert monitor.names() == ["EVALSHA"] * 10

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
        lock = aio.Lock(server.url, name)
        await lock.acquire()
        keep = [lock]
        del lock
        with pytest.warns(ResourceWarning, match=f"lease of '{name}' was dropped"):
            keep.clear()
        gc.collect()

    asyncio.run(main())


def test_threads_end_with_close(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        async with aio.Lock(server.url, name):
            pass

    asyncio.run(main())
    holdfast.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
