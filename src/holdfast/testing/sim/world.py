"""Virtual time, what happens next, and the history of what happened.

One `World` is one history. Two kinds of it differ in who says what happens next. In a `World` that is run by time, each message
takes as long as the weather says, and things happen in the order of their times. In a `Stepwise` one, somebody outside chooses
each step among those that are possible: the exhaustive search, or Hypothesis.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from holdfast.testing.history import Event
from holdfast.testing.keyspace import Keyspace

if TYPE_CHECKING:
    from holdfast._core.requests import Call
    from holdfast.testing.sim.network import Pipe, Wire
    from holdfast.testing.sim.process import Process
    from holdfast.testing.sim.server import Server
    from holdfast.testing.sim.worker import Worker

EPOCH = 1e9
"""True time at which every history begins, in seconds. So large that a time cannot be mistaken for a duration."""

Entry = list[Any]
"""Something that is to happen: [when, number, what (None: called off), its arguments]."""


class Stuck(Exception):
    """Nobody can make a step, and somebody waits."""


class Weather:
    """How long messages and wake-ups take, in seconds: mostly about ``scale``, sometimes ``slow`` times as long."""

    __slots__ = ("_draw", "scale", "slow", "slow_share")

    def __init__(self, rng: random.Random, scale: float = 0.0003, slow: float = 1.0, slow_share: float = 0.0) -> None:
        self._draw = rng.random
        self.scale = scale
        self.slow = slow
        self.slow_share = slow_share

    def delay(self) -> float:
        draw = self._draw
        delay = self.scale * (0.5 + draw())
        if self.slow_share and draw() < self.slow_share:
            delay *= self.slow * draw()
        return delay


class World:
    """One history, run by time."""

    def __init__(self, rng: random.Random, weather: Weather | None = None, *, trace: bool = False) -> None:
        self.rng = rng
        self.weather = weather or Weather(rng)
        self.trace = trace
        """Write down each request too, not only what the checkers need."""
        self.now = EPOCH
        """True time in seconds."""
        self.history: list[Event] = []
        self.mishap: Callable[[Wire, Call], bool] | None = None
        """What happens to single requests as they arrive, see `faults.mishaps`."""
        self.acquisitions: dict[str, str] = {}
        """For each token, which acquisition it was drawn for."""
        self.places: dict[str, float] = {}
        """For each lease that was queued for, when the request that joined the queue was sent."""
        self.resource = Keyspace()
        """What the locks protect: a server that forgets nothing, written to under `holdfast.fencing`."""
        self.register: dict[str, int] = {}
        """The highest fence that was written with, by lock."""
        self.working: set[Worker] = set()
        """Workers that have not come to their end."""
        self.processes: list[Process] = []
        self.servers: list[Server] = []
        self.closed = False
        self.rare: Counter[str] = Counter()
        """What a theme has done in it."""
        self.steps = 0
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._heap: list[Entry] = []
        self._number = 0

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Write something into the history."""
        if self.closed:
            return
        self.history.append(Event(self.now, kind, who, lock, attempt, **facts))

    def drawn_for(self, token: str) -> str:
        """The acquisition that a token was drawn for: what the history calls its lease. A foreign one: its value."""
        return self.acquisitions.get(token.partition("*")[0].removesuffix("~"), token)

    def lease(self, token: str, acquisition: str) -> str:
        """What the history says of whose lease it is, of one who has it in this acquisition: nothing if it is his own."""
        lease = self.drawn_for(token)
        return "" if lease == acquisition else lease

    # What is to happen

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Have something happen at a true time. Setting the third field of the entry to None calls it off."""
        self._number += 1
        entry: Entry = [when, self._number, what, args]
        heappush(self._heap, entry)
        return entry

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Have something happen as soon as whoever has to do it gets to it."""
        return self.at(self.now + self.weather.delay(), what, *args)

    def plan(self, step: int, what: Callable[[], object]) -> None:
        """Have something happen after so many steps, besides what happens by itself."""
        self._planned.setdefault(step, []).append(what)

    def calm_down(self) -> None:
        """From now on nothing goes wrong any more."""
        self.mishap = None
        self.weather.slow_share = 0.0
        self._planned.clear()

    def post(self, pipe: Pipe) -> None:
        """A message was put into a pipe: it will arrive, behind those before it."""
        due = self.now + self.weather.delay() + pipe.wire.distance
        pipe.due = due = max(pipe.due, due)
        self._number += 1
        heappush(self._heap, [due, self._number, pipe.deliver, ()])

    # Running

    def work(self, until: float, steps: int) -> bool:
        """Let things happen until all workers have come to their end: True if they have by true time ``until``, in so many
        steps. Raises Stuck."""
        heap, working, planned = self._heap, self.working, self._planned
        while working:
            if not heap:
                raise Stuck
            entry = heappop(heap)
            if entry[2] is None:
                continue
            if entry[0] > until or self.steps >= steps:
                return False
            if entry[0] > self.now:  # noqa: PLR1730 - the inmost loop
                self.now = entry[0]
            self.steps += 1
            entry[2](*entry[3])
            if self.steps in planned:
                for what in planned[self.steps]:
                    what()
        return True

    def pass_time(self, seconds: float) -> None:
        """Let everything happen that happens in so many seconds."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            at, _, what, args = heappop(self._heap)
            if what is not None:
                self.now = max(self.now, at)
                what(*args)
        self.now = until

    def close(self) -> None:
        """End what is still going on in it. Nothing of that is told."""
        self.closed = True
        for process in self.processes:
            for worker in process.workers:
                worker.discard()
