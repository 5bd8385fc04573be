"""Semaphores for threads. `holdfast.aio` has the same for asyncio."""

from __future__ import annotations

import functools
import threading

from holdfast._api import permit, sync_lock
from holdfast._api.sync_lease import Lease
from holdfast.errors import HoldfastError


class Semaphore(permit.BaseSemaphore[Lease], sync_lock.Lock):
    """A number of permits that are held at the same time, anywhere: at most ``limit`` of them.

    A permit is a lease: the permits of a crashed holder come back when it ends. Each has a fence of its own, which rises from
    grant to grant. Permits go to those who wait in the order in which they came, and nobody goes before one who wants more than
    there are just now. One object may be shared by threads or tasks, and hold several permits. Fits wherever a
    threading.BoundedSemaphore does.

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: of the semaphore, 1 to 512 bytes.
        limit: how many permits there are; the first user says so for all, and who says something else is refused; None: as
            many as others have said.
        weight: how many permits one acquisition takes.
        ttl: seconds of the lease, 0.05 at least; renewed while held.
        wait: seconds to wait for permits; None: for ever; 0: not at all.
        renew: False leaves renewal to you (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after which renewal stops, so that hung code cannot hold permits for ever.
        progress_within: a holder that does not call ``progress()`` of its lease at least once in so many seconds counts as
            hung: the lease is lost.
        label: who uses this lock, shown to those who wait for it.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent. Also when it is used, if others use another limit.
    """

    @staticmethod
    def _me() -> object:
        return threading.current_thread()

    @property
    def lease(self) -> Lease | None:
        """The lease of the latest acquisition by this object that is not given back."""
        return next(reversed(self._holding()), None)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Take ``weight`` permits; False if there were too few in time. As threading.Semaphore's, except that without arguments
        it waits as long as this object's ``wait`` says. Raises ServerError."""
        return self._acquire(permit.acquire_wait(self._wait, blocking, timeout))

    def release(self, n: int = 1) -> None:
        """Give back what ``n`` acquisitions of this object took; anybody may. The caller's own are released before those of
        others, newest first; one whose ``with`` has not ended is released last. Raises NotHeld (a RuntimeError and
        ValueError) if it holds fewer, LeaseLost, ServerError."""
        if n < 1:
            raise ValueError("n must be one or more")
        claimed: list[Lease] = []
        try:
            self._give_back(n, claimed)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(n, claimed)
            raise

    def set_limit(self, limit: int) -> None:
        """Change how many permits there are, for all users, also those who know only the limit before. Holders keep theirs; who
        waits gets what is free now. Raises ConfigError, ServerError."""
        permit.checked(limit, self._permits.wanted)
        self._ask(functools.partial(self._count, limit))

    def limit(self) -> int:
        """How many permits there are. Asks the server; raises ServerError."""
        return (self._ask(self._count)).limit

    def available(self) -> int:
        """How many permits are free just now. Asks the server; raises ServerError."""
        count = self._ask(self._count)
        return max(0, count.limit - count.used)


class BoundedSemaphore(Semaphore):
    """The same as `Semaphore`, which is bounded too: a permit that nobody holds cannot be given back."""
