"""The virtual time and the planned events of a history over scripted sockets."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.testing.history import Event

if TYPE_CHECKING:
    from holdfast_lab.wired.server import Server


class Stuck(Exception):
    """Raised when a thread or task waits without a time limit and no event is planned any more."""


class Interrupt(BaseException):
    """Raised in a thread while it blocks. It stands for an exception that a signal handler raises."""


class World:
    """A world that runs planned events in the order of their times. Only one thread runs at any moment.

    ``now`` is the virtual time in seconds. The clocks of machines and servers follow it, each at its own rate.
    """

    def __init__(self, *, trace: bool) -> None:
        self.now = 0.0
        self.steps = 0
        self.trace = trace
        """True if the history also has the bytes that are sent and received."""
        self.history: list[Event] = []
        self.servers: list[Server] = []
        self.watchers: list[Callable[[], None]] = []
        """Functions that are called after each event. They check the rules, and run keepers that have work."""
        self.callers: Callers | None = None
        """The threads of the history, if several of them can block at the same time."""
        self.interrupt: tuple[int, float] | None = None
        """The planned interrupt of the thread that runs the history; None: no interrupt is planned.

        The first item is how often the thread still blocks undisturbed. When it blocks the next time, Interrupt ends the wait
        after the seconds in the second item. If the wait ends before, Interrupt is raised then.
        """
        self._stepping = 0
        """Number of events that are running. An event that waits runs further events, so it may be more than one.

        While an event is running, no thread may continue.
        """
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], object] = lambda: None) -> None:
        """Plan a call at the virtual time ``when``. Calls at the same time run in the order of planning."""
        self._count += 1
        heapq.heappush(self._due, (when, self._count, what))

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        self.at(self.now + seconds, what)

    def note(self, kind: str, who: str, lock: str = "", *, until: float = 0.0, note: str = "") -> None:
        """Append an event to the history. Only people read these events. The rules do not use them."""
        self.history.append(Event(self.now, kind, who, lock, until=until, note=note))

    def step(self, until: float = float("inf")) -> None:
        """Run the next event. If none is due before ``until``, let time pass up to ``until``.

        Raises Stuck if ``until`` is infinity and no event is planned.
        """
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
        """Block until ``over()`` is True, for at most ``seconds`` of virtual time. Return False on a timeout.

        Raises Interrupt if `interrupt` plans it for this wait.
        """
        if self.callers is not None and not self._stepping:
            return self.callers.wait(over, seconds)
        if self.interrupt is not None and not self._stepping:
            more, within = self.interrupt
            self.interrupt = (more - 1, within) if more else None
            if not more:
                self._block(over, min(seconds, within))
                raise Interrupt
        return self._block(over, seconds)

    def _block(self, over: Callable[[], bool], seconds: float) -> bool:
        until = self.now + seconds
        while not over():
            if self.now >= until:
                return False
            self.step(until)
        return True


class Callers:
    """Several simulated threads. One of them runs at a time. When it blocks, another thread runs whose wait has ended."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._blocked: dict[int, tuple[Callable[[], bool], float]] = {}
        self._turns: dict[int, threading.Semaphore] = {}
        self._stuck = False
        self._alive = 0
        """Number of calls that have not ended."""
        self._errors: list[Exception] = []

    def start(self, call: Callable[[], object]) -> None:
        """Run a call in a thread of its own, which begins when the thread that runs now blocks."""
        there = threading.Semaphore(0)

        def run() -> None:
            me = threading.get_ident()
            self._turns[me] = threading.Semaphore(0)
            self._blocked[me] = (lambda: True, float("inf"))
            there.release()
            self._turns[me].acquire()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for all calls
                self._errors.append(error)
            finally:
                self._alive -= 1
                self._hand_on()

        self._alive += 1
        threading.Thread(target=run, daemon=True).start()
        there.acquire()

    def run(self, calls: Sequence[Callable[[], object]]) -> None:
        """Start each call in a thread of its own, and return when all threads have ended, also those started by the calls.

        Raises Stuck if all threads wait forever. Otherwise, raises the first exception of a call.
        """
        for call in calls:
            self.start(call)
        self._turns[threading.get_ident()] = threading.Semaphore(0)
        self._world.callers = self
        try:
            self.wait(lambda: not self._alive, float("inf"))
        finally:
            self._world.callers = None
        if self._errors:
            raise self._errors[0]

    def wait(self, over: Callable[[], bool], seconds: float) -> bool:
        """Block the calling thread until ``over()`` is True, for at most ``seconds``. Other threads run meanwhile.

        Return False on a timeout. Raises Stuck if all threads wait forever.
        """
        me = threading.get_ident()
        self._blocked[me] = (over, self._world.now + seconds)
        if self._hand_on(me):
            self._turns[me].acquire()
        if self._stuck and not over():
            raise Stuck
        return over()

    def _hand_on(self, me: int = 0) -> bool:
        """Run events until the wait of a thread ends, and wake this thread. Return False if ``me`` is this thread."""
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
    """A lock for simulated threads, which replaces `threading.Lock`. Threads wait for it in virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        seconds = 0.0 if not blocking else float("inf") if timeout < 0 else timeout
        if self._taken and not self._world.wait(lambda: not self._taken, seconds):
            return False
        self._taken = True
        return True

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._taken = False
