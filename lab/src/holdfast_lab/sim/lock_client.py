"""A lock and its lease in the simulation. A worker runs the library's operations, and each step is recorded."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from holdfast._api.lease_core import LeaseCore
from holdfast._core import permit
from holdfast._core.lock.acquire import ON_ONE_SERVER, KeyConflict, abandon, acquire
from holdfast._core.lock.records import BOUNDED, INFINITY, Attempt, Grant, HeldLease
from holdfast._core.lock.replies import GRACE_S, Busy, Held
from holdfast._core.lock.spec import Spec, answer_within, milliseconds
from holdfast._core.lock.uncontended import lead, leave, left, park, took, woken
from holdfast._core.names import lock_keys
from holdfast._core.requests import ConfigMismatch, TooFew, WaitLocally, WireError
from holdfast._net.endpoint import Endpoint
from holdfast.errors import HoldfastError
from holdfast.fencing import FENCE_CHECK, KEEP_FENCE
from holdfast_lab.sim.permit_holders import PermitHolders
from holdfast_lab.sim.worker import Slot, TaskCancelled, Worker

if TYPE_CHECKING:
    from holdfast._core.lock.local_queue import LocalQueue
    from holdfast_lab.sim.world import Process

NOWHERE = Endpoint(port=0)
"""The endpoint of the first server. The other servers have their index as the port."""


def spec(name: str = "x", *, ttl: float = 2.0, renew: bool = True, max_hold: float | None = None, **sharing: Any) -> Spec:
    """Return the spec of a lock, with the timeout that the public API would choose."""
    keys = lock_keys(name, "hf:", None)
    return Spec(name=name, keys=keys, ttl=ttl, renew=renew, max_hold=max_hold, timeout=answer_within(ttl), **sharing)


REMEMBERED_MS = milliseconds(KEEP_FENCE)
"""Milliseconds for which the protected store remembers the highest fence."""


class Lease(LeaseCore):
    """A lease as the library implements it, which also records its grant, its renewals, its release and its loss."""

    def __init__(self, worker: Worker, grant: Grant, endpoint: Any = NOWHERE) -> None:
        process = worker.process
        self._world = process.world
        self._who = worker.name
        self.acquisition = worker.acquisition
        self._sim = process
        held_lease = grant.held_lease
        assert held_lease is not None
        self.lease = self._world.lease(held_lease.token, self.acquisition)
        self._within = grant.attempt.spec.progress_within or INFINITY
        self._ends = INFINITY if grant.attempt.spec.max_hold is None else grant.taken + grant.attempt.spec.max_hold
        self.checked_in = grant.taken
        self.renew_by_hand(held_lease)
        process.leases[self] = deadline = self._good_until(held_lease)
        self._key = grant.attempt.spec.key
        if held_lease.spec is not grant.attempt.spec and held_lease.spec != grant.attempt.spec:
            self._world.rare["rare handed on to other options"] += 1
        # A new lease may be lost because the reply was late. A lease that was handed on must not be lost.
        lost = held_lease.lost if held_lease is not grant.attempt.held_lease else ""
        self.note("taken", fence=grant.fence, until=process.true(deadline), since=worker.asked_first, note=lost)
        super().__init__(process, endpoint, grant)

    def note(self, kind: str, **facts: Any) -> None:
        self._world.note(kind, self._who, self._key, self.acquisition, lease=self.lease, **facts)

    def _good_until(self, held_lease: HeldLease) -> float:
        """Return the time, by the process's clock, at which the lease ends according to the documentation.

        The limits of ``progress_within=`` and ``max_hold=`` are computed here, not by the library, and so is the end of a lease
        with ``renew=False``. So the rules notice if the library computes them wrongly.
        """
        return min(held_lease.deadline, held_lease.ends_at, self._ends, self.checked_in + self._within, self._by_hand_until)

    def renew_by_hand(self, held_lease: HeldLease) -> None:
        """Note the deadline of a lease with ``renew=False``, at its grant and after each explicit renewal.

        Nothing else may extend the lease.
        """
        self._by_hand_until = INFINITY if held_lease.spec.renew else held_lease.deadline

    def tell(self) -> None:
        """Record the deadline of the lease if it has changed."""
        deadline = self._good_until(self.held_lease)
        if deadline != self._sim.leases[self]:
            self._sim.leases[self] = deadline
            self.note("renewed", until=self._sim.true(deadline))

    def notice_loss(self) -> None:
        if self.first_to_tell():
            if self in self._sim.leases and self.held_lease.lost == BOUNDED:
                self.tell()  # the last renewal may have asked for a lease that is over already
            self._sim.leases.pop(self, None)
            self.note("lost", fence=self.fence, note=self.held_lease.lost)
        self.make_way()

    def note_again(self) -> None:
        self.note("again", fence=self.fence)

    def note_inner(self) -> None:
        """Record that a repeated acquisition was released. The holder still holds the lock."""
        self.note("inner", fence=self.fence)

    def leave(self) -> None:
        """Record that the release begins."""
        self._sim.leases.pop(self, None)
        self.note("release", fence=self.fence)

    def left(self, note: str = "") -> None:
        """Record that the release has ended.

        ``note`` is "" if it succeeded, the name of the error, "cancelled", or "twice" if the lease had been released before.
        If the lease was handed on, "passed" is recorded instead of "".
        """
        self.note("released", note=note or ("passed" if self.passed else ""))


class Lock:
    """A lock that one worker uses.

    If ``fair`` is True, it is a FairLock, which is never handed on inside a process.
    """

    _strategy = ON_ONE_SERVER
    _is_direct = True
    """True if the lock is on one server. Then one request can acquire the lock if it is free, and one can release it."""

    def __init__(self, worker: Worker, described: Spec, *, fair: bool = False) -> None:
        self.worker = worker
        self.spec = described
        self.local_queue = None if fair else self._local_queue(worker.process, described)
        key, state, _ = described.keys
        for server in worker.process.world.servers:
            if described.permits is not None:
                server.locks.pop(key, None)
                server.permits.setdefault(key, PermitHolders(server, key, state))
            else:
                server.locks[key] = state

    def _local_queue(self, process: Process, spec: Spec) -> LocalQueue:
        return process.local_queue(spec)

    def note(self, kind: str, note: str = "", *, until: float = 0.0, fence: int = 0) -> None:
        worker = self.worker
        worker.process.world.note(kind, worker.name, self.spec.key, worker.acquisition, until=until, fence=fence, note=note)

    async def acquire(self, wait: float | None) -> Lease | None:
        """Acquire the lock within ``wait`` seconds. Return None if it stayed busy, or the attempt failed."""
        with self.worker.operation():
            return await self._acquire(wait)

    async def _acquire(self, wait: float | None) -> Lease | None:
        worker = self.worker
        process = worker.process
        worker.acquisitions += 1
        worker.acquisition = f"{worker.name}#{worker.acquisitions}"
        worker.asked_to_join = worker.asked_first = 0.0
        permits = self.spec.permits
        wants = f"{permits.wanted} of {permits.limit}" if permits is not None else ""
        self.note("ask", wants, until=float("inf") if wait is None else process.true(process.clock() + wait))
        slot = Slot(worker)
        attempt = slot.attempt = self.new_attempt(slot)
        try:
            result: Grant | Busy | None = await self._lead(attempt, wait) if attempt.is_direct else None
            if result is None and not (attempt.led or attempt.entered) and self.local_queue is not None:
                result = self.local_queue.retake(attempt)
            result = result or await self.take(attempt, wait)
            if isinstance(result, Busy):
                self.note("busy")
                return None
            lease = self.new_lease(result)
        except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
            self.note("failed", f"{type(error).__name__}: {error}")
            return None
        except TaskCancelled:
            try:
                if attempt.unclaimed is not None:
                    attempt.unclaimed.discard()
                await abandon(attempt, self._strategy)
            finally:
                self.note("cancelled")
            raise
        else:
            attempt.unclaimed = None
            return lease

    async def _lead(self, attempt: Attempt, wait: float | None) -> Grant | None:
        """Try to acquire the lock as the drivers do: with one request, or by a turn in the local queue.

        Return None if the lock is not acquired yet. The caller then runs the whole operation.
        """
        process = self.worker.process
        frame = lead(attempt, self.worker, process.clock(), wait)
        if frame is None:
            if not park(attempt, process.clock(), wait):
                return None
            if attempt.turn is None:
                await WaitLocally(attempt)
            return woken(attempt, process.clock())
        timeout = frame.timeout if wait is None else min(frame.timeout, wait + GRACE_S)
        run = frame.run(attempt.token)
        run.timeout = timeout
        try:
            answer = await run
        except WireError as error:
            attempt.first = error
            return None
        held = answer.value
        # `took` needs the raw reply, but simulated connections carry typed ones.
        grant = took(attempt, [1, held.fence, held.last] if isinstance(held, Held) else held, answer.sent, answer.came)
        if grant is None:
            attempt.first = answer
        return grant

    async def _leave(self, lease: Lease) -> bool | None:
        """Try to release the lock with one request, as the drivers do.

        Return True on success, and False if no request was sent. Return None if the request did not release the lock, or got no
        reply. The caller then runs the whole operation.
        """
        attempt, held_lease = lease.attempt, lease.held_lease
        frame = leave(attempt, held_lease, self.worker.process.clock())
        if frame is None:
            return False
        try:
            answer = await frame.run(held_lease.token)
        except WireError as error:
            attempt.first = error
            return None
        if left(attempt, held_lease, answer.value):
            return True
        attempt.first = answer
        return None

    async def abandon(self, attempt: Attempt) -> None:
        """Undo an attempt, so that it leaves neither a lease nor a position on the server."""
        await abandon(attempt, self._strategy)

    def new_attempt(self, slot: Slot) -> Attempt:
        plain = self.spec.permits is None and self._is_direct
        return Attempt(self.spec, slot=slot, local_queue=self.local_queue, node=self.worker.process.node, is_direct=plain)

    def take(self, attempt: Attempt, wait: float | None) -> Coroutine[Any, Any, Grant | Busy]:
        return acquire(attempt, wait, self._strategy)

    def new_lease(self, grant: Grant) -> Lease:
        return Lease(self.worker, grant)

    async def renew(self, lease: Lease, ttl: float | None = None) -> None:
        """Renew the lease explicitly, for ``ttl`` seconds (None: for as long as before). An error is ignored."""
        try:
            with self.worker.operation():
                await lease.renew_on_server(ttl)
        except HoldfastError:
            pass
        finally:
            lease.renew_by_hand(lease.held_lease)
            if lease in self.worker.process.leases:
                lease.tell()

    def progress(self, lease: Lease) -> None:
        try:
            lease.progress()
        except HoldfastError:
            return
        lease.checked_in = self.worker.process.clock()
        if lease in self.worker.process.leases:
            lease.tell()

    async def downgrade(self, lease: Lease) -> None:
        """Downgrade the lease of a writer to that of a reader. An error is ignored.

        The change is recorded before the request, because the reply may be lost.
        """
        try:
            with self.worker.operation():
                self.note("downgraded")
                lease.held_lease.shares = 1  # as the public API does
                await permit.change(lease.held_lease.spec, lease.held_lease.token, 1, lease.fence)
        except WireError:
            pass

    async def release(self, lease: Lease) -> None:
        """Release the lock. If the worker is cancelled, clean up as the end of a ``with`` statement does."""
        with self.worker.operation():
            await self._release(lease)

    async def _release(self, lease: Lease) -> None:
        lease.leave()
        try:
            await self._give_back(lease)
            lease.left()
        except HoldfastError as error:
            lease.left(type(error).__name__)
        except TaskCancelled:
            try:
                await lease.finish_release()
            finally:
                lease.left("cancelled")
            raise

    async def release_again(self, lease: Lease) -> None:
        """Release the lease a second time, as another thread may do. A success is recorded, and is a violation."""
        with self.worker.operation():
            try:
                await self._give_back(lease)
            except HoldfastError:
                return
        lease.left("twice")

    async def _give_back(self, lease: Lease) -> None:
        attempt = lease.attempt
        done = attempt.is_direct and not lease.is_over() and await self._leave(lease)
        if not done and (done is None or not lease.hand_on()):
            await lease.release_on_server()

    def write(self, lease: Lease) -> None:
        """Write to the protected store. The library's fence check refuses a write with a lower fence than an earlier one."""
        world = self.worker.process.world
        key = self.spec.keys[0]
        world.resource.now = int(world.now * 1e6)
        accepted = world.resource.run(FENCE_CHECK, (key, key + b":fence"), (lease.fence, REMEMBERED_MS)) == 1
        if accepted:
            world.register[self.spec.key] = lease.fence
        self.note("write", "accepted" if accepted else "refused", fence=lease.fence)
