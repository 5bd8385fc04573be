"""Small scenarios of barriers, latches and events. The search runs every schedule of each scenario."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast._core.requests import Sleep
from holdfast.testing.history import Event
from holdfast_lab.judge import rendezvous_rules as judge
from holdfast_lab.judge.rendezvous_rules import RendezvousHistory
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.scenarios.scenario import Scenario, let_pass
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.rendezvous_client import Rendezvous, RendezvousClient, flag, meeting
from holdfast_lab.sim.state import same_in_all_states
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import TaskCancelled, Worker

Program = Callable[[RendezvousClient, Any], Coroutine[Any, Any, None]]

TTL = 2.0
"""Seconds after which a participant that gives no sign of life no longer counts, and lease time of the action."""


def meet(wait: float | None = None, takes: float | None = None) -> Program:
    """Return a program that waits at the barrier. If it is cancelled, it waits there once more.

    It waits at most ``wait`` seconds (None: without limit). The barrier's action takes ``takes`` seconds (None: no action).
    """

    async def program(client: RendezvousClient, where: Any) -> None:
        try:
            await client.meet(where, wait, takes)
        except TaskCancelled:
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
        except TaskCancelled:
            await client.count(what)

    return program


def wait(seconds: float | None = None) -> Program:
    """Return a program that waits for the latch or event, at most ``seconds`` (None: without limit). If it is cancelled, it
    gives up."""

    async def program(client: RendezvousClient, what: Any) -> None:
        try:
            await client.wait(what, seconds)
        except TaskCancelled:
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
        except TaskCancelled:
            pass

    return program


@dataclass(frozen=True)
class RendezvousScenario(Scenario):
    """A scenario of a barrier, latch or event. Each program is run by a worker in a process of its own."""

    what: str = "barrier"
    """"barrier", "latch" or "event"."""
    acts: bool = False

    @property
    def number(self) -> int:
        """Number of participants of the barrier, or the initial count of the latch or event."""
        return len(self.programs) if self.what == "barrier" else 2 if self.what == "latch" else 1

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(TTL, trace=trace)
        self.add_processes(world, Rendezvous(world), len(self.programs))
        where: Any = meeting(self.number, TTL, 0.5) if self.what == "barrier" else flag(self.what, self.number, 0.5)
        for process, program in zip(world.processes, self.programs, strict=True):
            worker = Worker(process, "1")
            worker.start(program(RendezvousClient(worker), where))
        return world

    def settle(self, world: Stepwise) -> None:
        world.budget = 0
        let_pass(world, 3 * TTL)
        for what in leftovers(world):
            world.note("left", note=what)

    def judge(self, history: list[Event]) -> list[Violation]:
        case = RendezvousHistory(history, self.number, TTL, self.acts, calm=not any(event.kind == "fault" for event in history))
        rules = {"barrier": judge.barrier, "latch": judge.latch, "event": judge.event}
        found = [Violation("B9", f"left behind: {event.note}") for event in history if event.kind == "left"]
        return found + list(rules[self.what](case))


same_in_all_states(RendezvousClient)

FAULTS = ("cancel", "lost-request", "lost-reply", "slow", "duplicate", "crash", "pause", "deaf")

LIMITED: Any = (meet(3.0), meet(3.0))
LEFT: Any = (meet_once(3.0), meet_once(0.7, after=1.5))
ACTING: Any = (meet(3.0, 0.1), meet(3.0, 0.1))

RENDEZVOUS_SCENARIOS: dict[str, RendezvousScenario] = {
    gathering.name: gathering
    for gathering in (
        RendezvousScenario("meet-two", "two participants of a barrier", (meet(), meet())),
        RendezvousScenario("meet-three", "three participants of a barrier", (meet(), meet(), meet())),
        RendezvousScenario("meet-acting", "a barrier with an action", (meet(takes=0.1), meet(takes=0.1)), acts=True),
        *(
            RendezvousScenario(f"meet-{fault}", f"two participants of a barrier; {fault}", LIMITED, (fault,))
            for fault in FAULTS
        ),
        *(RendezvousScenario(f"meet-acting-{f}", f"a barrier with an action; {f}", ACTING, (f,), acts=True) for f in FAULTS),
        RendezvousScenario("meet-late", "one participant comes late, one may leave", LEFT, ("cancel", "slow"), 2),
        RendezvousScenario(
            "latch",
            "two count down, one waits",
            (count(), count(), wait()),
            ("lost-reply", "duplicate", "deaf"),
            what="latch",
        ),
        RendezvousScenario(
            "event", "one client sets and clears an event, two wait", (count(clears=True), wait(5.0), wait(5.0)), what="event"
        ),
        *(
            RendezvousScenario(
                f"event-{f}", f"one client sets and clears, one waits; {f}", (count(clears=True), wait(5.0)), (f,), what="event"
            )
            for f in FAULTS
        ),
    )
}
