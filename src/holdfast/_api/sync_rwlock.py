"""`RWLock` (a read-write lock) for threads. `holdfast.aio` has the class for asyncio."""

from __future__ import annotations

import threading

from holdfast._api import rwlock, sync_lock
from holdfast._api.lock import L
from holdfast._api.sync_lease import Lease, LeaseCore
from holdfast._net.clients import SyncClient
from holdfast.errors import HoldfastError


class WriteLease(Lease):
    """The lease of a writer, which can be turned into a reader's."""

    @property
    def downgraded(self) -> bool:
        """True once the writer has become a reader by `downgrade`."""
        downgraded: bool = self._core.downgraded
        return downgraded

    def downgrade(self) -> None:
        """Become a reader: other readers are admitted, and the lease and its fence stay. A reader cannot become a writer again.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._core.driver.run(self._core.downgrade_on_server())


class _WriteCore(rwlock.BaseWriteCore, LeaseCore):
    """The internal object of a writer's lease."""


class _Side(rwlock.Side[L, SyncClient], sync_lock.BaseSyncLock[L]):
    @staticmethod
    def _me() -> object:
        return threading.current_thread()

    def release(self) -> None:
        """Release one acquisition made through this object; any thread or task may do it. The caller's own acquisitions are
        released first.

        Raises NotHeld (a RuntimeError) if this object does not hold the lock, LeaseLost if the lease was lost before. Raises
        ServerError if the server cannot be reached: the lease then expires.
        """
        claimed: list[LeaseCore] = []
        try:
            self._give_back(1, claimed)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(1, claimed)
            raise


class ReadSide(_Side[Lease]):
    """The read side of a read-write lock, which many readers can hold at the same time."""


class WriteSide(_Side[WriteLease]):
    """The write side of a read-write lock: a `Lock` whose lease can be turned into a reader's."""

    _core_type = _WriteCore
    _lease_type = WriteLease

    def __enter__(self) -> WriteLease:
        """Acquire the lock for writing within ``wait`` and return the writer's lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached. Raises RuntimeError if this
        thread holds the lock already.
        """
        return super().__enter__()


class RWLock(rwlock.BaseRWLock[Lease, SyncClient]):
    """A named lock that many readers hold at the same time, or one writer, anywhere.

    Use ``with lock.read:`` and ``with lock.write:``; each side works like a `Lock`. The lock is granted in the order of
    arrival, so neither side starves: readers that arrive after a waiting writer wait behind it. Readers that wait next to
    each other in the queue are admitted together. Each reader has its own lease: a crashed reader blocks writers only until its
    lease expires.

    Neither side is re-entrant, and a reader cannot become a writer: such an attempt raises RuntimeError, because it could wait
    forever. A writer can become a reader (`WriteLease.downgrade`).

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _side_types = (ReadSide, WriteSide)

    @property
    def read(self) -> ReadSide:
        """The read side: many readers can hold it at the same time, while no writer holds the lock."""
        side: ReadSide = self._read
        return side

    @property
    def write(self) -> WriteSide:
        """The write side: one writer can hold it, while no reader holds the lock."""
        side: WriteSide = self._write
        return side
