"""The asyncio lock and event loops: moving between them, ending with them, blocking them; and both APIs in one process."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis

import holdfast
from holdfast import aio
from support.servers import PrivateServer
from support.witness import Monitor, connections, in_thread, nobody_else, queue_length, until, until_in_loop

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


def test_an_idle_lock_moves_between_loops(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = aio.Lock(server.url, name)
    holdfast.close()
    before = nobody_else(look)

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
    lock = aio.FairLock(server.url, name)

    async def main() -> None:
        async with aio.FairLock(server.url, name):
            waiting = asyncio.create_task(lock.acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, lock.locked())
        assert await waiting
        await lock.release()

    asyncio.run(main())


def test_connections_of_a_loop_end_with_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holdfast.close()
    before = nobody_else(look)

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


# Both APIs


def test_both_apis_on_one_lock_in_one_process(server: PrivateServer, look: redis.Redis, name: str) -> None:
    counter = 0

    def count() -> None:
        nonlocal counter
        seen = counter
        time.sleep(0.0005)
        counter = seen + 1

    def with_threads() -> None:
        for _ in range(20):
            with holdfast.FairLock(server.url, name):
                count()

    async def with_tasks() -> None:
        for _ in range(20):
            async with aio.FairLock(server.url, name):
                count()

    holder = holdfast.FairLock(server.url, name)
    holder.acquire()
    futures = [in_thread(with_threads), in_thread(asyncio.run, with_tasks())]
    until(lambda: queue_length(look, name) == 2)
    holder.release()
    for future in futures:
        future.result(20)
    assert counter == 40


@pytest.mark.fault(4)
@short_lease
def test_a_blocked_loop_keeps_its_lock(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """For more than two lease times: the renewal is not the loop's business."""

    async def main() -> None:
        async with aio.Lock(server.url, name, ttl=1) as lease:
            token = look.get(lease.key)
            time.sleep(2.1)
            assert look.get(lease.key) == token
            lease.check()
            assert not lease.lost.is_set()

    asyncio.run(main())


def test_one_trip_to_take_and_one_to_give_back(server: PrivateServer, monitor: Monitor, name: str) -> None:
    holdfast.close()  # or the keeper might ask its inbox meanwhile whether it is still there

    async def main() -> None:
        lock = aio.Lock(server.url, name)
        async with lock:
            pass
        monitor.commands()
        for _ in range(5):
            async with lock:
                pass
        assert monitor.names(name) == ["EVALSHA"] * 10

    asyncio.run(main())


def test_a_lock_that_is_found_elsewhere_while_a_task_awaits_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """As in a Cluster whose slots move. It stays in its loop until nobody awaits it there any more, and not for longer."""
    lock = aio.FairLock(server.url, name)
    elsewhere = aio.FairLock(f"unix://{server.socket}", name)

    async def main() -> None:
        async with aio.FairLock(server.url, name):
            waiting = asyncio.create_task(lock.acquire(timeout=0.5))
            await until_in_loop(lambda: queue_length(look, name) == 1)
            lock._endpoint, lock._keeper, lock._home = elsewhere._endpoint, None, None
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, lock.locked())
            assert await lock.locked()
            assert not await waiting
        assert await asyncio.to_thread(asyncio.run, lock.locked()) is False

    asyncio.run(main())
