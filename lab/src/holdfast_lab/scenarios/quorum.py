"""Small scenarios of a lock on three servers that vote. The search runs every schedule of each scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast._core.requests import Sleep
from holdfast_lab.explore import Report
from holdfast_lab.judge.safety_rules import Limits
from holdfast_lab.scenarios.election import ELECTION_SCENARIOS
from holdfast_lab.scenarios.lock import SCENARIOS, Program, Scenario, once
from holdfast_lab.scenarios.multilock import MULTILOCK_SCENARIOS
from holdfast_lab.scenarios.rendezvous import RENDEZVOUS_SCENARIOS, RendezvousScenario
from holdfast_lab.scenarios.single_flight import FLIGHT_SCENARIOS, FlightScenario
from holdfast_lab.scenarios.ticket import TICKET_SCENARIOS
from holdfast_lab.sim.lock_client import Lock
from holdfast_lab.sim.quorum_client import Redlock, ServerGroup, described
from holdfast_lab.sim.quorum_driver import QuorumWorker
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Process

SERVERS = 3


@dataclass(frozen=True)
class QuorumScenario(Scenario):
    """A scenario of a lock on three servers that vote. Each program is run by a worker in a process of its own."""

    brisk: bool = True
    guarded: bool = True
    """True if a restarted server casts no votes for a while. False if it is declared new, so that it votes at once."""

    @property
    def limits(self) -> Limits:
        patience = 0.0 if not self.faults else 2.1 * self.ttl
        return Limits(handover=1.5 + patience, quorum=SERVERS // 2 + 1, excuses=frozenset({"foreign"}), rewinds="clock")

    def explore(
        self,
        *,
        most: int = 1_000_000,
        stop_at: int = 1,
        broad: bool = True,
        progress: Callable[[Report], None] | None = None,
    ) -> Report:
        return super().explore(most=most, stop_at=stop_at, broad=broad, progress=progress)

    def build(self, *, trace: bool = False) -> Stepwise:
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=self.ttl, trace=trace)
        world.brisk = self.brisk
        for number in range(SERVERS):
            Server(world, f"s{number + 1}")
        server_group = ServerGroup(world, self.ttl)
        for server in world.servers:
            server_group.declare(server)
            server.keep_past()
            if not self.guarded:
                server.on_start = partial(server_group.declare, server)
        lock = described("x", ttl=self.ttl, renew=self.renew)
        for number, program in enumerate(self.programs):
            process = Process(world, world.servers[0], f"c{number + 1}", face=self.face)
            worker = QuorumWorker(process, "1")
            worker.start(program(worker, Redlock(worker, server_group, lock, fair=True)))
        return world


def later(program: Program, seconds: float = 0.1) -> Program:
    """Return a program that waits for ``seconds`` before it runs ``program``."""

    async def begin(worker: Worker, lock: Lock) -> None:
        await Sleep(seconds)
        await program(worker, lock)

    return begin


TRIES = (once(wait=0.0), once(wait=0.0))
HELD = (later(once(wait=0.0, hold=1.0), 0.05), later(once(wait=0.0, hold=0.1)))
FORGETS: dict[str, Any] = {"faults": ("lost-request", "amnesia"), "budget": 2, "renew": False}
FORGETS_THE_LAST = FORGETS | {"faults": ("lost-request", "amnesia of the last")}

QUORUM_SCENARIOS: dict[str, QuorumScenario] = {
    scenario.name: scenario
    for scenario in (
        QuorumScenario("quorum-tries", "two clients and three servers, one round each", TRIES),
        QuorumScenario(
            "quorum-amnesia", "one holds, one comes later; a request is lost, a server loses its data", HELD, **FORGETS
        ),
        QuorumScenario("quorum-rollback", "as quorum-amnesia, but only the last write is lost", HELD, **FORGETS_THE_LAST),
        QuorumScenario("quorum-vanish", "two clients and three servers, one round each; a vote vanishes", TRIES, ("foreign",)),
        QuorumScenario("quorum-wait", "two clients and three servers, both clients wait", (once(), once())),
    )
}

UNGUARDED = QuorumScenario(
    "quorum-unguarded", "as quorum-amnesia, but the server votes again at once", HELD, guarded=False, **FORGETS
)
"""A scenario in which the search must find two holders, because a server that lost its data votes again at once."""

ALL: dict[str, Scenario | FlightScenario | RendezvousScenario] = {
    **SCENARIOS,
    **MULTILOCK_SCENARIOS,
    **QUORUM_SCENARIOS,
    UNGUARDED.name: UNGUARDED,
    **FLIGHT_SCENARIOS,
    **RENDEZVOUS_SCENARIOS,
    **ELECTION_SCENARIOS,
    **TICKET_SCENARIOS,
}
