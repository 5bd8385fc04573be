"""Signal handlers that use locks themselves, wherever they interrupt the main thread: they do not hang, nor spoil anything.

A handler runs between two steps of the main thread. Here it is called at each line of holdfast that the thread comes to, once
in each run, and does what handlers may do: it asks, and does not wait.
"""

from __future__ import annotations

import linecache
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast._api.lease import core_of
from holdfast._runtime.flag import Flag
from holdfast._runtime.process import current
from quorum.live.test_redlock import Group
from support.apis import Admin, Sync, until
from support.crowd import Crowd
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

HOME = str(Path(holdfast.__file__).parent)


class Caller:
    """Calls a handler at one line of holdfast: the n-th that this thread comes to."""

    def __init__(self, number: int, handler: Callable[[], object]) -> None:
        self.left = number
        self.where = ""
        self._handler = handler

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or self.where:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                self.where = f"{file.removeprefix(HOME)}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
                self._handler()
        return self


@contextmanager
def hanging_is_found(tracer: Caller, seconds: float = 5.0) -> Iterator[None]:
    def stuck(*_: object) -> None:
        raise AssertionError(f"it hangs when a handler comes at {tracer.where}")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def called_at_every_line(
    action: Callable[[], object], handler: Callable[[], object], check: Callable[[str], object] = lambda _: None, step: int = 1
) -> int:
    """Run it again and again, with a handler at its first, second, … line, until none comes any more. Answers how many runs."""
    runs = 0
    while True:
        tracer = Caller(1 + runs * step, handler)
        before = sys.gettrace()
        with hanging_is_found(tracer):
            sys.settrace(tracer)
            try:
                action()
            except Exception as error:
                error.add_note(f"when a handler came at {tracer.where}")
                raise
            finally:
                sys.settrace(before)
            check(tracer.where)
        if not tracer.where:
            return runs
        runs += 1


def free(admin: Admin) -> Callable[[str], object]:
    def check(where: str) -> None:
        try:
            until(lambda: admin.token() is None, 2)
        except AssertionError:
            raise AssertionError(f"the lock is left behind when a handler came at {where}") from None

    return check


@pytest.mark.turns
@pytest.mark.fault(11)
@pytest.mark.parametrize("options", [{}, {"linger": 0.005}], ids=["plain", "linger"])
@pytest.mark.fault(78)
def test_a_handler_asks_for_the_same_lock_and_another(
    server: PrivateServer, admin: Admin, name: str, options: dict[str, Any]
) -> None:
    fences: list[int] = []

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30, **options) as lease:
            fences.append(lease.fence)
            lease.check()

    def handler() -> None:
        with holdfast.Lock(server.url, f"{name} other", ttl=30, wait=0):
            pass
        same = holdfast.Lock(server.url, name, ttl=30, **options)
        if same.acquire(False):
            assert same.lease is not None
            fences.append(same.lease.fence)
            same.release()

    body()
    # A client that asks from outside waits for a lingering lock, a quarter of a second at most: not at every line.
    assert called_at_every_line(body, handler, free(admin), step=5 if options else 1) > 40
    assert len(fences) == len(set(fences))
    admin.nothing_left()


@pytest.mark.turns("handlers")
@pytest.mark.fault(11)
def test_a_handler_comes_at_the_first_use(server: PrivateServer, admin: Admin, name: str) -> None:
    """Connections are opened, the keeper is started, and it goes on to renew what was taken then."""

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30) as lease:
            keeper = current().keeper
            (node,) = keeper._nodes.values()
            assert node.renewing.get(lease_record(lease).token) is lease_record(lease)

    def handler() -> None:
        with holdfast.Lock(server.url, f"{name} other", ttl=30, wait=0):
            pass

    def check(where: str) -> None:
        free(admin)(where)
        holdfast.close()
        try:
            until(lambda: not [thread for thread in threading.enumerate() if thread.name == "holdfast-keeper"], 3)
        except AssertionError:
            raise AssertionError(f"a keeper goes on for ever when a handler came at {where}") from None

    holdfast.close()
    assert called_at_every_line(body, handler, check, step=3) > 50


@pytest.mark.turns("handlers")
@pytest.mark.fault(11)
def test_a_handler_asks_while_others_stand_in_line(server: PrivateServer, admin: Admin, name: str) -> None:
    """None of them is passed by or waits for ever."""
    crowd = Crowd(lambda: holdfast.Lock(server.url, name, ttl=30), work=0.0002)
    crowd.threads(2)
    until(lambda: len({turn.who for turn in crowd.turns}) == 2)

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30):
            pass

    def handler() -> None:
        lock = holdfast.Lock(server.url, name, ttl=30)
        if lock.acquire(False):
            lock.release()

    def check(where: str) -> None:
        count = len(crowd.turns)
        until(lambda: len({turn.who for turn in crowd.turns[count:]}) == 2, 4)

    try:
        called_at_every_line(body, handler, check, step=3)
    finally:
        crowd.stop()
    crowd.done()
    free(admin)("")


@pytest.mark.fault(11)
def test_a_handler_releases_what_it_has_interrupted(server: PrivateServer, admin: Admin, name: str) -> None:
    """Of the two who release it, one is told that it is not held any more."""

    def body() -> None:
        lock.acquire()
        try:
            lock.release()
        except holdfast.NotHeld:
            pass

    def handler() -> None:
        try:
            lock.release()
        except holdfast.NotHeld:
            pass

    lock = holdfast.Lock(server.url, name, ttl=30)
    assert called_at_every_line(body, handler, free(admin)) > 100
    admin.nothing_left()


@pytest.mark.turns("handlers")
@pytest.mark.fault(11)
def test_a_handler_uses_the_same_semaphore(server: PrivateServer, name: str) -> None:
    semaphore = holdfast.Semaphore(server.url, name, 3, ttl=30)

    def body() -> None:
        with semaphore:
            assert semaphore.acquire(False)
            semaphore.release()

    def handler() -> None:
        if semaphore.acquire(False):
            semaphore.release()

    def check(where: str) -> None:
        assert not semaphore._held.live(), where
        assert semaphore.available() == 3, where

    assert called_at_every_line(body, handler, check, step=2) > 100


@pytest.mark.turns("handlers")
@pytest.mark.fault(11)
def test_a_handler_uses_the_same_redlock(new_server: NewServer, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:

        def body() -> None:
            with holdfast.Redlock(group.urls, name, ttl=30):
                pass

        def handler() -> None:
            lock = holdfast.Redlock(group.urls, f"{name} other", ttl=30)
            if lock.acquire(False):
                lock.release()

        def check(where: str) -> None:
            until(lambda: group.free(name), 2)

        body()
        assert called_at_every_line(body, handler, check, step=9) > 30


@pytest.mark.fault(11)
def test_a_handler_sets_the_event_that_the_main_thread_waits_for() -> None:
    """At each line up to that in which it sleeps; `threading.Event` hangs in its own mutex there."""
    for number in range(1, 100):
        flag = Flag()
        tracer = Caller(number, flag.set)
        before = sys.gettrace()
        with hanging_is_found(tracer, 2.0):
            sys.settrace(tracer)
            try:
                assert flag.wait(5)
            finally:
                sys.settrace(before)
        if "waiter.get" in tracer.where:
            assert number > 4
            return


@pytest.mark.turns("handlers")
@pytest.mark.fault(11)
def test_what_a_handler_is_told_while_the_lock_is_given_back(server: PrivateServer, name: str) -> None:
    """Until the server has it back, it is held for the rest of its lease; no 0.0 s."""
    told: list[holdfast.LockTimeout] = []

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30):
            pass

    def handler() -> None:
        try:
            with holdfast.Lock(server.url, name, ttl=30, wait=0):
                pass
        except holdfast.LockTimeout as busy:
            told.append(busy)

    body()
    assert called_at_every_line(body, handler) > 40
    assert len(told) > 40
    assert {busy.remaining is not None and busy.remaining > 20 for busy in told} == {True}
    assert not any(" 0.0 s of its lease" in str(busy) for busy in told)


@pytest.mark.fault(11)
def test_a_handler_asks_for_the_event_of_a_lease(server: PrivateServer, admin: Admin, name: str) -> None:
    """It is the same one that the interrupted thread gets, and it is set when the lease is lost."""
    with holdfast.Lock(server.url, name, ttl=30) as lease:
        seen: list[Any] = []

        def body() -> None:
            seen[:] = [*seen, lease.lost]
            core_of(lease).__dict__.pop("event")

        def handler() -> None:
            seen.append(lease.lost)

        assert called_at_every_line(body, handler, lambda where: where and len(set(map(id, seen[-2:]))) == 1) > 3


def test_a_handler_asks_a_waiting_thread_to_stop(server: PrivateServer, name: str) -> None:
    """A wait inside a change is refused at once, because it could never end."""
    api = Sync()
    holder = holdfast.Lock(server.url, name, ttl=30)
    holder.acquire()
    with current().keeper.mutex:
        assert not holdfast.Lock(server.url, name, ttl=30).acquire(False)
        with pytest.raises(RuntimeError, match="signal handler"):
            holdfast.Lock(server.url, name, ttl=30, wait=5).acquire()
    api.call(holder.release)
