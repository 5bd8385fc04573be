"""An RLock in the simulation. The library's `Holdings` counts the acquisitions of a simulated lock."""

from __future__ import annotations

from holdfast._api.rlock import Holdings, RLockHolding
from holdfast.errors import LeaseLost, NotHeld
from holdfast_lab.sim.lock_client import Lease, Lock

MARK = "the lock"


class RLock:
    """A reentrant lock, on one or several servers: its holder may acquire it again."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._holdings = Holdings()
        self.spec = lock.spec
        self.renew = lock.renew
        self.progress = lock.progress
        self.release_again = lock.release_again
        self.write = lock.write

    async def acquire(self, wait: float | None) -> Lease | None:
        """Acquire the lock, or acquire it once more.

        Return None if the lock stayed busy, the attempt failed, or the worker has lost its lease.
        """
        try:
            mine = self._holdings.mine(MARK)
        except LeaseLost:
            return None
        if mine is None:
            lease = await self._lock.acquire(wait)
            if lease is not None:
                self._holdings[MARK] = RLockHolding(lease)
            return lease
        again: Lease = mine.again(mine.core)
        again.note_again()
        return again

    async def release(self, lease: Lease) -> None:
        """Release one acquisition. The last one also releases the lock on the server."""
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
