"""A Redlock in the simulation: several servers vote on a lock, and each step is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._api.redlock import BaseQuorumCore
from holdfast._core.lock.records import Grant
from holdfast._core.lock.spec import Spec, milliseconds
from holdfast._core.names import side_key
from holdfast._core.quorum import acquire as quorum_acquire
from holdfast._core.quorum.votes import DECLARE_NEW, QuorumAttempt, ServerClockEstimate, ServerSet
from holdfast._net.endpoint import Endpoint
from holdfast_lab.sim.lock_client import Lease, Lock, spec

if TYPE_CHECKING:
    from holdfast._core.lock.local_queue import LocalQueue
    from holdfast_lab.sim.server import Server
    from holdfast_lab.sim.worker import Slot, Worker
    from holdfast_lab.sim.world import Process, World

ANSWER_WITHIN = 0.2
"""Default of ``answer_within=`` in the public API, in seconds."""


class ServerGroup:
    """The servers of a world, which vote together. Each process has its own estimate of their clocks."""

    def __init__(self, world: World, longest: float) -> None:
        self.world = world
        self.longest = longest
        self._clock_estimates: dict[Process, ServerClockEstimate] = {}

    @property
    def server_set(self) -> ServerSet:
        return ServerSet(tuple(server.name for server in self.world.servers), "digest", self.longest)

    def declare(self, server: Server) -> None:
        """Declare a server new, as an administrator does, so that it votes at once."""
        server.keyspace.now = int(server.wall() * 1e6)
        server.keyspace.run(
            DECLARE_NEW, (self.server_set.marker,), (milliseconds(self.server_set.longest), self.server_set.digest, 0)
        )

    def clock_estimate(self, process: Process) -> ServerClockEstimate:
        return self._clock_estimates.setdefault(process, ServerClockEstimate())


class RedlockLease(BaseQuorumCore, Lease):
    def __init__(self, worker: Worker, grant: Grant) -> None:
        endpoints = tuple(Endpoint(port=number) for number in range(len(worker.process.world.servers)))
        super().__init__(worker, grant, endpoints)


def described(name: str, *, ttl: float, renew: bool, **sharing: Any) -> Spec:
    described = spec(name, ttl=ttl, renew=renew, **sharing)
    lock, state, _ = described.keys
    return described._replace(keys=(lock, state, side_key(lock, b"hopefuls")), timeout=ANSWER_WITHIN)


class Redlock(Lock):
    """A lock that all servers of the world vote on, used by one worker."""

    _strategy = quorum_acquire.ON_SEVERAL_SERVERS

    def __init__(self, worker: Worker, server_group: ServerGroup, described: Spec, *, fair: bool = False) -> None:
        super().__init__(worker, described, fair=fair)
        self._server_group = server_group

    def _local_queue(self, process: Process, spec: Spec) -> LocalQueue:
        return process.quorum_queue(spec)

    def new_attempt(self, slot: Slot) -> QuorumAttempt:
        server_group, process = self._server_group, self.worker.process
        clock_estimate = server_group.clock_estimate(process)
        self.worker.asked_first = process.world.now
        return QuorumAttempt(
            self.spec,
            slot=slot,
            local_queue=self.local_queue,
            node=process.quorum_nodes(),
            since=process.clock(),
            server_set=server_group.server_set,
            clock_estimate=clock_estimate,
        )

    def new_lease(self, grant: Grant) -> Lease:
        return RedlockLease(self.worker, grant)
