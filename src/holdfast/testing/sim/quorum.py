"""A lock on several servers as a worker uses it: production's operations, each step written into the history."""

from __future__ import annotations

from holdfast._core import quorum
from holdfast._core.acquire import KeyConflict
from holdfast._core.attempt import Grant, milliseconds
from holdfast._core.ballot import MARKER, Candidate, Disagreement, Horizon, Panel, TooFew
from holdfast._core.mutex import Busy
from holdfast._core.requests import WireError
from holdfast._core.votes import Mandate
from holdfast._lua import Script
from holdfast._wire.endpoint import Endpoint
from holdfast.errors import HoldfastError, QuorumError
from holdfast.testing.sim.lock import Lease, Lock, spec
from holdfast.testing.sim.process import Process
from holdfast.testing.sim.worker import Cancelled, Slot, Worker
from holdfast.testing.sim.world import World

DECLARE: Script[object] = Script("declare", lambda raw: raw)


class Company:
    """The servers of a world, which vote together, and what they have agreed on."""

    def __init__(self, world: World, longest: float) -> None:
        self.world = world
        self.panel = Panel(tuple(server.name for server in world.servers), "digest", longest)
        self._horizons: dict[Process, Horizon] = {}

    def declare(self) -> None:
        """All of them are new."""
        for server in self.world.servers:
            server.keyspace.now = int(server.wall() * 1e6)
            server.keyspace.run(DECLARE, (MARKER,), (milliseconds(self.panel.longest), self.panel.digest, 0))

    def horizon(self, process: Process) -> Horizon:
        """What a process knows of the servers' clocks."""
        return self._horizons.setdefault(process, Horizon())


class QuorumLease(Lease):
    """Production's lease, on several servers."""

    def __init__(self, worker: Worker, grant: Grant, candidate: Candidate) -> None:
        super().__init__(worker, grant)
        assert isinstance(self._tenure, Mandate)
        self.mandate = self._tenure
        self.candidate = candidate
        self._watch()

    def _watch(self) -> None:
        for number, vote in self.mandate.votes.items():
            if not vote.lost:
                self._sim.watch(Endpoint(port=number), vote)

    def _forget(self) -> None:
        for number, vote in self.mandate.votes.items():
            self._sim.forget(Endpoint(port=number), vote)

    async def _renew(self, ttl: float | None) -> None:
        self.check()
        mandate, candidate = self.mandate, self.candidate
        ttl = min(mandate.ttl if ttl is None else ttl, candidate.panel.longest)
        made = mandate.asks(self._sim.clock(), ttl)
        try:
            await quorum.renew(mandate.spec, candidate.panel, mandate, ttl, made)
        except TooFew as error:
            raise QuorumError(str(error)) from error
        for vote in mandate.votes.values():
            vote.ttl = ttl
        if not self._expired():
            self._watch()

    async def _release(self) -> None:
        mandate = self.mandate
        mandate.end()
        try:
            if not await quorum.release(mandate.spec, self.candidate, mandate):
                mandate.lost = mandate.lost or "no majority of its servers had it"
        except TooFew as error:
            if not mandate.lost:
                raise QuorumError(str(error)) from error
        finally:
            self._forget()
        if mandate.lost:
            raise self._lease_lost()


class QuorumLock(Lock):
    """A named lock on all servers of its world, for one worker."""

    def __init__(self, worker: Worker, company: Company, name: str, *, ttl: float, renew: bool) -> None:
        super().__init__(worker, spec(name, ttl=ttl, renew=renew), fair=True)
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
            return QuorumLease(worker, result, candidate)
        except (TooFew, Disagreement, KeyConflict, WireError) as error:
            self._note("failed", f"{type(error).__name__}: {error}")
            return None
        except Cancelled:
            try:
                await quorum.give_up(candidate)
            finally:
                self._note("cancelled")
            raise

    async def _release(self, lease: Lease) -> None:
        lease.leave()
        try:
            if not lease._hand_on():  # noqa: SLF001
                await lease._release()  # noqa: SLF001
            lease.left()
        except HoldfastError as error:
            lease.left(type(error).__name__)
        except Cancelled:
            lease.left("cancelled")
            raise
