"""An RLock in the simulation: a simulated lock, whose repeated acquisitions are counted by production's `Holdings`."""

from __future__ import annotations

from holdfast._api.rlock import Holding, Holdings
from holdfast.errors import LeaseLost, NotHeld
from holdfast_lab.sim.lock_client import Lease, Lock

MARK = "the lock"


class RLock:
    """A simulated reentrant lock, on one or several servers: its holder may acquire it again."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._holdings = Holdings()
        self.spec = lock.spec
        self.renew = lock.renew
        self.progress = lock.progress
        self.release_again = lock.release_again
        self.write = lock.write

    async def acquire(self, wait: float | None) -> Lease | None:
        """Acquire the lock. If this worker holds it already, acquire it once more.

        Return None if the lock stayed busy, if the attempt failed, or if the worker has lost its lease.
        """
        try:
            mine = self._holdings.mine(MARK)
        except LeaseLost:
            return None
        if mine is None:
            lease = await self._lock.acquire(wait)
            if lease is not None:
                self._holdings[MARK] = Holding(lease)
            return lease
        again: Lease = mine.again(mine.core)
        again.note_again()
        return again

    async def release(self, lease: Lease) -> None:
        """Release one acquisition. If it is the last one, also release the lock on the server."""
        try:
            last = self._holdings.leave(MARK)
        except (LeaseLost, NotHeld):
            last = None
        if last is None:
            lease.note_inner()
            return
        try:
            await self._lock.release(lease)
        finally:
            self._holdings.tidy(MARK)
