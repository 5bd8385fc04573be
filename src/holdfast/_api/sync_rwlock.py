"""Read-write locks for threads. `holdfast.aio` has the same for asyncio."""

from __future__ import annotations

import threading

from holdfast._api import rwlock, sync_lock
from holdfast._api.sync_lease import Lease
from holdfast.errors import HoldfastError


class WriteLease(rwlock.BaseWriteLease, Lease):
    """The lease of a writer."""

    def downgrade(self) -> None:
        """Go on as a reader: other readers may come in, and the lease and its fence stay. It cannot be made a writer's again.

        Raises LeaseLost, NotHeld or ServerError.
        """
        self._driver.run(self._downgrade())


class _Side(rwlock.Side, sync_lock.Lock):
    @staticmethod
    def _me() -> object:
        return threading.current_thread()

    def release(self) -> None:
        """Give it back; anybody may. The caller's own lease is released before those of others. Raises NotHeld (a RuntimeError)
        if it is not held, LeaseLost, ServerError."""
        claimed: list[Lease] = []
        try:
            self._give_back(1, claimed)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(1, claimed)
            raise


class WriteSide(_Side):
    """The writers' side: a `Lock` whose lease can become a reader's."""

    _lease_type = WriteLease

    def __enter__(self) -> WriteLease:
        """Take the lock within ``wait``. Raises LockTimeout, ServerError."""
        return super().__enter__()  # type: ignore[return-value]


class RWLock(rwlock.BaseRWLock[Lease]):
    """A named lock that many readers hold at the same time, or one writer, anywhere.

    Use ``with lock.read:`` and ``with lock.write:``; each side is what a `Lock` is. Requests are served in the order of
    arrival: a waiting writer stops the readers that come after it, and readers that wait together come in together, so neither
    side starves. Every reader has its own lease: a crashed reader blocks a writer until
    its lease ends, and no longer.

    Neither side is re-entrant, and a reader cannot become a writer: RuntimeError says so, instead of a wait without end. A
    writer can become a reader (`WriteLease.downgrade`).

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: of the lock, 1 to 512 bytes.
        ttl: seconds of the lease, 0.05 at least; renewed while held.
        wait: seconds to wait for a busy lock; None: for ever; 0: not at all.
        renew: False leaves renewal to you (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after which renewal stops, so that hung code cannot hold the lock for ever.
        progress_within: a holder that does not call ``progress()`` of its lease at least once in so many seconds counts as
            hung: the lease is lost.
        label: who uses this lock, shown to those who wait for it.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _side_types = (_Side, WriteSide)

    @property
    def read(self) -> sync_lock.Lock:
        """Its readers' side: many may hold it, while no writer does."""
        side: sync_lock.Lock = self._read
        return side

    @property
    def write(self) -> WriteSide:
        """Its writers' side: one holds it, and no reader."""
        side: WriteSide = self._write
        return side
