"""The synchronous lock as a user sees it: ``with``, `acquire` and `release`, what they answer and raise."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import redis

import holdfast
from holdfast import ConfigError, FairLock, HoldfastWarning, Lock, LockTimeout, NotHeld, ServerError
from holdfast._core.names import lock_keys
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, queue_length, until

if TYPE_CHECKING:
    from conftest import NewServer


# with


def test_a_with_statement(server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock = Lock(server.url, name, ttl=30)
    assert lock.lease is None
    before = int(time.time() * 1e6)
    with lock as lease:
        assert lock.lease is lease
        assert (lease.name, lease.key) == (lock.name, lock.key) == (name, f"hf:{{{name}}}")
        assert 29 < lease.remaining() < 30
        assert not lease.lost.is_set()
        lease.check()
        assert lock.locked()
        assert re.fullmatch(r"[0-9a-f]{12}\.[0-9a-f]{32}", str(look.get(lock.key)))
        assert 29_000 < look.pttl(lock.key) <= 30_000
        assert before - 5e6 < lease.fence < before + 60e6, "it says when the lock was taken"
    assert lock.lease is None
    assert not lock.locked()
    assert look.get(lock.key) is None
    assert lease.remaining() == 0
    assert not lease.lost.is_set()


def test_fences_rise_and_stay(server: PrivateServer, name: str) -> None:
    leases = []
    for _ in range(3):
        for lock in (Lock(server.url, name), Lock(server.url, name)):
            with lock as lease:
                leases.append((lease.fence, lease))
    fences = [fence for fence, _ in leases]
    assert fences == sorted(set(fences))
    assert all(lease.fence == fence for fence, lease in leases)


def test_a_body_that_fails_gives_the_lock_back(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    with pytest.raises(ZeroDivisionError) as caught, lock:
        raise ZeroDivisionError
    assert not lock.locked()
    assert not hasattr(caught.value, "__notes__")


def test_leaving_releases_that_lease_and_no_other(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    with lock as first:
        first.release()
        assert in_thread(lock.acquire).result()
        second = lock.lease
        assert second is not None
    assert lock.lease is second
    assert lock.locked()
    second.check()
    lock.release()


def test_giving_back_twice(server: PrivateServer, name: str) -> None:
    with Lock(server.url, name) as lease:
        lease.release()
        for again in (lease.release, lease.check, lease.renew):
            with pytest.raises(NotHeld, match="released already"):
                again()


# Threads


def test_one_object_shared_by_threads(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    counter = 0

    def work() -> None:
        nonlocal counter
        for _ in range(20):
            with lock as lease:
                lease.check()
                seen = counter
                time.sleep(0)
                counter = seen + 1

    for future in [in_thread(work) for _ in range(4)]:
        future.result(20)
    assert counter == 80
    assert not lock.locked()


def test_any_thread_may_release(server: PrivateServer, name: str) -> None:
    lock = Lock(server.url, name)
    lock.acquire()
    waiting = in_thread(lock.acquire)
    in_thread(lock.release).result()
    assert waiting.result(5)
    lock.release()
    with pytest.raises(NotHeld, match=r"is not held by this object: it was released before \(at "):
        lock.release()


def test_one_object_does_not_release_what_another_holds(server: PrivateServer, name: str) -> None:
    with Lock(server.url, name) as lease:
        other = Lock(server.url, name)
        with pytest.raises(NotHeld, match="has not been acquired by this object"):
            other.release()
        lease.check()
        assert other.locked()


# Waiting


def test_wait_0_is_one_try(server: PrivateServer, monitor: Monitor, name: str) -> None:
    for cls, trips in ((FairLock, 2), (Lock, 1)):  # where this very process has it, only whether that is lost, once a second
        with cls(server.url, name):
            monitor.commands()
            lock = cls(server.url, name, wait=0)
            assert lock.acquire() is False
            assert lock.acquire(blocking=False) is False
            assert monitor.names(name) == ["EVALSHA"] * trips
    with Lock(server.url, name):
        lock = FairLock(server.url, name, wait=0)
        with pytest.raises(LockTimeout), lock:
            pass


@pytest.mark.parametrize("how", ["object", "argument"])
def test_wait_bounds_the_waiting(server: PrivateServer, look: redis.Redis, name: str, how: str) -> None:
    with Lock(server.url, name):
        lock = Lock(server.url, name, wait=0.3 if how == "object" else None)
        started = time.monotonic()
        assert (lock.acquire() if how == "object" else lock.acquire(True, 0.3)) is False
        assert 0.3 <= time.monotonic() - started < 5
        assert queue_length(look, name) == 0


@pytest.mark.parametrize("timeout", [-1, threading.TIMEOUT_MAX])
def test_without_wait_it_waits_for_ever(server: PrivateServer, look: redis.Redis, name: str, timeout: float) -> None:
    first, second = FairLock(server.url, name), FairLock(server.url, name)
    first.acquire()
    waiting = in_thread(second.acquire, True, timeout)
    until(lambda: queue_length(look, name) == 1)
    first.release()
    assert waiting.result(5) is True
    second.release()


def test_the_time_out_says_who_holds_it(server: PrivateServer, look: redis.Redis, name: str) -> None:
    with Peer("sync", server.url, name, label="nightly backup") as peer:
        assert peer.ask("lock.acquire()") is True
        until(lambda: any(f'"pid": {peer.pid},' in str(look.get(key)) for key in look.keys("hf:proc:*")))
        holder = f"{socket.gethostname()}:{peer.pid} (nightly backup)"
        with pytest.raises(LockTimeout, match=re.escape(holder)) as caught, Lock(server.url, name, wait=0.1):
            pass
        error = caught.value
        assert "this process" not in str(error)
        assert (error.name, error.key, error.holder) == (name, f"hf:{{{name}}}", holder)
        assert 0.1 <= error.waited < 5
        assert error.remaining is not None
        assert 28 < error.remaining <= 30
        peer.ask("lock.release()")


def test_a_label_given_later_is_shown_too(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """The process has used other locks before, and its record is written."""
    with Lock(server.url, f"{name}-other"):
        until(lambda: any(f'"pid": {os.getpid()},' in str(look.get(key)) for key in look.keys("hf:proc:*")))
        with Lock(server.url, name, label="a label of mine"):
            until(lambda: any("a label of mine" in str(look.get(key)) for key in look.keys("hf:proc:*")))


# Trouble


def test_no_server() -> None:
    lock = Lock("redis://user:canary@127.0.0.1:1", "x")
    for call in (lock.acquire, lock.locked, lock.__enter__):
        with pytest.raises(ServerError, match=r"127\.0\.0\.1:1") as caught:
            call()
        assert caught.value.address == "127.0.0.1:1"
        assert caught.value.__cause__ is not None
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("host", ["a" * 64 + ".invalid", "a..invalid"])
def test_a_host_that_no_name_server_is_asked_for(host: str) -> None:
    with pytest.raises(ServerError, match="no server at a"):
        Lock(f"redis://{host}", "x").acquire()


@pytest.mark.parametrize("suffix", ["", ":state", ":queue"])
def test_data_of_somebody_elses_is_left_alone(server: PrivateServer, look: redis.Redis, name: str, suffix: str) -> None:
    key = f"hf:{{{name}}}{suffix}"
    look.rpush(key, "precious")
    look.expire(key, 60)
    with pytest.raises(
        ConfigError,
        match=f"{re.escape(key)}.* holds a list, not a lock; .* delete that key if nobody needs it; nothing was changed",
    ):
        Lock(server.url, name).acquire()
    assert look.lrange(key, 0, -1) == ["precious"]
    assert look.keys(f"hf:{{{name}}}*") == [key]


def test_the_server_dies_while_we_hold(new_server: NewServer, name: str) -> None:
    """Leaving a ``with`` warns; an explicit release raises. Neither hides what the body raised."""
    server = new_server()
    lock = Lock(server.url, name)
    with pytest.warns(HoldfastWarning, match="ends with its lease") as caught, lock:
        server.kill()
    assert caught[0].filename == __file__
    assert "canary" not in str(caught[0].message)
    server.restart()
    lock.acquire()
    server.kill()
    with pytest.raises(ServerError):
        lock.release()
    assert lock.lease is None
    server.restart()


def test_a_restart_between_two_uses_goes_unnoticed(new_server: NewServer, name: str) -> None:
    """The idle connections are dead: whatever can be asked again is asked again."""
    server = new_server()
    lock = Lock(server.url, name)
    uses: list[Callable[[], object]] = [
        lock.locked,
        lambda: lock.__exit__(None, None, None) if lock.__enter__() else None,
        lambda: holdfast.fencing.accept(server.url, "k", 7),
    ]
    for use in uses:
        assert lock.locked() is False
        server.restart()
        use()


def test_names_that_would_like_to_escape(server: PrivateServer, look: redis.Redis, name: str) -> None:
    for bad in ("a b\r\nFLUSHALL\r\n", "}:state", "{x}", "\x00", "%7B", "é✓", b"\xff\xfe", "'\"\\`$(reboot)"):
        whole = name.encode() + (bad if isinstance(bad, bytes) else bad.encode())
        with Lock(server.url, whole, wait=0) as lease:
            assert look.exists(lock_keys(whole, "hf:", None)[0]) == 1
            assert lease.key.startswith("hf:{" + name)
            assert Lock(server.url, whole, wait=0).acquire() is False
