"""Event loops that are closed while their tasks wait or hold: nobody else waits for them, and what they hold is given back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import aio
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._runtime.process import current
from quorum.live.test_redlock import Group
from support.apis import Admin, Sync, until
from support.servers import PrivateServer
from support.witness import lease_record, local_queue, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning"),
    # A task that is destroyed while it waits is what these tests are about.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def left_in_the_queue(holder: Any, url: str, name: str, count: int = 1) -> None:
    """So many tasks wait for the lock, each in a loop of its own that this thread runs and closes; nobody cancels them."""
    before = waiting_here(holder)
    for number in range(count):
        loop = asyncio.new_event_loop()
        task = loop.create_task(aio.Lock(url, name, ttl=5).acquire())
        while waiting_here(holder) == before + number:
            loop.run_until_complete(asyncio.sleep(0.001))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(aio.close())
        loop.close()


def test_the_release_of_a_lock_for_which_only_a_closed_loop_waits(server: PrivateServer, admin: Admin, name: str) -> None:
    holder = holdfast.Lock(server.url, name, ttl=5)
    holder.acquire()
    left_in_the_queue(holder, server.url, name)
    holder.release()
    until(lambda: admin.token() is None)
    with holder:
        pass
    admin.nothing_left()


@pytest.mark.parametrize("dead", [1, 3])
@pytest.mark.fault(76)
def test_those_behind_the_tasks_of_closed_loops(server: PrivateServer, admin: Admin, name: str, dead: int) -> None:
    """They are served in order, and a waiter without a time limit is never told that its time is up."""
    holder = holdfast.Lock(server.url, name, ttl=5)
    holder.acquire()
    left_in_the_queue(holder, server.url, name, dead)
    api, order, waiting = Sync(), [], []

    def turn(number: int) -> None:
        with holdfast.Lock(server.url, name, ttl=5):
            order.append(number)

    for number in range(3):
        waiting.append(api.start(turn, number))
        until(lambda: waiting_here(holder) == dead + number + 1)  # noqa: B023
    holder.release()
    for future in waiting:
        future.result(10)
    assert order == [0, 1, 2]
    until(lambda: admin.token() is None)
    admin.nothing_left()


def taken_in_a_closed_loop(lock: Any) -> None:
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(lock.acquire())
    loop.run_until_complete(aio.close())
    loop.close()


KINDS: dict[str, Callable[..., Any]] = {
    "Lock": aio.Lock,
    "linger": lambda url, name, **options: aio.Lock(url, name, linger=5.0, **options),
    "FairLock": aio.FairLock,
    "Semaphore": lambda url, name, **options: aio.Semaphore(url, name, 1, **options),
    "RWLock": lambda url, name, **options: aio.RWLock(url, name, **options).write,
    "MultiLock": lambda url, name, **options: aio.MultiLock(url, [name], **options),
}


@pytest.mark.turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_of_a_closed_loop_is_given_back(server: PrivateServer, name: str, kind: str) -> None:
    """A release in another loop raises an error, and the next waiter has the lock at once, not at the end of the lease."""
    lock, other = (KINDS[kind](server.url, name, ttl=30) for _ in range(2))
    taken_in_a_closed_loop(lock)

    async def main() -> None:
        assert not await other.acquire(False)
        with pytest.raises(RuntimeError, match="closed"):
            await lock.release()
        assert await other.acquire(timeout=5)
        await other.release()
        with pytest.raises(holdfast.NotHeld):
            await lock.release()
        assert await lock.acquire(timeout=5), "the object is as good as new"
        await lock.release()

    asyncio.run(main())


def test_the_next_one_in_the_process_has_it(server: PrivateServer, admin: Admin, name: str) -> None:
    lock, api = aio.Lock(server.url, name, ttl=30), Sync()
    taken_in_a_closed_loop(lock)
    patient = holdfast.Lock(server.url, name, ttl=5)
    waiting = api.start(patient.acquire)
    until(lambda: waiting_here(patient) == 1)
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(lock.release())
    assert waiting.result(5)
    patient.release()
    until(lambda: admin.token() is None)


def test_a_redlock_of_a_closed_loop_is_given_back(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:
        lock, other = (aio.Redlock(group.urls, name, ttl=30) for _ in range(2))
        taken_in_a_closed_loop(lock)

        async def main() -> None:
            with pytest.raises(RuntimeError, match="closed"):
                await lock.release()
            assert await other.acquire(timeout=5)
            await other.release()

        asyncio.run(main())


def test_a_lease_is_used_in_no_other_loop(server: PrivateServer, admin: Admin, name: str) -> None:
    """Its own loop goes on: the lock stays held, and is released there."""

    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=5)
        async with lock as lease:
            for use in (lease.release, lease.renew, lease.ticket):
                with pytest.raises(RuntimeError, match="another event loop"):
                    await asyncio.to_thread(asyncio.run, use())
            lease.check()
            assert admin.token()
        assert admin.token() is None

    asyncio.run(main())


def test_a_lock_object_that_a_closed_loop_awaits_is_free_to_be_used(server: PrivateServer, name: str) -> None:
    holder, lock = holdfast.Lock(server.url, name, ttl=5), aio.Lock(server.url, name, ttl=5)
    holder.acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(lock.acquire())
    while waiting_here(holder) == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(aio.close())
    loop.close()
    holder.release()

    async def main() -> None:
        for _ in range(2):
            async with lock:
                pass

    asyncio.run(main())
    del task
    gc.collect()
    asyncio.run(main())


def test_a_turn_that_a_closed_loop_has_not_looked_at_is_taken_from_it(server: PrivateServer, name: str) -> None:
    """It was woken, and its loop closed before it went on."""
    holder, api = holdfast.Lock(server.url, name, ttl=5), Sync()
    holder.acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(aio.Lock(server.url, name, ttl=5).acquire())
    while waiting_here(holder) == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    until(lambda: local_queue(holder).node.reachable)
    holder.release()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert api.start(holder.acquire).result(5)
    holder.release()


def test_those_behind_a_turn_that_a_closed_loop_has_not_looked_at(server: PrivateServer, name: str) -> None:
    """They stood in line before the loop was closed, and nobody comes after them."""
    holder, patient, api = holdfast.Lock(server.url, name, ttl=5), holdfast.Lock(server.url, name, ttl=5), Sync()
    holder.acquire()
    loop = asyncio.new_event_loop()
    task = loop.create_task(aio.Lock(server.url, name, ttl=5).acquire())
    while waiting_here(holder) == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    waiting = api.start(patient.acquire)
    until(lambda: waiting_here(holder) == 2)
    holder.release()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert waiting.result(5)
    patient.release()


def closed_while_it_asks(lock: Any, *servers: PrivateServer) -> asyncio.Task[bool]:
    """A task has sent what it asks for, and its loop is closed before it reads the answer."""
    loop = asyncio.new_event_loop()

    async def warm() -> None:
        async with lock:  # the connections are open: a request leaves as soon as it is made
            pass

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    loop.run_until_complete(warm())
    for server in servers:
        server.pause()
    task = loop.create_task(lock.acquire())
    loop.run_until_complete(turns())
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    for server in servers:
        server.resume()
    return task


@pytest.mark.parametrize("wait", [5, 0])
def test_what_a_closed_loop_was_granted_without_reading_it_is_given_back(
    server: PrivateServer, admin: Admin, name: str, wait: float
) -> None:
    """The next one of the process has it, not at the end of the lease only."""
    task = closed_while_it_asks(aio.Lock(server.url, name, ttl=30), server)
    until(lambda: admin.token() is not None)
    other = holdfast.Lock(server.url, name, ttl=30)
    assert other.acquire(timeout=wait) if wait else other.acquire(blocking=False)
    other.release()
    until(lambda: admin.token() is None)
    assert not task.done()


def test_what_a_closed_loop_was_granted_by_a_majority_is_given_back(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:
        lock, other = aio.Redlock(group.urls, name, ttl=30), holdfast.Redlock(group.urls, name, ttl=30)
        task = closed_while_it_asks(lock, *group.servers)
        until(lambda: all(group.values(other.key)))
        assert other.acquire(timeout=5)
        other.release()
        assert not task.done()


def given_back_when_it_hung_in_a_closed_loop(lock: Any) -> None:
    taken_in_a_closed_loop(lock)
    lease = lock.lease
    assert lease is not None
    until(lambda: bool(lease_record(lease).lost))
    with pytest.raises(holdfast.LeaseLost, match="no progress"):
        asyncio.run(lease.release())


def test_a_hung_lease_of_a_closed_loop_is_given_back(server: PrivateServer, admin: Admin, name: str) -> None:
    """It is lost to its holder only: the server has it to the end of its lease, unless it is given back."""
    lock = aio.Lock(server.url, name, ttl=30, progress_within=0.1)
    given_back_when_it_hung_in_a_closed_loop(lock)
    until(lambda: admin.token() is None)
    assert lock.statistics().losses == 1


def test_a_hung_redlock_of_a_closed_loop_is_given_back(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:
        lock = aio.Redlock(group.urls, name, ttl=30, progress_within=0.1)
        given_back_when_it_hung_in_a_closed_loop(lock)
        until(lambda: group.free(name))


def test_a_lease_of_a_closed_loop_whose_key_is_gone_counts_as_lost_once(server: PrivateServer, admin: Admin, name: str) -> None:
    lock = aio.Lock(server.url, name, ttl=30)
    taken_in_a_closed_loop(lock)
    lease = lock.lease
    assert lease is not None
    lease_record(lease).lose("nobody was told")
    with pytest.raises(holdfast.LeaseLost):
        asyncio.run(lease.release())
    assert lock.statistics().losses == 1


def test_a_closed_loop_is_forgotten(server: PrivateServer, name: str) -> None:
    """Also one whose asynchronous generators nobody has shut down, as `asyncio.run` does."""
    closed = []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(used(aio.Lock(server.url, name)))
        loop.close()
        closed.append(weakref.ref(loop))
        del loop
    asyncio.run(used(aio.Lock(server.url, name)))
    until(lambda: gc.collect() >= 0 and not any(loop() for loop in closed))


async def used(lock: Any) -> None:
    async with lock:
        pass


async def nothing() -> None:
    pass


def nobody() -> None:
    pass


@contextlib.contextmanager
def called(function: Callable[[], object]) -> Iterator[None]:
    function()
    yield


HALVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Lock": (aio.Lock, holdfast.Lock),
    "FairLock": (aio.FairLock, holdfast.FairLock),
    "RLock": (aio.RLock, holdfast.RLock),
    "Semaphore": (
        lambda url, name, **options: aio.Semaphore(url, name, 1, **options),
        lambda url, name, **options: holdfast.Semaphore(url, name, 1, **options),
    ),
    "RWLock.read": (
        lambda url, name, **options: aio.RWLock(url, name, **options).read,
        lambda url, name, **options: holdfast.RWLock(url, name, **options).write,
    ),
    "MultiLock": (
        lambda url, name, **options: aio.MultiLock(url, [name, f"{name}-too"], **options),
        lambda url, name, **options: holdfast.MultiLock(url, [name, f"{name}-too"], **options),
    ),
    "Election": (
        lambda url, name, **options: aio.Election(url, name, **options)._lock,
        holdfast.Election,
    ),
    "once": (
        lambda url, name, **options: SimpleNamespace(acquire=aio.once(url, name, keep=60, **options)(nothing)),
        lambda url, name, **options: called(holdfast.once(url, name, keep=60, busy="wait", **options)(nobody)),
    ),
}
"""How tasks of closed loops want it, and how the threads do that come after them."""


def closed_after(steps: int, lock: Any, server: PrivateServer, *used: Any) -> asyncio.Task[bool]:
    """A task that takes a lock, and whose loop is closed after so many turns, before there is an answer; nobody cancels it.
    ``used``: locks that were used before in that loop, so that the connection is open."""
    loop = asyncio.new_event_loop()

    async def use_them() -> None:
        for one in used:
            async with one:
                pass

    async def turns() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)

    loop.run_until_complete(use_them())
    server.pause()
    task: asyncio.Task[bool] = loop.create_task(lock.acquire())
    loop.run_until_complete(turns())
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    server.resume()
    return task


def use(lock: Any) -> None:
    with lock:
        pass


def closed_at_each_step(kind: str, server: PrivateServer, name: str, connected: str) -> Iterator[tuple[str, Any]]:
    """The name of a lock, and the task of a closed loop that has begun to take it."""
    inside, _ = HALVES[kind]
    for steps in range(1, 13):
        used = [aio.Lock(server.url, f"{name}-before")] if connected == "connected" else []
        which = f"{name}-{steps}"
        yield which, closed_after(steps, inside(server.url, which, ttl=60), server, *used)


by_steps = pytest.mark.parametrize("connected", ["connected", "not connected"])
referred_to_or_not = pytest.mark.parametrize("referred", ["referred", "dropped"])


@pytest.mark.turns
@referred_to_or_not
@by_steps
@pytest.mark.parametrize("kind", HALVES)
def test_whenever_a_loop_is_closed_the_next_one_has_the_lock(
    server: PrivateServer, name: str, kind: str, connected: str, referred: str
) -> None:
    """However far its task has come with taking it, and whether or not anybody refers to the task."""
    api, waiting, tasks = Sync(), [], []
    for which, task in closed_at_each_step(kind, server, name, connected):
        waiting.append(api.start(use, HALVES[kind][1](server.url, which, ttl=60)))
        if referred == "referred":
            tasks.append(task)
        del task
    for future in waiting:
        future.result(10)


@pytest.mark.turns
@referred_to_or_not
@by_steps
@pytest.mark.parametrize("kind", ["Lock", "FairLock", "RLock", "MultiLock"])
def test_whenever_a_loop_is_closed_the_lock_is_soon_free(
    server: PrivateServer, name: str, kind: str, connected: str, referred: str
) -> None:
    """Nobody of the process has to come after it."""
    keys, tasks = [], []
    for which, task in closed_at_each_step(kind, server, name, connected):
        keys += HALVES[kind][1](server.url, which).key.split(", ")
        if referred == "referred":
            tasks.append(task)
        del task
    time.sleep(0.1)  # for the last answer: it may be granted
    with redis.Redis.from_url(server.url, decode_responses=True) as look:
        until(lambda: not look.exists(*keys))


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["Lock", "FairLock", "Semaphore", "RWLock.read", "MultiLock"])
def test_a_place_at_the_server_of_a_task_of_a_closed_loop(server: PrivateServer, name: str, kind: str) -> None:
    """Those behind it come before its lease would have ended, also when it was granted the lock just before its loop closed."""
    inside, outside = HALVES[kind]
    api, waiting, tasks = Sync(), [], []
    for turns in range(4):
        which = f"{name}-{turns}"
        holder = holdfast.MultiLock(server.url, [which, f"{which}-too"]) if kind == "MultiLock" else outside(server.url, which)
        holder.acquire()
        loop = asyncio.new_event_loop()
        lock = inside(server.url, which, ttl=60)
        task = loop.create_task(lock.acquire())
        for _ in range(20):
            loop.run_until_complete(asyncio.sleep(0.01))
        assert not task.done()
        waiting.append(api.start(use, outside(server.url, which, ttl=60)))
        holder.release()
        for _ in range(turns):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if not task.done():
            tasks.append(task)
        else:
            with contextlib.suppress(RuntimeError):
                asyncio.run(lock.release())
    for future in waiting:
        future.result(10)


def test_what_a_majority_has_granted_to_a_closed_loop_goes_back_by_itself(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:
        task = closed_while_it_asks(aio.Redlock(group.urls, name, ttl=30), *group.servers)
        until(lambda: any(group.values(holdfast.Redlock(group.urls, name).key)))
        until(lambda: group.free(name))
        assert not task.done()


def test_locks_on_two_servers_that_a_closed_loop_was_granted(new_server: NewServer, name: str) -> None:
    servers = [new_server() for _ in range(2)]
    locks = [aio.Lock(server.url, name, ttl=30) for server in servers]
    task = closed_while_it_asks(aio.MultiLock(None, locks), servers[1])
    for server in servers:
        with redis.Redis.from_url(server.url) as look:
            until(lambda: not look.exists(locks[0].key))
    assert not task.done()


def test_closing_gives_back_what_a_closed_loop_was_granted(server: PrivateServer, admin: Admin, name: str) -> None:
    kept = holdfast.Lock(server.url, f"{name} kept", ttl=30)
    kept.acquire()
    # The keeper is connected: closing takes no longer than half a second, and a busy machine may need that to connect.
    until(lambda: any(isinstance(link, PipelinedConnection) and link.sock is not None for link in current().keeper._links))
    task = closed_while_it_asks(aio.Lock(server.url, name, ttl=30), server)
    until(lambda: admin.token() is not None)
    holdfast.close()
    assert admin.token() is None
    assert not task.done()


@pytest.mark.turns
@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "linger"), "RLock"])
@pytest.mark.fault(76)
def test_a_body_in_a_closed_loop_holds_the_lock_no_longer(server: PrivateServer, name: str, kind: str) -> None:
    """It never goes on, and nobody collects its task; its lease is not renewed for ever."""
    kinds = {**KINDS, "RLock": aio.RLock}
    lock = kinds[kind](server.url, name, ttl=30)
    inside: list[Any] = []

    async def body() -> None:
        async with lock as lease:
            inside.append(lease)
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(body())
    while not inside:
        loop.run_until_complete(asyncio.sleep(0.001))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(aio.close())
    loop.close()

    async def main() -> None:
        async with kinds[kind](server.url, name, ttl=30, wait=10):
            assert inside[0].remaining() == 0

    asyncio.run(main())
    assert not task.done()


def test_a_body_in_a_closed_loop_that_a_majority_has_granted(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:
        lock = aio.Redlock(group.urls, name, ttl=30)

        async def body() -> None:
            async with lock:
                await asyncio.Event().wait()

        loop = asyncio.new_event_loop()
        task = loop.create_task(body())
        while lock.lease is None:
            loop.run_until_complete(asyncio.sleep(0.001))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(aio.close())
        loop.close()
        assert holdfast.Redlock(group.urls, name, ttl=30).acquire(timeout=10)
        assert not task.done()


def body_in_a_closed_loop(lock: Any) -> asyncio.Task[None]:
    """A task inside ``async with``, whose loop is closed."""

    async def body() -> None:
        async with lock:
            loop.stop()
            await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    task = loop.create_task(body())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    try:
        loop.run_forever()
    finally:
        loop.close()
    return task


@pytest.mark.turns
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "linger"])
def test_a_body_that_is_collected_with_its_closed_loop(server: PrivateServer, name: str, kind: str) -> None:
    """Nobody refers to its task, nor to its lease."""
    body_in_a_closed_loop(KINDS[kind](server.url, name, ttl=30))
    gc.collect()

    async def main() -> None:
        async with KINDS[kind](server.url, name, ttl=30, wait=5):
            pass

    asyncio.run(main())
