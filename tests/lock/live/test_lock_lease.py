"""A lease while it is held: renewal, loss, and the end of a lease that is never released."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import FairLock, HoldfastWarning, Lease, LeaseLost, Lock, NotHeld, ServerError
from holdfast._core.lock.node import RECORD_AFTER_S
from holdfast._runtime.process import current
from support.servers import PrivateServer
from support.witness import PATIENCE, Monitor, connections, in_thread, lease_record, queue_length, until, warned_of_drop

if TYPE_CHECKING:
    from conftest import NewServer

short_lease = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")


# Renewal


@short_lease
def test_a_long_hold_is_renewed(server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str) -> None:
    with Lock(server.url, name, ttl=1.5) as lease:
        token = look.get(lease.key)
        monitor.until(5, name)  # acquire, then four renewals: longer than the lease
        assert look.get(lease.key) == token, "never taken again, only renewed"
        lease.check()
        assert 0 < lease.remaining() <= 1.5
        assert 0 < look.pttl(lease.key) <= 1500
    assert lease.remaining() == 0


@short_lease
def test_three_renewals_in_a_lease(server: PrivateServer, monitor: Monitor, name: str) -> None:
    with Lock(server.url, name, ttl=1.5):
        _, *sent = monitor.until(6, name)
    renewals = [command for command in sent if not command.startswith("EXISTS ")]  # that opens the keeper's connection
    made = [int(command.split()[-1]) / 1e6 for command in renewals]  # its time is its number
    assert 0.42 < min(later - earlier for earlier, later in itertools.pairwise(made)) < 0.65, "or one of them is late"


@pytest.mark.turns("fleets")
@short_lease
def test_many_leases_are_renewed_in_batches(new_server: NewServer) -> None:
    server = new_server()
    locks = [Lock(server.url, f"many:{number}", ttl=1.5) for number in range(2000)]
    assert all(lock.acquire() for lock in locks)
    held_leases = [lease_record(lock.lease) for lock in locks if lock.lease is not None]
    with redis.Redis.from_url(server.url) as look:
        look.config_resetstat()
        taken = max(held_lease.deadline for held_lease in held_leases)
        until(lambda: min(held_lease.deadline for held_lease in held_leases) > taken + 1.5)
        assert not any(held_lease.lost for held_lease in held_leases)
        runs = look.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert runs < 2000 * 3 / 10, "three renewals of each, at least"
        assert look.exists(*(held_lease.spec.keys[0] for held_lease in held_leases)) == 2000
    for lock in locks:
        lock.release()


@short_lease
def test_no_renewal_when_it_is_left_to_the_user(server: PrivateServer, monitor: Monitor, name: str) -> None:
    lock = Lock(server.url, name, ttl=1, renew=False)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    for _ in range(3):
        assert not lease.lost.wait(0.35)
        lease.renew()
    lease.renew(0.5)
    assert lease.lost.wait(PATIENCE)
    sent = monitor.names(name)
    assert [command for command in sent if command != "EXISTS"] == ["EVALSHA"] * 5
    assert sent.count("EXISTS") <= 1, "to open the keeper's connection"
    with pytest.raises(LeaseLost, match="its time ran out"):
        lock.release()


def test_renew_sets_and_never_adds(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Lock(server.url, name, ttl=30) as lease:
        for ttl in (60, 10, 20):
            lease.renew(ttl)
            lease.renew(ttl)
            assert ttl - 1 < lease.remaining() < ttl
            assert 1000 * (ttl - 1) < look.pttl(lease.key) <= 1000 * ttl


def test_one_trip_to_take_and_one_to_give_back(server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str) -> None:
    holdfast.close()  # an inbox that earlier tests have opened would be tested now and then
    lock = Lock(server.url, name)
    with lock:
        until(lambda: look.exists(f"hf:proc:{current().id}"))  # which is written now, and in 20 s again
    monitor.commands()
    for _ in range(5):
        with lock:
            pass
    assert monitor.names() == ["EVALSHA"] * 10, "nothing else, not even on the keeper's connection"


def test_keys_always_have_an_expiry(server: PrivateServer, look: redis.Redis, name: str) -> None:
    def expiries() -> dict[str, int]:
        return {key: look.pttl(key) for key in look.scan_iter(f"*{name}*")}

    other = FairLock(server.url, name)
    with FairLock(server.url, name, ttl=30):
        assert set(expiries()) == {f"hf:{{{name}}}", f"hf:{{{name}}}:state"}
        waiting = in_thread(other.acquire, True, 20)
        until(lambda: queue_length(look, name) == 1)
        assert len(expiries()) == 3
        assert all(ms > 0 for ms in expiries().values())
    assert waiting.result(5)
    assert all(ms > 0 for ms in expiries().values())
    assert all(ms > 0 for key in look.scan_iter("hf:proc:*") if (ms := look.pttl(key)) != -2)
    other.release()
    state = look.pttl(f"hf:{{{name}}}:state")
    assert state >= 600_000, "ten minutes after the last use at least"


# Loss


MEDDLING: dict[str, Callable[[redis.Redis, str], object]] = {
    "deleted": lambda client, key: client.delete(key),
    "overwritten": lambda client, key: client.set(key, "mine now", px=60_000),
    "renamed": lambda client, key: client.rename(key, f"{key}-moved"),
    "expired": lambda client, key: (client.pexpire(key, 1), until(lambda: not client.exists(key))),
    "another type": lambda client, key: (client.delete(key), client.rpush(key, "mine now"), client.pexpire(key, 60_000)),
    "flushed": lambda client, _: client.flushall(),
}


@pytest.mark.fault(52)
@short_lease
@pytest.mark.parametrize("how", MEDDLING)
def test_loss_is_seen_and_told_once(new_server: NewServer, name: str, how: str) -> None:
    """Row 52: what others do to the key."""
    server = new_server()
    told: list[Lease] = []
    lock = Lock(server.url, name, ttl=1, on_lost=told.append)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    with redis.Redis.from_url(server.url) as client:
        MEDDLING[how](client, lease.key)
        there = client.dump(lease.key)
        assert lease.lost.wait(PATIENCE)
        until(lambda: told)
        with pytest.raises(LeaseLost, match="another client" if there else "gone") as caught:
            lease.check()
        assert (caught.value.name, caught.value.key, caught.value.fence) == (name, lease.key, lease.fence)
        assert caught.value.reason in str(caught.value)
        assert lease.remaining() == 0
        with pytest.raises(LeaseLost):
            lock.release()
        assert lock.lease is None
        assert client.dump(lease.key) == there, "never taken again, never touched"
    assert told == [lease]


@pytest.mark.fault(52)
@short_lease
def test_an_expiry_that_was_taken_away_is_set_again(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Row 52: PERSIST."""
    with Lock(server.url, name, ttl=1) as lease:
        look.persist(lease.key)
        until(lambda: 0 < look.pttl(lease.key) <= 1000)
        lease.check()


@pytest.mark.fault(41)
@short_lease
def test_scripts_that_the_server_forgets(new_server: NewServer, name: str) -> None:
    """Row 41."""
    server = new_server()
    lock = Lock(server.url, name, ttl=1)
    with redis.Redis.from_url(server.url) as client:
        for _ in range(2):
            client.script_flush()
            with lock as lease:
                client.script_flush()
                until(lambda: client.pttl(lock.key) < 800)
                until(lambda: client.pttl(lock.key) > 850)
                client.script_flush()
                lease.check()


@short_lease
def test_on_lost_runs_in_a_thread_of_its_own_and_may_take_its_time(
    server: PrivateServer, look: redis.Redis, monitor: Monitor, name: str
) -> None:
    """Other leases are renewed meanwhile."""
    go_on = threading.Event()
    seen: list[str] = []

    def on_lost(_: Lease) -> None:
        seen.append(threading.current_thread().name)
        go_on.wait(10)

    lost = Lock(server.url, f"{name}-lost", ttl=1, on_lost=on_lost)
    lost.acquire()
    with Lock(server.url, f"{name}-kept", ttl=1) as kept:
        look.delete(lost.key)
        until(lambda: seen)
        assert seen[0] not in {threading.current_thread().name, "holdfast-keeper"}
        monitor.commands()
        monitor.until(3, kept.name)  # without them it would be over
        kept.check()
        go_on.set()
    with pytest.raises(LeaseLost):
        lost.release()


@short_lease
def test_lost_while_the_body_runs(server: PrivateServer, look: redis.Redis, name: str) -> None:
    def body(fails: bool) -> None:
        with Lock(server.url, name, ttl=0.6) as lease:
            look.delete(lease.key)
            assert lease.lost.wait(PATIENCE)
            if fails:
                raise ZeroDivisionError

    with pytest.raises(LeaseLost):
        body(fails=False)
    with pytest.raises(ZeroDivisionError) as caught:
        body(fails=True)
    assert any("was lost" in note for note in caught.value.__notes__)


def test_max_hold_ends_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name, ttl=30, max_hold=0.4)
    started = time.monotonic()
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    assert lease.lost.wait(PATIENCE)
    assert 0.35 <= time.monotonic() - started < 5
    until(lambda: not look.exists(lease.key))
    with pytest.raises(LeaseLost, match="max_hold"):
        lock.release()


def test_a_renewal_by_hand_keeps_nothing_beyond_max_hold(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name, ttl=5, max_hold=20)
    with lock as lease:
        lease.renew(ttl=600)
        assert 5 < look.pttl(lease.key) / 1000 <= 20


def test_the_event_can_be_asked_for_after_the_loss(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    look.delete(lease.key)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert lease.lost.is_set()
    assert lease.lost.wait(0)


# Nobody gives it back


@pytest.mark.fault(14)
@short_lease
def test_a_dropped_lease_warns_and_is_renewed_no_more(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name, ttl=1)
    lock.acquire()
    key = lock.key
    until(lambda: look.pttl(key) < 800)
    until(lambda: look.pttl(key) > 850)  # it has been renewed
    keep = [lock]
    del lock
    with warned_of_drop(name):
        keep.clear()
    until(lambda: not look.exists(key))


def test_a_lease_that_is_kept_keeps_the_lock(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    del lock
    gc.collect()
    lease.check()
    lease.release()


# The end of the process, before its time


def test_close_gives_everything_back(server: PrivateServer, look: redis.Redis, name: str) -> None:
    before = connections(look)
    lock, other = FairLock(server.url, name), FairLock(server.url, name)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    waiting = in_thread(other.acquire)
    until(lambda: queue_length(look, name) == 1)
    holdfast.close()
    assert lease.lost.is_set()
    with pytest.raises(ServerError, match="closed"):
        waiting.result(5)
    assert not look.exists(lock.key), "whoever of us was next in line does not have it either"
    assert queue_length(look, name) == 0
    with pytest.raises((LeaseLost, NotHeld)):
        lock.release()
    holdfast.close()  # the waiter may have needed a connection once more, to give up
    until(lambda: connections(look) <= before)
    until(lambda: not [thread.name for thread in threading.enumerate() if thread.name == "holdfast-keeper"])


def test_close_tells_the_holder(server: PrivateServer, name: str) -> None:
    """A worker under the lock, in another thread, has to stop: soon another client has the lock."""
    told: list[str] = []
    lock = Lock(server.url, name, on_lost=lambda lease: told.append(lease.name))
    with pytest.raises(LeaseLost, match="the process ends"), lock as lease:
        waiting = in_thread(lambda: lease.lost.wait(5))
        holdfast.close()
        assert waiting.result(5)
        until(lambda: told == [name])


def test_everything_works_after_close_and_can_be_closed_again(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holdfast.close()
    before = connections(look)
    lock = Lock(server.url, name)
    for _ in range(3):
        with lock as lease:
            lease.check()
        assert connections(look) - before
        holdfast.close()
        holdfast.close()
        until(lambda: connections(look) <= before)  # some of these may just have been closed


def test_a_quick_use_pays_for_nothing_at_the_end(
    server: PrivateServer, monitor: Monitor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record of the process was written, so none has to be removed."""
    monkeypatch.setattr("holdfast._core.lock.node.RECORD_AFTER_S", 250 * RECORD_AFTER_S)  # however slow this quick use is
    holdfast.close()
    monitor.commands()
    with Lock(server.url, name):
        pass
    holdfast.close()
    assert monitor.names() == ["EVALSHA"] * 2


def test_the_warning_names_the_lease() -> None:
    with pytest.warns(HoldfastWarning, match=r"ttl=0\.5: a lease of less than 2 s"):
        Lock("redis://localhost", "x", ttl=0.5)
