"""Ends what was going on in an event loop that is closed: its tasks never go on, and others wait for what they were granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._drive.aio import Driver
    from holdfast._drive.keeper import Keeper

EVERY = 0.5
"""Seconds between two looks, as long as operations run in some loop: nothing tells that a loop is closed."""


class Loops:
    """Looks after the drivers of event loops."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._drivers: set[Driver] = set()
        """Those in which operations run; or did so at the last look."""
        self._looks = False

    def watch(self, driver: Driver) -> None:
        """Operations run in it. Any thread may say so."""
        with self._keeper.mutex:
            driver.unwatched = False
            self._drivers.add(driver)
            if not self._looks:
                self._looks = True
                self._keeper.later(EVERY, self._look)

    def end(self) -> bool:
        """End what was going on in loops that are closed. True: there was something."""
        with self._keeper.mutex:
            drivers = [driver for driver in self._drivers if driver.loop.is_closed()]
        ended = False
        for driver in drivers:
            for operation in [*driver.running]:
                driver.end(operation)
                ended = True
        return ended

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
