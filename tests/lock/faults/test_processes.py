"""Processes that are killed, stopped, blocked or ended while they hold or wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast._clock import clock
from support.apis import Admin, Aio, Api, Sync, at_most, until
from support.peer import Peer
from support.proxy import Proxy
from support.servers import PrivateServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

NewPeer = Callable[..., Peer]


@pytest.fixture
def new_peer(api: Api, server: PrivateServer, name: str) -> Iterator[NewPeer]:
    """Starts other processes, which use the same lock by the same api."""
    with ExitStack() as stack:

        def start(url: str = server.url, **options: Any) -> Peer:
            return stack.enter_context(Peer(api.name, url, name, **options))

        yield start


@pytest.mark.fault(1)
def test_row_1_a_killed_holder_is_replaced_within_its_lease(
    server: PrivateServer, name: str, both_apis: tuple[Sync, Aio]
) -> None:
    """Row 1: SIGKILL the holder; the next waiter has the lock when its lease is over. (Both APIs at once, each with a lock of
    its own.)"""
    ttl = 1.0
    waiting = []
    with ExitStack() as stack:
        for api in both_apis:
            admin = stack.enter_context(closing(Admin(server, f"{name} {api.name}")))
            peer = stack.enter_context(Peer(api.name, server.url, f"{name} {api.name}", ttl=ttl))
            assert peer.ask("lock.acquire()")
            lock = api.Lock(server.url, f"{name} {api.name}", ttl=ttl)
            taken = api.start(lock.acquire, timeout=5)
            until(lambda admin=admin: len(admin.places()) == 1)  # type: ignore[misc]
            waiting.append((api, admin, lock, taken, peer.ask("lock.lease.fence"), time.monotonic()))
            peer.kill()
        for api, admin, lock, taken, fence, killed in waiting:
            assert taken.result(killed + ttl + 0.6 - time.monotonic())
            assert lock.lease.fence > fence
            api.call(lock.release)
            admin.nothing_left()


@pytest.mark.fault(73)
def test_a_killed_waiter_delays_nobody(api: Api, server: PrivateServer, admin: Admin, name: str, new_peer: NewPeer) -> None:
    """Danger "dead waiter granted": killed with -9 in the queue, it costs those behind it nothing, least of all a claim."""
    holder = api.FairLock(server.url, name, ttl=5)
    assert api.call(holder.acquire)
    dead = [new_peer(ttl=5) for _ in range(2)]
    for number, peer in enumerate(dead, 1):
        peer.tell("lock.acquire()")
        until(lambda number=number: len(admin.places()) == number)  # type: ignore[misc]
    lock = api.FairLock(server.url, name, ttl=5)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 3)
    *processes, _ = [place.split(".")[0] for place in admin.places()]
    for peer in dead:
        peer.kill()
    until(lambda: not any(admin.listeners(process) for process in processes))  # the server knows
    with at_most(1):
        api.call(holder.release)
        assert taken.result(5)
    api.call(lock.release)
    until(lambda: admin.token() is None)
    assert len(admin.places()) == 2, "passed over, and not forgotten before their time"


@pytest.mark.fault(75)
def test_a_winner_killed_before_it_claims_is_replaced_within_the_claim_window(
    server: PrivateServer, name: str, both_apis: tuple[Sync, Aio]
) -> None:
    """Danger "dead waiter granted": it was handed the lock and never knew; the next has it when the claim of 2 s is over. (Both
    APIs at once, each with a lock of its own.)"""
    waiting = []
    with ExitStack() as stack:
        for api in both_apis:
            admin = stack.enter_context(closing(Admin(server, f"{name} {api.name}")))
            holder, lock = (api.FairLock(server.url, f"{name} {api.name}", ttl=5) for _ in range(2))
            assert api.call(holder.acquire)
            winner = stack.enter_context(Peer(api.name, server.url, f"{name} {api.name}", ttl=5))
            winner.tell("lock.acquire()")
            until(lambda admin=admin: len(admin.places()) == 1)  # type: ignore[misc]
            (token,) = admin.places()
            taken = api.start(lock.acquire, timeout=5)
            until(lambda admin=admin: len(admin.places()) == 2)  # type: ignore[misc]
            winner.stop()
            api.call(holder.release)
            assert admin.token() == token
            waiting.append((api, admin, lock, taken, time.monotonic()))
            winner.kill()
        for api, admin, lock, taken, granted in waiting:
            assert taken.result(granted + 2.6 - time.monotonic())
            api.call(lock.release)
            admin.nothing_left()


@pytest.mark.fault(2)
def test_row_2_a_stopped_holder_learns_of_its_loss(
    api: Api, server: PrivateServer, admin: Admin, name: str, new_peer: NewPeer
) -> None:
    """Row 2: SIGSTOP beyond the lease: `lost` is set when it wakes, its writes are refused, and nothing is resurrected."""
    peer = new_peer(ttl=1)
    assert peer.ask("lock.acquire()")
    fence = peer.ask("lock.lease.fence")
    resource = f"resource of {name}"
    assert peer.ask(f"holdfast.fencing.accept(url, {resource!r}, {fence})") is True
    lock = api.Lock(server.url, name, ttl=5)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    peer.stop()
    assert taken.result(5)
    assert holdfast.fencing.accept(server.url, resource, lock.lease.fence)
    token = admin.token()
    peer.tell("lock.lease.lost.is_set(), lock.lease.remaining()")
    peer.go_on()
    assert peer.answer() == (True, 0.0)
    assert peer.ask("lock.lease.check()") == "LeaseLost"
    assert peer.ask(f"holdfast.fencing.accept(url, {resource!r}, {fence})") is False
    assert peer.ask(f"holdfast.fencing.fenced_set(url, {resource!r}, 'late', {fence})") is False
    assert peer.ask("lock.release()") == "LeaseLost"
    assert (admin.token(), admin.fence()) == (token, lock.lease.fence)
    assert admin.ttl_ms() > 3000
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(2)
def test_row_2_a_renewal_that_is_answered_while_the_holder_is_stopped(proxy: Proxy, admin: Admin, name: str) -> None:
    """Row 2: for less than the lease. Data that has arrived meanwhile is read, and no connection is closed for being silent."""
    with Peer("sync", proxy.url, name, ttl=3) as peer:
        assert peer.ask("lock.acquire()")
        admin.renewed()
        renewal = proxy.on("renew", action="stall")
        assert renewal.done.wait(5)
        peer.stop()
        renewal.go()
        time.sleep(0.5)  # an answer is waited for for less
        peer.go_on()
        admin.renewed()
        assert peer.ask("lock.lease.lost.is_set()") is False
        assert len({request.link for request in proxy.log if request.name == "renew"}) == 1
        assert peer.ask("lock.release()") is None


@pytest.mark.fault(3)
def test_row_3_the_local_clock_counts_while_the_machine_sleeps() -> None:
    """Row 3: a suspended machine cannot be had here; CLOCK_BOOTTIME is the clock that goes on meanwhile."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.fault(4)
def test_row_4_a_blocked_event_loop_keeps_its_lock(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 4: the loop stands still for three lease times; renewal does not depend on it."""
    ttl = 0.8
    other = holdfast.Lock(server.url, name, ttl=ttl)

    async def main() -> None:
        async with holdfast.aio.Lock(server.url, name, ttl=ttl) as lease:
            token = admin.token()
            end = time.monotonic() + 3 * ttl
            while time.monotonic() < end:
                time.sleep(ttl / 3)
                assert not other.acquire(blocking=False)
            assert admin.token() == token
            assert not lease.lost.is_set()
            lease.check()
            await asyncio.sleep(0)

    asyncio.run(main())
    admin.nothing_left()


@pytest.mark.fault(13)
def test_row_13_a_process_that_ends_gives_back_what_it_holds(admin: Admin, name: str, new_peer: NewPeer) -> None:
    """Row 13: interpreter shutdown while holding."""
    peer = new_peer(ttl=30)
    assert peer.ask("lock.acquire()")
    process = peer.ask("lock.lease._core.process.id")
    until(lambda: admin.redis.exists(f"hf:proc:{process}"))
    with at_most(5):
        peer.tell("sys.exit(3)")
        assert peer.process.wait() == 3
    admin.nothing_left()
    assert not admin.redis.exists(f"hf:proc:{process}")


@pytest.mark.fault(13)
def test_row_13_the_end_of_a_process_waits_for_no_server(proxy: Proxy, new_peer: NewPeer) -> None:
    """Row 13: the server vanished; about a second is spent on giving back, no more."""
    peer = new_peer(proxy.url, ttl=30)
    assert peer.ask("lock.acquire()")
    proxy.freeze()
    peer.tell("sys.exit(3)")
    with at_most(2.0):
        assert peer.process.wait() == 3


@pytest.mark.fault(27)
def test_row_27_a_grant_that_is_read_late_is_not_believed(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 27: the winner is stopped until its claim is over and somebody else has the lock; then it reads the message. (An
    asyncio process here; in `test_inbox` the same for the sync api.)"""
    holder = holdfast.Lock(server.url, name, ttl=5)
    assert holder.acquire()
    with Peer("asyncio", server.url, name, ttl=5) as peer:
        read_late(peer, holder, admin)


def read_late(peer: Peer, holder: holdfast.Lock, admin: Admin) -> None:
    peer.tell("lock.acquire()")
    until(lambda: len(admin.places()) == 1)
    (token,) = admin.places()
    peer.stop()
    holder.release()
    assert admin.token() == token
    until(lambda: holder.acquire(blocking=False), every=0.05)
    peer.go_on()
    until(lambda: len(admin.places()) == 1)  # it asked again, and stands in line under another token
    assert admin.places() != [token]
    mine = admin.token()
    assert mine is not None
    assert mine != token
    assert holder.lease is not None
    fence = holder.lease.fence
    holder.release()
    assert peer.answer() is True
    assert peer.ask("lock.lease.fence") > fence
    assert peer.ask("lock.release()") is None
    admin.nothing_left()
