"""Retry an optimistic transaction after a conflict, a limited number of times.

Among competing transactions, at least one succeeds at each moment, because only the success of one makes another fail. So a
transaction needs patience and pauses of random length, not a queue: see `TRIES`. Pauses grow with each conflict ("full jitter":
M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015), but only up to a limit: a transaction that failed
often must not wait longest.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.requests import CallUser, Now, RandomFraction, Sleep

TRIES = 128
"""Number of times that a transaction is tried, unless the user sets another number."""

GROWTH = 5
"""Number of times that the longest pause doubles, up to 32 times the duration of a try."""

LONGEST_PAUSE = 1.0
"""Longest pause between two tries, in seconds."""


class Changed(Exception):
    """Raised if a conflict ended one try before it changed anything, so that a retry is safe. The message is the reason."""


class GivenUp(Exception):
    """Raised if all tries failed because of conflicts."""

    def __init__(self, tries: int, waited: float, why: str) -> None:
        super().__init__(tries, waited, why)
        self.tries = tries
        self.waited = waited
        self.why = why


def longest_pause(conflicts: int, shortest: float) -> float:
    """Return the longest pause, in seconds, after this many conflicts. ``shortest``: duration of a try without a conflict."""
    return min(LONGEST_PAUSE, shortest * (1 << min(conflicts, GROWTH)))


async def persist(call: CallUser, tries: int, wait: float | None) -> Any:
    """Call until the transaction does not raise Changed, and return its result.

    Raises GivenUp after ``tries`` tries, or if the next one would begin later than ``wait`` seconds after the first.
    """
    began = await Now()
    shortest = LONGEST_PAUSE
    for conflicts in range(1, tries + 1):
        started = await Now()
        try:
            return await call
        except Changed as changed:
            now = await Now()
            shortest = min(shortest, now - started)
            pause = longest_pause(conflicts, shortest) * await RandomFraction()
            if conflicts == tries or (wait is not None and now + pause - began > wait):
                raise GivenUp(conflicts, now - began, str(changed)) from changed
        await Sleep(pause)
    raise AssertionError("there is at least one try")
