"""Small scenarios of single flight, for the exhaustive search: as `scenarios` has them for a lock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast._core.single_flight.flight import LookupPolicy, entry_spec
from holdfast.testing.explore import Report, explore, replay
from holdfast.testing.history import Event
from holdfast.testing.judge.safety_rules import Violation
from holdfast.testing.sim.leftovers import write_the_end
from holdfast.testing.sim.process import Face, Process
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.single_flight_client import CacheClient, Source
from holdfast.testing.sim.stepwise import Stepwise
from holdfast.testing.sim.worker import Worker
from holdfast.testing.sim.world import Stuck
from holdfast.testing.swarms.single_flight import RULES, Case, Profile

Program = Callable[[CacheClient], Coroutine[Any, Any, None]]

LEASE, TTL = 2.0, 30.0

FOR_EVER, AT_ONCE = LookupPolicy(), LookupPolicy(wait=0.0)


def get(policy: LookupPolicy = FOR_EVER, takes: float = 0.1, *, fails: bool = False) -> Program:
    """Look for the value, and load it if that is what comes of it."""

    async def program(client: CacheClient) -> None:
        await client.get(policy, takes, fails=fails)

    return program


def change(how: str) -> Program:
    """Write to the source, see that the key is invalidated, and look."""

    async def program(client: CacheClient) -> None:
        await client.write(how)
        await client.get(AT_ONCE, 0.0)

    return program


@dataclass(frozen=True)
class FlightScenario:
    """One worker a program, each in a process of its own; at most ``budget`` of these faults."""

    name: str
    about: str
    programs: tuple[Program, ...]
    faults: tuple[str, ...] = ()
    budget: int = 1
    face: Face = "threads"

    def build(self, *, trace: bool = False) -> Stepwise:
        """Its world, before anything has happened."""
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=LEASE, trace=trace)
        world.brisk = True
        server = Server(world)
        for number in range(len(self.programs)):
            Process(world, server, f"c{number + 1}", face=self.face).warm_up()
        while steps := world.steps_now():
            steps[0].do()
        source = Source(entry_spec("hf:cache:", "c", "x", lease=LEASE), TTL, 0.0)
        for process, program in zip(world.processes, self.programs, strict=True):
            worker = Worker(process, "1")
            worker.start(program(CacheClient(worker, source)))
        return world

    def settle(self, world: Stepwise) -> None:
        """Deliver the messages still under way, and let the leases run out."""
        world.budget = 0
        until = world.now + 3 * LEASE
        try:
            while (options := world.options()) and world.now <= until:
                options[0].do()
        except Stuck:
            world.now = max(world.now, until)
        write_the_end(world)

    def judge(self, history: list[Event]) -> list[Violation]:
        """Return the violations of rules in a history."""
        faults = [(0, event.note, 0.0) for event in history if event.kind == "fault"]
        case = Case(history, Profile(LEASE, TTL, 0.0, 0.0, 0.0, 0.0, faults=faults))
        return [violation for rule in RULES for violation in rule(case)]

    def explore(self, *, most: int = 1_000_000, stop_at: int = 1, progress: Callable[[Report], None] | None = None) -> Report:
        """Search all its schedules, see `explore.explore`."""
        return explore(self.build, self.settle, most=most, stop_at=stop_at, progress=progress, judge=self.judge)

    def replay(self, choices: list[int], *, trace: bool = False) -> tuple[list[Event], list[Violation]]:
        """The history of one schedule, judged."""
        return replay(lambda: self.build(trace=trace), self.settle, choices, judge=self.judge)


FAULTS = ("cancel", "lost-request", "lost-reply", "slow", "duplicate", "crash", "pause")

FLIGHT_SCENARIOS: dict[str, FlightScenario] = {
    flight.name: flight
    for flight in (
        FlightScenario("flight-two", "two clients want a value", (get(), get())),
        FlightScenario("flight-fails", "two clients want a value, and one fails to load it", (get(fails=True), get())),
        FlightScenario(
            "flight-drop", "one loads, one changes the source and deletes the value", (get(), change("drop")), FAULTS
        ),
        FlightScenario("flight-tag", "one loads, one changes the source and invalidates a tag", (get(), change("tag")), FAULTS),
        *(
            FlightScenario(f"flight-two-{fault}", f"two clients want a value; {fault}", (get(), get()), (fault,))
            for fault in FAULTS
        ),
        FlightScenario(
            "flight-late",
            "the same, a lease ends, and its request comes once more",
            (get(), change("drop")),
            ("duplicate", "pause"),
            2,
        ),
    )
}
"""By name."""
