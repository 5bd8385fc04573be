"""Small scenarios of barriers, latches and events. The search runs every schedule of each scenario."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast._core.requests import Sleep
from holdfast.testing.history import Event
from holdfast_lab.explore import Report, explore, replay
from holdfast_lab.judge import rendezvous_rules as judge
from holdfast_lab.judge.rendezvous_rules import RendezvousHistory
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.rendezvous_client import Rendezvous, RendezvousClient, flag, meeting
from holdfast_lab.sim.state import same_in_all_states
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.virtual_time import Stuck
from holdfast_lab.sim.worker import Cancelled, Worker
from holdfast_lab.sim.world import Face, Process

Program = Callable[[RendezvousClient, Any], Coroutine[Any, Any, None]]

TTL = 2.0


def meet(wait: float | None = None, takes: float | None = None) -> Program:
    """Return a program that waits at the barrier. If it is cancelled, it waits there once more.

    It waits at most ``wait`` seconds (None: without limit). The barrier's action takes ``takes`` seconds (None: no action).
    """

    async def program(client: RendezvousClient, where: Any) -> None:
        try:
            await client.meet(where, wait, takes)
        except Cancelled:
            await client.meet(where, wait, takes)

    return program


def count(*, clears: bool = False) -> Program:
    """Return a program that counts a latch down or sets an event. If ``clears`` is True, it then resets the latch or event.

    If the program is cancelled, it counts down or sets once more. Otherwise the waiters might wait forever.
    """

    async def program(client: RendezvousClient, what: Any) -> None:
        try:
            await client.count(what)
            if clears:
                await client.clear(what)
        except Cancelled:
            await client.count(what)

    return program


def wait(seconds: float | None = None) -> Program:
    """Return a program that waits for the latch or event, at most ``seconds`` (None: without limit). If it is cancelled, it
    gives up."""

    async def program(client: RendezvousClient, what: Any) -> None:
        try:
            await client.wait(what, seconds)
        except Cancelled:
            pass

    return program


def meet_once(wait: float | None = None, after: float = 0.0) -> Program:
    """Return a program that waits at the barrier. If it is cancelled, it gives up.

    It arrives after ``after`` seconds, and waits at most ``wait`` seconds (None: without limit).
    """

    async def program(client: RendezvousClient, where: Any) -> None:
        try:
            if after:
                await Sleep(after)
            await client.meet(where, wait)
        except Cancelled:
            pass

    return program


@dataclass(frozen=True)
class RendezvousScenario:
    """A scenario of a barrier, latch or event. Each program is run by a worker in a process of its own."""

    name: str
    about: str
    what: str
    """"barrier", "latch" or "event"."""
    programs: tuple[Program, ...]
    faults: tuple[str, ...] = ()
    budget: int = 1
    acts: bool = False
    face: Face = "threads"

    @property
    def number(self) -> int:
        """Number of participants of the barrier, or the initial count of the latch or event."""
        return len(self.programs) if self.what == "barrier" else 2 if self.what == "latch" else 1

    def build(self, *, trace: bool = False) -> Stepwise:
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=TTL, trace=trace)
        world.brisk = True
        server = Rendezvous(world)
        for number in range(len(self.programs)):
            Process(world, server, f"c{number + 1}", face=self.face).warm_up()
        while steps := world.steps_now():
            steps[0].do()
        where: Any = meeting(self.number, TTL, 0.5) if self.what == "barrier" else flag(self.what, self.number, 0.5)
        for process, program in zip(world.processes, self.programs, strict=True):
            worker = Worker(process, "1")
            worker.start(program(RendezvousClient(worker), where))
        return world

    def settle(self, world: Stepwise) -> None:
        world.budget = 0
        until = world.now + 3 * TTL
        try:
            while (options := world.options()) and world.now <= until:
                options[0].do()
        except Stuck:
            world.now = max(world.now, until)
        for what in leftovers(world):
            world.note("left", note=what)

    def judge(self, history: list[Event]) -> list[Violation]:
        case = RendezvousHistory(history, self.number, TTL, self.acts, calm=not any(event.kind == "fault" for event in history))
        rules = {"barrier": judge.barrier, "latch": judge.latch, "event": judge.event}
        found = [Violation("B9", f"left behind: {event.note}") for event in history if event.kind == "left"]
        return found + list(rules[self.what](case))

    def explore(
        self,
        *,
        most: int = 1_000_000,
        stop_at: int = 1,
        broad: bool = False,
        progress: Callable[[Report], None] | None = None,
    ) -> Report:
        return explore(self.build, self.settle, most=most, stop_at=stop_at, broad=broad, progress=progress, judge=self.judge)

    def replay(self, choices: list[int], *, trace: bool = False) -> tuple[list[Event], list[Violation]]:
        return replay(lambda: self.build(trace=trace), self.settle, choices, judge=self.judge)


same_in_all_states(RendezvousClient)

FAULTS = ("cancel", "lost-request", "lost-reply", "slow", "duplicate", "crash", "pause", "deaf")

LIMITED: Any = (meet(3.0), meet(3.0))
LEFT: Any = (meet_once(3.0), meet_once(0.7, after=1.5))
ACTING: Any = (meet(3.0, 0.1), meet(3.0, 0.1))

RENDEZVOUS_SCENARIOS: dict[str, RendezvousScenario] = {
    gathering.name: gathering
    for gathering in (
        RendezvousScenario("meet-two", "two participants of a barrier", "barrier", (meet(), meet())),
        RendezvousScenario("meet-three", "three participants of a barrier", "barrier", (meet(), meet(), meet())),
        RendezvousScenario("meet-acting", "a barrier with an action", "barrier", (meet(takes=0.1), meet(takes=0.1)), acts=True),
        *(
            RendezvousScenario(f"meet-{fault}", f"two participants of a barrier; {fault}", "barrier", LIMITED, (fault,))
            for fault in FAULTS
        ),
        *(
            RendezvousScenario(f"meet-acting-{f}", f"a barrier with an action; {f}", "barrier", ACTING, (f,), acts=True)
            for f in FAULTS
        ),
        RendezvousScenario("meet-late", "one participant comes late, one may leave", "barrier", LEFT, ("cancel", "slow"), 2),
        RendezvousScenario(
            "latch",
            "two count down, one waits",
            "latch",
            (count(), count(), wait()),
            ("lost-reply", "duplicate", "deaf"),
        ),
        RendezvousScenario(
            "event", "one client sets and clears an event, two wait", "event", (count(clears=True), wait(5.0), wait(5.0))
        ),
        *(
            RendezvousScenario(
                f"event-{f}", f"one client sets and clears, one waits; {f}", "event", (count(clears=True), wait(5.0)), (f,)
            )
            for f in FAULTS
        ),
    )
}
