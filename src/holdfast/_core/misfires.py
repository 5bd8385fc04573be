"""Which ticks of a job are due, and what becomes of those that are too late. Times in microseconds of the server's clock."""

from __future__ import annotations

from typing import NamedTuple

from holdfast._core.jobs import QUEUE, Options, When

ALL = 100
"""Ticks that are made up for at most, where a job wants all that were missed."""

COUNTED = 1000
"""Missed ticks are counted up to here."""


class Due(NamedTuple):
    """What to claim: ``missed`` ticks are only written down, as first, last and number; the others run, in order."""

    missed: tuple[int, int, int] | None
    ticks: list[int]

    def __bool__(self) -> bool:
        return self.missed is not None or bool(self.ticks)


def following(when: When, tick: int) -> int | None:
    """The tick after ``tick``; None: there is none."""
    found = when.after(tick / 1e6)
    if round(min(found, 1e12) * 1e6) <= tick:  # a time in seconds has no more digits than this
        found = when.after((tick + 1) / 1e6)
    return None if found > 1e11 else round(found * 1e6)


def due(when: When, last: int, now: int, options: Options) -> Due:
    """What is due at ``now``, when all up to ``last`` has been dealt with."""
    first = following(when, last)
    if first is None or first > now:
        return Due(None, [])
    limit = now - int(options.grace * 1e6)
    ticks = _between(when, max(last, limit - 1), now, QUEUE)
    if first >= limit:
        return Due(None, ticks)
    wanted = {"skip": 0, "once": 1, "all": ALL}[options.misfire]
    late = _latest(when, last, limit, wanted + 1)
    made_up, given_up = late[len(late) - min(wanted, len(late)) :], late[: -wanted or None]
    missed = (first, given_up[-1], _count(when, last, given_up[-1])) if given_up else None
    return Due(missed, (made_up + ticks)[:QUEUE])


def _between(when: When, after: int, until: int, most: int) -> list[int]:
    """The first ticks in there, ``until`` included."""
    found: list[int] = []
    tick = following(when, after)
    while tick is not None and tick <= until and len(found) < most:
        found.append(tick)
        tick = following(when, tick)
    return found


def _latest(when: When, after: int, before: int, most: int) -> list[int]:
    """The latest ticks in there, ``most`` if there are as many. Looked for backwards, in growing steps."""
    span = 1_000_000
    while True:
        start = max(after, before - span)
        found = _between(when, start, before - 1, 1 << 20)
        if len(found) >= most or start == after:
            return found[-most:]
        span *= 2


def _count(when: When, last: int, to: int) -> int:
    """How many there are, or `COUNTED`."""
    return len(_between(when, last, to, COUNTED))
