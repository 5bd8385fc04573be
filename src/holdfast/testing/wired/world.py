"""Virtual time, and what happens next. Nothing here runs at the same moment as anything else."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.testing.history import Event

if TYPE_CHECKING:
    from holdfast.testing.wired.server import Server


class Stuck(Exception):
    """Somebody waits without a time limit, and nothing is left to happen."""


class World:
    """The order of events. ``now`` is true time in seconds; clocks of machines and servers are derived from it."""

    def __init__(self, *, trace: bool) -> None:
        self.now = 0.0
        self.steps = 0
        self.trace = trace
        """Write the bytes that are sent and received into the history, too."""
        self.history: list[Event] = []
        self.servers: list[Server] = []
        self.watchers: list[Callable[[], None]] = []
        """Called after each event: the judge, and keepers that may have something to do."""
        self.callers: Callers | None = None
        """The threads that block at the same time, if there are several."""
        self._stepping = 0
        """Number of events being carried out, one within another. While one waits, no other caller goes on."""
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], object] = lambda: None) -> None:
        """Call ``what`` at ``when``. Of calls due at the same time, the one planned first comes first."""
        self._count += 1
        heapq.heappush(self._due, (when, self._count, what))

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        """Call ``what`` after ``seconds``."""
        self.at(self.now + seconds, what)

    def note(self, kind: str, who: str, lock: str = "", *, until: float = 0.0, note: str = "") -> None:
        """Write down what happens now, for people."""
        self.history.append(Event(self.now, kind, who, lock, until=until, note=note))

    def step(self, until: float = float("inf")) -> None:
        """Let the next event happen; if there is none by then, let time pass until ``until``. Raises Stuck."""
        self.steps += 1
        self._stepping += 1
        try:
            self._step(until)
        finally:
            self._stepping -= 1

    def _step(self, until: float) -> None:
        if self._due and self._due[0][0] <= until:
            at, _, what = heapq.heappop(self._due)
            self.now = max(self.now, at)
            what()
        elif until == float("inf"):
            raise Stuck
        else:
            self.now = max(self.now, until)
        for look in self.watchers:
            look()

    def wait(self, over: Callable[[], bool], seconds: float) -> bool:
        """Block the caller until ``over()``, for ``seconds`` at most. Return False if it is not over by then."""
        if self.callers is not None and not self._stepping:
            return self.callers.wait(over, seconds)
        until = self.now + seconds
        while not over():
            if self.now >= until:
                return False
            self.step(until)
        return True


class Callers:
    """Threads of which one runs at a time. When it blocks, the first one whose wait is over goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blocked: dict[int, tuple[Callable[[], bool], float]] = {}
        self._turns: dict[int, threading.Semaphore] = {}
        self._stuck = False

    def run(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run each call in a thread of its own, to its end. Raises Stuck, or the first error of a call."""
        ended, errors = list[object](), list[Exception]()

        def run(call: Callable[[], object]) -> None:
            me = threading.get_ident()
            self._turns[me] = threading.Semaphore(0)
            self._blocked[me] = (lambda: True, float("inf"))
            there.release()
            self._turns[me].acquire()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - raised again in whoever waits for all
                errors.append(error)
            finally:
                ended.append(call)
                self._hand_on()

        there = threading.Semaphore(0)
        threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
            there.acquire()
        self._turns[threading.get_ident()] = threading.Semaphore(0)
        self._world.callers = self
        try:
            self.wait(lambda: len(ended) == len(calls), float("inf"))
        finally:
            self._world.callers = None
        if errors:
            raise errors[0]

    def wait(self, over: Callable[[], bool], seconds: float) -> bool:
        """Wait as `World.wait` does, while other callers go on."""
        me = threading.get_ident()
        self._blocked[me] = (over, self._world.now + seconds)
        if self._hand_on(me):
            self._turns[me].acquire()
        if self._stuck and not over():
            raise Stuck
        return over()

    def _hand_on(self, me: int = 0) -> bool:
        """Let the world go on until a caller can, and wake it. Return False if that caller is ``me``."""
        while True:
            for who, (over, until) in self._blocked.items():
                if self._stuck or over() or self._world.now >= until:
                    del self._blocked[who]
                    if who != me:
                        self._turns[who].release()
                    return who != me
            try:
                self._world.step(min(until for _, until in self._blocked.values()))
            except Stuck:
                self._stuck = True


class Bell:
    """A `threading.Lock` for such threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        seconds = 0.0 if not blocking else float("inf") if timeout < 0 else timeout
        if self._taken and not self._world.wait(lambda: not self._taken, seconds):
            return False
        self._taken = True
        return True

    def release(self) -> None:
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._taken = False
