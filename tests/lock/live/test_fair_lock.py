"""`FairLock`: strict order of arrival over all threads, tasks and processes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
import redis

from holdfast import FairLock, aio
from support.crowd import Crowd
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, queue_length, until, until_in_loop


def test_strict_order_over_threads_and_processes(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Ours and theirs in turns: nobody of this process is served before somebody of another who came earlier."""
    order: list[tuple[int, int]] = []

    def work(number: int) -> None:
        with FairLock(server.url, name) as lease:
            order.append((lease.fence, number))

    with ExitStack() as stack:
        peers = [stack.enter_context(Peer("sync", server.url, name)) for _ in range(3)]
        holder = FairLock(server.url, name)
        holder.acquire()
        futures: list[Future[None]] = []
        for number in range(6):
            if number % 2:
                peers[number // 2].tell("(lock.acquire(), lock.lease.fence, lock.release())[1]")
            else:
                futures.append(in_thread(work, number))
            until(lambda: queue_length(look, name) == number + 1)  # noqa: B023
        holder.release()
        order += [(peer.answer(), 2 * number + 1) for number, peer in enumerate(peers)]
        for future in futures:
            future.result(10)
    assert [number for _, number in sorted(order)] == list(range(6))


def test_strict_order_among_tasks(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def work(number: int) -> None:
            async with aio.FairLock(server.url, name):
                order.append(number)

        async with asyncio.TaskGroup() as group, aio.FairLock(server.url, name):
            for number in range(6):
                group.create_task(work(number))
                await until_in_loop(lambda: queue_length(look, name) == number + 1)  # noqa: B023
        return order

    assert asyncio.run(main()) == list(range(6))


def test_each_hand_over_is_a_trip(server: PrivateServer, monitor: Monitor, name: str) -> None:
    crowd = Crowd(lambda: FairLock(server.url, name), lambda: aio.FairLock(server.url, name))
    crowd.threads(3, turns=20)
    crowd.loop(3, turns=20)
    assert len(crowd.done()) == 120
    assert len([command for command in monitor.names(name) if command == "EVALSHA"]) >= 2 * 120


@pytest.mark.parametrize("option", ["linger", "max_passes", "max_pass_time"])
@pytest.mark.parametrize("cls", [FairLock, aio.FairLock])
def test_it_has_no_options_for_what_it_does_not_do(cls: type, option: str) -> None:
    with pytest.raises(TypeError, match=option):
        cls("redis://127.0.0.1:1", "x", **{option: 1})
