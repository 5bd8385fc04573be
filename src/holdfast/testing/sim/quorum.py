"""A lock on several servers as a worker uses it: production's operations, each step written into the history."""

from __future__ import annotations

from dataclasses import replace

from holdfast._core import quorum
from holdfast._core.acquire import KeyConflict
from holdfast._core.attempt import Grant, Spec, milliseconds
from holdfast._core.ballot import DECLARE, MARKER, Candidate, Disagreement, Horizon, Panel, TooFew
from holdfast._core.mutex import Busy
from holdfast._core.names import side_key
from holdfast._core.requests import WireError
from holdfast._redlock import BaseQuorumLease
from holdfast._wire.endpoint import Endpoint
from holdfast.testing.sim.lock import Lease, Lock, spec
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.worker import Cancelled, Slot, Worker
from holdfast.testing.sim.world import World

ANSWER_WITHIN = 0.2
"""Seconds for which a server is waited for in one round: the default of the faces."""


class Company:
    """The servers of a world, which vote together, and what they have agreed on."""

    def __init__(self, world: World, longest: float) -> None:
        self.world = world
        self.longest = longest
        self._horizons: dict[Process, Horizon] = {}

    @property
    def panel(self) -> Panel:
        return Panel(tuple(server.name for server in self.world.servers), "digest", self.longest)

    def declare(self, server: Server) -> None:
        """It is new, says somebody."""
        server.keyspace.now = int(server.wall() * 1e6)
        server.keyspace.run(DECLARE, (MARKER,), (milliseconds(self.panel.longest), self.panel.digest, 0))

    def horizon(self, process: Process) -> Horizon:
        """What a process knows of the servers' clocks."""
        return self._horizons.setdefault(process, Horizon())


class QuorumLease(BaseQuorumLease, Lease):
    """Production's lease on several servers, whose owner writes down its loss."""

    def __init__(self, worker: Worker, grant: Grant) -> None:
        endpoints = tuple(Endpoint(port=number) for number in range(len(worker.process.world.servers)))
        super().__init__(worker, grant, endpoints)


def described(name: str, *, ttl: float, renew: bool) -> Spec:
    """What a lock on several servers is."""
    described = spec(name, ttl=ttl, renew=renew)
    lock, state, _ = described.keys
    return replace(described, keys=(lock, state, side_key(lock, b"hopefuls")), timeout=ANSWER_WITHIN)


class QuorumLock(Lock):
    """A named lock on all servers of its world, for one worker."""

    def __init__(self, worker: Worker, company: Company, name: str, *, ttl: float, renew: bool) -> None:
        super().__init__(worker, described(name, ttl=ttl, renew=renew), fair=True)
        for server in company.world.servers:
            server.block = 1
        self._company = company

    async def _acquire(self, wait: float | None) -> Lease | None:
        worker, process, company = self.worker, self.worker.process, self._company
        worker.acquisitions += 1
        worker.acquisition = f"{worker.name}#{worker.acquisitions}"
        worker.asked_first = process.world.now
        self._note("ask", until=float("inf") if wait is None else process.true(process.clock() + wait))
        slot = Slot(worker)
        candidate = Candidate(self.spec, slot=slot, panel=company.panel, horizon=company.horizon(process))
        slot.attempt = candidate
        try:
            result = await quorum.acquire(candidate, wait)
            if isinstance(result, Busy):
                self._note("busy")
                return None
            return QuorumLease(worker, result)
        except (TooFew, Disagreement, KeyConflict, WireError) as error:
            self._note("failed", f"{type(error).__name__}: {error}")
            return None
        except Cancelled:
            try:
                await quorum.give_up(candidate)
            finally:
                self._note("cancelled")
            raise
