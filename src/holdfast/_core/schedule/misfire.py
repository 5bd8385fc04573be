"""Choose the ticks (scheduled times) of a job to claim when some are due. Times in microseconds of the server's clock.

A process claims the latest due tick, and reports the earlier ones as missed; with ``misfire="all"`` it claims each. It cannot
know which tick will be the latest when the request arrives. So the claim also lists the ticks of the next moments, and the one
after them: see `_lua/schedule/serve.lua`.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.schedule.job import QUEUE, Options, When

COUNTED = 1000
"""Maximum number of missed ticks (scheduled times) that are counted; if there are more, this maximum is reported."""


class Due(NamedTuple):
    """The ticks (scheduled times) of a job that one request claims."""

    missed: tuple[int, int, int] | None
    """First and last tick that are recorded as missed because later ticks are due, and the number of missed ticks; None:
    none."""
    ticks: list[int]
    """Ticks that may run, in order; the last of them are not due yet."""
    beyond: int | None
    """The first tick (scheduled time) after those in `ticks`; None if there is none."""


def following(when: When, tick: int) -> int | None:
    """Return the tick (scheduled time) after ``tick``; None if there is none."""
    found = when.after(tick / 1e6)
    if round(min(found, 1e12) * 1e6) <= tick:  # the result of rounding: a float of seconds has no more digits
        found = when.after((tick + 1) / 1e6)
    return None if found > 1e11 else round(found * 1e6)


def due(when: When, last: int, now: int, options: Options, ahead: int = 0) -> Due:
    """Return the ticks (scheduled times) to claim at ``now``, if all ticks up to ``last`` have been run or skipped.

    ``ahead``: microseconds after ``now`` for which the claim must stay complete.
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
    """Return the first ticks (scheduled times) after ``after`` up to and including ``until``, ``most`` at most."""
    found: list[int] = []
    tick = following(when, after)
    while tick is not None and tick <= until and len(found) < most:
        found.append(tick)
        tick = following(when, tick)
    return found


def _latest(when: When, after: int, until: int, most: int) -> list[int]:
    """Return the latest ticks (scheduled times) after ``after`` up to and including ``until``, ``most`` at most.
    The search goes backwards from ``until``, in growing steps."""
    span = 1_000_000
    while True:
        start = max(after, until - span)
        found = _between(when, start, until, 1 << 20)
        if len(found) >= most or start == after:
            return found[-most:]
        span *= 2
