"""`holdfast.testing.clock`, with which a test moves the time of holdfast in this process and of its servers in memory."""

from __future__ import annotations

import math
import threading

from holdfast import _clock as local
from holdfast._durations import Seconds, as_number
from holdfast._runtime.process import close
from holdfast.testing.inmemory import inside

STEP = 1.0
"""Longest step of `Clock.run`, in seconds. It is the interval at which a waiter refreshes its position in a queue."""


class Clock:
    """The clock of all locks in this process, and of all servers that `holdfast.testing.memory` has started.

    The clock runs with real time, and a test can move it forward. It does not affect ``time.time()``, ``time.sleep()``,
    the event loop and real servers.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # reentrant, because a signal handler may use the clock, too

    def __repr__(self) -> str:
        return f"<holdfast.testing.clock, {local.ahead:g} s ahead>"

    def advance(self, seconds: Seconds) -> None:
        """Move the clock forward in one step, as if the whole machine had slept. No lease is renewed meanwhile.

        When the method returns, expired leases are lost, expired waits have timed out, and waiters hold the locks that
        became free.
        """
        with self._mutex:
            self._step(_checked(seconds))

    def run(self, seconds: Seconds) -> None:
        """Move the clock forward in small steps, as if the machine were running. Leases are renewed meanwhile."""
        with self._mutex:
            end = local.clock() + _checked(seconds)
            patience = inside.LIMIT
            while (now := local.clock()) < end:
                # Step to the time at which the keeper wakes. Step by at least 1 ms, because real time advances meanwhile, too.
                if not self._step(min(end - now, STEP, max(inside.next_at() - now, 0.001)), patience):
                    patience = 0.01  # wait only once for a server that does not answer

    def reset(self) -> None:
        """Set the clock back to real time.

        If the clock was moved, all leases and waits of this process end first, as with `holdfast.close()`, because time must
        not run backwards while a lock is held.
        """
        with self._mutex:
            if local.ahead:
                close()
                local.ahead = 0.0

    @staticmethod
    def _step(seconds: float, patience: float = inside.LIMIT) -> bool:
        """Wait until the keeper is idle, move the clock by one step, and wait again. Return True if the keeper is idle then.

        Each of the two waits ends after ``patience`` real seconds, even if the keeper is still busy.
        """

        def move() -> None:
            local.ahead += seconds

        inside.when_idle(move, patience)
        return inside.when_idle(limit=patience)


def _checked(seconds: Seconds) -> float:
    number = as_number(seconds)
    if not isinstance(number, int | float) or not 0 <= number < math.inf:
        raise ValueError(f"the clock moves forward by a number of seconds, zero or more, not by {seconds!r}")
    return number


clock: Clock = Clock()
"""The clock of holdfast in this process, which a test moves."""
