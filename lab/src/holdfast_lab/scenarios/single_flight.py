"""Small scenarios of single flight on a cached key. The search runs every schedule of each scenario."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast._core.single_flight.flight import LookupPolicy, entry_spec
from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.scenarios.scenario import Scenario, let_pass
from holdfast_lab.sim.leftovers import write_the_end
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.single_flight_client import CacheClient, Source
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker
from holdfast_lab.swarms.single_flight import RULES, Case, Profile

Program = Callable[[CacheClient], Coroutine[Any, Any, None]]

LEASE, TTL = 2.0, 30.0
"""Lease time of a load, and time after which a value expires, in seconds."""

FOR_EVER, AT_ONCE = LookupPolicy(), LookupPolicy(wait=0.0)


def get(policy: LookupPolicy = FOR_EVER, takes: float = 0.1, *, fails: bool = False) -> Program:
    """Return a program that looks the value up. If it gets the load lease, it loads for ``takes`` seconds.

    ``policy`` says how long it waits, and whether it accepts a stale value. If ``fails`` is True, the load fails.
    """

    async def program(client: CacheClient) -> None:
        await client.get(policy, takes, fails=fails)

    return program


def change(how: str) -> Program:
    """Return a program that writes a new version to the source, invalidates the key, and looks the value up.

    ``how`` is the way to invalidate, such as "drop" or "tag" (see `CacheClient.write`).
    """

    async def program(client: CacheClient) -> None:
        await client.write(how)
        await client.get(AT_ONCE, 0.0)

    return program


def put(times: int) -> Program:
    """Return a program that writes ``times`` new versions to the source and the cache, and then looks the value up."""

    async def program(client: CacheClient) -> None:
        for _ in range(times):
            await client.write("store")
        await client.get(AT_ONCE, 0.0)

    return program


@dataclass(frozen=True)
class FlightScenario(Scenario):
    """A scenario of single flight. Each program is run by a worker in a process of its own."""

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(LEASE, trace=trace)
        self.add_processes(world, Server(world), len(self.programs))
        source = Source(entry_spec("hf:cache:", "c", "x", lease=LEASE), TTL, 0.0)
        for process, program in zip(world.processes, self.programs, strict=True):
            worker = Worker(process, "1")
            worker.start(program(CacheClient(worker, source)))
        return world

    def settle(self, world: Stepwise) -> None:
        world.budget = 0
        let_pass(world, 5 * LEASE)  # so long, the server may grant a lease to a late copy of a request
        write_the_end(world)

    def judge(self, history: list[Event]) -> list[Violation]:
        faults = [(0, event.note, 0.0) for event in history if event.kind == "fault"]
        case = Case(history, Profile(LEASE, TTL, 0.0, 0.0, 0.0, 0.0, faults=faults))
        return [violation for rule in RULES for violation in rule(case)]


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
            "one loads, one deletes; a load lease expires, and a request is repeated",
            (get(), change("drop")),
            ("duplicate", "pause"),
            2,
        ),
        FlightScenario("flight-put", "one client puts two versions, and another one looks", (put(2), get(AT_ONCE)), FAULTS),
        FlightScenario("flight-puts", "two clients put a version each", (put(1), put(1)), FAULTS),
        FlightScenario("flight-put-drop", "one client puts a version, another one deletes", (put(1), change("drop")), FAULTS),
    )
}
