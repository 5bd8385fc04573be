"""``linger=``: the lease is kept for a while after use, and given back at once when another process asks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import LeaseLost, Lock, aio
from holdfast._clock import clock
from holdfast._core.lock.local_queue import PASS_LIMIT_S
from support.crowd import Crowd
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, local_queue, until, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")

SOON = 2.0
"""Seconds that giving back may take on a busy machine; it would be many times longer if nobody asked for it."""


def linger(url: str, name: str, seconds: float = 30.0, ttl: float = 30.0) -> Lock:
    """A lock that lingers now. The first use opens the inbox, without which nothing may be kept."""
    lock = Lock(url, name, ttl=ttl, linger=seconds)
    client = redis.Redis.from_url(url)

    def lingers() -> bool:
        with lock:
            pass
        return bool(client.exists(lock.key))

    until(lingers)
    client.close()
    return lock


def test_taken_again_without_a_trip(server: PrivateServer, monitor: Monitor, name: str) -> None:
    holdfast.close()  # an inbox that is open for long is tested now and then, which stirs it
    lock = linger(server.url, name)
    fences = []
    held_lease = local_queue(lock).held_lease
    assert held_lease is not None
    taken = held_lease.since
    monitor.commands()
    for _ in range(30):
        with lock as lease:
            lease.check()
            fences.append(lease.fence)
    sent = monitor.names(name)
    assert fences == sorted(set(fences))
    assert sent == [] or clock() > taken + PASS_LIMIT_S
    holdfast.close()


def test_taken_again_in_a_loop(server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name, linger=30)
        turns = 0
        while not look.exists(lock.key):  # each turn is two trips until the inbox is open
            async with lock:
                pass
        monitor.commands()
        started = time.monotonic()
        while turns < 500:
            async with lock as lease:
                lease.check()
                turns += 1
        trips = len([command for command in monitor.names(name) if command == "EVALSHA"])
        assert trips < 100 + 4 * (time.monotonic() - started), "two a second, more fences"

    asyncio.run(main())
    holdfast.close()


def test_any_lock_of_the_process_takes_it_again(server: PrivateServer, monitor: Monitor, name: str) -> None:
    linger(server.url, name)
    monitor.commands()
    with Lock(server.url, name, wait=0):
        pass
    assert len(monitor.names(name)) <= 1, "this one does not linger itself, so it is given back now"
    assert not Lock(server.url, name).locked()


def test_it_ends_on_time(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = linger(server.url, name, 0.3)
    with lock:
        until(lambda: not local_queue(lock).node.has_unread())  # what comes may say that somebody outside wants it
        released = time.monotonic()
    until(lambda: not look.exists(lock.key))
    assert 0.3 <= time.monotonic() - released < 0.3 + SOON


def test_it_is_renewed_meanwhile(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = linger(server.url, name, seconds=10, ttl=2)
    token = look.get(lock.key)
    for _ in range(2):
        until(lambda: look.pttl(lock.key) < 1500)
        until(lambda: look.pttl(lock.key) > 1600)
    assert look.get(lock.key) == token
    with lock as lease:
        lease.check()
    holdfast.close()


# Others who want it


def test_another_process_gets_it_when_it_asks(server: PrivateServer, name: str) -> None:
    with Peer("sync", server.url, name) as peer:
        peer.ask("(lock.acquire(), lock.release())")  # it has all its connections
        took = []
        for _ in range(5):
            lock = linger(server.url, name)
            with lock as lease:
                fence = lease.fence
            started = time.monotonic()
            assert peer.ask("(lock.acquire(), lock.lease.fence, lock.release())[1]") > fence
            took.append(time.monotonic() - started)
        assert min(took) < 0.05, took
        assert max(took) < SOON, took


def test_another_process_that_does_not_wait_gets_it_too(server: PrivateServer, name: str) -> None:
    """Never "busy"."""
    with Peer("sync", server.url, name) as peer:
        # The holder may be slow; this test is not about the quarter of a second that it gets.
        peer.ask("setattr(sys.modules['holdfast._core.lock.acquire'], 'RECALL_WITHIN_S', 5.0)")
        for _ in range(5):
            lock = linger(server.url, name)
            assert peer.ask("lock.acquire(False)") is True
            assert lock.acquire(False) is False
            peer.ask("lock.release()")


def test_even_if_it_was_taken_by_one_that_does_not_linger(server: PrivateServer, name: str) -> None:
    """Its token does not say that it may be kept: so it is not."""
    plain, lingering = (Lock(server.url, name, max_pass_time=1, linger=seconds) for seconds in (0, 30))
    with Peer("sync", server.url, name) as peer:
        for _ in range(5):
            plain.acquire()
            taken = in_thread(lingering.acquire)
            until(lambda: waiting_here(plain) == 1 and local_queue(plain).reachable)
            plain.release()
            assert taken.result(5)
            lingering.release()
            assert peer.ask("lock.acquire(False)") is True
            peer.ask("lock.release()")


def test_a_busy_one_is_busy(server: PrivateServer, name: str) -> None:
    """A client that does not wait asks for the lease, and is told in a moment that the lock is in use."""
    lock = linger(server.url, name)
    with Peer("sync", server.url, name) as peer, lock:
        started = time.monotonic()
        assert peer.ask("lock.acquire(False)") is False
        assert time.monotonic() - started < 0.25 + SOON


def test_redis_pys_own_lock_gets_it_when_the_time_is_over(server: PrivateServer, name: str) -> None:
    """It cannot ask."""
    with redis.Redis.from_url(server.url) as client:
        lock = linger(server.url, name, 0.4)
        with lock:
            pass
        theirs = client.lock(lock.key, timeout=5, sleep=0.01)
        started = time.monotonic()
        assert theirs.acquire(blocking_timeout=5)
        assert time.monotonic() - started < 0.4 + SOON
        theirs.release()


def test_who_asks_while_the_inbox_is_away_gets_it_when_it_is_back(new_server: NewServer, name: str) -> None:
    server = new_server()
    with redis.Redis.from_url(server.url) as client, Peer("sync", server.url, name) as peer:
        peer.ask("(lock.acquire(), lock.release())")
        linger(server.url, name)
        client.client_kill_filter(_type="pubsub")
        started = time.monotonic()
        assert peer.ask("lock.acquire()") is True
        assert time.monotonic() - started < 2 + SOON
        peer.ask("lock.release()")


def test_a_crowd_that_lingers_and_others(server: PrivateServer, name: str) -> None:
    crowd = Crowd(lambda: Lock(server.url, name, linger=5), lambda: aio.Lock(server.url, name, linger=5))
    with Peer("sync", server.url, name, linger=5) as peer:
        crowd.threads(3, turns=200)
        crowd.loop(3, turns=200)
        fences = [peer.ask("(lock.acquire(), lock.lease.fence, lock.release())[1]") for _ in range(20)]
        turns = crowd.done()
        assert fences == sorted(set(fences))
        assert not {turn.fence for turn in turns} & set(fences)
    holdfast.close()


# Its end


def test_close_gives_it_back(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = linger(server.url, name)
    assert look.exists(lock.key)
    holdfast.close()
    assert not look.exists(lock.key)


def test_the_end_of_the_process_gives_it_back(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Peer("sync", server.url, name, linger=30) as peer:
        until(lambda: peer.ask("(lock.acquire(), lock.release())") and look.exists(f"hf:{{{name}}}"))
        assert peer.process.stdin is not None
        peer.process.stdin.close()
        peer.process.wait(5)
        assert not look.exists(f"hf:{{{name}}}")


@short_lease
def test_a_killed_process_blocks_nobody_for_longer_than_its_lease(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Peer("sync", server.url, name, linger=30, ttl=0.5) as peer:
        until(lambda: peer.ask("(lock.acquire(), lock.release())") and look.exists(f"hf:{{{name}}}"))
        peer.kill()
        started = time.monotonic()
        with Lock(server.url, name, wait=5):
            assert time.monotonic() - started < 0.5 + SOON


@short_lease
@pytest.mark.parametrize("how", ["deleted", "overwritten"])
def test_lost_while_it_lingers(server: PrivateServer, look: redis.Redis, name: str, how: str) -> None:
    """Nobody has it, so nobody is told; the next one asks the server."""
    lock = linger(server.url, name, ttl=1)
    held_lease = local_queue(lock).held_lease
    assert held_lease is not None
    fence = held_lease.holder_fence
    if how == "deleted":
        look.delete(lock.key)
    else:
        look.set(lock.key, "somebody else", px=60_000)
    until(lambda: held_lease.lost)
    if how == "overwritten":
        assert lock.acquire(blocking=False) is False, "somebody else has it"
        look.delete(lock.key)
    with lock as lease:
        assert lease.fence > fence
        lease.check()
    lease = lock.__enter__()
    look.delete(lock.key)
    until(lease.lost.is_set)
    with pytest.raises(LeaseLost):
        lock.__exit__(None, None, None)
