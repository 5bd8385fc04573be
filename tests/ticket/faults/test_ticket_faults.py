"""Tickets, with replies that get lost, tasks that are cancelled, interrupts at every line, and a fork.

Nobody has the lock twice, and what nobody has goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import LeaseLost, NotHeld, ServerError, aio
from runtime.faults.test_fork import in_child
from runtime.faults.test_interrupts import at_every_line
from support.apis import Admin, Api, until
from support.proxy import Action, Proxy
from support.servers import PrivateServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]

TTL = 1.0
FAULTS: list[Action] = ["lose", "cut", "refuse", "twice"]


@pytest.mark.turns
@pytest.mark.fault(16, 18)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", ["issue", "redemption"])
def test_one_reply_lost_changes_nothing(api: Api, proxy: Proxy, admin: Admin, name: str, at: str, fault: Action) -> None:
    lock = api.Lock(proxy.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    fence = lock.lease.fence
    rule = proxy.on("exchange_token", action=fault, skip=int(at == "redemption"))
    ticket = api.call(lock.ticket)
    with pytest.raises(NotHeld):
        api.call(lock.release)
    heir = api.redeem(proxy.url, ticket, ttl=TTL)
    assert api.call(heir.acquire)
    assert rule.done.wait(5)
    assert heir.lease.fence == admin.fence() > fence
    admin.renewed()
    api.call(heir.release)
    admin.nothing_left()


@pytest.mark.fault(16)
@pytest.mark.parametrize("fault", ["lose", "cut"])
def test_every_reply_lost_while_it_is_made(api: Api, proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Nobody knows whether there is a ticket: the lock is given back."""
    lock = api.Lock(proxy.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    lease = lock.lease
    proxy.on("exchange_token", action=fault, times=3)
    with pytest.raises(LeaseLost, match="the server did not confirm the ticket, so the lock was released"):
        api.call(lock.ticket)
    assert lease.lost.is_set()
    until(lambda: admin.token() is None, 5)  # the ticket would have it for a minute
    admin.nothing_left()


@pytest.mark.fault(16)
def test_every_reply_lost_while_it_is_redeemed(api: Api, proxy: Proxy, admin: Admin, name: str) -> None:
    lock = api.Lock(proxy.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    ticket = api.call(lock.ticket, 30)
    rule = proxy.on("exchange_token", action="cut", times=3)
    with pytest.raises(ServerError):
        api.call(api.redeem(proxy.url, ticket, ttl=TTL).acquire)
    assert rule.done.wait(5)
    until(lambda: admin.token() is None, 5)
    admin.nothing_left()


@pytest.mark.fault(8)
@pytest.mark.parametrize("fault", ["hold", "stall"])
@pytest.mark.parametrize("at", ["issue", "redemption"])
def test_row_8_cancelled(proxy: Proxy, server: PrivateServer, admin: Admin, name: str, at: str, fault: Action) -> None:
    """Before the server did it ("hold"), and after ("stall"). A ticket that it has not seen is as good as it was."""
    given: list[str] = []

    async def use() -> None:
        async with aio.Lock(proxy.url, name, ttl=30) as lease:
            given.append(await lease.ticket(30))
        async with aio.redeem(proxy.url, given[0]):
            pytest.fail("it was cancelled before")

    async def main() -> None:
        rule = proxy.on("exchange_token", action=fault, skip=int(at == "redemption"))
        task = asyncio.create_task(use())
        seen = rule.done if fault == "stall" else rule.seen
        assert await asyncio.to_thread(seen.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        rule.go()
        assert await asyncio.to_thread(rule.done.wait, 5)
        if at == "redemption" and fault == "hold":
            async with aio.redeem(server.url, given[0]):
                pass
        await asyncio.to_thread(until, lambda: admin.token() is None, 5)

    asyncio.run(main())
    admin.nothing_left()


@pytest.mark.turns("interrupted lines")
@pytest.mark.fault(11)
@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_11_interrupted_at_every_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """Afterwards the lock is free, or a ticket has it that somebody was given; the lease of the giver is not renewed."""
    left: list[str] = []
    given: list[holdfast.Ticket] = []

    def body() -> None:
        given.clear()
        with holdfast.Lock(server.url, name, ttl=30) as lease:
            given.append(lease.ticket())
        with holdfast.redeem(server.url, given[0]):
            pass

    def check(where: str) -> None:
        if given and admin.token() is not None:
            with suppress(holdfast.TicketRefused), holdfast.redeem(server.url, given[0]):
                pass
        try:
            until(lambda: admin.token() is None, 3)
        except AssertionError:
            left.append(where)
            admin.redis.delete(admin.lock)

    body()
    lines = at_every_line(body, check, step=1)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 30, "it was really traced"


@pytest.mark.fault(7)
def test_row_7_a_child_makes_no_ticket_of_its_parents_lease_and_redeems_one(
    server: PrivateServer, admin: Admin, name: str
) -> None:
    lock = holdfast.Lock(server.url, name, ttl=30)
    with lock as lease:

        def make() -> str:
            try:
                lease.ticket()
            except NotHeld as error:
                return str(error)
            return "made"

        assert "belongs to the process that forked this one" in in_child(make)
        lease.check()
        ticket = lease.ticket()

        def redeem() -> int:
            with holdfast.redeem(server.url, ticket) as heir:
                return heir.fence

        assert in_child(redeem) > lease.fence
    admin.nothing_left()


@pytest.mark.fault(26)
def test_a_lock_that_vanishes_under_a_ticket(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    def reason(what: Callable[..., Any], *args: object) -> str:
        with pytest.raises(holdfast.TicketRefused) as caught:
            api.call(what, *args)
        return caught.value.reason

    lock = api.Lock(server.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    ticket = api.call(lock.ticket)
    admin.redis.delete(admin.lock)
    heir = api.redeem(server.url, ticket)
    assert reason(heir.acquire) == "gone"
    assert heir.lease is None
    admin.redis.delete(admin.state)
    assert reason(heir.acquire) == "gone"
    admin.nothing_left()
