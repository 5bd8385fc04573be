"""Choose the ticks (scheduled times) of a job that a process claims. Times are in microseconds of the server's clock.

A process may find several ticks due, because no process has run the job for a while. It claims the latest of them, and reports
the earlier ones as missed. With ``misfire="all"``, it claims each of them. Further ticks may become due before the request
arrives, so the claim also contains ticks that are due soon. The request also names the first tick after the claimed ones. From
that tick, the script (`_lua/schedule/serve.lua`) sees whether the list is complete.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.schedule.job import QUEUE, Options, When
from holdfast.errors import ConfigError

LAST = 1e11
"""Unix time, in seconds, after which there are no ticks."""

COUNTED = 1000
"""Maximum number of missed ticks (scheduled times) that are counted and reported, and of ticks in one request."""


class Due(NamedTuple):
    """The ticks (scheduled times) of a job that one request claims or reports as missed."""

    missed: tuple[int, int, int] | None
    """First and last of the ticks (scheduled times) that are reported as missed, and their number; None: no missed ticks.

    They are not run because a later tick is due.
    """
    ticks: list[int]
    """Ticks (scheduled times) that may be run, in order. The last of them may not be due yet, but soon."""
    beyond: int | None
    """First tick (scheduled time) after those in `ticks`; None if the timetable has no further tick."""


def following(when: When, tick: int) -> int | None:
    """Return the first tick (scheduled time) after ``tick``, in microseconds; None if the timetable has no further tick.

    Raises ConfigError if the timetable returns a time that is not later. The search for a tick would then never end.
    """
    found = when.after(tick / 1e6)
    if _microseconds(found) <= tick:  # a result of rounding: a float of seconds cannot show every microsecond
        found = when.after((tick + 1) / 1e6)
    if _microseconds(found) <= tick:
        said = f"timetable {when}: after({tick / 1e6!r}) returned {found!r}"
        raise ConfigError(f"{said}; it must return a later time, or infinity if there is none", parameter="when")
    return None if found > LAST else _microseconds(found)


def _microseconds(seconds: float) -> int:
    return round(min(seconds, 10 * LAST) * 1e6) if seconds > 0 else 0  # NaN, too, is not later than any tick


def due(when: When, last: int, now: int, options: Options, ahead: int = 0) -> Due:
    """Return the ticks (scheduled times) to claim at time ``now``, after the last tick for which the job was run or skipped.

    ``ahead``: include ticks up to this many microseconds after ``now``, because the request takes time. All times are
    microseconds of the server's clock.
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
    while beyond is not None and beyond <= now + ahead and len(ticks) < COUNTED:
        ticks.append(beyond)
        beyond = following(when, beyond)
    return Due(missed, ticks, beyond)


def _between(when: When, after: int, until: int, most: int) -> list[int]:
    """Return the first ticks later than ``after`` and not later than ``until``, at most ``most`` of them."""
    found: list[int] = []
    tick = following(when, after)
    while tick is not None and tick <= until and len(found) < most:
        found.append(tick)
        tick = following(when, tick)
    return found


def _latest(when: When, after: int, until: int, most: int) -> list[int]:
    """Return the last ticks later than ``after`` and not later than ``until``, at most ``most`` of them.

    The search goes backwards from ``until``, in steps that double. If a step covers too many ticks, it is halved until it
    covers only a few, because walking through millions of ticks takes minutes.
    """
    few = 10 * most
    start, span = until, 1_000_000
    while True:
        nearer, start = start, max(after, until - span)
        found = _between(when, start, until, few)
        while len(found) == few and nearer - start > 1:  # later ticks than these may follow
            middle = (start + nearer) // 2
            within = _between(when, middle, until, few)
            if len(within) < most:
                nearer = middle
            else:
                start, found = middle, within
        if len(found) >= most or start == after:
            return found[-most:]
        span *= 2
