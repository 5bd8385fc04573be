"""A lease that the server has forgotten is lost first; only then others of this process are granted the lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
import holdfast.aio
from support.apis import Aio, Api, Sync
from support.servers import PrivateServer
from support.witness import Monitor, until, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

KINDS = ("Lock", "linger", "FairLock")


@pytest.fixture(params=[Sync, Aio], ids=["sync", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    this: Api = request.param()
    yield this
    this.close()


def kind(api: Api, which: str) -> Callable[..., Any]:
    """The class, or what makes a lock of this kind."""
    module: Any = holdfast if api.name == "sync" else holdfast.aio
    if which == "linger":
        return lambda *args, **options: module.Lock(*args, linger=0.5, **options)
    found: Callable[..., Any] = getattr(module, which)
    return found


def was_set(event: Any) -> bool:
    """Whether the owner was told; `is_set` finds out by itself that the lease is lost."""
    told: bool = super(type(event), event).is_set()
    return told


class Told:
    """When an owner was told of its loss: by its ``on_lost``, and by its event."""

    def __init__(self) -> None:
        self.lost = threading.Event()

    def __call__(self, _lease: object) -> None:
        self.lost.set()


@pytest.mark.parametrize("which", KINDS)
def test_who_does_not_wait_gets_a_forgotten_lock_at_once(
    api: Api, server: PrivateServer, look: redis.Redis, name: str, which: str
) -> None:
    told = Told()
    make = kind(api, which)
    holder, other = make(server.url, name, on_lost=told), make(server.url, name)
    assert api.call(holder.acquire)
    lease, event = holder.lease, holder.lease.lost
    look.delete(f"hf:{{{name}}}")
    began = time.monotonic()
    assert api.start(other.acquire, False).result(5)
    assert was_set(event), "first lost, then granted"
    assert lease.remaining() == 0
    assert told.lost.wait(5)
    assert time.monotonic() - began < 1
    assert other.lease.fence > lease.fence
    api.call(other.release)


@pytest.mark.parametrize("wait", [0.5, 5])
def test_the_first_in_line_gets_a_forgotten_lock_within_a_second(
    api: Api, server: PrivateServer, look: redis.Redis, name: str, wait: float
) -> None:
    make = kind(api, "Lock")
    holder, other = make(server.url, name), make(server.url, name)
    assert api.call(holder.acquire)
    event = holder.lease.lost
    look.delete(f"hf:{{{name}}}")
    began = time.monotonic()
    assert api.start(other.acquire, timeout=wait).result(8)
    assert was_set(event), "first lost, then granted"
    assert time.monotonic() - began < min(wait, 2)
    api.call(other.release)


@pytest.mark.parametrize("which", KINDS)
def test_told_that_it_is_free(api: Api, server: PrivateServer, look: redis.Redis, name: str, which: str) -> None:
    make = kind(api, which)
    holder, other = make(server.url, name), make(server.url, name)
    assert api.call(holder.acquire)
    lease, event = holder.lease, holder.lease.lost
    assert api.start(other.locked).result(5)
    assert lease.remaining() > 0
    look.delete(f"hf:{{{name}}}")
    assert not api.start(other.locked).result(5)
    until(lambda: was_set(event), 1)
    assert lease.remaining() == 0
    assert api.start(other.acquire, False).result(5)
    api.call(other.release)


def test_an_rlock_that_was_forgotten(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holder, other = holdfast.RLock(server.url, name), holdfast.RLock(server.url, name)
    holder.acquire()
    assert holder.lease is not None
    event = holder.lease.lost
    look.delete(f"hf:{{{name}}}")
    assert Sync().start(Sync().taken_and_given_back, other).result(5)
    assert was_set(event)


def test_forgotten_while_others_stand_in_line(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    make = kind(api, "Lock")
    holder, other = make(server.url, name), make(server.url, name)
    assert api.call(holder.acquire)
    event = holder.lease.lost
    waiter = api.start(other.acquire, timeout=8)
    until(lambda: waiting_here(holder) == 1)
    look.delete(f"hf:{{{name}}}")
    began = time.monotonic()
    assert waiter.result(8)
    assert was_set(event)
    assert time.monotonic() - began < 2.5
    api.call(other.release)


def three_servers(api: Api, new_server: NewServer, name: str) -> tuple[list[PrivateServer], Any, Any]:
    """Them, a Redlock that is held there, and another one of the same name."""
    servers = [new_server() for _ in range(3)]
    urls = [one.url for one in servers]
    holdfast.declare_new(urls)
    holder, other = (api.Redlock(urls, name) for _ in range(2))
    assert api.call(holder.acquire)
    return servers, holder, other


@pytest.mark.turns
def test_a_redlock_that_a_majority_has_forgotten(api: Api, new_server: NewServer, name: str) -> None:
    servers, holder, other = three_servers(api, new_server, name)
    event = holder.lease.lost
    assert not api.start(other.acquire, False).result(5), "it is held"
    for one in servers[:2]:
        with redis.Redis.from_url(one.url) as client:
            client.delete(f"hf:{{{name}}}")
    until(lambda: api.start(other.acquire, False).result(5), 4)
    assert was_set(event)
    api.call(other.release)


def test_a_redlock_that_a_majority_says_is_free(api: Api, new_server: NewServer, name: str) -> None:
    servers, holder, other = three_servers(api, new_server, name)
    event = holder.lease.lost
    assert api.start(other.locked).result(5)
    for one in servers:
        with redis.Redis.from_url(one.url) as client:
            client.delete(f"hf:{{{name}}}")
    assert not api.start(other.locked).result(5)
    until(lambda: was_set(event), 1)
    api.call(other.acquire)
    api.call(other.release)


@pytest.mark.parametrize(("first", "then"), [("Lock", "FairLock"), ("FairLock", "Lock"), ("linger", "FairLock")])
def test_a_lock_of_another_kind(api: Api, server: PrivateServer, look: redis.Redis, name: str, first: str, then: str) -> None:
    told = Told()
    holder, other = kind(api, first)(server.url, name, on_lost=told), kind(api, then)(server.url, name)
    assert api.call(holder.acquire)
    event = holder.lease.lost
    look.delete(f"hf:{{{name}}}")
    assert api.start(other.acquire, False).result(5)
    assert was_set(event), "first lost, then granted"
    assert told.lost.wait(5)
    assert not other.lease.lost.is_set()
    api.call(other.release)


@pytest.mark.parametrize("which", KINDS)
def test_several_at_once(api: Api, server: PrivateServer, look: redis.Redis, name: str, which: str) -> None:
    several = kind(api, "MultiLock")
    names = [f"{name}-a", f"{name}-b"]
    holder, other = (several([kind(api, which)(server.url, one) for one in names]) for _ in range(2))
    assert api.call(holder.acquire)
    event = holder.lease.lost
    look.delete(*(f"hf:{{{one}}}" for one in names))
    assert api.start(other.acquire, timeout=5).result(8)
    assert was_set(event), "first lost, then granted"
    assert not other.lease.lost.is_set()
    api.call(other.release)


def test_a_leader_is_none_any_more_before_the_next_is_elected(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    candidates = kind(api, "Election")
    first, second = (candidates(server.url, name, candidate=who) for who in ("first", "second"))
    api.call(first.campaign)
    event = first.lease.lost
    look.delete(f"hf:{{{name}}}")
    api.start(second.campaign, wait=5).result(8)
    assert was_set(event), "first lost, then elected"
    assert not first.is_leader
    assert second.is_leader
    api.call(second.resign)


def test_an_observer_is_told_that_nobody_leads_when_the_leader_knows_it(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    leader, other = (kind(api, "Election")(server.url, name) for _ in range(2))
    api.call(leader.campaign)
    event = leader.lease.lost
    assert api.call(other.leader) is not None
    look.delete(f"hf:{{{name}}}")
    assert api.call(other.leader) is None
    assert was_set(event)
    assert not leader.is_leader


def test_a_ticket_that_is_redeemed_here(api: Api, server: PrivateServer, name: str) -> None:
    """Nobody has forgotten anything: nobody loses anything."""
    told = Told()
    giver = kind(api, "FairLock")(server.url, name, on_lost=told)
    assert api.call(giver.acquire)
    heir = api.redeem(server.url, api.call(giver.ticket))
    assert api.call(heir.acquire)
    assert not told.lost.is_set()
    assert not heir.lease.lost.is_set()
    api.call(heir.release)


def test_of_what_several_may_hold_nothing_is_lost(server: PrivateServer, name: str) -> None:
    semaphores = [holdfast.Semaphore(server.url, name, limit=2) for _ in range(2)]
    readers = [holdfast.RWLock(server.url, f"{name}-shared").read for _ in range(2)]
    for first, second in (semaphores, readers):
        with first as one, second as other:
            assert [one.lost.is_set(), other.lost.is_set()] == [False, False]


def test_a_fair_lock_that_is_handed_over_is_lost_by_nobody(api: Api, server: PrivateServer, name: str) -> None:
    told = Told()
    locks = [kind(api, "FairLock")(server.url, name, on_lost=told) for _ in range(4)]
    for lock in locks * 5:
        assert api.start(api.taken_and_given_back, lock).result(5)
    for done in [api.start(api.taken_and_given_back, lock) for lock in locks * 5]:
        assert done.result(10)
    assert not told.lost.is_set()
    assert sum(lock.statistics().losses for lock in locks) == 0


def test_those_in_line_ask_once_a_second(server: PrivateServer, monitor: Monitor, name: str) -> None:
    api = Sync()
    make = kind(api, "Lock")
    holder = make(server.url, name)
    others = [make(server.url, name) for _ in range(50)]
    with holder:
        waiters = [api.start(other.acquire, timeout=20) for other in others]
        until(lambda: waiting_here(holder) == 50)
        monitor.commands()
        end = time.monotonic() + 3
        refused = 0
        while time.monotonic() < end:
            assert not api.Lock(server.url, name).acquire(False)
            refused += 1
            time.sleep(0.01)
        asked = monitor.names(name)
    assert refused > 20
    assert 1 <= asked.count("EVALSHA") <= 5, "those that wait, and those that do not, at most once a second together"
    for other, waiter in zip(others, waiters, strict=True):
        assert waiter.result(20)
        other.release()


def test_a_healthy_lock_is_busy_at_once(api: Api, server: PrivateServer, name: str) -> None:
    make = kind(api, "Lock")
    holder, other = make(server.url, name), make(server.url, name)
    assert api.call(holder.acquire)
    for _ in range(20):
        assert not api.start(other.acquire, False).result(5)
    assert not holder.lease.lost.is_set()
    assert other.statistics().total_wait == 0
    api.call(holder.release)
    assert api.call(other.acquire, False)
    api.call(other.release)


SHARED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "writers": ((lambda module, *args, **more: module.RWLock(*args, **more).write),) * 2,
    "a reader after a writer": (
        lambda module, *args, **more: module.RWLock(*args, **more).write,
        lambda module, *args, **more: module.RWLock(*args, **more).read,
    ),
    "a writer after a reader": (
        lambda module, *args, **more: module.RWLock(*args, **more).read,
        lambda module, *args, **more: module.RWLock(*args, **more).write,
    ),
}


@pytest.mark.parametrize("which", SHARED)
def test_readers_and_writers(api: Api, server: PrivateServer, look: redis.Redis, name: str, which: str) -> None:
    module: Any = holdfast if api.name == "sync" else holdfast.aio
    first, then = SHARED[which]
    holder, other = first(module, server.url, name), then(module, server.url, name)
    assert api.call(holder.acquire)
    lease, event = holder.lease, holder.lease.lost
    look.delete(*look.keys(f"hf:{{{name}}}*"))
    assert api.start(other.acquire, False).result(5)
    assert was_set(event), "first lost, then granted"
    assert lease.remaining() == 0
    assert other.lease.remaining() > 0
    api.call(other.release)


def test_permits_that_fit_beside_each_other_are_not_lost(api: Api, server: PrivateServer, name: str) -> None:
    """Nor is what a writer keeps as a reader."""
    module: Any = holdfast if api.name == "sync" else holdfast.aio
    two = [module.Semaphore(server.url, f"{name}-permits", 3, weight=weight) for weight in (1, 2)]
    writer, reader = module.RWLock(server.url, name).write, module.RWLock(server.url, name).read
    for lock in (*two, writer):
        assert api.call(lock.acquire)
    api.call(writer.lease.downgrade)
    assert api.start(reader.acquire, False).result(5)
    for lock in (*two, writer, reader):
        assert lock.lease.remaining() > 0
        api.call(lock.lease.release)
