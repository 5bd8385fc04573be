"""Rows 8, 9, 10: tasks that are cancelled while they acquire, wait, release. Nothing of theirs stays on the server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from support.apis import Admin, at_most, until
from support.proxy import Action, Proxy
from support.servers import PrivateServer
from support.witness import lease_record

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 1.5


async def soon(condition: Callable[[], object], seconds: float = 5) -> None:
    """As `support.apis.until`, in a task."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, "waited in vain"
        await asyncio.sleep(0.001)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it; the CancelledError comes, and it is the one that was asked for."""
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError) as error:
        await task
    assert error.value.args == ("from outside",)
    assert task.cancelled()


async def use(lock: aio.Lock, started: list[aio.Lease] | None = None) -> None:
    """All of it: acquire, a body, release."""
    async with lock as lease:
        if started is not None:
            started.append(lease)
            await asyncio.sleep(60)


@asynccontextmanager
async def held(url: str, name: str, ttl: float = 30) -> AsyncIterator[aio.Lock]:
    """Somebody who holds the lock."""
    lock = aio.Lock(url, name, ttl=ttl)
    assert await lock.acquire(blocking=False)
    yield lock
    if lock.lease is not None:
        await lock.release()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def with_limit() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(with_limit())


@pytest.mark.fault(8)
@pytest.mark.parametrize("fault", ["hold", "stall"])
def test_row_8_cancelled_in_acquire(proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 8: before the server did it ("hold") and after ("stall")."""

    async def main() -> None:
        rule = proxy.on("acquire", action=fault)
        task = asyncio.create_task(use(aio.Lock(proxy.url, name, ttl=30)))
        await soon((rule.done if fault == "stall" else rule.seen).is_set)
        with at_most(1.6):
            await cancelled(task)
        rule.go()
        await soon(rule.done.is_set)
        await soon(lambda: admin.token() is None, 1)
        admin.nothing_left()

    run(main)
    admin.nothing_left()


@pytest.mark.fault(8)
@pytest.mark.parametrize(
    ("at", "fault"), list(itertools.product(["acquire", "SUBSCRIBE", "join", "refresh"], ["hold", "stall"]))
)
def test_row_8_cancelled_while_waiting(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str, at: str, fault: Action
) -> None:
    """Row 8: at each request on the way into the queue and in it; neither a place nor, later, a lock is left."""

    async def main() -> None:
        async with held(server.url, name, ttl=0.9) as holder:  # short, so that who waits asks again soon
            rule = proxy.on(at, action=fault)
            task = asyncio.create_task(use(aio.Lock(proxy.url, name, ttl=TTL)))
            await soon((rule.done if fault == "stall" else rule.seen).is_set)
            with at_most(1.6):
                await cancelled(task)
            rule.go()
            await soon(rule.done.is_set)
            await soon(lambda: admin.places() == [], 1)  # a late request and what declares it dead come by two ways
            await holder.release()
            admin.nothing_left()

    run(main)


@pytest.mark.fault(8)
def test_row_8_cancelled_after_the_grant_and_before_its_message(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Row 8: the lock is ours already and we do not know; it goes on to the next in line at once."""

    async def main() -> None:
        async with held(server.url, name) as holder:
            rule = proxy.on("message", action="stall")
            task = asyncio.create_task(use(aio.FairLock(proxy.url, name, ttl=TTL)))
            await soon(lambda: len(admin.places()) == 1)
            (token,) = admin.places()
            other = aio.FairLock(server.url, name, ttl=TTL)
            taken = asyncio.create_task(other.acquire())
            await soon(lambda: len(admin.places()) == 2)
            await holder.release()
            await soon(rule.seen.is_set)
            assert admin.token() == token
            with at_most(CLAIM_WINDOW_S / 2):
                await cancelled(task)
                assert await taken
            rule.go()
            await soon(rule.done.is_set)
            await asyncio.sleep(0.05)
            assert not other.lease.lost.is_set()  # type: ignore[union-attr]
            await other.release()
            admin.nothing_left()

    run(main)


@pytest.mark.fault(8)
def test_row_8_cancelled_at_any_moment_of_the_hand_over(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 8: cancelled a little later each time, from before the grant until after it; the next in line always gets it."""

    async def main() -> None:
        outcomes = set()
        for step in range(40):
            holder, lock, other = (aio.FairLock(server.url, name, ttl=5) for _ in range(3))
            assert await holder.acquire(blocking=False)
            task = asyncio.create_task(lock.acquire())
            await soon(lambda: len(admin.places()) == 1)
            taken = asyncio.create_task(other.acquire())
            await soon(lambda: len(admin.places()) == 2)
            release = asyncio.create_task(holder.release())
            for _ in range(step // 4):
                await asyncio.sleep(0)
            await asyncio.sleep(step % 4 * 0.0003)
            if step == 39:
                await asyncio.wait({task})
            task.cancel()
            await release
            with suppress(asyncio.CancelledError):
                assert await task
                await lock.release()
            outcomes.add(task.cancelled())
            assert await asyncio.wait_for(taken, CLAIM_WINDOW_S / 2)
            await other.release()
            admin.nothing_left()
        assert outcomes == {True, False}, "both ends of the race were seen"

    run(main)


@pytest.mark.fault(8, 9)
@pytest.mark.parametrize("wait", ["free", "busy"])
def test_row_8_cancelled_at_every_step_of_the_loop(server: PrivateServer, admin: Admin, name: str, wait: str) -> None:
    """Rows 8, 9: `async with` on a free and on a busy lock, cancelled after 0, 1, 2, … iterations of the loop, then later."""

    async def main() -> None:
        async with held(server.url, name) as holder:
            if wait == "free":
                await holder.release()
            finished = 0
            for steps in range(80):
                task = asyncio.create_task(use(aio.Lock(server.url, name, ttl=30, wait=0.005)))
                for _ in range(min(steps, 50)):
                    await asyncio.sleep(0)
                if steps > 50:
                    await asyncio.sleep((steps - 50) * 0.0003)
                if steps == 79:
                    await asyncio.wait({task})
                if task.done():
                    finished += 1
                    with suppress(holdfast.LockTimeout):
                        task.result()
                else:
                    task.cancel()
                    with suppress(holdfast.LockTimeout, asyncio.CancelledError):
                        await task
                await soon(lambda: admin.places() == [], 1)
                assert admin.token() == (lease_record(holder.lease).token if holder.lease else None)
            assert 0 < finished < 80

    run(main)
    admin.nothing_left()


@pytest.mark.fault(8)
@pytest.mark.parametrize("busy", [False, True])
def test_row_8_cancelled_when_the_server_has_vanished(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str, busy: bool
) -> None:
    """Row 8: blackhole. The task ends all the same; what was sent is undone behind it when the network is back."""

    async def main() -> None:
        lock = aio.Lock(proxy.url, name, ttl=30)
        undone = proxy.on("leave", "bury", action="pass")
        async with held(server.url, name) as holder:
            if busy:
                task = asyncio.create_task(use(lock))
                await soon(lambda: len(admin.places()) == 1)
                proxy.freeze()
            else:
                await lock.locked()  # the connection is open
                await holder.release()
                rule = proxy.on("acquire", action="pass")
                proxy.freeze()
                task = asyncio.create_task(use(lock))
                await asyncio.sleep(0.05)
                assert not rule.seen.is_set()
            with at_most(1.6):
                await cancelled(task)
        proxy.thaw()
        await soon(undone.done.is_set)
        await soon(lambda: admin.token() is None and admin.places() == [], 1)

    run(main)
    admin.nothing_left()


@pytest.mark.fault(8)
def test_row_8_cancelled_twice(proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 8: a second cancellation ends the waiting for the clean-up, not the clean-up."""

    async def main() -> None:
        rule = proxy.on("acquire", action="stall")
        task = asyncio.create_task(use(aio.Lock(proxy.url, name, ttl=30)))
        await soon(rule.done.is_set)
        assert admin.token() is not None
        task.cancel("from outside")
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel("again")
        with at_most(0.9), pytest.raises(asyncio.CancelledError):
            await task
        rule.go()
        await soon(lambda: admin.token() is None, 1)

    run(main)
    admin.nothing_left()


@pytest.mark.fault(8)
def test_row_8_a_time_limit_around_acquire(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 8: asyncio.timeout and wait_for are cancellations too."""

    async def main() -> None:
        async with held(server.url, name) as holder:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(aio.Lock(server.url, name, ttl=30).acquire(), 0.05)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await use(aio.Lock(server.url, name, ttl=30))
            assert admin.places() == []
            await holder.release()
        admin.nothing_left()

    run(main)


@pytest.mark.fault(9)
@pytest.mark.parametrize("fault", ["hold", "stall", "refuse"])
@pytest.mark.parametrize("by", ["release", "with"])
def test_row_9_cancelled_in_release(proxy: Proxy, admin: Admin, name: str, by: str, fault: Action) -> None:
    """Row 9: in `release` and in `__aexit__`; the lock is free afterwards, not at the end of its lease."""

    async def main() -> None:
        lock = aio.Lock(proxy.url, name, ttl=30)

        async def life() -> None:
            if by == "with":
                await use(lock)
            else:
                assert await lock.acquire()
                await lock.release()

        rule = proxy.on("release", action=fault)
        task = asyncio.create_task(life())
        # Refused, it is tried again: who looked only after that might find the task at its end.
        await soon((rule.done if fault == "stall" else rule.seen).is_set)
        with at_most(1.6):
            await cancelled(task)
        assert lock.lease is None
        rule.go()
        await soon(lambda: admin.token() is None, 1)

    run(main)
    admin.nothing_left()


@pytest.mark.fault(9)
def test_row_9_cancelled_between_two_tries_of_release(
    proxy: Proxy, admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 9: the first copy never arrived, the second is not sent yet."""

    async def main() -> None:
        asleep, sleep = asyncio.Event(), asyncio.sleep
        lock = aio.Lock(proxy.url, name, ttl=30)
        assert await lock.acquire()
        rule = proxy.on("release", action="refuse")

        async def pause(seconds: float, result: Any = None) -> Any:
            if rule.seen.is_set():
                asleep.set()
                await sleep(0.05)
            return await sleep(seconds, result)

        monkeypatch.setattr(asyncio, "sleep", pause)
        task = asyncio.create_task(lock.release())
        await asleep.wait()
        monkeypatch.undo()
        await cancelled(task)
        await soon(lambda: admin.token() is None, 1)

    run(main)
    admin.nothing_left()


@pytest.mark.fault(9)
def test_row_9_the_loop_ends_in_the_middle_of_the_clean_up(proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 9: the end of `asyncio.run` cancels the clean-up, too. The keeper does the rest of it."""
    rule = proxy.on("release", action="hold")

    async def main() -> None:
        lock = aio.Lock(proxy.url, name, ttl=60)
        await lock.acquire()
        task = asyncio.create_task(lock.release())
        await soon(rule.seen.is_set)
        task.cancel("from outside")
        for _ in range(5):
            await asyncio.sleep(0)  # the clean-up begins; its request is stuck behind the first
        assert not task.done()

    run(main)
    until(lambda: admin.token() is None)
    rule.go()
    admin.nothing_left()


@pytest.mark.fault(9)
def test_row_9_cancelled_in_release_hands_over(proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 9: who waits gets the lock from a release that was cancelled on its way."""

    async def main() -> None:
        lock, other = aio.Lock(proxy.url, name, ttl=30), aio.Lock(server.url, name, ttl=TTL)
        assert await lock.acquire()
        taken = asyncio.create_task(other.acquire())
        await soon(lambda: len(admin.places()) == 1)
        rule = proxy.on("release", action="hold")
        task = asyncio.create_task(lock.release())
        await soon(rule.seen.is_set)
        await cancelled(task)
        rule.go()
        assert await asyncio.wait_for(taken, 0.75 * CLAIM_WINDOW_S)
        await asyncio.sleep(0.05)
        assert not other.lease.lost.is_set()  # type: ignore[union-attr]
        await other.release()

    run(main)
    until(lambda: admin.token() is None)
    admin.nothing_left()


@pytest.mark.fault(10)
def test_row_10_the_connection_of_a_cancelled_task_gives_everybody_his_own_reply(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Row 10: off by one reply, as in redis-py's #2624; all tasks share a connection here."""

    async def main() -> None:
        async with held(server.url, name):
            taken, free = aio.Lock(proxy.url, name, ttl=30), aio.Lock(proxy.url, f"{name} free", ttl=30)
            assert await taken.locked()
            rule = proxy.on("acquire", action="stall")
            task = asyncio.create_task(taken.acquire(blocking=False))
            await soon(rule.done.is_set)
            task.cancel()
            others = [asyncio.create_task(lock.locked()) for lock in (free, taken, free, taken, taken)]
            for _ in range(3):  # they are sent; any longer, and the clean-up would give the connection up
                await asyncio.sleep(0)
            rule.go()
            assert [await other for other in others] == [False, True, False, True, True]
            with pytest.raises(asyncio.CancelledError):
                await task
            asked = [request.link for request in proxy.log if request.name in {"acquire", "EXISTS"}]
            assert len(set(asked)) == 1, "on one connection"
            assert await free.acquire(blocking=False)
            await free.release()

    run(main)
