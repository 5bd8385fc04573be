"""Virtual time, and what happens next. Nothing here runs at the same moment as anything else."""

from __future__ import annotations

import heapq
from collections.abc import Callable
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
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], object] = lambda: None) -> None:
        """Call ``what`` then; of what is due at the same time, first what was asked for first."""
        self._count += 1
        heapq.heappush(self._due, (when, self._count, what))

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        """Call ``what`` in so many seconds."""
        self.at(self.now + seconds, what)

    def note(self, kind: str, who: str, lock: str = "", *, until: float = 0.0, note: str = "") -> None:
        """Write down what happens now, for people."""
        self.history.append(Event(self.now, kind, who, lock, until=until, note=note))

    def step(self, until: float = float("inf")) -> None:
        """Let the next event happen; if there is none by then, let time pass until ``until``. Raises Stuck."""
        self.steps += 1
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
        """Block whoever calls until ``over()``, for so many seconds at most; False if it is not over by then."""
        until = self.now + seconds
        while not over():
            if self.now >= until:
                return False
            self.step(until)
        return True
