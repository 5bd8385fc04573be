"""Row 11: KeyboardInterrupt, or whatever a signal handler raises, in the sync API: no key and no place of ours is left."""

from __future__ import annotations

import linecache
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dis import opmap
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._runtime.drivers.sync import Driver
from support.apis import Admin, until
from support.proxy import Action, Proxy, Rule
from support.servers import PrivateServer

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.45
HOME = str(Path(holdfast.__file__).parent)
POP_EXCEPT = opmap["POP_EXCEPT"]


@contextmanager
def interrupt_when(condition: Callable[[], object]) -> Iterator[None]:
    """One Ctrl-C for the main thread as soon as it holds, which has to be inside the block."""
    main = threading.get_ident()

    def wait() -> None:
        until(condition)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=wait)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        try:
            yield
        finally:
            thread.join()


def reached(rule: Rule) -> Callable[[], bool]:
    return rule.done.is_set if rule.action == "stall" else rule.seen.is_set


@pytest.mark.fault(11)
@pytest.mark.parametrize("fault", ["hold", "stall"])
def test_row_11_interrupted_in_acquire(proxy: Proxy, admin: Admin, name: str, fault: Action) -> None:
    """Row 11: while the request is on its way, and while its reply is."""
    lock = holdfast.Lock(proxy.url, name, ttl=5)
    rule = proxy.on("acquire", action=fault)
    with interrupt_when(reached(rule)), lock:
        pytest.fail("the body was entered")
    rule.go()
    assert rule.done.wait(1)
    assert lock.lease is None
    admin.nothing_left()
    with lock:  # the object is as good as new
        pass


@pytest.mark.fault(11)
@pytest.mark.parametrize("at", ["acquire", "SUBSCRIBE", "join"])
@pytest.mark.parametrize("fault", ["hold", "stall"])
def test_row_11_interrupted_on_the_way_into_the_queue(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str, at: str, fault: Action
) -> None:
    """Row 11: no place is left, not even one that is taken later."""
    lock = holdfast.Lock(proxy.url, name, ttl=5)
    with holdfast.Lock(server.url, name, ttl=5):
        rule = proxy.on(at, action=fault)
        with interrupt_when(reached(rule)):
            lock.acquire()
        rule.go()
        assert rule.done.wait(1)
        assert admin.places() == []
    admin.nothing_left()


@pytest.mark.fault(11)
@pytest.mark.parametrize("timeout", [-1, 60])
def test_row_11_interrupted_while_waiting(server: PrivateServer, admin: Admin, name: str, timeout: float) -> None:
    """Row 11: a wait without limit can be interrupted too, and at once."""
    holder, lock = (holdfast.FairLock(server.url, name, ttl=5) for _ in range(2))
    holder.acquire()
    with interrupt_when(lambda: len(admin.places()) == 1):
        lock.acquire(timeout=timeout)
    assert admin.places() == []
    holder.release()
    admin.nothing_left()


@pytest.mark.fault(11)
def test_row_11_interrupted_after_the_grant_and_before_its_message(
    proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Row 11: the lock is ours and we do not know it yet: it goes on to the next in line."""
    holder, lock, other = (holdfast.FairLock(url, name, ttl=5) for url in (server.url, proxy.url, server.url))
    holder.acquire()
    rule = proxy.on("message", action="stall")
    taken = threading.Event()

    def next_in_line() -> None:
        until(lambda: len(admin.places()) == 1)
        thread = threading.Thread(target=lambda: taken.set() if other.acquire() else None)
        thread.start()
        until(lambda: len(admin.places()) == 2)
        holder.release()

    helper = threading.Thread(target=next_in_line)
    helper.start()
    with interrupt_when(rule.seen.is_set):
        lock.acquire()
    helper.join()
    assert taken.wait(0.75 * CLAIM_WINDOW_S)
    rule.go()
    assert rule.done.wait(1)
    other.release()
    admin.nothing_left()


@pytest.mark.fault(11)
@pytest.mark.parametrize("fault", ["hold", "stall", "refuse"])
@pytest.mark.parametrize("by", ["release", "with"])
def test_row_11_interrupted_in_release(proxy: Proxy, admin: Admin, name: str, by: str, fault: Action) -> None:
    """Row 11: the lock is free afterwards, not at the end of its lease."""
    lock = holdfast.Lock(proxy.url, name, ttl=30)
    rule = proxy.on("release", action=fault, times=1)
    with interrupt_when(reached(rule)):
        if by == "with":
            with lock:
                pass
        else:
            lock.acquire()
            lock.release()
        threading.Event().wait(5)  # "refuse": the second copy may have been answered before the signal came
    assert lock.lease is None
    rule.go()
    until(lambda: admin.token() is None, 1)
    admin.nothing_left()


@pytest.mark.fault(11)
def test_row_11_interrupted_when_another_thread_has_acquired_it_since(server: PrivateServer, name: str) -> None:
    """Row 11: what finishes an interrupted release leaves the lease of another thread alone, which shares the lock object."""
    lock = holdfast.Lock(server.url, name, ttl=30)
    lock.acquire()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is Driver.release.__code__ and event == "return":
            sys.settrace(None)
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join()
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    with pytest.raises(KeyboardInterrupt):
        sys.settrace(trace)
        try:
            lock.release()
        finally:
            sys.settrace(before)
    assert lock.lease is not None
    assert lock.locked()
    lock.release()


@pytest.mark.fault(11)
def test_row_11_interrupted_in_the_body(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: the plain case."""
    with interrupt_when(admin.token), holdfast.Lock(server.url, name, ttl=30):
        threading.Event().wait(5)
    admin.nothing_left()


def leaves_a_handler(frame: FrameType) -> bool:
    """The line begins by leaving an ``except`` block. No signal is handled there, and an exception raised there by a tracer
    leaves the handled one behind in the thread for ever, as the context of all that it raises later."""
    return frame.f_code.co_code[frame.f_lasti] == POP_EXCEPT


class Tracer:
    """Raises KeyboardInterrupt at one line of holdfast's own code: the n-th one that runs in this thread.

    Not where Python leaves no choice: at the very beginning of ``__exit__``; where a with statement is traced again when its
    block is left (no signal is handled there, and an exception would keep a mutex locked for ever); where a handler is left.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""
        self._entered: set[tuple[FrameType, int]] = set()
        self._new: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or self.where:
            return None
        if event == "call":
            self._new = frame
        elif event == "line" and not self._no_choice(frame, file):
            self.left -= 1
            if not self.left:
                self.where = f"{file.removeprefix(HOME)}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
                raise KeyboardInterrupt
        return self

    def forget(self) -> None:
        """Let go of the frames: each one keeps all that its variables name, and is itself kept by an operation that goes on."""
        self._entered.clear()
        self._new = None

    def _no_choice(self, frame: FrameType, file: str) -> bool:
        new, self._new = self._new, None
        if (frame is new and frame.f_code.co_name == "__exit__") or leaves_a_handler(frame):
            return True
        if not linecache.getline(file, frame.f_lineno).lstrip().startswith("with "):
            return False
        here = (frame, frame.f_lineno)
        seen = here in self._entered
        self._entered.add(here)
        return seen


def at_every_line(action: Callable[[], object], check: Callable[[str], None], step: int = 1) -> list[str]:
    """Run it again and again, interrupted at its first, second, … line, until it ends undisturbed. Answers the lines. ``step``:
    not at all of them."""
    lines: list[str] = []
    while True:
        tracer = Tracer(len(lines) * step + 1)
        before = sys.gettrace()
        try:
            sys.settrace(tracer)
            action()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
            tracer.forget()
        check(tracer.where)
        if not tracer.where:
            return lines
        lines.append(tracer.where)


class BetweenSteps(Tracer):
    """Raises between two steps of an operation, where its clean-up cannot be driven."""

    def _no_choice(self, frame: FrameType, file: str) -> bool:
        driven = frame.f_code is Driver.run.__code__
        return not driven or linecache.getline(file, frame.f_lineno).strip() != "while True:"


@pytest.mark.fault(11)
@pytest.mark.parametrize("kind", ["Semaphore", "MultiLock", "MultiLock, fair", "Election", "Redlock"])
def test_row_11_an_operation_that_is_dropped_says_nothing(
    server: PrivateServer, new_server: NewServer, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clean-up waits for several answers, one after the other. "coroutine ignored GeneratorExit" was on stderr."""
    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda of: said.append(str(of.exc_value)))
    url, names = server.url, [f"{name}-{number}" for number in range(3)]
    if kind == "Redlock":
        urls = [new_server().url for _ in range(3)]
        holdfast.declare_new(urls)
    makes: dict[str, Callable[[], Any]] = {
        "Semaphore": lambda: holdfast.Semaphore(url, name, 2),
        "MultiLock": lambda: holdfast.MultiLock(url, names),
        "MultiLock, fair": lambda: holdfast.MultiLock([holdfast.FairLock(url, one) for one in names]),
        "Election": lambda: holdfast.Election(url, name),
        "Redlock": lambda: holdfast.Redlock(urls, name),
    }
    number, where = 0, "the first"
    while where:
        number += 1
        lock = makes[kind]()
        (lock.campaign if kind == "Election" else lock.acquire)()
        end = lock.resign if kind == "Election" else lock.release
        tracer = BetweenSteps(number)
        before = sys.gettrace()
        try:
            sys.settrace(tracer)
            end()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        where = tracer.where
    assert number > 2
    assert [text for text in said if "GeneratorExit" in text] == []


def test_tracing_leaves_no_handled_exception_behind() -> None:
    link: Any = SimpleNamespace(_endpoint=SimpleNamespace(tls=None))
    link.sock, other = socket.socketpair()
    with link.sock, other:
        link.sock.setblocking(False)  # there is nothing to read: an error, which is handled
        lines = at_every_line(lambda: PipelinedConnection.has_unread(link), lambda _: None)
    assert len(lines) > 3
    assert sys.exception() is None


@pytest.mark.turns("interrupted lines")
@pytest.mark.fault(11)
@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_11_interrupted_at_every_line_of_with(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: `with lock: pass`, interrupted once at each line of holdfast that it runs; no key is left held."""
    left: list[str] = []
    with holdfast.Lock(server.url, name, ttl=30):
        pass  # connections are open, scripts are known

    def check(where: str) -> None:
        try:
            until(lambda: admin.token() is None, 2)  # the keeper may be giving it back just now
        except AssertionError:
            left.append(where)
            admin.redis.delete(admin.lock)

    def body() -> None:
        with holdfast.Lock(server.url, name, ttl=30):
            pass

    lines = at_every_line(body, check)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 50, "it was really traced"
    assert admin.places() == []


@pytest.mark.turns("interrupted lines")
@pytest.mark.fault(11)
@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_row_11_interrupted_at_every_line_of_waiting(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 11: a wait that runs out, interrupted at each line; no place in the queue is left."""
    left: list[str] = []
    with holdfast.FairLock(server.url, name, ttl=30):
        holdfast.FairLock(server.url, name, ttl=30).acquire(timeout=0.01)  # the inbox listens

        def check(where: str) -> None:
            if admin.places():
                left.append(where)
                admin.redis.delete(admin.queue, admin.state)

        def body() -> None:
            with suppress(holdfast.LockTimeout), holdfast.FairLock(server.url, name, ttl=30, wait=0.002):
                pass

        lines = at_every_line(body, check)
    assert not left, "left behind when interrupted at\n" + "\n".join(left)
    assert len(lines) > 100, "it was really traced"
