"""Small scenarios of an election. The search runs every schedule of each scenario."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast._core.election import LISTEN_S
from holdfast._core.requests import Sleep
from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket
from holdfast_lab.scenarios.single_flight import LEASE, FlightScenario
from holdfast_lab.sim.election_client import Candidate, ElectionData, Observer
from holdfast_lab.sim.lock_client import spec
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker
from holdfast_lab.swarms.election import judge, judge_gifts, judge_seen

Program = Callable[[Worker, ElectionData], Coroutine[Any, Any, None]]


def lead(name: str, hold: float = 0.0, *, to: str = "", wait: float | None = None) -> Program:
    """Return a program that campaigns as ``name``, leads for ``hold`` seconds, and then hands over to ``to`` or resigns.

    It campaigns for at most ``wait`` seconds (None: until it is elected). It resigns if ``to`` is "" or the hand-over fails.
    """

    async def program(worker: Worker, election: ElectionData) -> None:
        candidate, term = Candidate(worker, election, name), None
        while term is None:
            term = await candidate.campaign(wait)
            if wait is not None:
                break
        if term is None:
            return
        try:
            await Sleep(hold)
            if to:
                await candidate.hand_over(term, to)
        finally:
            if not term.is_over():
                await candidate.resign(term)

    return program


def watch(name: str) -> Program:
    """Return a program that observes until ``name`` leads, and then until nobody leads."""

    async def program(worker: Worker, election: ElectionData) -> None:
        observer = Observer(worker, election)
        while (found := await observer.see()) is None or found.name != name:
            pass
        while found is not None:
            found = await observer.see()

    return program


@dataclass(frozen=True)
class ElectionScenario(FlightScenario):
    """A scenario of an election. Each program is run by a worker in a process of its own."""

    watched: bool = False
    """True if the second program must notice that the first program leads, and later that its term ends."""

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(LEASE, trace=trace)
        self.add_processes(world, Server(world), len(self.programs))
        election = ElectionData(spec("x", ttl=LEASE))
        for process, program in zip(world.processes, self.programs, strict=True):
            worker = Worker(process, "1")
            worker.start(program(worker, election))
        return world

    def judge(self, history: list[Event]) -> list[Violation]:
        docket = Docket()
        found = judge(history, docket, LEASE)
        if not any(event.kind == "end" for event in history):
            return found  # the search stopped at a known state: no end to judge
        calm = not any(event.kind == "fault" for event in history)
        if self.watched:
            found += judge_seen(history, {"c2/1"}, 0.1 if calm else LISTEN_S + LEASE, LEASE, "n1", docket=docket)
        return found + (judge_gifts(history, docket) if calm else [])


FAULTS = ("cancel", "lost-request", "lost-reply", "slow", "duplicate", "crash", "pause")
TWO = (lead("n1"), lead("n2"))
GIFT = (lead("n1", 0.1, to="n2"), lead("n2"))
WATCHED = (lead("n1", 1.0), watch("n1"))

ELECTION_SCENARIOS: dict[str, ElectionScenario] = {
    contest.name: contest
    for contest in (
        ElectionScenario("elect-gift", "a leader hands over to another candidate", GIFT),
        ElectionScenario("elect-watched", "a candidate leads, and an observer watches", WATCHED, watched=True),
        *(
            ElectionScenario(f"elect-two-{fault}", f"two candidates campaign and lead; {fault}", TWO, (fault,))
            for fault in FAULTS
            if fault != "cancel"
        ),
        *(
            ElectionScenario(f"elect-gift-{fault}", f"a leader hands over to another candidate; {fault}", GIFT, (fault,))
            for fault in FAULTS
        ),
        *(
            ElectionScenario(f"elect-watched-{fault}", f"one leads, one observes; {fault}", WATCHED, (fault,), watched=True)
            for fault in ("lost-request", "lost-reply", "slow", "duplicate", "deaf")
        ),
    )
}
