"""Small scenarios of a lock on three servers that vote. The search runs every schedule of each scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast._core.requests import Sleep
from holdfast_lab.judge.safety_rules import Limits
from holdfast_lab.scenarios.lock import LockScenario, Program, once
from holdfast_lab.sim.lock_client import Lock
from holdfast_lab.sim.quorum_client import Redlock, ServerGroup, described
from holdfast_lab.sim.quorum_driver import QuorumWorker
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Process

SERVERS = 3


@dataclass(frozen=True)
class QuorumScenario(LockScenario):
    """A scenario of a lock on three servers that vote. Each program is run by a worker in a process of its own."""

    broad = True
    brisk: bool = True
    quarantined: bool = True
    """True if a restarted server casts no votes for a while. False if it is declared new, so that it votes at once."""

    @property
    def limits(self) -> Limits:
        patience = 0.0 if not self.faults else 2.1 * self.ttl
        return Limits(handover=1.5 + patience, quorum=SERVERS // 2 + 1, excuses=frozenset({"foreign"}), rewinds="clock")

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(self.ttl, trace=trace, brisk=self.brisk)
        for number in range(SERVERS):
            Server(world, f"s{number + 1}")
        server_group = ServerGroup(world, self.ttl)
        for server in world.servers:
            server_group.declare(server)
            server.keep_past()
            if not self.quarantined:
                server.on_start = partial(server_group.declare, server)
        lock = described("x", ttl=self.ttl, renew=self.renew)
        for number, program in enumerate(self.programs):
            process = Process(world, world.servers[0], f"c{number + 1}", api=self.api)
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

WITHOUT_QUARANTINE = QuorumScenario(
    "quorum-without-quarantine", "as quorum-amnesia, but the server votes again at once", HELD, quarantined=False, **FORGETS
)
"""A scenario in which the search must find two holders, because a server that lost its data votes again at once."""
