"""Row 11, at each point at which CPython runs signal handlers: whatever was granted is given back within a second."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import Any

import pytest
import redis

import holdfast
import holdfast.aio
from holdfast._runtime.process import current
from runtime.faults.handler_points import at_every_point
from support.servers import PrivateServer

pytestmark = [
    pytest.mark.fault(11),
    pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BEYOND_REACH = re.compile(r"/(acquisition|rlock|semaphore|rwlock|election)\.py:\d+ (__exit__|release|resign) \(begins\)")
"""The first instruction of the end of a with statement, or of `release`: nothing of ours runs before it, or after it."""

KINDS: dict[str, Callable[[str, str], Any]] = {
    "Lock": holdfast.Lock,
    "Lock, linger": lambda url, name: holdfast.Lock(url, name, linger=0.03),
    "FairLock": holdfast.FairLock,
    "RLock": holdfast.RLock,
    "Semaphore": lambda url, name: holdfast.Semaphore(url, name, 3, weight=2),
    "RWLock.read": lambda url, name: holdfast.RWLock(url, name).read,
    "RWLock.write": lambda url, name: holdfast.RWLock(url, name).write,
    "MultiLock": lambda url, name: holdfast.MultiLock(url, [name, f"{name}-too"]),
    "Election": holdfast.Election,
}


EVERY = [5, pytest.param(1, marks=pytest.mark.soak)]
"""Each fifth point, others after each change of a source, and in the soak each."""


class Judge:
    """Knows which points have left something on the servers, under any of the names of this test."""

    def __init__(self, name: str, *looks: Any) -> None:
        self.name = name
        self.left: list[str] = []
        self.points = 0
        self._looks = looks

    def there(self) -> list[bytes]:
        """The keys that are held, and the places in queues."""
        found = [key for look in self._looks for key in look.keys(f"hf:{{{self.name}*")]
        return [key for key in found if re.search(rb"\}(:queue|:held)?$", key)]

    def gone(self) -> bool:
        end = time.monotonic() + 1
        while self.there():
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def look(self, where: str) -> None:
        self.points += 1
        if not self.gone():
            self.left.append(where)
            for look in self._looks:
                look.delete(*self.there())

    def verdict(self, *, least: int = 100) -> None:
        wrong = [where for where in self.left if not BEYOND_REACH.search(where)]
        assert not wrong, "left behind when interrupted at\n" + "\n".join(wrong)
        assert self.points > least, "it was really traced"


def enter(lock: Any) -> None:
    with lock:
        pass


def take(lock: Any) -> None:
    if isinstance(lock, holdfast.Election):
        lock.campaign()
        lock.resign()
    else:
        lock.acquire()
        lock.release()


@pytest.mark.turns
@pytest.mark.parametrize("use", [enter, take])
@pytest.mark.parametrize(
    ("kind", "every"),
    [("Lock", 4), *((kind, 12) for kind in KINDS if kind != "Lock")]
    + [pytest.param(kind, 1, marks=pytest.mark.soak) for kind in KINDS],
)
def test_row_11_whatever_was_granted_is_given_back(server: PrivateServer, name: str, kind: str, every: int, use: Any) -> None:
    with redis.Redis.from_url(server.url) as look:
        judge = Judge(name, look)
        use(KINDS[kind](server.url, name))
        assert judge.gone()
        for where in at_every_point(use, lambda: KINDS[kind](server.url, f"{name}-{judge.points}"), every):
            judge.look(where)
    judge.verdict(least=150 // every)


@pytest.mark.turns
@pytest.mark.parametrize("use", [enter, take])
@pytest.mark.parametrize("every", EVERY)
def test_row_11_while_the_keeper_is_busy(server: PrivateServer, name: str, every: int, use: Any) -> None:
    """It has not noticed yet that a lease was dropped, which was made and never reached the lock object."""
    goes_on = threading.Event()

    def wait() -> None:
        goes_on.wait()

    def prepare() -> holdfast.Lock:
        goes_on.clear()
        current().keeper.call(wait)
        return holdfast.Lock(server.url, f"{name}-{judge.points}")

    def slowly(lock: holdfast.Lock) -> None:
        try:
            use(lock)
        finally:
            goes_on.set()

    with redis.Redis.from_url(server.url) as look:
        judge = Judge(name, look)
        for where in at_every_point(slowly, prepare, every):
            judge.look(where)
    judge.verdict(least=100 // every)


@pytest.mark.turns
@pytest.mark.parametrize("reentrant", [False, True], ids=["Lock", "RLock"])
@pytest.mark.parametrize("every", EVERY)
def test_row_11_around_a_function_nothing_is_beyond_reach(
    server: PrivateServer, name: str, every: int, reentrant: bool
) -> None:
    """The frame around the with statement is ours. Nor does an interrupt leave a note that would refuse the next call."""
    made: list[Callable[[int], None]] = []

    def prepare() -> Callable[[int], None]:
        @holdfast.locked(server.url, f"{name}-{judge.points}", reentrant=reentrant)
        def function(deeper: int) -> None:
            if deeper:
                function(deeper - 1)

        made.append(function)
        return function

    with redis.Redis.from_url(server.url) as look:
        judge = Judge(name, look)
        prepare()(reentrant)
        for where in at_every_point(lambda function: function(reentrant), prepare, every):
            judge.look(where)
            made[-1](reentrant)
    assert judge.left == []
    assert judge.points > 100 // every


@pytest.mark.parametrize("where", ["__aexit__", "_leave"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["Lock", "RLock"])
def test_row_11_around_a_coroutine_function(server: PrivateServer, name: str, reentrant: bool, where: str) -> None:
    """Interrupted at the first instruction of the end of ``async with``, or when it has just begun."""
    lock_type: type[holdfast.aio.Lock] = holdfast.aio.RLock if reentrant else holdfast.aio.Lock
    code = getattr(lock_type, where).__code__

    @holdfast.locked(server.url, name, reentrant=reentrant)
    async def function() -> None:
        sys.settrace(trace)

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            sys.settrace(None)
            raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    with redis.Redis.from_url(server.url) as look, closing(loop):
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(function())
        assert Judge(name, look).gone()


class Handing:
    """A lock that another thread holds until this one stands in line for it."""

    def __init__(self, lock: Any, other: Any, stands: Callable[[], object]) -> None:
        self.lock = lock
        self._other = other
        self._stands = stands
        self._over = threading.Event()
        other.acquire()
        self._thread = threading.Thread(target=self._hand_over)

    def _hand_over(self) -> None:
        while not self._stands() and not self._over.wait(0.0005):
            pass
        self._other.release()

    def use(self) -> None:
        self._thread.start()
        try:
            enter(self.lock)
        finally:
            self._over.set()
            self._thread.join()


@pytest.mark.turns
@pytest.mark.parametrize("kind", ["Lock", "FairLock", "Semaphore"])
@pytest.mark.parametrize("every", EVERY)
def test_row_11_what_was_handed_over_is_given_back(server: PrivateServer, name: str, every: int, kind: str) -> None:
    """By another thread of this process, without a round trip, or by way of the server's queue."""
    with redis.Redis.from_url(server.url) as look:
        judge = Judge(name, look)

        def prepare() -> Handing:
            this = f"{name}-{judge.points}"
            # Both permits of a semaphore are one holder's, so that the other one has to wait.
            lock, other = (
                holdfast.Semaphore(server.url, this, 2, weight=2) if kind == "Semaphore" else KINDS[kind](server.url, this)
                for _ in range(2)
            )
            if kind == "Lock":
                return Handing(lock, other, lambda: lock._local_queue is not None and lock._local_queue.queue)
            return Handing(lock, other, lambda: look.zcard(f"hf:{{{this}}}:queue"))

        prepare().use()
        for where in at_every_point(Handing.use, prepare, every):
            judge.look(where)
    judge.verdict(least=100 // every)


@pytest.mark.turns
@pytest.mark.parametrize("use", [enter, take])
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_row_11_several_servers_get_back_what_they_granted(name: str, use: Any, every: int) -> None:
    with PrivateServer() as one, PrivateServer() as two, PrivateServer() as three:
        urls = [server.url for server in (one, two, three)]
        holdfast.declare_new(urls)
        looks = [redis.Redis.from_url(url) for url in urls]
        judge = Judge(name, *looks)
        use(holdfast.Redlock(urls, name))
        for where in at_every_point(use, lambda: holdfast.Redlock(urls, f"{name}-{judge.points}"), every):
            judge.look(where)
        judge.verdict(least=480 // every)
        for look in looks:
            look.close()
