"""A lock on several servers as a worker uses it: production's operations, each step written into the history."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from holdfast._api.redlock import BaseQuorumLease
from holdfast._core.lock.local_acquire import acquire
from holdfast._core.lock.records import Attempt, Grant, Spec, milliseconds
from holdfast._core.lock.replies import Busy
from holdfast._core.names import side_key
from holdfast._core.quorum import acquire as quorum_acquire
from holdfast._core.quorum.votes import DECLARE_NEW, Candidate, Horizon, Panel
from holdfast._net.endpoint import Endpoint
from holdfast.testing.sim.lock_client import Lease, Lock, spec

if TYPE_CHECKING:
    from holdfast._core.lock.local_queue import Gate
    from holdfast.testing.sim.process import Process
    from holdfast.testing.sim.server import Server
    from holdfast.testing.sim.worker import Slot, Worker
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
        server.keyspace.run(DECLARE_NEW, (self.panel.marker,), (milliseconds(self.panel.longest), self.panel.digest, 0))

    def horizon(self, process: Process) -> Horizon:
        """What a process knows of the servers' clocks."""
        return self._horizons.setdefault(process, Horizon())


class QuorumLease(BaseQuorumLease, Lease):
    """Production's lease on several servers, whose owner writes down its loss."""

    def __init__(self, worker: Worker, grant: Grant) -> None:
        endpoints = tuple(Endpoint(port=number) for number in range(len(worker.process.world.servers)))
        super().__init__(worker, grant, endpoints)


def described(name: str, *, ttl: float, renew: bool, **sharing: Any) -> Spec:
    """What a lock on several servers is."""
    described = spec(name, ttl=ttl, renew=renew, **sharing)
    lock, state, _ = described.keys
    return described._replace(keys=(lock, state, side_key(lock, b"hopefuls")), timeout=ANSWER_WITHIN)


class QuorumLock(Lock):
    """A named lock on all servers of its world, for one worker. ``fair``: its process passes nothing on."""

    _ways = quorum_acquire.ON_SEVERAL_SERVERS

    def __init__(self, worker: Worker, company: Company, described: Spec, *, fair: bool = False) -> None:
        super().__init__(worker, described, fair=fair)
        self._company = company

    def _gate(self, process: Process, spec: Spec) -> Gate:
        return process.board(spec)

    def _attempt(self, slot: Slot) -> Candidate:
        company, process = self._company, self.worker.process
        horizon = company.horizon(process)
        self.worker.asked_first = process.world.now
        return Candidate(self.spec, slot=slot, gate=self.gate, since=process.clock(), panel=company.panel, horizon=horizon)

    def _take(self, attempt: Attempt, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        assert isinstance(attempt, Candidate)
        return quorum_acquire.acquire(attempt, wait) if self.gate is None else acquire(attempt, wait, self._ways)

    def _lease(self, grant: Grant) -> Lease:
        return QuorumLease(self.worker, grant)
