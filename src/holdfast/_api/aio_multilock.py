"""`MultiLock` for asyncio: acquire several locks together, all of them or none. `holdfast` has the class for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast._api import aio_lock
from holdfast._api import multilock as multilocks
from holdfast._api.aio_lease import TellsLoss
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient
from holdfast._runtime.drivers.aio import Runner


class MultiLease(multilocks.BaseMultiLease):
    """The lease of several locks acquired together, as ``async with`` returns it."""

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when one of the leases is lost."""
        event: asyncio.Event = self._core.event
        return event

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Set all leases to expire ``ttl`` seconds from now (default: each one's last length). The remaining time is not added.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        await self._core.run(self._core.renew_on_server, ttl)

    async def verify(self) -> None:
        """Ask the servers whether they still have all leases. `check` does not ask them. See `Lease.verify`.

        Raises LeaseLost if a lease is lost, NotHeld if all were released, ServerError if a server cannot be reached.
        """
        await self._core.run(self._core.verify_on_server)

    async def release(self) -> None:
        """Release all locks.

        Raises LeaseLost if a lease was lost before, NotHeld if all were released already. Raises ServerError if a server cannot
        be reached: its locks are then free when their leases expire. The other locks are released in any case.
        """
        await self._core.release()


class MultiCore(TellsLoss, multilocks.BaseMultiCore):
    """The internal object of the lease of several locks, of a task."""

    user_type = MultiLease

    def __init__(self, whole: multilocks.Whole, name: str, on_lost: Callable[..., object] | None, driver: Runner) -> None:
        super().__init__(whole, name, on_lost, driver)
        from holdfast._api.lost_event import LostEvent  # Imported late: programs of threads need no asyncio.

        self.event: asyncio.Event = LostEvent(self.expired)

    async def try_release(self) -> bool:
        """Return False: only an operation can release several locks."""
        return False

    async def go_on_releasing(self, begun: bool) -> None:  # noqa: ARG002 - see `try_release`
        """Release all locks."""
        await self.release()

    async def release(self) -> None:
        """Release all locks, as `MultiLease.release` does."""
        self.may_be_awaited()
        await self.driver.run(self.release_on_server())


class MultiLock(multilocks.BaseMultiLock[MultiLease, AsyncClient], aio_lock.BaseAioLock[MultiLease]):  # type: ignore[type-var]
    """Several locks, held together: all of them or none.

    The locks are acquired in a fixed order, whatever the order of the list, so two MultiLocks never wait for each other in a
    cycle. If all locks are free and on one server (in a Cluster: in one slot), this costs one round trip. Semaphores, sides of
    an `RWLock`, and locks with ``replicas`` or ``quarantine`` cost a round trip each. A busy lock is waited for in its queue.
    If time runs out or an error occurs, the locks acquired so far are released. A `MultiLock` can replace an asyncio.Lock.

    If a lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a client or URL, for the locks given by name; may be left out if all are lock objects.
        locks: names of locks, and lock objects, with their own servers and options: `Lock`, `FairLock`, `Redlock`,
            `Semaphore`, or a side of an `RWLock`.
        ttl: length of the leases of locks given by name, in seconds, at least 0.05; renewed while held.
        wait: seconds to wait for all locks together. None: without limit; 0: do not wait.
        renew: False if you renew the leases yourself (`MultiLease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the locks forever.
        label: text that describes this user of the locks, shown to their waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range, or a lock is listed twice; nothing was sent to the server.
    """

    _kind = aio_lock.BaseAioLock
    _makes = aio_lock.Lock
    _makes_core = MultiCore

    @property
    def lease(self) -> MultiLease | None:
        """The lease of the latest acquisition by this object; None once it is released."""
        return super().lease

    async def locked(self) -> bool:
        """Return True if ``locked`` of one of the locks is True. Asks the servers; raises ServerError if one cannot be
        reached."""
        for member in self._members:
            if await member.lock.locked():  # type: ignore[attr-defined]
                return True
        return False

    async def __aenter__(self) -> MultiLease:
        """Acquire all locks within this object's ``wait`` and return their lease.

        Raises LockTimeout if one of the locks stays busy, ServerError if a server cannot be reached. After an error, none of
        the locks is held.
        """
        return await super().__aenter__()

    def _driver(self) -> Runner:
        driver: Runner = self._members[0].driver()
        return driver

    def _new_attempt(self, driver: Runner) -> Any:  # noqa: ARG002 - each lock has its own
        return multilocks.Whole(id(asyncio.current_task()))

    async def _take(self, driver: Runner, attempt: Any, wait: float | None) -> Any:  # noqa: ARG002 - each lock has its own
        return await self._take_all(attempt, wait)

    async def _undo(self, driver: Runner, attempt: Any) -> None:  # noqa: ARG002 - the attempt knows its drivers
        self._tally.gave_up(attempt)
        await self._driver().run(attempt.leave())
