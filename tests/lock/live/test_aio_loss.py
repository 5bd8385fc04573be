"""A lease lost under asyncio: the body is cancelled and LeaseLost comes out; a cancellation from outside stays one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from holdfast import LeaseLost, aio
from support.servers import PrivateServer
from support.witness import PATIENCE, until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")

TTL = 0.3
"""Seconds; a loss is noticed after a third of it."""

LONG = 30.0
"""Of one that is not to be lost."""


async def for_ever() -> None:
    async with asyncio.timeout(PATIENCE):
        await asyncio.Event().wait()


def lock(server: PrivateServer, name: str, ttl: float = TTL, **options: Any) -> aio.Lock:
    return aio.Lock(server.url, name, ttl=ttl, **options)


async def swallow() -> None:
    try:
        await for_ever()
    except asyncio.CancelledError:
        pass


async def fail() -> None:
    try:
        await for_ever()
    finally:
        raise ZeroDivisionError


async def lose(this: aio.Lock, look: redis.Redis, body: Callable[[], Awaitable[None]] = for_ever) -> None:
    """The lease is lost while the body runs."""
    async with this as lease:
        look.delete(lease.key)
        await body()


def test_the_body_is_cancelled_and_lease_lost_comes_out(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        this = lock(server, name)
        seen: list[bool] = []

        async def body() -> None:
            lease = this.lease
            assert lease is not None
            try:
                await for_ever()
            except asyncio.CancelledError:
                seen.append(lease.lost.is_set())
                raise

        with pytest.raises(LeaseLost) as caught:
            await lose(this, look, body)
        assert seen == [True]
        assert task.cancelling() == 0, "the task goes on as if it had never been cancelled"
        assert caught.value.name == name
        assert caught.value.fence > 0
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_body_that_swallows_the_cancellation_cannot_swallow_the_loss(
    server: PrivateServer, look: redis.Redis, name: str
) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLost):
            await lose(lock(server, name), look, swallow)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_the_bodys_own_exception_comes_first(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            await lose(lock(server, name), look, fail)
        assert any("was lost" in note for note in caught.value.__notes__)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancellation_from_outside_stays_one(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        this = lock(server, name, LONG)

        async def body() -> None:
            async with this:
                await for_ever()

        task = asyncio.create_task(body())
        while this.lease is None:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await this.locked()

    asyncio.run(main())


def test_both_at_once_stay_a_cancellation_with_a_note(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        this = lock(server, name)
        entered = asyncio.Event()

        async def body() -> None:
            async with this:
                entered.set()
                try:
                    await for_ever()
                except asyncio.CancelledError:
                    task.cancel()
                    raise

        task = asyncio.create_task(body())
        await entered.wait()
        look.delete(this.key)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert any("was lost" in note for note in getattr(caught.value, "__notes__", ["was lost"]))

    asyncio.run(main())


def test_a_time_limit_around_it_keeps_working(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        this = lock(server, name, LONG)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), this:
                await for_ever()
        assert not await this.locked()

    asyncio.run(main())


def test_a_time_limit_around_it_is_not_mistaken_for_the_loss(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        limit = asyncio.timeout(PATIENCE)
        with pytest.raises(LeaseLost):
            async with limit:
                await lose(lock(server, name), look)
        assert not limit.expired()

    asyncio.run(main())


@pytest.mark.parametrize("lost", [["inner"], ["outer"], ["outer", "inner"]])
def test_nested(server: PrivateServer, look: redis.Redis, name: str, lost: list[str]) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        locks = {which: lock(server, f"{name}-{which}", TTL if which in lost else LONG) for which in ("outer", "inner")}

        async def nested() -> None:
            async with locks["outer"] as outer, locks["inner"] as inner:
                leases = [{"outer": outer, "inner": inner}[which] for which in lost]
                for lease in leases:
                    look.delete(lease.key)
                until(lambda: all(lease.lost.is_set() for lease in leases))  # the loop learns of it later
                await for_ever()

        with pytest.raises(LeaseLost) as caught:
            await nested()
        assert caught.value.name == f"{name}-{lost[0]}"
        assert task.cancelling() == 0
        assert not await locks["outer"].locked()
        assert not await locks["inner"].locked()

    asyncio.run(main())


def test_inside_a_task_group_the_others_are_cancelled(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        async def group() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(lose(lock(server, name), look))
                tasks.create_task(for_ever())

        with pytest.raises(ExceptionGroup) as caught:
            await group()
        assert [type(error) for error in caught.value.exceptions] == [LeaseLost]

    asyncio.run(main())


def test_without_a_body_nobody_is_cancelled(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """After `acquire`, the event tells, and `check`."""

    async def main() -> None:
        this = lock(server, name)
        await this.acquire()
        lease = this.lease
        assert lease is not None
        look.delete(this.key)
        async with asyncio.timeout(PATIENCE):
            await lease.lost.wait()
        with pytest.raises(LeaseLost):
            lease.check()
        with pytest.raises(LeaseLost):
            await this.release()
        assert this.lease is None

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_on_lost_is_called_in_the_loop(server: PrivateServer, look: redis.Redis, name: str, kind: str) -> None:
    async def main() -> None:
        told: list[tuple[aio.Lease, str]] = []
        done = asyncio.Event()

        def on_lost(lease: aio.Lease) -> None:
            asyncio.get_running_loop()
            told.append((lease, threading.current_thread().name))
            done.set()

        async def on_lost_later(lease: aio.Lease) -> None:
            await asyncio.sleep(0.01)
            on_lost(lease)

        this = lock(server, name, on_lost=on_lost if kind == "function" else on_lost_later)
        await this.acquire()
        lease = this.lease
        look.delete(this.key)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
        assert told == [(lease, threading.current_thread().name)]
        with pytest.raises(LeaseLost):
            await this.release()
        assert len(told) == 1

    asyncio.run(main())


def test_a_loop_blocked_beyond_a_loss_learns_of_it_by_asking(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The callback cannot run, but `check` and `lost` know."""

    async def main() -> None:
        this = lock(server, name)

        async def block() -> None:
            lease = this.lease
            assert lease is not None
            until(lease.lost.is_set)
            with pytest.raises(LeaseLost):
                lease.check()

        with pytest.raises(LeaseLost):
            await lose(this, look, block)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_left_by_another_task_than_it_was_entered_by(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """As fixtures of some test runners do."""

    async def main() -> None:
        kept, this = lock(server, name, LONG), lock(server, name)
        await asyncio.create_task(kept.__aenter__())
        await asyncio.create_task(kept.__aexit__(None, None, None))
        assert not await kept.locked()
        await asyncio.create_task(this.__aenter__())
        lease = this.lease
        assert lease is not None
        look.delete(this.key)
        async with asyncio.timeout(PATIENCE):
            await lease.lost.wait()
        leaving = asyncio.create_task(this.__aexit__(None, None, None))
        with pytest.raises(LeaseLost):
            await leaving
        assert leaving.cancelling() == 0

    asyncio.run(main())
