"""Repeat an optimistic transaction after a conflict, a limited number of times and with random pauses.

A transaction fails only if another transaction has changed its data meanwhile. So of several competing transactions, one always
succeeds, and the others need only try again. The pauses grow with each conflict ("full jitter": M. Brooker, "Exponential
Backoff And Jitter", AWS Architecture Blog, 2015), but only up to a limit. Otherwise a transaction that has failed often would
wait longer than new ones.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.requests import CallUser, Now, RandomFraction, Sleep

TRIES = 128
"""Maximum number of times that a transaction is tried, unless the user passes another number."""

GROWTH = 5
"""Number of conflicts after which the maximum pause no longer doubles. It is then 32 times as long as the shortest try."""

LONGEST_PAUSE = 1.0
"""Maximum seconds between two tries of a transaction."""


class RetryableConflict(Exception):
    """Raised if a conflict has ended a try before the transaction changed anything, so that it can be tried again.

    The message names the conflict.
    """


class GivenUp(Exception):
    """Raised if a transaction gives up after ``tries`` conflicts and ``waited`` seconds. ``why``: reason of the last
    conflict."""

    def __init__(self, tries: int, waited: float, why: str) -> None:
        super().__init__(tries, waited, why)
        self.tries = tries
        self.waited = waited
        self.why = why


def longest_pause(conflicts: int, shortest: float) -> float:
    """Return the maximum pause after this number of conflicts. ``shortest``: length of the shortest try so far. Both in
    seconds."""
    return min(LONGEST_PAUSE, shortest * (1 << min(conflicts, GROWTH)))


async def persist(call: CallUser, tries: int, wait: float | None) -> Any:
    """Call a transaction until it does not raise RetryableConflict, and return its result.

    Raises GivenUp after ``tries`` tries, or if the next try would begin later than ``wait`` seconds after the first (None: no
    limit).
    """
    began = await Now()
    shortest = LONGEST_PAUSE
    for conflicts in range(1, tries + 1):
        started = await Now()
        try:
            return await call
        except RetryableConflict as changed:
            now = await Now()
            shortest = min(shortest, now - started)
            pause = longest_pause(conflicts, shortest) * await RandomFraction()
            if conflicts == tries or (wait is not None and now + pause - began > wait):
                raise GivenUp(conflicts, now - began, str(changed)) from changed
        await Sleep(pause)
    raise AssertionError("there is at least one try")
