"""Row 11: nothing written in Python runs where something is dropped, as CPython ignores what signal handlers raise there."""

from __future__ import annotations

import gc
import signal
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import redis

import holdfast
import holdfast.aio
from holdfast._core.lock.idle_queues import SPARE, Loose
from holdfast._core.lock.release import release
from holdfast._core.operation import drop
from holdfast._net.endpoint import Endpoint
from holdfast._net.resolve import resolve
from holdfast._net.sync_connection import Connection
from holdfast._runtime.process import current
from runtime.faults.handler_points import HOME, at_every_point
from support.apis import Aio, until
from support.servers import PrivateServer

pytestmark = pytest.mark.fault(11)


held_and_dropped = pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")


def run_by_python_alone(action: Callable[[], object]) -> set[str]:
    """The functions that ran because something was dropped."""
    seen: set[str] = set()

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and (code.co_name in {"__del__", "_dropped"} or code.co_filename == weakref.__file__):
            seen.add(f"{code.co_filename}: {code.co_name}")

    gc.collect()
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen


def use(lock: Any) -> None:
    with lock:
        pass


KINDS: dict[str, Callable[[str, str], Any]] = {
    "Lock": holdfast.Lock,
    "FairLock": holdfast.FairLock,
    "RLock": holdfast.RLock,
    "Semaphore": lambda url, name: holdfast.Semaphore(url, name, 3),
    "RWLock.write": lambda url, name: holdfast.RWLock(url, name).write,
    "MultiLock": lambda url, name: holdfast.MultiLock(url, [name, f"{name}-too"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_lock_for_each_use(server: PrivateServer, name: str, kind: str) -> None:
    use(KINDS[kind](server.url, name))

    def uses() -> None:
        for _ in range(5):
            use(KINDS[kind](server.url, name))

    assert run_by_python_alone(uses) == set()


@held_and_dropped
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_is_dropped_while_held(server: PrivateServer, name: str, kind: str) -> None:
    held = [KINDS[kind](server.url, name)]
    held[0].acquire()
    seen: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith((HOME, weakref.__file__)):
            seen.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")

    gc.collect()
    before = sys.getprofile()
    sys.setprofile(look)
    held.clear()
    gc.collect()
    sys.setprofile(before)
    assert seen == []


class Alarmed(Exception):
    pass


@pytest.mark.turns("handlers")
@held_and_dropped
def test_a_handler_that_raises_while_held_locks_are_dropped(server: PrivateServer, name: str) -> None:
    """It is never ignored, and nothing renews what was dropped, wherever the signal has hit."""
    armed = False
    fired = heard = 0

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal armed, fired
        if armed:
            armed = False
            fired += 1
            raise Alarmed

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(500):
            lock = holdfast.Lock(server.url, f"{name}-{number}", ttl=2)
            lock.acquire()
            held: list[object] = [lock, lock.lease]
            del lock
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + number % 60 * 1e-6)
                held.clear()
                while armed:
                    pass
            except Alarmed:
                heard += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    held.clear()  # the last alarm may have come before
    assert heard == fired == 500
    with redis.Redis.from_url(server.url) as look:
        until(lambda: not look.keys(f"hf:{{{name}-*}}"), 10)


@held_and_dropped
def test_interrupted_at_each_point_of_dropping(server: PrivateServer, name: str) -> None:
    points: list[str] = []

    def prepare() -> list[holdfast.Lock]:
        lock = holdfast.Lock(server.url, f"{name}-{len(points)}", ttl=2)
        lock.acquire()
        return [lock]

    points += at_every_point(list.clear, prepare)
    assert points == [], "code of holdfast runs there"


def test_a_new_asyncio_lock_for_each_use(server: PrivateServer, name: str) -> None:
    api = Aio()
    seen: set[str] = set()

    async def uses() -> None:
        for _ in range(5):
            async with holdfast.aio.Lock(server.url, name):
                pass

    async def traced() -> None:
        await uses()
        code = {"__del__", "_dropped"}

        def look(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and (frame.f_code.co_name in code or frame.f_code.co_filename == weakref.__file__):
                seen.add(frame.f_code.co_name)

        sys.setprofile(look)
        try:
            await uses()
        finally:
            sys.setprofile(None)

    api.call(traced)
    api.close()
    assert seen == set()


def test_a_connection_that_is_dropped(server: PrivateServer) -> None:
    endpoint = resolve(server.url, "sync")
    assert isinstance(endpoint, Endpoint)
    connection: Connection | None = Connection(endpoint, 1.0)
    assert connection is not None
    other = connection.sock.fileno()

    def drop() -> None:
        nonlocal connection
        connection = None

    assert run_by_python_alone(drop) == set()
    assert other not in {sock.fileno() for sock in current().keeper.sockets()}


def test_a_release_that_is_dropped_says_nothing(server: PrivateServer, name: str) -> None:
    """Its driver was interrupted between two steps."""
    lock = holdfast.Lock(server.url, name)
    operation: Any = release(lock._spec, "nobody.1", True, False)
    operation.send(None)
    drop(operation)
    assert operation.cr_frame is None


def test_what_is_gone_is_forgotten() -> None:
    class Thing:
        pass

    loose: Loose[int, Thing] = Loose()
    kept = loose.setdefault(-1, Thing())
    for number in range(10 * SPARE):
        assert loose.setdefault(number, Thing()) is not None
        assert loose.get(number) is None
    assert loose.get(-1) is kept
    assert loose.setdefault(-1, Thing()) is kept
    assert loose.values() == [kept]
    assert len(loose._refs) <= 2 * SPARE + 2
