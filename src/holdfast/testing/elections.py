"""Small scenarios of a lock on three servers, for the exhaustive search: as `scenarios` has them for one server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.testing.judge.rules import Limits
from holdfast.testing.scenarios import Program, Scenario, once
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.quorum import Company, QuorumLock
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.stepwise import Stepwise
from holdfast.testing.sim.voter import Voter

SERVERS = 3


@dataclass(frozen=True)
class Election(Scenario):
    """One worker a program, each in a process of its own, and three servers that vote."""

    brisk: bool = True
    guarded: bool = True
    """A server that has forgotten its votes casts none for a while; or whoever starts it declares it new each time."""

    @property
    def limits(self) -> Limits:
        patience = 0.0 if not self.faults else 2.1 * self.ttl
        return Limits(handover=1.5 + patience, quorum=SERVERS // 2 + 1, excuses=frozenset(), rewinds="clock")

    def build(self, *, trace: bool = False) -> Stepwise:
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=self.ttl, trace=trace)
        world.brisk = self.brisk
        for number in range(SERVERS):
            Server(world, f"s{number + 1}")
        company = Company(world, self.ttl)
        for server in world.servers:
            company.declare(server)
            if not self.guarded:
                server.on_start = partial(company.declare, server)
        for number, program in enumerate(self.programs):
            process = Process(world, world.servers[0], f"c{number + 1}", face=self.face)
            worker = Voter(process, "1")
            worker.start(program(worker, QuorumLock(worker, company, "x", ttl=self.ttl, renew=self.renew)))
        return world


def _each(name: str, about: str, programs: tuple[Program, ...], faults: Iterable[str], **options: Any) -> list[Election]:
    return [Election(f"{name}-{fault}", f"{about}; {fault}", programs, (fault,), **options) for fault in faults]


TRIES = (once(wait=0.0), once(wait=0.0))
BOTH = (once(), once())
HELD = (once(hold=1.0), once(wait=1.0))

ELECTIONS: dict[str, Election] = {
    scenario.name: scenario
    for scenario in (
        Election("quorum-tries", "two clients and three servers, one round each", TRIES),
        Election("quorum", "two clients and three servers", BOTH),
    )
}
