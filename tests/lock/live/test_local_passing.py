"""One contender per process: threads and tasks that want the same lock line up here, and it is passed on along the line."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import FairLock, Lock, aio
from holdfast._api.base_lock import BaseLock
from holdfast._core.lock.local_queue import PASS_LIMIT_S
from support.crowd import Crowd
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import PATIENCE, Monitor, in_thread, local_queue, queue_length, until, until_in_loop, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


# In one process


def lined_up(lock: BaseLock[Any, Any], count: int) -> bool:
    """So many stand in line, and the lock can be passed on to them: those outside could say that they want it."""
    return waiting_here(lock) == count and local_queue(lock).reachable


def test_threads_and_tasks_of_several_loops_take_turns(server: PrivateServer, monitor: Monitor, name: str) -> None:
    crowd = Crowd(lambda: Lock(server.url, name), lambda: aio.Lock(server.url, name))
    with Lock(server.url, name) as lease:
        crowd.threads(4, turns=25)
        crowd.loop(4, turns=25)
        crowd.loop(4, turns=25)
        until(lambda: lined_up(Lock(server.url, name), 12))
        monitor.commands()
    turns = crowd.done()
    assert turns[0].fence > lease.fence
    assert len(turns) == 300
    assert len({turn.who for turn in turns}) == 12
    trips = [command for command in monitor.names(name) if command == "EVALSHA"]
    assert len(trips) < len(turns) / 4, "most of them have cost nothing"


def test_one_object_for_all_threads(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    crowd = Crowd(lambda: lock)
    crowd.threads(8, turns=40)
    assert len(crowd.done()) == 320
    assert lock.lease is None
    assert not lock.locked()


def test_sixteen_threads_hardly_talk_to_the_server(server: PrivateServer, monitor: Monitor, name: str) -> None:
    crowd = Crowd(lambda: Lock(server.url, name))
    with Lock(server.url, name):
        crowd.threads(16, turns=50)
        until(lambda: lined_up(Lock(server.url, name), 16))
        monitor.commands()
    turns = crowd.done()
    assert len(turns) == 800
    assert len(monitor.names(name)) < 80


def test_the_line_is_served_in_order_of_arrival(server: PrivateServer, name: str) -> None:
    order: list[int] = []

    def work(number: int) -> None:
        with Lock(server.url, name):
            order.append(number)

    lock = Lock(server.url, name)
    with lock:
        futures = []
        for number in range(8):
            futures.append(in_thread(work, number))
            until(lambda: waiting_here(lock) == len(futures))
    for future in futures:
        future.result(10)
    assert order == list(range(8))


def test_who_waits_in_line_is_not_in_the_servers_queue(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name)
    with Peer("sync", server.url, name) as peer:
        assert peer.ask("lock.acquire()")
        waiting = [in_thread(Lock(server.url, name).acquire, True, 1.0) for _ in range(5)]
        until(lambda: waiting_here(lock) == 4)
        until(lambda: queue_length(look, name) == 1)  # one stands there for all
        assert [future.result(5) for future in waiting] == [False] * 5
        assert (waiting_here(lock), queue_length(look, name)) == (0, 0)


def test_who_gives_up_in_line_leaves_no_trace(server: PrivateServer, monitor: Monitor, name: str) -> None:
    lock = Lock(server.url, name)
    with lock:
        monitor.commands()
        started = time.monotonic()
        assert Lock(server.url, name).acquire(timeout=0.1) is False
        assert 0.1 <= time.monotonic() - started < 5
        assert waiting_here(lock) == 0
        assert monitor.names(name) in ([], ["EVALSHA"]), "at most an early renewal, to learn whether the lease is lost"
    with Lock(server.url, name, wait=0):
        pass


def test_cancelled_in_line_at_any_moment(server: PrivateServer, name: str) -> None:
    """Cancelled a little later each time, from before the pass until after it: the next in line always gets it."""

    async def main() -> None:
        outcomes = set()
        for steps in range(12):
            holder, lock, other = (aio.Lock(server.url, name) for _ in range(3))
            await holder.acquire()
            task = asyncio.create_task(lock.acquire())
            await until_in_loop(lambda: waiting_here(holder) == 1)  # noqa: B023
            taken = asyncio.create_task(other.acquire())
            await until_in_loop(lambda: lined_up(holder, 2))  # noqa: B023
            release = asyncio.create_task(holder.release())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await release
            await asyncio.wait({task})
            outcomes.add(task.cancelled())
            if not task.cancelled():
                await lock.release()
            assert await asyncio.wait_for(taken, PATIENCE)
            await other.release()
            assert not await holder.locked()
        assert outcomes == {True, False}, "both ends of the race were seen"

    asyncio.run(main())


@short_lease
def test_locks_that_differ_in_their_lease_are_not_passed_on(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Each gets what it asked for."""
    first, second, third = Lock(server.url, name, ttl=30), Lock(server.url, name, ttl=5), Lock(server.url, name, renew=False)
    fences = []
    first.acquire()
    waiting = []
    for count, lock in enumerate((second, third), 1):
        waiting.append(in_thread(lock.acquire))
        until(lambda: waiting_here(first) == count)  # noqa: B023
    for lock, future, ttl in ((first, None, 30), (second, waiting[0], 5), (third, waiting[1], 30)):
        assert future is None or future.result(5)
        assert lock.lease is not None
        fences.append(lock.lease.fence)
        until(lambda: ttl - 1 < look.pttl(lock.key) / 1000 <= ttl)  # noqa: B023
        lock.release()
    assert fences == sorted(set(fences))


@short_lease
def test_a_lease_that_is_passed_on_is_renewed(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Held by one after the other for longer than it lasts."""
    crowd = Crowd(lambda: Lock(server.url, name, ttl=1), work=0.3)
    crowd.threads(3, turns=2)
    assert len(crowd.done()) == 6


# Others outside


@contextmanager
def two_peers(server: PrivateServer, look: redis.Redis, name: str, crowd: Crowd) -> Iterator[Peer]:
    """One has the lock, then comes a crowd of ours, then the other one. Gives the other one, when the first is done."""
    with Peer("sync", server.url, name) as first, Peer("sync", server.url, name) as second:
        assert first.ask("lock.acquire()")
        crowd.threads(8)
        until(lambda: queue_length(look, name) == 1 and waiting_here(Lock(server.url, name)) == 7)
        second.tell("(lock.acquire(), lock.lease.fence, lock.release())[1]")
        until(lambda: queue_length(look, name) == 2)
        first.ask("lock.release()")
        yield second


def before(crowd: Crowd, peer: Peer) -> list[Any]:
    """The turns of the crowd that came before the peer's."""
    fence = peer.answer()
    crowd.stop()
    return [turn for turn in crowd.done() if turn.fence < fence]


@pytest.mark.turns
@pytest.mark.parametrize("passes", [0, 5])
def test_others_are_passed_by_a_bounded_number_of_times(
    server: PrivateServer, look: redis.Redis, name: str, passes: int
) -> None:
    crowd = Crowd(lambda: Lock(server.url, name, max_passes=passes, max_pass_time=60), work=0.001)
    with two_peers(server, look, name, crowd) as peer:
        assert len(before(crowd, peer)) == 1 + passes


def test_others_are_passed_by_for_a_bounded_time(server: PrivateServer, look: redis.Redis, name: str) -> None:
    crowd = Crowd(lambda: Lock(server.url, name, max_passes=10**6, max_pass_time=0.5), work=0.02)
    with two_peers(server, look, name, crowd) as peer:
        turns = before(crowd, peer)
    assert 1 < len(turns) <= 26, "each takes 0.02 s, or longer; in LIMIT there would be time for twice as many"


def test_the_default_bounds(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """32 passes with an empty body, 10 ms with work inside."""
    crowd = Crowd(lambda: Lock(server.url, name))
    with two_peers(server, look, name, crowd) as peer:
        assert 1 <= len(before(crowd, peer)) <= 33
    crowd = Crowd(lambda: Lock(server.url, name), work=0.004)
    with two_peers(server, look, name, crowd) as peer:
        assert len(before(crowd, peer)) <= 4


def test_who_cannot_say_that_he_waits_is_served_in_a_second(new_server: NewServer, name: str) -> None:
    """The message to the holder is lost."""
    server = new_server()
    crowd = Crowd(lambda: Lock(server.url, name), work=0.001)
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser(
            "mute", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"], commands=["-publish"]
        )
        with Peer("sync", server.url.replace("unix://", "unix://mute:secret@"), name) as peer:
            crowd.threads(4)
            until(lambda: len(crowd.turns) > 20)
            started = time.monotonic()
            fence = peer.ask("(lock.acquire(), lock.lease.fence, lock.release())[1]")
            took = time.monotonic() - started
            crowd.stop()
            turns = crowd.done()
    assert took < PASS_LIMIT_S + 1
    assert any(turn.fence > fence for turn in turns)


def test_two_processes_take_turns(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Neither waits until the other has finished."""
    fences = []
    crowd = Crowd(lambda: Lock(server.url, name), work=0.0005)
    with Peer("sync", server.url, name) as peer:
        crowd.threads(8)
        until(lambda: len(crowd.turns) > 8)
        for _ in range(20):
            fences.append(peer.ask("(lock.acquire(), lock.lease.fence)[1]"))
            until(lambda: queue_length(look, name) == 1)  # one of ours, who asks for all
            peer.ask("lock.release()")
        crowd.stop()
        turns = crowd.done()
    assert fences == sorted(set(fences))
    between = [sum(low < turn.fence < high for turn in turns) for low, high in itertools.pairwise(fences)]
    assert all(between), "ours were served in between"
    assert not {turn.fence for turn in turns} & set(fences)


# The place at the server


def test_the_place_of_who_gives_up_is_inherited(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The first of us in line has waited long enough: the next one goes on waiting where the first has stood."""
    key = f"hf:{{{name}}}:queue"
    with Peer("sync", server.url, name) as holder, Peer("sync", server.url, name) as later:
        assert holder.ask("lock.acquire()")
        impatient = in_thread(Lock(server.url, name).acquire, True, 1.2)
        until(lambda: queue_length(look, name) == 1)
        patient = Lock(server.url, name)
        taken = in_thread(patient.acquire)
        until(lambda: waiting_here(patient) == 1)
        place = look.zrange(key, 0, -1, withscores=True)
        later.tell("(lock.acquire(), lock.lease.fence)")
        until(lambda: queue_length(look, name) == 2)
        assert impatient.result(5) is False
        assert look.zrange(key, 0, 0, withscores=True) == place
        holder.ask("lock.release()")
        assert taken.result(5)
        assert patient.lease is not None
        fence = patient.lease.fence
        patient.release()
        assert later.answer()[1] > fence


def test_no_place_is_left_when_all_give_up(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Peer("sync", server.url, name) as holder:
        assert holder.ask("lock.acquire()")
        waiting = [in_thread(Lock(server.url, name).acquire, True, 0.1 + 0.05 * number) for number in range(5)]
        assert [future.result(5) for future in waiting] == [False] * 5
        assert queue_length(look, name) == 0
        assert not [field for field in look.hkeys(f"hf:{{{name}}}:state") if str(field).startswith("at:")]


def test_the_two_kinds_of_locks_exclude_each_other(server: PrivateServer, name: str) -> None:
    kinds = itertools.cycle([Lock, FairLock])
    crowd = Crowd(lambda: next(kinds)(server.url, name))
    crowd.threads(6, turns=30)
    assert len(crowd.done()) == 180
