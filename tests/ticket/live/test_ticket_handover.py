"""A held lock is handed over by a ticket: to other processes, past those in line, on every kind of lock."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, FairLock, Lock, NotHeld, RedeemedLock, TicketRefused, redeem
from holdfast._runtime.process import current
from support.apis import Aio, Api, Sync
from support.servers import PrivateServer
from support.witness import in_thread, lease_record, queue_length, until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


@pytest.fixture(params=["sync", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api: Api = Sync() if request.param == "sync" else Aio()
    yield api
    api.close()


def work(url: str, ticket: str, pipe: Any) -> None:
    """In a process of its own."""
    with redeem(url, ticket, ttl=10) as lease:
        pipe.send((type(ticket).__name__, lease.name, lease.fence))
        pipe.recv()
        lease.check()
    pipe.send("done")


@pytest.mark.turns
def test_to_another_process_past_those_in_line(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    """As an argument of a process. Waiters go on waiting in order, and have the lock when that process is done."""
    lock = api.Lock(server.url, name, ttl=10)
    assert api.call(lock.acquire)
    fence = lock.lease.fence
    first, second = FairLock(server.url, name, ttl=10), FairLock(server.url, name, ttl=10)
    order: list[int] = []

    def wait(waiter: Lock, number: int) -> None:
        with waiter as lease:
            order.append(number)
            fences.append(lease.fence)

    fences: list[int] = []
    waiting = []
    for number, waiter in enumerate((first, second)):
        waiting.append(in_thread(wait, waiter, number))
        until(lambda number=number: queue_length(look, name) == number + 1)  # type: ignore[misc]
    ticket = api.call(lock.ticket)
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=work, args=(server.url, ticket, there))
    process.start()
    kind, whose, theirs = here.recv()
    assert (kind, whose) == ("Ticket", name)
    assert theirs > fence
    assert order == []
    here.send("go on")
    assert here.recv() == "done"
    process.join()
    for one in waiting:
        one.result(5)
    assert order == [0, 1]
    assert theirs < fences[0] < fences[1]


def test_as_json_with_everything_about_the_lock_in_it(api: Api, server: PrivateServer, look: redis.Redis) -> None:
    """The receiver knows the server, and where its locks are."""
    for options in (
        {"name": b"\xff raw", "prefix": "other:"},
        {"name": "x", "key": "tickets:{of}:peers"},
        {"name": "{odd} %\n"},
        {"name": "kept", "linger": 5.0},
        {"name": "bounded", "max_hold": 60.0},
        {"name": "by hand", "renew": False},
    ):
        lock = api.Lock(server.url, **options)
        assert api.call(lock.acquire)
        said = json.loads(json.dumps({"ticket": api.call(lock.ticket)}))
        named = {key: value for key, value in options.items() if key in {"prefix", "key"}}
        heir = api.redeem(server.url, said["ticket"], **named)
        assert api.call(heir.acquire)
        assert (heir.name, heir.key, heir.lease.key) == (lock.name, lock.key, lock.key)
        assert look.exists(lock._spec.keys[0])
        assert api.call(lock.locked)
        api.call(heir.release)
        assert not api.call(lock.locked)


def test_a_key_of_the_user_s_own_stays_with_its_prefix(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Inbox, process record and the mark of ``quarantine=`` are those of ``prefix=``: others may not be allowed. It was read
    off the key."""
    prefix = f"{name}:"
    named = {"prefix": prefix, "key": f"{name}-legacy"}
    me = current().id
    marked = f"{prefix}guard"
    holdfast.declare_new(server.url, prefix=prefix, max_ttl=10, force=True)
    lock = api.Lock(server.url, name, ttl=2, quarantine=10, **named)
    assert api.call(lock.acquire)
    ticket = api.call(lock.ticket, expires=5)
    look.delete(f"{prefix}proc:{me}")
    heir = api.redeem(server.url, ticket, ttl=2, **named)
    assert api.call(heir.acquire)
    spec = heir._spec
    assert (spec.prefix, spec.granting[-1]) == (prefix.encode(), marked.encode())
    assert str(look.get(named["key"])).startswith(f"{me}@{prefix.encode().hex()}.")
    until(lambda: look.pubsub_numsub(f"{prefix}inbox:{me}")[0][1])
    current().keeper.facts_changed()  # it may have been written before it was deleted: then it would be in 20 s again
    until(lambda: look.exists(f"{prefix}proc:{me}"))
    api.call(heir.release)
    assert not look.keys(f"{name}-legacy[a-z]*")
    assert look.exists(marked)


@pytest.mark.parametrize("cls", [Lock, FairLock])
def test_those_of_the_same_process_wait_at_the_server_from_then_on(
    server: PrivateServer, look: redis.Redis, name: str, cls: type[Lock]
) -> None:
    lock, *others = [cls(server.url, name, ttl=10) for _ in range(3)]
    lock.acquire()
    waiting = [in_thread(other.acquire) for other in others]
    ticket = lock.ticket()
    until(lambda: queue_length(look, name) >= 1)
    with redeem(server.url, ticket) as heir:  # the same process may redeem it: that is how it is taken back
        heir.check()
        assert not any(one.done() for one in waiting)
    for _ in others:
        until(lambda: any(other.lease for other in others))
        next(other for other in others if other.lease).release()
    assert all(one.result(10) for one in waiting)


def test_a_ticket_that_nobody_redeems_falls_to_the_next_in_line(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name, ttl=10)
    lock.acquire()
    waiter = FairLock(server.url, name, ttl=10)
    waiting = in_thread(waiter.acquire)
    until(lambda: queue_length(look, name) == 1)
    started = time.monotonic()
    ticket = lock.ticket(expires=0.3)
    assert waiting.result(5)
    assert 0.25 < time.monotonic() - started < 2.5
    with pytest.raises(TicketRefused, match="expired before it was redeemed"):
        redeem(server.url, ticket).acquire()
    waiter.release()


@pytest.mark.parametrize("again", [False, True])
def test_one_whose_lock_was_broken_was_not_used(server: PrivateServer, name: str, again: bool) -> None:
    """Nor is it good for anything when somebody has had the lock since; one that was used is said to be."""
    used = Lock(server.url, name, ttl=10).__enter__().ticket()
    ticket = redeem(server.url, used).__enter__().ticket()
    assert holdfast.Inspector(server.url).break_lock(name) is not None
    if again:
        with Lock(server.url, name):
            pass
    for which, reason in ((ticket, "gone"), (used, "used")):
        with pytest.raises(TicketRefused) as caught:
            redeem(server.url, which).acquire()
        assert caught.value.reason == reason


def test_of_many_who_redeem_it_one_has_the_lock(server: PrivateServer, name: str) -> None:
    def one(ticket: str, barrier: threading.Barrier) -> RedeemedLock | str:
        mine = redeem(server.url, ticket, ttl=10)
        barrier.wait()
        try:
            mine.acquire()
        except TicketRefused as error:
            return error.reason
        return mine

    for _ in range(10):
        with Lock(server.url, name, ttl=10) as lease:
            ticket = lease.ticket()
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(one, [ticket] * 8, [threading.Barrier(8)] * 8))
        (mine,) = [one for one in found if not isinstance(one, str)]
        assert found.count("used") == 7
        mine.release()


def test_a_redeemed_lease_is_renewed_and_handed_on(api: Api, server: PrivateServer, name: str) -> None:
    lock = api.Lock(server.url, name, ttl=10)
    assert api.call(lock.acquire)
    fences = [lock.lease.fence]
    holder: Any = lock
    for _ in range(3):
        heir = api.redeem(server.url, api.call(holder.lease.ticket), ttl=0.9)
        assert api.call(heir.acquire)
        fences.append(heir.lease.fence)
        deadline = lease_record(heir.lease).deadline
        until(lambda heir=heir, deadline=deadline: lease_record(heir.lease).deadline > deadline)  # type: ignore[misc]
        holder = heir
    assert fences == sorted(set(fences))
    api.call(holder.release)


def test_with_a_guard(api: Api, new_server: Any, name: str) -> None:
    server = new_server()
    holdfast.declare_new(server.url)
    lock = api.Lock(server.url, name, ttl=10, quarantine=True)
    assert api.call(lock.acquire)
    with pytest.raises(ConfigError, match=r"expires must be between 0\.05 and 60 seconds"):
        api.call(lock.ticket, 90)
    heir = api.redeem(server.url, api.call(lock.ticket))
    assert api.call(heir.acquire)
    assert heir._spec.quarantine == 60
    api.call(heir.release)


def test_clients_of_all_kinds(server: PrivateServer, name: str) -> None:
    for options in ({"decode_responses": True}, {"protocol": 3}):
        with redis.Redis.from_url(server.url, **options) as client:
            with Lock(client, name) as lease:
                ticket = lease.ticket()
            with redeem(client, ticket) as heir:
                assert heir.fence > lease.fence


def test_not_over_several_servers(server: PrivateServer, new_server: Any, name: str) -> None:
    """A Redlock has none. An RLock has them on one server alone."""
    servers = [server.url, new_server().url, new_server().url]
    holdfast.declare_new(servers, force=True)
    lock = holdfast.RLock(servers, name)
    with lock as lease:
        with pytest.raises(ConfigError, match="each could win some of the servers, and neither a majority"):
            lock.ticket()
        assert not hasattr(lease, "ticket")
        lease.check()


def test_of_an_rlock_by_its_owner_where_it_is_held_once(server: PrivateServer, name: str) -> None:
    lock = holdfast.RLock(server.url, name)
    with lock as lease:
        with lock, pytest.raises(NotHeld, match=r"cannot hand over lock 'live-\d+': this .* has acquired it 2 times"):
            lock.ticket()
        with pytest.raises(NotHeld, match="another thread or task holds it"):
            in_thread(lease.ticket).result(5)
        ticket = lock.ticket()
        assert not lock._is_owned()
        with redeem(server.url, ticket) as heir:
            assert heir.fence > lease.fence
    with lock:
        pass
    assert (lock.statistics().held, lock.statistics().losses) == (0, 0)


def test_not_of_permits_and_not_of_leadership(api: Api, server: PrivateServer, name: str) -> None:
    semaphore = (holdfast if api.name == "sync" else holdfast.aio).Semaphore(server.url, name, 2)
    assert api.call(semaphore.acquire)
    assert not hasattr(semaphore.lease, "ticket")
    api.call(semaphore.release)
    leader = (holdfast if api.name == "sync" else holdfast.aio).Election(server.url, f"{name}-leader")
    api.call(leader.campaign)
    assert not hasattr(leader.lease, "ticket")
    api.call(leader.resign)
