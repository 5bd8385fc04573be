"""A lease that is lost while it is held: what the holder sees, and what becomes of the task inside `async with`."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from support.apis import Admin, Api, at_most, stays, until
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import lease_record

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.6


def take_away(admin: Admin) -> None:
    assert admin.redis.delete(admin.lock)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def with_limit() -> None:
        async with asyncio.timeout(10):
            await main()

    asyncio.run(with_limit())


@pytest.mark.fault(52)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("DEL", "gone"),
        ("SET", "value of another client"),
        ("RENAME", "gone"),
        ("EXPIRE", "gone"),
        ("LPUSH", "value of another client"),
    ],
)
def test_row_52_other_peoples_hands_on_the_key(
    api: Api, server: PrivateServer, admin: Admin, name: str, fault: str, reason: str
) -> None:
    """Row 52: lost at the next renewal, told once, never taken back, and what is there now stays there."""
    told: list[Any] = []
    lock = api.Lock(server.url, name, ttl=TTL, on_lost=told.append)
    assert api.call(lock.acquire)
    lease = lock.lease
    match fault:
        case "DEL":
            take_away(admin)
        case "SET":
            admin.redis.set(admin.lock, "foreign")
        case "RENAME":
            admin.redis.rename(admin.lock, f"{name} elsewhere")
        case "EXPIRE":
            admin.redis.pexpire(admin.lock, 1)
        case _:
            with admin.redis.pipeline() as both:  # no renewal comes between
                both.delete(admin.lock).lpush(admin.lock, "foreign").execute()
    until(lambda: told)
    assert told == [lease]
    assert lease.lost.is_set()
    assert lease.remaining() == 0.0
    with pytest.raises(holdfast.LeaseLost, match=reason) as error:
        lease.check()
    assert error.value.fence == lease.fence
    before = (admin.redis.type(admin.lock), admin.redis.pttl(admin.lock))
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    assert (admin.redis.type(admin.lock), admin.redis.pttl(admin.lock)) == before
    stays(lambda: len(told) == 1, 0.02)
    admin.redis.delete(admin.lock, f"{name} elsewhere")


@pytest.mark.fault(52)
def test_row_52_persist_is_mended_by_the_next_renewal(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 52: without an expiry the key would stay for ever if the holder died now."""
    lock = api.Lock(server.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    assert admin.redis.persist(admin.lock), "it has no expiry now"
    until(lambda: 0 < admin.ttl_ms() <= TTL * 1000)
    assert not lock.lease.lost.is_set()
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(52)
def test_row_52_a_longer_expiry_is_cut_to_the_lease(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 52: EXPIRE by others; renewal sets the lease, whatever it was."""
    lock = api.Lock(server.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    admin.redis.expire(admin.lock, 1000)
    until(lambda: 0 < admin.ttl_ms() <= TTL * 1000)
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(52)
def test_row_52_a_value_that_is_noticed_at_release(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 52: before any renewal; somebody else's value stays."""
    lock = api.Lock(server.url, name, ttl=30)
    assert api.call(lock.acquire)
    admin.redis.set(admin.lock, "foreign")
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    assert admin.token() == "foreign"
    assert lock.lease is None
    admin.redis.delete(admin.lock)


@pytest.mark.fault(52)
def test_row_52_the_next_in_line_gets_what_was_deleted(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 52, danger "barging": DEL frees the lock for whoever stands in line, not for whoever comes by."""
    lock, waiter, passer_by = (api.FairLock(server.url, name, ttl=5) for _ in range(3))
    assert api.call(lock.acquire)
    taken = api.start(waiter.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    take_away(admin)
    assert api.call(passer_by.acquire, blocking=False) is False
    assert taken.result(0.8 * REFRESH_EVERY_S), "it was told, and has not asked"
    assert waiter.lease.fence > lock.lease.fence
    with pytest.raises(holdfast.LeaseLost):
        api.call(lock.release)
    api.call(waiter.release)
    admin.nothing_left()


@pytest.mark.fault(21)
def test_a_server_that_goes_away_ends_the_lease_at_its_deadline(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    """RELIABILITY §0: the local deadline counts, whatever the server says later; what is lost stays lost."""
    told = threading.Event()
    lock = api.Lock(proxy.url, name, ttl=TTL, on_lost=lambda _: told.set())
    assert api.call(lock.acquire)
    lease = lock.lease
    proxy.freeze()
    with at_most(TTL + 0.6):
        assert told.wait(5)
    assert lease.lost.is_set()
    proxy.thaw()
    until(lambda: admin.token() is None)
    stays(lambda: admin.token() is None and lease.lost.is_set(), 0.2)
    with pytest.raises(holdfast.LeaseLost):
        lease.check()


@pytest.mark.parametrize("away", ["frozen", "down"])
def test_a_with_whose_lease_ended_while_the_server_was_away_says_so(proxy: Proxy, admin: Admin, name: str, away: str) -> None:
    """The body succeeded and the lease was lost: LeaseLost, even though the release cannot be confirmed either."""
    lock = holdfast.Lock(proxy.url, name, ttl=TTL)
    with pytest.raises(holdfast.LeaseLost), lock as lease:
        if away == "frozen":
            proxy.freeze()
        else:
            proxy.down()
        until(lease.lost.is_set)


@pytest.mark.parametrize("away", ["frozen", "down"])
def test_a_task_whose_lease_ended_while_the_server_was_away_gets_lease_lost(
    proxy: Proxy, admin: Admin, name: str, away: str
) -> None:
    """The body is cancelled; what comes out is LeaseLost, never a bare CancelledError."""

    async def main() -> None:
        with pytest.raises(holdfast.LeaseLost):
            async with aio.Lock(proxy.url, name, ttl=TTL):
                if away == "frozen":
                    proxy.freeze()
                else:
                    proxy.down()
                await asyncio.sleep(60)

    run(main)


def test_loss_cancels_the_body_and_raises_lease_lost(server: PrivateServer, admin: Admin, name: str) -> None:
    """Never a bare CancelledError, and the task is as it was before: not cancelled."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(holdfast.LeaseLost, match="gone"):
            async with aio.Lock(server.url, name, ttl=TTL):
                take_away(admin)
                await asyncio.sleep(60)
        assert not task.cancelling()
        await asyncio.sleep(0)

    run(main)


def test_an_outside_cancellation_stays_one(server: PrivateServer, admin: Admin, name: str) -> None:
    """And the lock is given back."""

    async def main() -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with aio.Lock(server.url, name, ttl=30):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel("from outside")
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        assert error.value.args == ("from outside",)
        assert task.cancelled()
        admin.nothing_left()

    run(main)


@pytest.mark.parametrize("first", ["loss", "outside"])
def test_cancelled_by_loss_and_from_outside(server: PrivateServer, admin: Admin, name: str, first: str) -> None:
    """Both: the outside cancellation goes on, and the loss is noted on it."""

    async def main() -> None:
        inside, cancelled = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            async with aio.Lock(server.url, name, ttl=TTL):
                inside.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    cancelled.set()
                    if first == "outside":
                        take_away(admin)
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await inside.wait()
        if first == "loss":
            take_away(admin)
            await cancelled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as error:
            await task
        assert any("was lost" in note for note in error.value.__notes__)
        assert task.cancelled()

    run(main)


def test_loss_in_a_body_that_swallows_cancellation(server: PrivateServer, admin: Admin, name: str) -> None:
    """The body ends normally all the same: LeaseLost."""

    async def main() -> None:
        with pytest.raises(holdfast.LeaseLost):
            async with aio.Lock(server.url, name, ttl=TTL):
                take_away(admin)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
        await asyncio.sleep(0.01)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(main)


def test_loss_in_a_body_that_raises_its_own(server: PrivateServer, admin: Admin, name: str) -> None:
    """Trap "release error hiding the body's own exception": it comes out, with the loss noted."""

    async def main() -> None:
        with pytest.raises(ZeroDivisionError) as error:
            async with aio.Lock(server.url, name, ttl=TTL):
                take_away(admin)
                try:
                    await asyncio.sleep(60)
                finally:
                    1 / 0  # noqa: B018
        assert any("was lost" in note for note in error.value.__notes__)

    run(main)
    with pytest.raises(ZeroDivisionError) as error, holdfast.Lock(server.url, name, ttl=30):
        take_away(admin)
        1 / 0  # noqa: B018
    assert any("was lost" in note for note in error.value.__notes__)


def test_loss_noticed_after_a_body_that_never_awaits(server: PrivateServer, admin: Admin, name: str) -> None:
    """The loop had no turn between the loss and the end of the body: LeaseLost, no late cancellation."""

    async def main() -> None:
        with pytest.raises(holdfast.LeaseLost):
            async with aio.Lock(server.url, name, ttl=TTL) as lease:
                take_away(admin)
                until(lambda: lease_record(lease).lost)
        await asyncio.sleep(0.01)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(main)


def test_loss_in_a_task_group_and_under_a_time_limit(server: PrivateServer, admin: Admin, name: str) -> None:
    """It goes through the constructs that use cancellation themselves as what it is."""

    async def body() -> None:
        async with asyncio.timeout(5), aio.Lock(server.url, name, ttl=TTL):
            take_away(admin)
            await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as group:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(body())
                tasks.create_task(asyncio.sleep(60))
        assert group.group_contains(holdfast.LeaseLost)

    async def limited() -> None:  # in a task of its own: the groups of Python 3.11.2 leave theirs cancelled for a time limit
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), aio.Lock(server.url, name, ttl=TTL):
                await asyncio.sleep(60)
        admin.nothing_left()

    run(main)
    run(limited)


def test_loss_of_the_inner_of_two_locks(server: PrivateServer, admin: Admin, name: str) -> None:
    """Only that one is lost; the outer one is given back as ever."""

    async def main() -> None:
        outer = aio.Lock(server.url, f"{name} outer", ttl=30)
        async with outer as lease:
            with pytest.raises(holdfast.LeaseLost) as error:
                async with aio.Lock(server.url, name, ttl=TTL):
                    take_away(admin)
                    await asyncio.sleep(60)
            assert error.value.name == name
            lease.check()
            await asyncio.sleep(0)
        assert not await outer.locked()

    run(main)


@pytest.mark.parametrize("away", ["frozen", "down"])
def test_leaving_a_with_when_the_server_is_away_and_nothing_is_lost_yet(
    api: Api, proxy: Proxy, admin: Admin, name: str, away: str
) -> None:
    """A warning, and the result of the body stands; an explicit release raises."""
    lock = api.Lock(proxy.url, name, ttl=2)

    async def body() -> str:
        async with lock:
            gone()
            return "done"

    def gone() -> None:
        if away == "frozen":
            proxy.freeze()
        else:
            proxy.down()

    gc.collect()  # what others have left
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if api.name == "asyncio":
            assert api.call(body) == "done"
        else:
            with lock:
                gone()
    assert [str(w.category.__name__) for w in caught] == ["HoldfastWarning"]
    assert "the lock ends with its lease" in str(caught[0].message)
    proxy.thaw()
    proxy.up()
    admin.redis.delete(admin.lock)
