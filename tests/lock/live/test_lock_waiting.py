"""Standing in line on a real server: order, silence, hand-over, and peers of another make."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import FairLock, LeaseLost, Lock, LockTimeout, ServerError
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import PATIENCE, Monitor, in_thread, queue_length, until

if TYPE_CHECKING:
    from conftest import NewServer


def test_strict_order_over_processes(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Each joins when the one before is in the queue; each takes it in that order, and fences rise with it."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer("sync", server.url, name)) for _ in range(3)]
        for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
            first = Lock(server.url, name)
            first.acquire()
            for place, number in enumerate(order):
                peers[number].tell("(lock.acquire(), lock.lease.fence)")
                until(lambda: queue_length(look, name) == place + 1)  # noqa: B023
            first.release()
            fences = []
            for place, number in enumerate(order):
                took, fence = peers[number].answer()
                assert took is True
                fences.append(fence)
                assert queue_length(look, name) == 2 - place
                peers[number].ask("lock.release()")
            assert fences == sorted(set(fences))


def test_strict_order_among_threads(server: PrivateServer, look: redis.Redis, name: str) -> None:
    order: list[int] = []

    def work(number: int) -> None:
        with FairLock(server.url, name):
            order.append(number)

    with FairLock(server.url, name):
        futures: list[Future[None]] = []
        for number in range(8):
            futures.append(in_thread(work, number))
            until(lambda: queue_length(look, name) == len(futures))
    for future in futures:
        future.result(10)
    assert order == list(range(8))


def test_a_newcomer_does_not_overtake(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Even at the moment at which the lock is free."""
    first, second = FairLock(server.url, name), FairLock(server.url, name)
    first.acquire()
    waiting = in_thread(second.acquire)
    until(lambda: queue_length(look, name) == 1)
    look.delete(first.key)
    assert FairLock(server.url, name, wait=0).acquire() is False
    assert waiting.result(1), "whoever asks first wakes the one in line"
    second.release()
    with pytest.raises(Exception, match="lost"):
        first.release()


def test_nothing_is_sent_while_waiting_but_one_refresh_a_second(
    server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str
) -> None:
    """However many wait for however many locks of one process."""
    holder = FairLock(server.url, name)
    holder.acquire()
    locks = [FairLock(server.url, name) for _ in range(5)]
    waiting = []
    for lock in locks:
        waiting.append(in_thread(lock.acquire, True, 60))
        until(lambda: queue_length(look, name) == len(waiting))
    started = time.monotonic()
    monitor.commands()
    sent = monitor.until(3, name)
    while sum("hf:inbox:" in command for command in sent) < 3:
        sent += monitor.until(1, name)
    assert time.monotonic() - started > 1.8
    refreshes = [command for command in sent if "hf:inbox:" in command]
    others = [command for command in sent if command not in refreshes]
    assert others in ([], [f"EXISTS hf:{{{name}}}"]), "nothing else, but for opening the keeper's connection"
    assert all(command.split()[2] == str(3 * len(locks)) for command in refreshes), "one for all"
    holder.release()
    done = 0
    while done < len(locks):
        held = until(lambda: [lock for lock in locks if lock.lease])
        held[0].release()
        done += 1
    assert all(future.result(5) for future in waiting)


def test_a_hand_over_costs_the_waiter_no_trip(server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str) -> None:
    first, second = FairLock(server.url, name), FairLock(server.url, name)
    first.acquire()
    waiting = in_thread(second.acquire)
    until(lambda: queue_length(look, name) == 1)
    monitor.commands()
    first.release()
    assert waiting.result(5)
    second.release()
    assert monitor.names(name) in (["EVALSHA"] * 2, ["EVALSHA"] * 3), "the two releases, and at most the renewal of the claim"


@pytest.mark.parametrize("renew", [True, False])
def test_the_claim_becomes_a_full_lease(server: PrivateServer, look: redis.Redis, name: str, renew: bool) -> None:
    first, second = FairLock(server.url, name), FairLock(server.url, name, ttl=30, renew=renew)
    first.acquire()
    waiting = in_thread(second.acquire)
    until(lambda: queue_length(look, name) == 1)
    first.release()
    assert waiting.result(5)
    lease = second.lease
    assert lease is not None
    until(lambda: look.pttl(second.key) > 29_000)
    until(lambda: lease.remaining() > 29)
    lease.release()


def test_the_end_of_a_dead_holders_lease_wakes_the_next(
    server: PrivateServer, look: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._core.lock.server_queue.REFRESH_EVERY_S", 60.0)  # who asks all the time finds it free, too
    started = time.monotonic()
    look.set(f"hf:{{{name}}}", "somebody who died", px=400)
    with Lock(server.url, name, wait=PATIENCE) as lease:
        assert time.monotonic() - started > 0.39
        assert not lease.lost.is_set()


def test_who_gives_up_leaves_no_place(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Lock(server.url, name):
        assert [Lock(server.url, name, wait=0.05).acquire() for _ in range(3)] == [False] * 3
        assert queue_length(look, name) == 0
        assert not [field for field in look.hkeys(f"hf:{{{name}}}:state") if str(field).startswith("at:")]


def test_a_hand_over_to_somebody_who_just_gives_up_goes_to_the_next(
    server: PrivateServer, look: redis.Redis, name: str
) -> None:
    """Time runs out for the first in line when the lock is handed over: no lock is left held by nobody."""
    for number in range(10):
        first, hasty, last = (FairLock(server.url, name) for _ in range(3))
        first.acquire()
        impatient = in_thread(hasty.acquire, True, 0.1)
        until(lambda: queue_length(look, name) == 1 or impatient.done())  # noqa: B023
        patient = in_thread(last.acquire)
        until(lambda: queue_length(look, name) == 2 or (impatient.done() and queue_length(look, name) == 1))  # noqa: B023
        time.sleep(0.05 + number * 0.01)
        first.release()
        if impatient.result(2):
            hasty.release()
        assert patient.result(1)
        last.release()


# A server that goes away meanwhile


@pytest.mark.fault(29)
def test_a_restart_is_ridden_out(new_server: NewServer, name: str) -> None:
    """It has forgotten the queue: whoever waited starts again."""
    server = new_server()
    holder, second = FairLock(server.url, name), FairLock(server.url, name)
    holder.acquire()
    waiting = in_thread(second.acquire)
    with redis.Redis.from_url(server.url) as client:
        until(lambda: queue_length(client, name) == 1)
    server.restart()
    assert waiting.result(10)
    second.release()
    with pytest.raises(LeaseLost):
        holder.release()


def test_a_server_that_stays_away_is_an_error_when_the_time_is_up(new_server: NewServer, name: str) -> None:
    server = new_server()
    holder = FairLock(server.url, name)
    holder.acquire()
    waiting = in_thread(FairLock(server.url, name).acquire, True, 1.0)
    with redis.Redis.from_url(server.url) as client:
        until(lambda: queue_length(client, name) == 1)
    started = time.monotonic()
    server.kill()
    with pytest.raises(ServerError):
        waiting.result(10)
    assert time.monotonic() - started < 2.5
    with pytest.raises(ServerError):
        holder.release()


# Peers of another make


@pytest.mark.parametrize("expiry", [30.0, None])
def test_excluded_by_redis_pys_own_lock(server: PrivateServer, name: str, expiry: float | None) -> None:
    with redis.Redis.from_url(server.url) as client:
        theirs = client.lock(name, timeout=expiry)
        ours = Lock(client, "any name", key=name, wait=0.1)
        assert theirs.acquire()
        assert ours.locked()
        with pytest.raises(LockTimeout, match="another library") as caught, ours:
            pass
        assert caught.value.holder is None
        assert caught.value.remaining == (pytest.approx(30, abs=1) if expiry else None)
        assert ("no expiry" in str(caught.value)) is (expiry is None)
        theirs.release()
        with ours:
            assert theirs.locked()


def test_excludes_redis_pys_own_lock(server: PrivateServer, name: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        theirs = client.lock(name, timeout=30, blocking=False)
        ours = Lock(client, "any name", key=name)
        with ours:
            assert not theirs.acquire()
            assert theirs.locked()
            assert not theirs.owned()
        assert theirs.acquire()
        assert ours.acquire(False) is False
        theirs.release()


def test_waits_for_redis_pys_own_lock(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """It publishes nothing: noticed by asking, once a second at most."""
    with redis.Redis.from_url(server.url) as client:
        theirs = client.lock(name, timeout=30)
        theirs.acquire()
        ours = Lock(client, "any name", key=name)
        waiting = in_thread(ours.acquire)
        until(lambda: [key for key in look.scan_iter(f"*{name}*") if "queue" in key])
        theirs.release()
        assert waiting.result(5)
        ours.release()


def test_turns_with_redis_pys_own_lock(server: PrivateServer, name: str) -> None:
    """Both count with a read and a write; one of them would lose counts without mutual exclusion."""
    counter = 0
    inside = threading.Lock()

    def count(lock: Any, times: int) -> None:
        nonlocal counter
        for _ in range(times):
            with lock:
                assert inside.acquire(blocking=False), "two at once"
                seen = counter
                time.sleep(0.0005)
                counter = seen + 1
                inside.release()

    with redis.Redis.from_url(server.url) as client:
        ours = in_thread(count, Lock(client, "any name", key=name), 5)
        theirs = in_thread(count, client.lock(name, timeout=30, sleep=0.001), 20)
        ours.result(20)
        theirs.result(20)
    assert counter == 25
