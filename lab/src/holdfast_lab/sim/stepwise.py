"""A world in which the exhaustive search or Hypothesis chooses each step.

Messages take no time. If no step is possible, time passes up to the next planned event. If only delayed messages can arrive,
the search may also let time pass. So the search can try every order of events that a fast network allows. Faults are steps,
too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._core.requests import RunScript
from holdfast_lab.sim.network import END
from holdfast_lab.sim.virtual_time import EPOCH, Entry, Stuck
from holdfast_lab.sim.world import World

if TYPE_CHECKING:
    from holdfast_lab.sim.network import Pipe
    from holdfast_lab.sim.server import Server
    from holdfast_lab.sim.world import Process

INSTANT = 3e-6
"""Seconds within which planned events count as simultaneous. Rounding and `Process.at` add small differences."""

PAUSE = 1.5
"""Duration of the fault that pauses a process, as a multiple of the lease time."""

DEAF = 0.5
"""Duration of the fault that loses published messages, as a multiple of the lease time."""

OF_MESSAGES = frozenset(("lost-request", "lost-reply", "slow", "duplicate"))
OF_PROCESSES = frozenset(("crash", "pause", "cancel"))

Mishap = tuple[str, str, Callable[[], object]]
"""A fault that is possible now: its kind, its target, and the function that injects it."""


class Step(NamedTuple):
    """A step that is possible next: an event or a fault."""

    do: Callable[[], object]
    fault: bool = False
    late: bool = False
    """True for the arrival of a message that a fault has delayed."""


class Stepwise(World):
    """A world in which a search chooses each step.

    ``faults`` are the kinds of faults that it offers as steps. At most ``budget`` of them happen in a history.
    """

    def __init__(self, *, faults: Iterable[str] = (), budget: int = 0, ttl: float = 2.0, trace: bool = False) -> None:
        super().__init__(random.Random(0), trace=trace)
        self.in_turn = False
        """True if the tasks of a process resume in the order in which they were woken, as in an event loop."""
        self.faults = frozenset(faults)
        self.budget = budget
        self.ttl = ttl
        self.brisk = False
        """True if a step that only one process notices is made at once, so that the search has fewer orders to try.

        The order in which requests reach the server, and the faults, are still chosen.
        """
        self.sparse = True
        """True if the search does not store states in which only one step is possible.

        There are many such states, and each soon leads to a state with several steps.
        """
        self.pipes: list[Pipe] = []
        self.ready: list[Entry] = []
        self.held: list[tuple[float, Pipe]] = []
        """Pipes whose first message a fault has delayed, each with the time of this fault."""
        self.floors: dict[str, int] = {}
        """Highest fence granted before each worker's last acquisition began, by worker. A new fence must be higher."""
        self.struck: list[str] = []
        """Kinds and targets of the faults so far. They are part of the state, because they excuse violations."""
        self._highest = 0

    def note(self, kind: str, who: str = "", *args: Any, **facts: Any) -> None:
        super().note(kind, who, *args, **facts)
        if kind == "ask":
            self.floors[who] = self._highest
        elif kind == "taken" and not self.closed:
            self._highest = max(self._highest, self.history[-1].fence)

    def soon(self, what: Callable[..., object], *args: Any) -> Entry:
        self._number += 1
        entry: Entry = [self.now, self._number, what, args]
        self.ready.append(entry)
        return entry

    def post(self, pipe: Pipe) -> None:
        if pipe not in self.pipes:
            self.pipes.append(pipe)

    # The possible steps

    def options(self) -> list[Step]:
        """Return the steps that are possible now, including faults, in a fixed order.

        If there is none, let time pass. Raises Stuck if no event is planned any more.
        """
        return self._steps() + (self._fault_steps() if self.budget else [])

    def option(self, number: int) -> Step:
        """Return the step with this index in `options`. Faults come last, and are computed only for their indexes."""
        steps = self._steps()
        return steps[number] if number < len(steps) else self._fault_steps()[number - len(steps)]

    def _steps(self) -> list[Step]:
        """Return the possible steps except faults. If there is none, let time pass."""
        while True:
            steps = self.steps_now()
            if steps:
                if all(step.late for step in steps) and self.pending():
                    # a delayed message may arrive even later
                    steps.append(Step(self._pass_time))
                return steps
            self._pass_time()

    def steps_now(self) -> list[Step]:
        """Return the steps, except faults, that are possible without letting time pass."""
        self.ready = [entry for entry in self.ready if entry[2] is not None]
        self.pipes = [pipe for pipe in self.pipes if pipe.messages and not pipe.wire.silent]
        at_once = self._at_once() if self.brisk else None
        if at_once is not None:
            return [at_once]
        ready = self._first_of_each() if self.in_turn else self.ready
        steps = [Step(partial(self._take, entry)) for entry in ready]
        self.held = [(since, pipe) for since, pipe in self.held if pipe in self.pipes]
        held = {pipe for _, pipe in self.held}
        steps += [Step(pipe.deliver) for pipe in self.pipes if pipe not in held]
        steps += [Step(partial(self._let_go, pipe), late=True) for since, pipe in self.held if self.now > since]
        return steps + [Step(partial(self._fire, entry)) for entry in self.due()]

    def _at_once(self) -> Step | None:
        """Return a possible step that only one process notices, such as the arrival of a reply; None: there is none."""
        for entry in self.ready:
            return Step(partial(self._take, entry))
        for pipe in self.pipes:
            if (pipe is pipe.wire.down or pipe.messages[0] is END) and all(pipe is not held for _, held in self.held):
                return Step(pipe.deliver)
        return None

    def _first_of_each(self) -> list[Entry]:
        """Return the first ready call of each event loop and of each keeper."""
        first: dict[object, Entry] = {}
        for entry in self.ready:
            owner = getattr(entry[3][0] if entry[3] and callable(entry[3][0]) else entry[2], "__self__", entry[2])
            process = getattr(owner, "process", None)
            first.setdefault((process, type(owner).__name__) if process else owner, entry)
        return list(first.values())

    def pending(self) -> list[Entry]:
        self._heap = [entry for entry in self._heap if entry[2] is not None]
        return self._heap

    def due(self) -> list[Entry]:
        soon = self.now + INSTANT
        return sorted([entry for entry in self._heap if entry[0] <= soon and entry[2] is not None])

    def due_by(self, when: float) -> bool:
        """Return True if a step is possible by the virtual time ``when``."""
        return bool(self.steps_now()) or any(entry[0] <= when for entry in self.pending())

    def _pass_time(self) -> None:
        if not self.pending():
            raise Stuck
        self.now = min(entry[0] for entry in self._heap)

    def _take(self, entry: Entry) -> None:
        self.ready.remove(entry)
        entry[2](*entry[3])

    def _fire(self, entry: Entry) -> None:
        what, entry[2] = entry[2], None
        self.now = max(self.now, entry[0])
        what(*entry[3])

    def _let_go(self, pipe: Pipe) -> None:
        self.held = [(since, other) for since, other in self.held if other is not pipe]
        pipe.deliver()

    # Faults

    def _fault_steps(self) -> list[Step]:
        return [
            Step(partial(self._go_wrong, kind, whom, do), fault=True)
            for kind, whom, do in (*self._of_messages(), *self._of_processes(), *self._of_servers())
            if kind in self.faults
        ]

    def _of_messages(self) -> Iterator[Mishap]:
        for pipe in self.pipes if self.faults & OF_MESSAGES else ():
            message = pipe.messages[0]
            if message is END or not pipe.wire.open:
                continue
            yield "lost-request" if pipe is pipe.wire.up else "lost-reply", _of(pipe), pipe.wire.cut
            if isinstance(message, RunScript):
                yield "slow", _of(pipe), partial(self.held.append, (self.now, pipe))
                yield "duplicate", _of(pipe), partial(self._double, pipe)

    def _of_processes(self) -> Iterator[Mishap]:
        for process in self.processes if self.faults & OF_PROCESSES else ():
            if process.here and any(not worker.done for worker in process.workers):
                yield "crash", process.name, process.crash
                yield "pause", process.name, partial(self._pause, process)
                for worker in process.workers:
                    if not worker.done and worker.asked is not None:
                        yield "cancel", worker.name, worker.cancel

    def _of_servers(self) -> Iterator[Mishap]:
        for server in self.servers:
            yield "restart", server.name, partial(self._restart, server)
            yield "deaf", server.name, partial(self._deafen, server)
            yield "amnesia", server.name, partial(self._restart, server, forgets=float("inf"))
            yield "amnesia of the last", server.name, partial(self._restart, server, forgets=self.now - EPOCH)
            for key in server.locks if "foreign" in self.faults else ():
                if server.keyspace.peek(key)[0]:
                    yield "foreign", server.name, partial(server.meddle, "DEL", key)

    def _go_wrong(self, kind: str, whom: str, do: Callable[[], object]) -> None:
        self.budget -= 1
        self.struck.append(f"{kind} {whom}")
        lasts = {"pause": PAUSE, "deaf": DEAF}.get(kind, 0.0) * self.ttl
        self.note("fault", whom.partition("/")[0].partition(" ")[0], note=kind, until=self.now + lasts)
        do()

    def _pause(self, process: Process) -> None:
        process.pause()
        self.at(self.now + PAUSE * self.ttl, process.resume)

    def _double(self, pipe: Pipe) -> None:
        """Duplicate the first request of a pipe. The copy arrives later."""
        call = pipe.messages[0]
        copy = type(pipe)(pipe.wire, lambda _: pipe.wire.server.again(pipe.wire, call))
        copy.messages.append(call)
        self.pipes.append(copy)
        self.held.append((self.now, copy))

    def _restart(self, server: Server, forgets: float = 0.0) -> None:
        server.crash()
        server.start(forgets=forgets)

    def _deafen(self, server: Server) -> None:
        server.deaf = True
        self.at(self.now + DEAF * self.ttl, lambda: setattr(server, "deaf", False))


def _of(pipe: Pipe) -> str:
    """Return a name of the first message of a pipe."""
    message = pipe.messages[0]
    wire = pipe.wire
    if pipe is wire.down:
        what = "end" if message is END else "push" if hasattr(message, "channel") else "reply"
    else:
        what = "end" if message is END else str(message.script.name if isinstance(message, RunScript) else message.args[0])
    return f"{wire.label} {what}"
