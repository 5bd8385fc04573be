"""Which ticks of a job to claim when some are due. Times in microseconds of the server's clock.

A process claims the latest tick that is due, and says which earlier ones are left out for it; only with ``misfire="all"`` it
claims each. It cannot know which tick is the latest when the request arrives, so it names those of the next moments too, and
the one after them: see `_lua/schedule/serve.lua`.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.schedule.job import QUEUE, Options, When

COUNTED = 1000
"""Missed ticks are counted up to here."""


class Due(NamedTuple):
    """The ticks to claim."""

    missed: tuple[int, int, int] | None
    """Ticks that are only written down, because there are later ones: first, last and number."""
    ticks: list[int]
    """Those that may run, in order; the last of them are not due yet."""
    beyond: int | None
    """The tick after all these; None: there is none."""


def following(when: When, tick: int) -> int | None:
    """The tick after ``tick``; None: there is none."""
    found = when.after(tick / 1e6)
    if round(min(found, 1e12) * 1e6) <= tick:  # a time in seconds has no more digits than this
        found = when.after((tick + 1) / 1e6)
    return None if found > 1e11 else round(found * 1e6)


def due(when: When, last: int, now: int, options: Options, ahead: int = 0) -> Due:
    """Return the ticks that are due at ``now``, if all up to ``last`` have been dealt with.

    ``ahead``: for how long the claim is to be good.
    """
    beyond = following(when, last)
    ticks: list[int] = []
    missed = None
    if beyond is not None and beyond <= now:
        first, ticks = beyond, _latest(when, last, now, QUEUE if options.misfire == "all" else 1)
        if ticks[0] > first:
            given_up = _latest(when, last, ticks[0] - 1, 1)[0]
            missed = (first, given_up, len(_between(when, last, given_up, COUNTED)))
        beyond = following(when, ticks[-1])
    while beyond is not None and beyond <= now + ahead:
        ticks.append(beyond)
        beyond = following(when, beyond)
    return Due(missed, ticks, beyond)


def _between(when: When, after: int, until: int, most: int) -> list[int]:
    """The first ticks in there, ``until`` included."""
    found: list[int] = []
    tick = following(when, after)
    while tick is not None and tick <= until and len(found) < most:
        found.append(tick)
        tick = following(when, tick)
    return found


def _latest(when: When, after: int, until: int, most: int) -> list[int]:
    """The latest ticks in there, ``until`` included, ``most`` if there are as many. Looked for backwards, in growing steps."""
    span = 1_000_000
    while True:
        start = max(after, until - span)
        found = _between(when, start, until, 1 << 20)
        if len(found) >= most or start == after:
            return found[-most:]
        span *= 2
