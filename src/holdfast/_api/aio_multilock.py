"""Several locks at once for asyncio, all of them or none: the counterpart of `holdfast._api.sync_multilock`."""

# ruff: noqa: SLF001  (it is made of locks and their leases)

from __future__ import annotations

import asyncio
from typing import Any, Never

from holdfast._api import aio_lock
from holdfast._api import multilock as multilocks
from holdfast._api.aio_lease import TellsLoss, _Lost
from holdfast._clock import clock
from holdfast._core.lock import multilock
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._runtime.drivers.aio import Runner
from holdfast._runtime.process import Process


class MultiLease(TellsLoss, multilocks.BaseMultiLease):
    """One acquisition of several locks: what ``async with`` gives."""

    def __init__(self, lock: MultiLock, driver: Runner, whole: multilocks.Whole) -> None:
        super().__init__(whole, lock.name, lock._on_lost)
        self._driver = driver
        self._event: asyncio.Event = _Lost(self)
        self._start(lock._tally)

    @property
    def lost(self) -> asyncio.Event:
        """An Event: set when one of the leases is lost."""
        return self._event

    async def renew(self, ttl: float | None = None) -> None:
        """Set all leases to ``ttl`` seconds from now (default: as long as each was last); never adds to them.

        Raises LeaseLost, NotHeld or ServerError.
        """
        self._at_home()
        await self._driver.run(self._renew(ttl))

    async def ticket(self, expires: float = 60.0) -> Never:  # noqa: ARG002 - there is none
        """Several locks give no ticket. Raises ConfigError."""
        raise self._no_ticket()

    async def release(self) -> None:
        """Give all locks back. Raises LeaseLost if one was lost before, NotHeld the second time, ServerError if a server cannot
        be reached (its locks then end with their leases); what can be given back is."""
        self._may_be_awaited()
        await self._driver.run(self._release())


class MultiLock(multilocks.BaseMultiLock[MultiLease], aio_lock.Lock):
    """Several locks, held together: all of them or none.

    They are taken in one order, whatever the order in which they are named, so those who want some of the same locks never
    wait for each other in a cycle. If all are free and on one server, that is one trip; one that is busy is waited for in its
    queue. When time runs out, or anything goes wrong, those that were taken go back. Fits wherever an asyncio.Lock does.

    If a lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a client or URL, for locks that are named; may be left out where all are lock objects.
        locks: names of locks, and locks: `Lock`, `FairLock`, `Redlock`, also of other servers, each with options of its own.
        ttl: seconds of the leases of those that are named, 0.05 at least; renewed while held.
        wait: seconds to wait for all of them; None: for ever; 0: not at all.
        renew: False leaves renewal to you (`MultiLease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after which renewal stops, so that hung code cannot hold the locks for ever.
        label: who uses this lock, shown to those who wait for it.
        prefix: start of the keys on the server.

    Raises:
        ConfigError: an option is out of range, or a lock is named twice; nothing was sent.
    """

    _kind = aio_lock.Lock

    @property
    def lease(self) -> MultiLease | None:  # type: ignore[override]
        """The lease of the latest acquisition by this object, until it is given back."""
        return super().lease  # type: ignore[return-value]

    async def locked(self) -> bool:
        """True while anybody anywhere holds one of the locks. Asks the servers; raises ServerError."""
        for lock in self._locks:
            if await lock.locked():
                return True
        return False

    async def __aenter__(self) -> MultiLease:  # type: ignore[override]
        """Take the locks within ``wait``. Raises LockTimeout, ServerError."""
        return await super().__aenter__()  # type: ignore[return-value]

    def _driver(self) -> Runner:
        driver: Runner = self._locks[0]._driver()
        return driver

    def _new_attempt(self, process: Process) -> Any:  # noqa: ARG002 - each lock has its own
        return multilocks.Whole(id(asyncio.current_task()))

    async def _take(self, driver: Runner, attempt: Any, wait: float | None) -> Any:
        until = None if wait is None else clock() + wait
        self._tally.waits(attempt)
        while True:
            for lock in self._locks:
                if lock._cluster is not None:
                    await lock._locate(lock._cluster)
            driver = attempt.begin(self._locks, [lock._driver() for lock in self._locks])
            try:
                blocked = await driver.run(multilock.acquire(attempt.parts, wait))
            except SlotMoved:
                wait = None if until is None else max(0.0, until - clock())
                continue
            if blocked is not None:
                self._tally.stayed_busy(attempt)
                return blocked
            self._current = lease = MultiLease(self, driver, attempt)  # type: ignore[assignment]
            return lease

    async def _undo(self, attempt: Any) -> None:
        self._tally.gave_up(attempt)
        await self._driver().run(attempt.leave())
