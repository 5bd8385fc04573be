"""Optimistic transactions: doing one again when somebody else was quicker, a bounded number of times.

At each moment at least one of those who compete gets through, since only the success of one makes another fail. So what is
needed is patience and pauses of random length, not an order: see `TRIES`. Pauses grow with each conflict ("full jitter": M.
Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015), but not for long: who has failed most must not be made
to wait most.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.requests import CallUser, Now, RandomFraction, Sleep

TRIES = 128
"""How often a transaction is tried, where the user says nothing."""

GROWTH = 5
"""Doublings of the longest pause. It ends at 32 times what a try takes."""

LONGEST_PAUSE = 1.0
"""Seconds."""


class Changed(Exception):
    """One try came to nothing, and nothing of it was carried out: doing it again is safe. Says why."""


class GivenUp(Exception):
    """All of the tries came to nothing."""

    def __init__(self, tries: int, waited: float, why: str) -> None:
        super().__init__(tries, waited, why)
        self.tries = tries
        self.waited = waited
        self.why = why


def longest_pause(conflicts: int, shortest: float) -> float:
    """Seconds, after so many conflicts. ``shortest``: seconds that a try takes when nothing comes in between."""
    return min(LONGEST_PAUSE, shortest * (1 << min(conflicts, GROWTH)))


async def persist(call: CallUser, tries: int, wait: float | None) -> Any:
    """Try until it does not raise Changed: what it gives. Raises GivenUp after ``tries``, or within ``wait`` seconds."""
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
