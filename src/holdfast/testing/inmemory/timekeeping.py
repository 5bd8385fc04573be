"""`holdfast.testing.clock`: moves the time that holdfast sees in this process, and that of its memory servers."""

from __future__ import annotations

import math
import threading

from holdfast import _clock as local
from holdfast._runtime.process import close
from holdfast.testing.inmemory import inside

STEP = 1.0
"""Seconds of the longest step of `Clock.run`: as often as a waiting process gives a sign of life."""


class Clock:
    """The time of this process's locks, and of all servers made by `holdfast.testing.memory`.

    It goes on by itself, so nothing ever hangs, and can be moved forward. ``time.time()``, ``time.sleep()``, the event loop
    and real servers know nothing of it.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # a signal handler may look at the clock, too

    def __repr__(self) -> str:
        return f"<holdfast.testing.clock, {local.ahead:g} s ahead>"

    def advance(self, seconds: float) -> None:
        """Let time pass as if the whole machine had slept: no renewal is sent meanwhile.

        The consequences have happened on return: leases that ended are lost, waits that are over have timed out, and waiters
        hold the locks that became free.
        """
        with self._mutex:
            self._step(_checked(seconds))

    def run(self, seconds: float) -> None:
        """Let time pass with the machine awake: leases are renewed on the way."""
        with self._mutex:
            end = local.clock() + _checked(seconds)
            patience = inside.LIMIT
            while (now := local.clock()) < end:
                # To when the keeper wakes, but never less than what real time would have done by itself meanwhile.
                if not self._step(min(end - now, STEP, max(inside.next_at() - now, 0.001)), patience):
                    patience = 0.01  # a server that does not answer is waited for once

    def reset(self) -> None:
        """Back to the real time. Time never runs backwards under a lock: if it was moved, this ends what this process holds
        and waits for, as `holdfast.close()`."""
        with self._mutex:
            if local.ahead:
                close()
                local.ahead = 0.0

    @staticmethod
    def _step(seconds: float, patience: float = inside.LIMIT) -> bool:
        """True if all answers came."""

        def move() -> None:
            local.ahead += seconds

        inside.when_idle(move, patience)
        return inside.when_idle(limit=patience)


def _checked(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise ValueError(f"time goes forward by a number of seconds, not by {seconds!r}")
    return seconds


clock = Clock()
"""The clock of this process."""
