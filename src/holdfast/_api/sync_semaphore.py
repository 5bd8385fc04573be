"""`Semaphore` and `BoundedSemaphore` for threads. `holdfast.aio` has classes of the same names for asyncio."""

from __future__ import annotations

import functools
import threading

from holdfast._api import permit, sync_lock
from holdfast._api.sync_lease import Lease, LeaseCore
from holdfast._durations import Seconds
from holdfast._net.clients import SyncClient
from holdfast.errors import HoldfastError


class Semaphore(permit.BaseSemaphore[Lease, SyncClient], sync_lock.BaseSyncLock[Lease]):
    """A semaphore: at most ``limit`` permits are held at the same time, across all processes.

    A permit is held under a lease, so the permits of a crashed holder become free when its lease expires. Each acquisition gets
    a fence, higher than all earlier ones. Permits are granted in the order of arrival: a waiter that wants more permits than
    are free is not overtaken. Threads and tasks can share one object, which can hold several permits at a time. A `Semaphore`
    can replace a threading.BoundedSemaphore.

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the semaphore, 1 to 512 bytes.
        limit: number of permits. The first user sets it for all; others with a different number are refused. None: the number
            that others have set.
        weight: number of permits that one acquisition takes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the permit is held.
        wait: seconds to wait for permits. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold permits forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the semaphore, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server. Also raised at the first use, if others use
            another limit.
    """

    @staticmethod
    def _me() -> object:
        return threading.current_thread()

    @property
    def lease(self) -> Lease | None:
        """The lease of the latest acquisition by this object that is not released; None if there is none."""
        return super().lease

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None) -> bool:
        """Acquire ``weight`` permits and return True; return False if too few became free in time. ``timeout`` is in seconds.

        Works like threading.Semaphore.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        # A negative timeout is 0 here, and -1 would mean this object's ``wait`` in the base class.
        return super().acquire(blocking, 0.0 if timeout == -1 else timeout)  # type: ignore[arg-type]  # None: `_acquire_wait`

    def release(self, n: int = 1) -> None:
        """Release ``n`` acquisitions of this object; any thread or task may do it.

        The caller's own acquisitions are released first, from the newest on, then those of others, from the oldest on.
        Acquisitions whose ``with`` has not ended are released last. Raises NotHeld (a RuntimeError and ValueError) if this
        object holds fewer than ``n`` acquisitions, LeaseLost if the lease of one was lost before. Raises ServerError if the
        server cannot be reached: the permits are then free when the leases expire.
        """
        if n < 1:
            raise ValueError("n must be one or more")
        claimed: list[LeaseCore] = []
        try:
            self._give_back(n, claimed)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(n, claimed)
            raise

    def set_limit(self, limit: int) -> None:
        """Change the number of permits for all users, also for those whose ``limit`` option has the old number.

        Holders keep their permits, and waiters get those that are free now. Raises ConfigError if the number is invalid,
        ServerError if the server cannot be reached.
        """
        permit.checked(limit, self._permits.wanted)
        self._ask(functools.partial(self._count, limit))

    def limit(self) -> int:
        """Return the number of permits of the semaphore, by asking the server. Raises ServerError if it cannot be reached."""
        return (self._ask(self._count)).limit

    def available(self) -> int:
        """Return the number of free permits, by asking the server. Raises ServerError if it cannot be reached."""
        count = self._ask(self._count)
        return max(0, count.limit - count.used)


class BoundedSemaphore(Semaphore):
    """A `Semaphore` under the name that threading uses. Every `Semaphore` is bounded: only permits that are held can be
    released."""
