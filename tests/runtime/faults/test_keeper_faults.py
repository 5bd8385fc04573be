"""The thread that renews leases and listens for hand-overs: hit by errors, killed, raced; and leases nobody holds on to."""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import holdfast
from holdfast._clock import clock
from holdfast._core.lock import node as nodes
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from holdfast._core.requests import Command, NotSent
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._net.url import from_url
from holdfast._runtime.keeper.thread import Keeper
from holdfast._runtime.process import current
from support.apis import Admin, Api, at_most, stays, until
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import lease_record, open_sockets, warned_of_drop

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.9


def fails_once(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> threading.Event:
    """The next call of this method raises; the event is set then."""
    failed, original = threading.Event(), getattr(owner, method)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if failed.is_set():
            return original(*args, **kwargs)
        failed.set()
        raise RuntimeError("injected")

    monkeypatch.setattr(owner, method, broken)
    return failed


def test_a_connection_that_is_open_just_when_the_keeper_ends_is_closed(server: PrivateServer) -> None:
    before, keeper = open_sockets(), Keeper("p", lambda _waits, _labels: "{}")
    link, end = keeper._link(from_url(server.url)), keeper._end
    assert isinstance(link, PipelinedConnection)

    def opened_and_ended() -> None:
        link._open(0)  # what it leaves to the keeper was left too late
        end()

    keeper._end = opened_and_ended  # type: ignore[method-assign]
    keeper.stop(5)
    keeper.thread.join(5)
    assert link._closed
    assert open_sockets() <= before


def test_what_is_left_to_do_when_the_keeper_has_ended_opens_nothing(server: PrivateServer) -> None:
    answers: list[object] = []
    before, keeper = open_sockets(), Keeper("p", lambda _waits, _labels: "{}")
    end = keeper._end

    def asked_too_late() -> None:
        ask = Command(("PING",), 1)
        keeper.call(lambda: keeper._link(from_url(server.url)).call(ask, lambda answer, _sent: answers.append(answer)))
        end()

    keeper._end = asked_too_late  # type: ignore[method-assign]
    keeper.stop(5)
    keeper.thread.join(5)
    assert [type(answer) for answer in answers] == [NotSent]
    assert open_sockets() <= before


# Errors in the thread


@pytest.mark.fault(5)
@pytest.mark.parametrize(("owner", "method"), [(nodes.Node, "turn"), (nodes.Node, "_renew"), (PipelinedConnection, "call")])
def test_row_5_an_error_in_the_keeper_while_holding(
    any_api: Api,
    server: PrivateServer,
    admin: Admin,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
) -> None:
    """Row 5: whatever it was doing, it goes on, and the lease is renewed in time."""
    lock = any_api.Lock(server.url, name, ttl=TTL)
    assert any_api.call(lock.acquire)
    token = admin.token()
    failed = fails_once(monkeypatch, owner, method)
    until(failed.is_set)
    for _ in range(2):
        admin.renewed()
    assert admin.token() == token
    assert not lock.lease.lost.is_set()
    any_api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(5)
@pytest.mark.parametrize("method", ["_refresh", "_on_push", "_on_subscribed", "turn"])
def test_row_5_an_error_in_the_keeper_while_waiting(
    any_api: Api, proxy: Proxy, admin: Admin, name: str, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Row 5: the refresh goes on, so the lock comes, a little later at worst; and the place is never lost."""
    holder, lock = holdfast.Lock(server.url, name, ttl=0.7), any_api.Lock(proxy.url, name, ttl=TTL)
    holder.acquire()
    failed = fails_once(monkeypatch, nodes.Node, method)
    taken = any_api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1, 3)
    if method != "_on_push":
        until(failed.is_set)
        asked = len(proxy.names("refresh"))
        until(lambda: len(proxy.names("refresh")) > asked, REFRESH_EVERY_S + 0.8)
    holder.release()
    assert taken.result(REFRESH_EVERY_S + 0.8), "before its claim was over"
    any_api.call(lock.release)
    admin.nothing_left()


class InjectedError(Exception):
    """Nobody expects it."""


def raise_when_idle(lock: Any, error: type[BaseException]) -> None:
    """Into the keeper, which has just renewed, and sleeps until it is time again: it wakes up with it."""
    thread = current().keeper.thread
    assert thread.ident is not None
    until(lambda: 0.75 < lock.lease.remaining() / TTL < 0.92)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error)) == 1


@pytest.mark.fault(5)
@pytest.mark.parametrize("error", [InjectedError, SystemExit])
def test_row_5_an_error_out_of_nowhere(
    any_api: Api, server: PrivateServer, admin: Admin, name: str, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """Row 5: an exception thrown into the thread from outside, again and again: this lease goes on, and so do new ones."""
    lock, second = any_api.Lock(server.url, name, ttl=TTL), any_api.Lock(server.url, f"{name} second", ttl=TTL)
    assert any_api.call(lock.acquire)
    token = admin.token()
    for number in range(1, 3):
        raise_when_idle(lock, error)
        until(lambda number=number: caplog.text.count("an error in the keeper thread") == number)  # type: ignore[misc]
    assert any_api.call(second.acquire)
    with closing(Admin(server, second.name)) as other:
        for one in (admin, other):
            one.renewed()
    assert admin.token() == token
    assert not lock.lease.lost.is_set()
    assert not second.lease.lost.is_set()
    any_api.call(lock.release)
    any_api.call(second.release)
    admin.nothing_left()


@pytest.mark.fault(5)
@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_row_5_no_thread_can_be_started(
    any_api: Api, proxy: Proxy, admin: Admin, name: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Row 5: the one that opens the keeper's connection; tried again in time for the renewal."""
    failures: list[threading.Thread] = []
    start = threading.Thread.start

    def no_start(thread: threading.Thread) -> None:
        if thread.name == "holdfast-connect" and len(failures) < 2:
            failures.append(thread)
            raise error("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_start)
    lock = any_api.Lock(proxy.url, name, ttl=TTL)
    assert any_api.call(lock.acquire)
    token = admin.token()
    admin.renewed()
    assert admin.token() == token
    assert not lock.lease.lost.is_set()
    assert len(failures) == 2
    assert "renew" in proxy.names()
    any_api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(5)
def test_row_5_the_log_says_so(
    any_api: Api, server: PrivateServer, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 5: never silently."""
    lock = any_api.Lock(server.url, name, ttl=TTL)
    assert any_api.call(lock.acquire)
    with caplog.at_level(logging.ERROR, "holdfast"):
        failed = fails_once(monkeypatch, nodes.Node, "turn")
        until(failed.is_set)
        until(lambda: "injected" in caplog.text)
    any_api.call(lock.release)


def test_a_callback_that_fails_or_hangs_harms_no_other_lease(
    any_api: Api, server: PrivateServer, admin: Admin, name: str
) -> None:
    """`on_lost` is the user's code: while it hangs, other leases are renewed."""
    go, told = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        told.set()
        go.wait(60)

    other_api = any_api.Lock(server.url, f"{name} other", ttl=TTL)
    other = Admin(server, f"{name} other")
    assert any_api.call(other_api.acquire)
    token = other.token()
    lock = holdfast.Lock(server.url, name, ttl=0.3, on_lost=hang)
    assert lock.acquire()
    admin.redis.delete(admin.lock)
    assert told.wait(2)
    for _ in range(2):
        other.renewed()
    assert other.token() == token
    assert not go.is_set()
    go.set()
    any_api.call(other_api.release)
    other.close()


# Races with release


@pytest.mark.parametrize("first", ["release", "renew"])
def test_trap_renewal_racing_with_release(api: Api, proxy: Proxy, admin: Admin, name: str, first: str) -> None:
    """A renewal is under way while the lock is given back: no loss is reported, and nothing is renewed afterwards."""
    told: list[object] = []
    lock = api.Lock(proxy.url, name, ttl=TTL, on_lost=told.append)
    assert api.call(lock.acquire)
    renew = proxy.on("renew", action="hold" if first == "release" else "stall", times=100)
    assert renew.seen.wait(5)
    release = proxy.on("release", "bury", action="stall")
    released = api.start(lock.release)
    assert release.done.wait(5)
    renew.go()
    assert renew.done.wait(5)
    time.sleep(0.05)
    release.go()
    assert released.result(5) is None
    assert told == []
    asked = len(proxy.names("renew"))
    stays(lambda: len(proxy.names("renew")) == asked, 0.45 * TTL)
    admin.nothing_left()


def test_trap_a_lease_lost_and_released_at_once(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Given back again and again in the moment in which the loss is noticed: always LeaseLost, `on_lost` at most once."""
    for number in range(10):
        told: list[object] = []
        lock = api.Lock(server.url, name, ttl=5, on_lost=told.append)  # a release that is asked twice could not know
        assert api.call(lock.acquire)
        admin.redis.delete(admin.lock)
        held_lease = lease_record(lock.lease)
        held_lease.renew_at = clock() + 0.01
        current().keeper.watch(lock._endpoint, held_lease)
        time.sleep(0.008 + number * 0.0005)
        with pytest.raises(holdfast.LeaseLost):
            api.call(lock.release)
        time.sleep(0.01)
        assert len(told) <= 1


# Leases that nobody holds on to


@pytest.mark.fault(6)
def test_row_6_the_thread_that_acquired_has_ended(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 6: a lock belongs to its object, as threading.Lock: it is renewed on, and another thread may give it back."""
    lock = holdfast.Lock(server.url, name, ttl=TTL)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    admin.renewed()
    lock.release()
    admin.nothing_left()


@pytest.mark.fault(6, 14)
def test_row_6_14_a_lock_that_is_dropped_while_held(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Rows 6, 14: a ResourceWarning, and it is renewed no more: the next in line has it when the lease is over."""
    lock = api.FairLock(server.url, name, ttl=TTL)
    other = api.FairLock(server.url, name, ttl=5)
    assert api.call(lock.acquire)
    taken = api.start(other.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    gc.collect()  # what others have left
    held = [lock]
    del lock
    with warned_of_drop(name):
        held.clear()
        gc.collect()
    with at_most(TTL + 0.6):
        assert taken.result(5)
    api.call(other.release)
    admin.nothing_left()


def test_a_lock_of_several_that_could_not_be_given_back_is_given_back_by_the_keeper(
    server: PrivateServer, proxy: Proxy, admin: Admin, name: str
) -> None:
    """The second lock is busy, and the server is away just when the first one is to be given back."""
    first = f"{name}-0"
    refused = proxy.on("release", action="refuse", times=3)
    with holdfast.Lock(server.url, name):
        assert not holdfast.MultiLock(proxy.url, [first, name], ttl=30, wait=0.1).acquire()
    assert len(refused.requests) == 3
    until(lambda: not admin.redis.exists(f"hf:{{{first}}}"))


@pytest.mark.fault(15)
def test_row_15_released_by_another_thread_or_task(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 15: as with threading.Lock, any may; the second time is NotHeld, a RuntimeError."""
    lock = api.Lock(server.url, name, ttl=5)
    assert api.start(lock.acquire).result(2)
    assert api.start(lock.release).result(2) is None
    admin.nothing_left()
    with pytest.raises(holdfast.NotHeld) as error:
        api.call(lock.release)
    assert isinstance(error.value, RuntimeError)


@pytest.mark.fault(15)
def test_row_15_no_re_entry(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 15: a second acquire by the holder waits like anybody's; the first lease stays untouched."""
    lock = api.Lock(server.url, name, ttl=5)
    assert api.call(lock.acquire)
    lease, token = lock.lease, admin.token()
    assert api.call(lock.acquire, blocking=False) is False
    assert api.call(lock.acquire, timeout=0.05) is False
    assert lock.lease is lease
    assert admin.token() == token
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(15)
def test_row_15_one_object_shared_by_many(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 15: threads or tasks that share one Lock object exclude each other."""
    lock = api.Lock(server.url, name, ttl=5)
    inside: list[int] = []
    most: list[int] = []

    def body() -> None:
        for _ in range(5):
            with lock:
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    async def body_async() -> None:
        import asyncio

        for _ in range(5):
            async with lock:
                inside.append(1)
                most.append(len(inside))
                await asyncio.sleep(0.001)
                inside.pop()

    what: Callable[[], Any] = body if api.name == "sync" else body_async
    for future in [api.start(what) for _ in range(4)]:
        future.result(10)
    assert most == [1] * 20
    admin.nothing_left()
