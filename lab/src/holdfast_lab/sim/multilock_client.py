"""A MultiLock in the simulation: one worker acquires several locks at once, and each step is recorded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast._core.deadlock.abort_wait import abort_wait
from holdfast._core.lock import multilock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import WireError
from holdfast.errors import HoldfastError
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.worker import Slot, TaskCancelled

if TYPE_CHECKING:
    from holdfast._core.lock.spec import Spec
    from holdfast_lab.sim.worker import Worker


class Part:
    """One of the locks of a MultiLock. It replaces the library's `holdfast._api.multilock.Part`."""

    home: Any = None

    def __init__(self, whole: MultiLock, lock: Lock) -> None:
        self.lock = lock
        self.group: Hashable = None if lock.spec.quarantine else "server"
        self.lease: Lease | None = None
        self._whole = whole
        self._worker = lock.worker
        self.name = ""
        """Name of the current acquisition of this lock."""
        self.asking = False
        """True from the start of an acquisition of this lock until its outcome is recorded."""
        self.attempt = Attempt(lock.spec)

    def begin(self) -> None:
        self.end("cancelled")  # if another lock was lost, the last acquisition has no outcome yet
        worker = self._worker
        process = worker.process
        worker.acquisitions += 1
        self.name = worker.acquisition = f"{worker.name}#{worker.acquisitions}"
        worker.asked_first = process.world.now
        self.lock.note("ask", until=self._whole.until)
        self.asking = True
        slot = Slot(worker)
        self.lease, self.attempt = None, self.lock.new_attempt(slot)
        slot.attempt = self.attempt
        token = process.token()
        process.world.acquisitions[token] = self.name
        self.attempt.token = token + self.lock.spec.token_suffix

    def end(self, kind: str, note: str = "") -> None:
        """Record that the acquisition has failed: ``kind`` is "failed", "busy" or "cancelled". Do nothing on a second call."""
        if self.asking:
            self.asking = False
            self._worker.acquisition = self.name
            self.lock.note(kind, note)

    async def take(self, wait: float | None) -> Grant | Busy:
        worker, self._whole.wants = self._worker, self
        worker.acquisition, worker.asked_to_join = self.name, 0.0
        try:
            return await self.lock.take(self.attempt, wait)
        finally:
            self._whole.wants = None

    def hold(self, grant: Grant) -> None:
        self._worker.acquisition, self.asking = self.name, False
        self.lease = self.lock.new_lease(grant)
        self.lease.whole = self._whole

    @property
    def lost(self) -> bool:
        return self.lease is not None and self.lease.expired()

    async def undo(self) -> None:
        lease = self.lease
        if lease is None:
            await self.lock.abandon(self.attempt)
            return
        if lease in self._worker.process.leases:
            lease.leave()
        try:
            await lease.let_go()
        finally:
            lease.left("cancelled")
        self.lease, self.attempt.may_be_on_server = None, False

    def hand_on(self) -> bool:
        lease = self.lease
        assert lease is not None
        lease.leave()
        try:
            if lease.hand_on():
                lease.left()
                return True
        except HoldfastError as error:
            lease.left(type(error).__name__)
            return True
        lease.held_lease.end()
        return False

    def giving(self) -> tuple[str, bool, bool] | None:
        assert self.lease is not None
        held_lease = self.lease.held_lease
        return None if held_lease.lost or self.group is None else (held_lease.token, held_lease.maybe_in_flight, True)

    async def given_back(self, known: bool | WireError | None) -> Exception | None:
        assert self.lease is not None
        try:
            await self.lease.release_on_server(known)
        except HoldfastError as error:
            self.lease.left(type(error).__name__)
            return error
        self.lease.left()
        return None


class MultiLock:
    """Several locks that one worker acquires together. The methods are those of `Lock`."""

    def __init__(self, worker: Worker, described: Sequence[Spec], *, fair: bool = False) -> None:
        self.worker = worker
        self.spec = described[0]
        self.until = 0.0
        """Virtual time at which the current acquisition gives up; infinity: never."""
        self.wants: Part | None = None
        self.half: list[str] = []
        """Violations of "all or nothing": locks not held after a success, or still held after a failure."""
        self.taken = self.missed = 0
        """How often the worker acquired all locks together (`taken`), and how often this failed (`missed`)."""
        parts = [Part(self, Lock(worker, spec, fair=fair)) for spec in described]
        self.parts = multilock.in_order(parts, lambda part: part.lock.spec.keys[0])

    def on_loss(self) -> None:
        """End the wait for a further lock, because a lock held already is lost."""
        if self.wants is not None:
            abort_wait(self.worker.process.node.waiting, self.wants.attempt, multilock.PartLost())

    async def acquire(self, wait: float | None) -> Any:
        """Acquire all locks within ``wait`` seconds. Return the parts, or None if one stayed busy or an error occurred."""
        process = self.worker.process
        self.until = float("inf") if wait is None else process.true(process.clock() + wait)
        with self.worker.operation():
            return await self._acquire(wait)

    async def _acquire(self, wait: float | None) -> Any:
        try:
            blocked = await multilock.acquire(self.parts, wait)
        except (WireError, KeyConflict) as error:
            self._end("failed", f"{type(error).__name__}: {error}")
            return None
        except TaskCancelled:
            try:
                await multilock.undo(self.parts)
            finally:
                self._end("cancelled")
            raise
        if blocked is not None:
            blocked.part.end("busy")  # type: ignore[attr-defined]
            self._end("cancelled")
            return None
        self.taken += 1
        self.half += [
            f"{part.lock.spec.key} is not taken" for part in self.parts if part.lease is None or part.lease.held_lease.lost
        ]
        return self.parts

    def _end(self, kind: str, note: str = "") -> None:
        self.missed += 1
        for part in self.parts:
            part.end(kind, note)
            self.half += [f"{part.lock.spec.key} is kept"] if part.lease is not None else []

    async def renew(self, _lease: Any, ttl: float | None = None) -> None:
        for part in self.parts:
            if part.lease is not None:
                await part.lock.renew(part.lease, ttl)

    async def release(self, _lease: Any) -> None:
        with self.worker.operation(), suppress(HoldfastError):
            await multilock.release(self.parts)

    def progress(self, _lease: Any) -> None:
        for part in self.parts:
            if part.lease is not None:
                part.lock.progress(part.lease)

    async def release_again(self, _lease: Any) -> None:
        """Do nothing. Histories of a single `Lock` test the second release of a lease."""

    def write(self, _lease: Any) -> None:
        for part in self.parts:
            if part.lease is not None:
                part.lock.write(part.lease)
