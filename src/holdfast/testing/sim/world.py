"""A simulated world: its virtual time, its planned events, and the history in which it records what happens.

One `World` runs one history. A plain `World` draws the delay of each message at random (`Weather`), and runs the events in the
order of their times. In a `Stepwise` world, the exhaustive search or Hypothesis chooses each step among those possible.
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
"""Virtual time, in seconds, at which every history begins; larger than any duration."""

Entry = list[Any]
"""A planned event: [virtual time in seconds, number, function (None: called off), arguments of the function]."""


class Stuck(Exception):
    """Raised when no step of the simulation is possible while a worker (thread or task) still waits."""


class Weather:
    """A source of random delays, in seconds, for messages and for threads that wake up.

    Most delays are about ``scale`` seconds. The share ``slow_share`` of the delays is up to ``slow`` times as long.
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
    """A simulated world that runs its events in the order of their times, and records a history."""

    def __init__(self, rng: random.Random, weather: Weather | None = None, *, trace: bool = False) -> None:
        self.rng = rng
        self.weather = weather or Weather(rng)
        self.trace = trace
        """True if the history records every request and reply, for people, besides the events that the checkers need."""
        self.now = EPOCH
        """Current virtual time, in seconds; the clocks of processes and servers deviate from it."""
        self.history: list[Event] = []
        self.mishap: Callable[[Wire, Call], bool] | None = None
        """Function that injects a fault into a request as it arrives at a server; see `faults.mishaps`. None: no faults."""
        self.acquisitions: dict[str, str] = {}
        """Names of the acquisitions in the history, by the token that each of them uses."""
        self.places: dict[str, float] = {}
        """Virtual time at which the request to join the lock's queue was sent, by the name of the lease."""
        self.resource = Keyspace()
        """The store that the locks protect: it loses no data, and refuses writes with an old fence."""
        self.register: dict[str, int] = {}
        """The fence of the last accepted write to the protected store, by lock."""
        self.working: set[Worker] = set()
        """The simulated threads and tasks that have not finished."""
        self.processes: list[Process] = []
        self.servers: list[Server] = []
        self.closed = False
        self.rare: Counter[str] = Counter()
        """Counts of the faults that a theme (a rare fault added to a whole history, see `rare`) has injected."""
        self.steps = 0
        self._planned: dict[int, list[Callable[[], object]]] = {}
        self._heap: list[Entry] = []
        self._number = 0

    def note(self, kind: str, who: str = "", lock: str = "", attempt: str = "", **facts: Any) -> None:
        """Append an event to the history, with the current time, unless the world is closed."""
        if self.closed:
            return
        self.history.append(Event(self.now, kind, who, lock, attempt, **facts))

    def drawn_for(self, token: str) -> str:
        """Return the name of the acquisition that uses this token; the token itself if no worker of the simulation drew it.

        The history uses the name of the acquisition as the name of the lease, too.
        """
        return self.acquisitions.get(token.partition("*")[0].removesuffix("~"), token)

    def lease(self, token: str, acquisition: str) -> str:
        """Return the name of the lease that an acquisition holds, or "" if the lease has the name of the acquisition.

        The names differ if an earlier acquisition in the same process handed the lease on to this one.
        """
        lease = self.drawn_for(token)
        return "" if lease == acquisition else lease

    # Planned events

    def at(self, when: float, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call at a virtual time, and return the entry. To call it off, set entry[2] to None."""
        self._number += 1
        entry: Entry = [when, self._number, what, args]
        heappush(self._heap, entry)
        return entry

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        """Plan a function call after the random delay that a thread or task takes to wake up."""
        return self.at(self.now + self.weather.delay(), what, *args)

    def plan(self, step: int, what: Callable[[], object]) -> None:
        """Plan a function call right after the event with this number was run."""
        self._planned.setdefault(step, []).append(what)

    def calm_down(self) -> None:
        """Stop injecting faults, and delay no more messages unusually long."""
        self.mishap = None
        self.weather.slow_share = 0.0
        self._planned.clear()

    def post(self, pipe: Pipe) -> None:
        """Plan the arrival of the message that was put last into a pipe, after the messages sent before it."""
        due = self.now + self.weather.delay() + pipe.wire.distance
        pipe.due = due = max(pipe.due, due)
        self._number += 1
        heappush(self._heap, [due, self._number, pipe.deliver, ()])

    # Running

    def work(self, until: float, steps: int) -> bool:
        """Run the planned events until all workers have finished. Return False if a limit was reached before.

        The limits are the virtual time ``until`` and the number of events ``steps``. Raise Stuck if no event is planned any
        more while a worker still waits.
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
            if entry[0] > self.now:  # noqa: PLR1730 - in the innermost loop, max() would cost time
                self.now = entry[0]
            self.steps += 1
            entry[2](*entry[3])
            if self.steps in planned:
                for what in planned[self.steps]:
                    what()
        return True

    def pass_time(self, seconds: float) -> None:
        """Run the events of the next ``seconds`` seconds of virtual time."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until:
            at, _, what, args = heappop(self._heap)
            if what is not None:
                self.now = max(self.now, at)
                what(*args)
        self.now = until

    def close(self) -> None:
        """End all workers without recording it in the history."""
        self.closed = True
        for process in self.processes:
            for worker in process.workers:
                worker.discard()
