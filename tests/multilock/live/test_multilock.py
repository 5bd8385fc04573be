"""Several locks at once on real servers: all or none, no cycle of waiters, nothing left behind."""

from __future__ import annotations

import asyncio
import functools
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import (
    ConfigError,
    FairLock,
    LeaseLost,
    Lock,
    LockTimeout,
    MultiLock,
    NotHeld,
    Redlock,
    RWLock,
    Semaphore,
    ServerError,
    aio,
)
from holdfast._api.base_lock import member_of
from holdfast._api.multilock import _place
from holdfast._core.lock.multilock import MULTI_ACQUIRE, MULTI_RELEASE
from runtime.faults.test_interrupts import at_every_line
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, local_queue, queue_length, until, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer


def held(look: redis.Redis, *names: str) -> list[bool]:
    return [bool(look.exists(f"hf:{{{name}}}")) for name in names]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture
def names(name: str) -> list[str]:
    """Of locks that no other test uses."""
    return [f"{name}-{letter}" for letter in "abc"]


# Taking and giving back


def test_all_of_them_with_a_fence_each(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    lock = MultiLock(server.url, reversed(names), ttl=30, wait=5)
    assert lock.names == tuple(names)
    with lock as lease:
        assert lock.lease is lease
        assert held(look, *names) == [True] * 3
        assert list(lease.fences) == names
        assert 29 < lease.remaining() <= 30
        lease.check()
        assert not lease.lost.is_set()
        assert lock.locked()
        before = lease.fences
    assert held(look, *names) == [False] * 3
    assert lock.lease is None
    assert lease.remaining() == 0
    assert not lock.locked()
    with lock as lease:
        assert all(lease.fences[name] > before[name] for name in names)


def test_one_trip_to_take_them_and_one_to_give_them_back(
    server: PrivateServer, look: redis.Redis, monitor: Monitor, names: list[str]
) -> None:
    for script in (MULTI_ACQUIRE, MULTI_RELEASE):
        look.script_load(script.body)
    lock = MultiLock(server.url, names)
    assert lock.acquire()
    lock.release()
    monitor.commands()
    assert lock.acquire()
    lock.release()
    assert monitor.names(names[0]) == ["EVALSHA"] * 2


def test_none_if_one_is_busy(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    with Lock(server.url, names[1]):
        assert MultiLock(server.url, names).acquire(blocking=False) is False
        assert MultiLock(server.url, names).acquire(timeout=0.05) is False
        with (
            pytest.raises(LockTimeout, match=f"lock '{names[1]}' is busy: this thread holds it already") as caught,
            MultiLock(server.url, names, wait=0.05),
        ):
            pass
        assert caught.value.name == names[1]
        assert held(look, *names) == [False, True, False]
        assert queue_length(look, names[1]) == 0


def test_one_is_waited_for_in_its_queue_and_the_rest_is_taken_then(
    server: PrivateServer, look: redis.Redis, names: list[str]
) -> None:
    first, fair = FairLock(server.url, names[1]), [FairLock(server.url, name) for name in names]
    first.acquire()
    lock = MultiLock(fair)
    waiting = in_thread(lock.acquire)
    until(lambda: queue_length(look, names[1]) == 1)
    assert held(look, *names) == [True, True, False], "what comes behind it in the order is not taken before it"
    first.release()
    assert waiting.result(5)
    assert held(look, *names) == [True, True, True]
    lock.release()


def test_threading_locks_errors(server: PrivateServer, names: list[str]) -> None:
    lock = MultiLock(server.url, names)
    with pytest.raises(NotHeld):
        lock.release()
    with pytest.raises(ValueError, match="non-blocking"):
        lock.acquire(False, 1)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    in_thread(lock.release).result(5)
    for refused in (lease.release, lease.renew, lease.check):
        with pytest.raises(NotHeld):
            refused()


@pytest.mark.parametrize("make", [MultiLock, aio.MultiLock], ids=["sync", "asyncio"])
def test_refused_before_anything_is_sent(make: Callable[..., object]) -> None:
    url = "redis://localhost:1"
    ours, others = (Lock, aio.Lock) if make is MultiLock else (aio.Lock, Lock)
    for wrong in (
        (url, []),
        (url, "name"),
        (url, ["x", "x"]),
        (url, [7]),
        (["x"],),
        (url,),
        (url, ["x", ours("redis://127.0.0.1:1", "x")]),
        ([others(url, "x")],),
        ([make(url, ["x"])],),
    ):
        with pytest.raises(ConfigError) as caught:
            make(*wrong)
        assert caught.value.parameter in {"locks", "client"}
    with pytest.raises(TypeError, match="pass ttl="):
        make(url, ["x"], timeout=5)


def test_one_order_whatever_the_servers_are_called() -> None:
    one, other, third = "redis://127.0.0.1:1", "redis://localhost:2", "redis://127.0.0.1:3"
    single = Lock(other, "single")
    voted = [Redlock(servers, "voted") for servers in ([one, other, third], [third, other, one])]
    for vote in voted:
        assert MultiLock([single, vote]).names == ("voted", "single")
    with pytest.raises(ConfigError, match="listed twice"):
        MultiLock(voted)
    with pytest.raises(ConfigError, match="listed twice"):
        MultiLock([voted[0], Lock(third, "voted")])  # one of those that vote has it under the same key
    watched = Lock("redis+sentinel://127.0.0.1:1/main", "x")
    before = _place(member_of(watched))
    watched._endpoint.finder._last = single._endpoint
    assert _place(member_of(watched)) == before, "wherever its primary is found"


# Others of the same process


def test_what_is_passed_on_in_the_process_and_what_lingers(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    single = Lock(server.url, names[0], linger=5)
    with single:
        local_queue(single).node.be_reachable(b"hf:")
        until(lambda: local_queue(single).reachable and not local_queue(single).node.has_unread())
    with single as lease:
        fence = lease.fence
        until(lambda: not local_queue(single).node.has_unread())  # what comes may say that somebody outside wants it
    assert held(look, *names) == [True, False, False], "it lingers"
    with MultiLock([single, Lock(server.url, names[1])]) as both:
        assert both.fences[names[0]] == fence + 1, "taken without a trip"
    others = Lock(server.url, names[0]), MultiLock(server.url, names[1:])
    with MultiLock(server.url, names):
        waiting = [in_thread(lock.acquire) for lock in others]
        until(lambda: waiting_here(Lock(server.url, names[0])) == waiting_here(Lock(server.url, names[1])) == 1)
    assert all(future.result(5) for future in waiting)
    assert held(look, *names) == [True, True, True]
    for other in others:
        other.release()


def test_one_that_gives_up_leaves_the_line_of_its_process_to_the_others(
    server: PrivateServer, look: redis.Redis, names: list[str]
) -> None:
    with Lock(server.url, names[1]):
        assert not MultiLock(server.url, names, wait=0.05).acquire()
    assert all(local_queue(Lock(server.url, name)).turn_of is None for name in names)
    with MultiLock(server.url, names):
        pass


# Losses


@pytest.mark.filterwarnings("ignore:ttl")
def test_one_lost_is_all_lost(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    told: list[object] = []
    lock = MultiLock(server.url, names, ttl=1.5, on_lost=told.append)
    with pytest.raises(LeaseLost, match=names[1]), lock as lease:
        look.delete(f"hf:{{{names[1]}}}")
        assert lease.lost.wait(5)
        assert lease.remaining() == 0
        with pytest.raises(LeaseLost, match=names[1]):
            lease.check()
        assert held(look, *names) == [True, False, True], "until the end of the body"
    until(lambda: told == [lease])
    assert held(look, *names) == [False] * 3


def test_what_is_lost_while_the_rest_is_waited_for_is_taken_anew(
    server: PrivateServer, look: redis.Redis, names: list[str]
) -> None:
    first = Lock(server.url, names[1])
    first.acquire()
    lock = MultiLock([FairLock(server.url, name, ttl=2) for name in names])
    waiting = in_thread(lock.acquire)
    until(lambda: queue_length(look, names[1]) == 1)
    token = look.getdel(f"hf:{{{names[0]}}}")
    until(lambda: look.get(f"hf:{{{names[0]}}}") not in {token, None})
    until(lambda: queue_length(look, names[1]) == 1)
    first.release()
    assert waiting.result(10)
    lock.release()
    assert held(look, *names) == [False] * 3


def test_renewed_by_hand(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    with MultiLock(server.url, names, ttl=10, renew=False) as lease:
        lease.renew(60)
        assert lease.remaining() > 50
        assert all(look.pttl(f"hf:{{{name}}}") > 50_000 for name in names)


def test_no_server(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    """The ones that were taken go back."""
    nowhere = Lock("redis://127.0.0.1:1", names[0])
    with pytest.raises(ServerError, match=names[0]):
        MultiLock([nowhere, *(Lock(server.url, name) for name in names)]).acquire()
    assert held(look, *names) == [False] * 3


# Several servers, and quorums


def test_several_servers_and_several_that_vote(
    server: PrivateServer, look: redis.Redis, new_server: NewServer, names: list[str]
) -> None:
    from holdfast import declare_new

    voters = [new_server().url for _ in range(3)]
    declare_new(voters)
    far = voters[0]
    locks: list[Any] = [Redlock(voters, names[0]), Lock(server.url, names[0]), Lock(far, names[2]), FairLock(far, names[1])]
    with MultiLock(locks) as lease:
        assert len(lease.fences) == 4
        assert all(lock.locked() for lock in locks)
        blocked = MultiLock([locks[3], Lock(server.url, names[2])], wait=0.05)
        assert not blocked.acquire()
        assert held(look, names[2]) == [False]
        lease.renew()
    assert not any(lock.locked() for lock in locks)


def test_permits_beside_locks_of_the_same_server(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    """Their keys are of another format: the script that takes several locks is not for them."""
    shared, few = RWLock(server.url, names[0]), Semaphore(server.url, names[1], 2)
    with MultiLock([shared.read, few, Lock(server.url, names[2])], wait=5) as lease:
        assert len(lease.fences) == 3
        assert [look.type(f"hf:{{{name}}}") for name in names] == ["zset", "zset", "string"]
        with RWLock(server.url, names[0]).read, Semaphore(server.url, names[1], 2):
            lease.check()
        assert not RWLock(server.url, names[0]).write.acquire(blocking=False)
    assert held(look, *names) == [False] * 3


@in_loop
async def test_several_servers_in_asyncio(server: PrivateServer, new_server: NewServer, names: list[str]) -> None:
    far = new_server().url
    locks = [aio.Lock(server.url, names[0]), aio.Lock(far, names[0]), aio.FairLock(far, names[1])]
    async with aio.MultiLock(locks) as lease:
        assert len(lease.fences) == 3
        waiting = asyncio.create_task(aio.MultiLock([aio.Lock(server.url, names[2]), aio.Lock(far, names[1])]).acquire())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await lease.renew()
    for lock in [*locks, aio.Lock(server.url, names[2])]:
        assert not await lock.locked()


# asyncio


@in_loop
async def test_the_same_in_asyncio(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    lock = aio.MultiLock(server.url, names, wait=5)
    async with lock as lease:
        assert held(look, *names) == [True] * 3
        assert list(lease.fences) == names
        assert await lock.locked()
        assert not await aio.MultiLock(server.url, names[1:]).acquire(blocking=False)
        other = aio.MultiLock(server.url, names)
        waiting = asyncio.create_task(other.acquire())
        await asyncio.sleep(0.02)
    assert await waiting
    assert held(look, *names) == [True] * 3
    await other.release()


@in_loop
async def test_the_body_is_cancelled_when_one_is_lost(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    told: list[object] = []
    with pytest.raises(LeaseLost, match=names[2]):
        async with aio.MultiLock(server.url, names, ttl=2, on_lost=told.append):
            look.delete(f"hf:{{{names[2]}}}")
            await asyncio.sleep(10)
    assert len(told) == 1
    assert held(look, *names) == [False] * 3


# Interrupted at every request


@pytest.mark.parametrize("at", range(12))
@in_loop
async def test_cancelled_anywhere(server: PrivateServer, look: redis.Redis, names: list[str], at: int) -> None:
    """At each turn of the loop that taking them takes, where one is busy for a moment."""
    other = aio.FairLock(server.url, names[1])
    await other.acquire()
    lock = aio.MultiLock([aio.FairLock(server.url, name) for name in names])
    task = asyncio.create_task(lock.acquire())
    for _ in range(at):
        await asyncio.sleep(0)
    await other.release()
    for _ in range(at):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
        await lock.release()
    except asyncio.CancelledError:
        assert lock.lease is None
    assert held(look, *names) == [False] * 3
    assert [queue_length(look, name) for name in names] == [0] * 3


@pytest.mark.parametrize("at", range(1, 7))
@in_loop
async def test_cancelled_while_they_are_given_back(server: PrivateServer, look: redis.Redis, names: list[str], at: int) -> None:
    """At each turn of the loop; others of this process get them all the same."""
    lock, other = (aio.MultiLock(server.url, names, ttl=60) for _ in "ab")
    await lock.acquire()
    next_one = asyncio.create_task(other.acquire(timeout=10))
    await asyncio.sleep(0)
    task = asyncio.create_task(lock.release())
    for _ in range(at):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert lock.lease is None
    assert await next_one
    await other.release()
    assert held(look, *names) == [False] * 3


# Two orders

ROUNDS = """
import sys
from holdfast import MultiLock
url, order, rounds = sys.argv[1:]
lock, before = MultiLock(url, order.split(), ttl=10), {}
for _ in range(int(rounds)):
    with lock as lease:
        assert all(lease.fences[name] > before.get(name, 0) for name in lease.fences)
        before = lease.fences
"""


def cross(server: PrivateServer, look: redis.Redis, name: str, rounds: int) -> None:
    """Processes that name some of the same locks in other orders take them again and again."""
    a, b = f"{name}-a", f"{name}-b"
    users = [
        subprocess.Popen([sys.executable, "-c", ROUNDS, server.url, order, str(rounds)]) for order in (f"{a} {b}", f"{b} {a}")
    ]
    assert [user.wait(120) for user in users] == [0, 0]
    left = [key for key in look.scan_iter(f"hf:{{{name}*") if not str(key).endswith(":state")]
    assert left == []


@pytest.mark.turns("fleets")
def test_no_deadlock_between_those_who_name_them_in_different_orders(
    server: PrivateServer, look: redis.Redis, name: str
) -> None:
    cross(server, look, name, 1500)


@pytest.mark.soak
def test_no_deadlock_in_ten_thousand_rounds(server: PrivateServer, look: redis.Redis, name: str) -> None:
    cross(server, look, name, 10_000)


def test_no_deadlock_between_threads(server: PrivateServer, look: redis.Redis, names: list[str]) -> None:
    inside: list[int] = []

    def work(order: tuple[str, ...]) -> None:
        lock = MultiLock(server.url, order)
        for _ in range(30):
            with lock:
                inside.append(threading.get_ident())
                assert names[1] not in order or busy.acquire(blocking=False)
                if names[1] in order:
                    busy.release()

    busy = threading.Lock()
    orders: list[tuple[str, ...]] = [*itertools.permutations(names), *itertools.permutations(names, 2)]
    futures: list[Any] = [in_thread(work, order) for order in orders]
    for future in futures:
        future.result(60)
    assert len(inside) == 30 * len(orders)
    assert held(look, *names) == [False] * 3


@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("part", [pytest.param(0, id="some lines"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_interrupted_at_the_lines_of_with(server: PrivateServer, look: redis.Redis, names: list[str], part: int) -> None:
    """`with locks: pass`, interrupted once at each line of holdfast that it runs; no key is left held."""
    left: list[str] = []
    with MultiLock(server.url, names):
        pass

    def check(where: str) -> None:
        try:
            until(lambda: not any(held(look, *names)))
        except AssertionError:
            left.append(where)
            look.delete(*(f"hf:{{{name}}}" for name in names))

    def body() -> None:
        with MultiLock(server.url, names, ttl=30):
            pass

    lines = at_every_line(body, check, step=1 if part else 17)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 10, "it was really traced"
