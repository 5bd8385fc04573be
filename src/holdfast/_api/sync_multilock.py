"""`MultiLock` for threads: acquire several locks together, all of them or none. `holdfast.aio` has the class for asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast._api import multilock as multilocks
from holdfast._api.flow import complete
from holdfast._api.sync_lease import LostFlag, TellsLoss
from holdfast._api.sync_lock import BaseSyncLock, Lock
from holdfast._durations import Seconds
from holdfast._net.clients import SyncClient
from holdfast._runtime.drivers.sync import Runner
from holdfast.errors import HoldfastError


class MultiLease(multilocks.BaseMultiLease):
    """The lease of several locks acquired together, as ``with`` returns it."""

    @property
    def lost(self) -> threading.Event:
        """An event that is set when one of the leases is lost."""
        event: threading.Event = self._core.event
        return event

    def renew(self, ttl: Seconds | None = None) -> None:
        """Set all leases to expire ``ttl`` seconds from now (default: each one's last length). The remaining time is not added.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        self._core.run(self._core.renew_on_server, ttl)

    def verify(self) -> None:
        """Ask the servers whether they still have all leases. `check` does not ask them. See `Lease.verify`.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        self._core.run(self._core.verify_on_server)

    def release(self) -> None:
        """Release all locks.

        Raises LeaseLost if a lease was lost before, NotHeld if all were released already. Raises ServerError if a server cannot
        be reached: its locks are then free when their leases expire. The other locks are released in any case.
        """
        self._core.release()


class MultiCore(TellsLoss, multilocks.BaseMultiCore):
    """The internal object of the lease of several locks, of a thread."""

    user_type = MultiLease

    def __init__(self, whole: multilocks.Whole, name: str, on_lost: Callable[..., object] | None, driver: Runner) -> None:
        super().__init__(whole, name, on_lost, driver)
        self.event: threading.Event = LostFlag(self.expired)

    def try_release(self) -> bool:
        """Return False: only an operation can release several locks."""
        return False

    def go_on_releasing(self, begun: bool) -> None:  # noqa: ARG002 - see `try_release`
        """Release all locks."""
        self.release()

    def release(self) -> None:
        """Release all locks, as `MultiLease.release` does."""
        try:
            self.driver.run(self.release_on_server())
        except HoldfastError:
            raise
        except BaseException:
            self.finish_interrupted_release()  # An interrupt can come at any line.
            raise

    def finish_interrupted_release(self) -> None:
        """Finish a release that was interrupted at an unknown point, so that none of the locks is held."""
        self.driver.run(self.finish_release())


class MultiLock(multilocks.BaseMultiLock[MultiLease, SyncClient], BaseSyncLock[MultiLease]):  # type: ignore[type-var]
    """Several locks, held together: all of them or none.

    The locks are acquired in a fixed order, whatever the order of the list, so two MultiLocks never wait for each other in a
    cycle. If all locks are free and on one server (in a Cluster: in one slot), this costs one round trip. Semaphores, sides of
    an `RWLock`, and locks with ``replicas`` or ``quarantine`` cost a round trip each. A busy lock is waited for in its queue.
    If time runs out or an error occurs, the locks acquired so far are released. A `MultiLock` can replace a threading.Lock.

    Args:
        client: a client or URL, for the locks given by name; may be left out if all are lock objects.
        locks: names of locks, and lock objects, with their own servers and options: `Lock`, `FairLock`, `Redlock`,
            `Semaphore`, or a side of an `RWLock`.
        ttl: length of the leases of locks given by name, in seconds, at least 0.05; renewed while held.
        wait: seconds to wait for all locks together. None: without limit; 0: do not wait.
        renew: False if you renew the leases yourself (`MultiLease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the locks forever.
        label: text that describes this user of the locks, shown to their waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range, or a lock is listed twice; nothing was sent to the server.
    """

    _kind = BaseSyncLock
    _makes = Lock
    _makes_core = MultiCore

    @property
    def lease(self) -> MultiLease | None:
        """The lease of the latest acquisition by this object; None once it is released."""
        return super().lease

    def locked(self) -> bool:
        """Return True if ``locked`` of one of the locks is True. Asks the servers; raises ServerError if one cannot be
        reached."""
        return any(member.lock.locked() for member in self._members)  # type: ignore[attr-defined]

    def __enter__(self) -> MultiLease:
        """Acquire all locks within this object's ``wait`` and return their lease.

        Raises LockTimeout if one of the locks stays busy, ServerError if a server cannot be reached. After an error, none of
        the locks is held.
        """
        return super().__enter__()

    def _driver(self) -> Runner:
        driver: Runner = self._members[0].driver()
        return driver

    def _new_attempt(self, driver: Runner) -> Any:  # noqa: ARG002 - each lock has its own
        return multilocks.Whole(threading.get_ident())

    def _take(self, driver: Runner, attempt: Any, wait: float | None) -> Any:  # noqa: ARG002 - each lock has its own
        return complete(self._take_all(attempt, wait))

    def _undo(self, attempt: Any) -> None:
        self._tally.gave_up(attempt)
        self._driver().run(attempt.leave())
