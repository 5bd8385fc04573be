"""The virtual time, the planned events and the history of a simulated world.

One `World` is one history. A plain `World` is run by time: its `Weather` draws how long each message takes, and events happen
in the order of their times. In a `Stepwise` world, the exhaustive search or Hypothesis chooses each step among those possible.
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
"""True time at which every history begins, in seconds. No duration is as large."""

Entry = list[Any]
"""A planned event: [when, number, function (None: called off), its arguments]."""


class Stuck(Exception):
    """Raised when no step is possible while a worker still waits."""


class Weather:
    """Random delays of messages and wake-ups, in seconds.

    Most are about ``scale``. The share ``slow_share`` of them takes up to ``slow`` times as long.
    """

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
    """A simulated history in which events happen in the order of their time."""

    def __init__(self, rng: random.Random, weather: Weather | None = None, *, trace: bool = False) -> None:
        self.rng = rng
        self.weather = weather or Weather(rng)
        self.trace = trace
        """Write each request into the history too, not only what the checkers need."""
        self.now = EPOCH
        """True time in seconds."""
        self.history: list[Event] = []
        self.mishap: Callable[[Wire, Call], bool] | None = None
        """Injects faults into single requests as they arrive at a server; see `faults.mishaps`."""
        self.acquisitions: dict[str, str] = {}
        """The acquisition that each token was drawn for."""
        self.places: dict[str, float] = {}
        """True time at which the request that joined the queue was sent, by lease."""
        self.resource = Keyspace()
        """The resource that the locks protect, which loses no data and checks fences."""
        self.register: dict[str, int] = {}
        """The fence of the last accepted write, by lock."""
        self.working: set[Worker] = set()
        """Workers that have not finished."""
        self.processes: list[Process] = []
        self.servers: list[Server] = []
        self.closed = False
        self.rare: Counter[str] = Counter()
        """Counts of the faults that a rare theme has injected, see `rare`."""
        self.steps = 0
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._heap: list[Entry] = []
        self._number = 0

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Append an event to the history, unless the world is closed."""
        if self.closed:
            return
        self.history.append(Event(self.now, kind, who, lock, attempt, **facts))

    def drawn_for(self, token: str) -> str:
        """Return the acquisition that a token was drawn for, which names its lease in the history.

        Return the token itself if no worker drew it.
        """
        return self.acquisitions.get(token.partition("*")[0].removesuffix("~"), token)

    def lease(self, token: str, acquisition: str) -> str:
        """Return the name of the lease that an acquisition holds; "" if it is its own.

        The two differ when the lease was handed on to this acquisition by another one.
        """
        lease = self.drawn_for(token)
        return "" if lease == acquisition else lease

    # Planned events

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a call at a true time. To call it off, set the third field of the entry to None."""
        self._number += 1
        entry: Entry = [when, self._number, what, args]
        heappush(self._heap, entry)
        return entry

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a call after the delay of a wake-up."""
        return self.at(self.now + self.weather.delay(), what, *args)

    def plan(self, step: int, what: Callable[[], object]) -> None:
        """Plan a call right after the step with this number."""
        self._planned.setdefault(step, []).append(what)

    def calm_down(self) -> None:
        """Inject no more faults from now on."""
        self.mishap = None
        self.weather.slow_share = 0.0
        self._planned.clear()

    def post(self, pipe: Pipe) -> None:
        """Plan the arrival of a message that was put into a pipe, after those already in it."""
        due = self.now + self.weather.delay() + pipe.wire.distance
        pipe.due = due = max(pipe.due, due)
        self._number += 1
        heappush(self._heap, [due, self._number, pipe.deliver, ()])

    # Running

    def work(self, until: float, steps: int) -> bool:
        """Run the planned events until all workers have finished.

        Return True if they have by true time ``until``, within ``steps`` steps. Raise Stuck if no event is planned any more.
        """
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
        """Run the events of the next ``seconds`` seconds."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            at, _, what, args = heappop(self._heap)
            if what is not None:
                self.now = max(self.now, at)
                what(*args)
        self.now = until

    def close(self) -> None:
        """End all workers. The history records nothing of that."""
        self.closed = True
        for process in self.processes:
            for worker in process.workers:
                worker.discard()
