"""End operations whose event loop was closed while they ran, so that the locks which they hold are released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from holdfast._runtime.keeper.ports import KeeperThread

EVERY = 0.5
"""Seconds between two checks whether an event loop was closed, which Python does not report."""

UNDER_WAY = 2.0
"""The last requests of an operation, such as a release, may be on their way for this many seconds after its end."""


class LoopDriver(Protocol):
    """The attributes and methods of an event loop's driver (`_runtime.drivers.aio.Runner`) that this module uses."""

    loop: asyncio.AbstractEventLoop
    stream: Any
    running: set[Coroutine[Any, Any, Any]]
    """The running operations, and the attempts and leases that the driver itself handles, without an operation."""
    unwatched: bool
    """True while nobody checks whether this driver's event loop was closed."""

    def end(self, operation: Coroutine[Any, Any, Any]) -> None:
        """End an operation that no task drives any more: run its clean-up, as far as that is possible without awaiting."""


class Loops:
    """The drivers of the event loops in which operations run, and a periodic check for closed loops."""

    def __init__(self, keeper: KeeperThread) -> None:
        self._keeper = keeper
        self._drivers: set[LoopDriver] = set()
        """Drivers with operations that ran at the last check or have started since then."""
        self._looks = False
        self._ended_at = float("-inf")

    def watch(self, driver: LoopDriver) -> None:
        """Check the event loop of this driver from now on. Any thread may call this."""
        with self._keeper.mutex:
            self._drivers.add(driver)
            if not self._looks:
                self._keeper.later(EVERY, self._look)
                self._looks = True
            driver.unwatched = False  # set last, so that after an interrupt the next operation calls this again

    def __bool__(self) -> bool:
        """Return True if operations are running in any event loop, or were running at the last check."""
        return bool(self._drivers)

    def end(self) -> None:
        """End the operations of closed event loops."""
        with self._keeper.mutex:
            drivers = [driver for driver in self._drivers if driver.loop.is_closed()]
        for driver in drivers:
            for operation in [*driver.running]:
                self._keeper.safely(driver.end, operation)
                self._ended_at = self._keeper.clock()

    def lately(self) -> bool:
        """Return True if operations were ended in the last UNDER_WAY seconds."""
        return self._keeper.clock() < self._ended_at + UNDER_WAY

    def close(self) -> None:
        with self._keeper.mutex:
            for driver in self._drivers:
                driver.unwatched = True
            self._drivers.clear()

    def _look(self) -> None:
        self.end()
        with self._keeper.mutex:
            for driver in [driver for driver in self._drivers if not driver.running]:
                # The flag is set before the check. So an operation that begins meanwhile is seen here, or it sees the flag.
                driver.unwatched = True
                if not driver.running:
                    self._drivers.remove(driver)
                else:
                    driver.unwatched = False
            self._looks = bool(self._drivers)
            if self._looks:
                self._keeper.later(EVERY, self._look)
