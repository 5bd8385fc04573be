"""Ends what was going on in an event loop that is closed: its tasks never go on, and others wait for what they were granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from holdfast._runtime.keeper.ports import KeeperThread

EVERY = 0.5
"""Seconds between two looks, as long as operations run in some loop: nothing tells that a loop is closed."""

UNDER_WAY = 2.0
"""Seconds within which a server has long been sent what an operation has left."""


class LoopDriver(Protocol):
    """A driver of an event loop (`_runtime.drivers.aio.Runner`)."""

    loop: asyncio.AbstractEventLoop
    stream: Any
    """Its connection."""
    running: set[Coroutine[Any, Any, Any]]
    """The operations that have begun, and not ended."""
    unwatched: bool
    """Nobody looks whether its loop is closed while they run."""

    def end(self, operation: Coroutine[Any, Any, Any]) -> None:
        """Nobody drives it any more: end it, as far as nothing has to be awaited."""


class Loops:
    """Looks after the drivers of event loops."""

    def __init__(self, keeper: KeeperThread) -> None:
        self._keeper = keeper
        self._drivers: set[LoopDriver] = set()
        """Those in which operations run; or did so at the last look."""
        self._looks = False
        self._ended_at = float("-inf")

    def watch(self, driver: LoopDriver) -> None:
        """Operations run in it. Any thread may say so."""
        with self._keeper.mutex:
            self._drivers.add(driver)
            if not self._looks:
                self._keeper.later(EVERY, self._look)
                self._looks = True
            driver.unwatched = False  # the last: interrupted before, the next operation asks again

    def __bool__(self) -> bool:
        """Operations run in some; or did so at the last look."""
        return bool(self._drivers)

    def end(self) -> None:
        """End what was going on in loops that are closed."""
        with self._keeper.mutex:
            drivers = [driver for driver in self._drivers if driver.loop.is_closed()]
        for driver in drivers:
            for operation in [*driver.running]:
                self._keeper.safely(driver.end, operation)  # or nobody would look at the others any more
                self._ended_at = self._keeper.clock()

    def lately(self) -> bool:
        """Something was ended: what it has left to be sent may still be under way."""
        return self._keeper.clock() < self._ended_at + UNDER_WAY

    def close(self) -> None:
        """Nobody looks any more."""
        with self._keeper.mutex:
            for driver in self._drivers:
                driver.unwatched = True
            self._drivers.clear()

    def _look(self) -> None:
        self.end()
        with self._keeper.mutex:
            for driver in [driver for driver in self._drivers if not driver.running]:
                driver.unwatched = True  # in this order: what begins meanwhile either is seen here, or sees this
                if not driver.running:
                    self._drivers.remove(driver)
                else:
                    driver.unwatched = False
            self._looks = bool(self._drivers)
            if self._looks:
                self._keeper.later(EVERY, self._look)
