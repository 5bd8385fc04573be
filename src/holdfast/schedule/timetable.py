"""Timetables, which compute the ticks (scheduled times) of a job: `Cron` and `Every`.

All processes compute the same ticks, because the computation uses only Unix seconds that the caller passes. Nothing in this
module reads a clock.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import math
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast._api import options
from holdfast._core import control_records
from holdfast._durations import Seconds
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from cronsim import CronSim

SHORTEST, LONGEST = 0.1, 10.0**9
"""Minimum and maximum number of seconds between two ticks of `Every`."""

_DAY = 86400.0
"""Seconds of a day."""
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L (the last), LW (the last weekday); a day that one of the months has",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7, or SUN to SAT; MON#2 (the second), 5L (the last Friday)",
}


class Timetable:
    """The ticks (scheduled times) of one job, in order; base class of `Cron` and `Every`.

    ``jitter``: maximum delay of a tick in seconds; 0: none. The delay is computed from the tick and ``salt``, a text that
    differs for each job. So all processes compute the same delay, and different jobs have different delays. A tick is never
    delayed beyond the next tick.
    """

    jitter: float
    kind: ClassVar[str]

    def __init__(self, *, jitter: Seconds = 0.0, salt: str = "") -> None:
        self.jitter = options.seconds(jitter, "jitter", 0.0, LONGEST)
        self.salt = salt

    def after(self, t: float) -> float:
        """Return the first tick (scheduled time) later than ``t``, both in Unix seconds; infinity if there is none."""
        if not self.jitter:
            return self._after(t)
        back = min(self.jitter, 1.0)
        while (tick := self._after(t - back)) > t and back < self.jitter:
            back = min(self.jitter, 2 * back)
        while tick < math.inf:  # the tick before t may have been delayed beyond t
            following = self._after(tick)
            if (late := self._delayed(tick, following)) > t:
                return late
            tick = following
        return math.inf

    @property
    def text(self) -> str:
        """The timetable as text, which `from_text` reads."""
        facts = {self.kind: self._facts()}
        if self.jitter:
            facts |= {"jitter": self.jitter, "salt": self.salt}
        return json.dumps(facts, separators=(",", ":"), ensure_ascii=False)

    def __str__(self) -> str:
        return self._plain() + (f" + up to {self.jitter:g} s" if self.jitter else "")

    def _after(self, t: float) -> float:
        raise NotImplementedError

    def _plain(self) -> str:
        raise NotImplementedError

    def _facts(self) -> Any:
        raise NotImplementedError

    def _delayed(self, tick: float, following: float) -> float:
        drawn = int.from_bytes(hashlib.blake2b(f"{self.salt}\0{tick:.6f}".encode(), digest_size=6).digest())
        # The delay is rounded down to whole milliseconds. So every machine has the same number, and the tick stays before the
        # following tick.
        return tick + math.floor(drawn / 2**48 * min(self.jitter, following - tick) * 1000) / 1000

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timetable) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class Every(Timetable):
    """A tick (scheduled time) at each multiple of ``seconds`` since 1970, whenever the processes start."""

    seconds: float

    kind = "every"

    def __init__(self, seconds: Seconds, *, jitter: Seconds = 0.0, salt: str = "") -> None:
        super().__init__(jitter=jitter, salt=salt)
        self.seconds = options.seconds(seconds, "every", SHORTEST, LONGEST)
        # the multiples must be computed in whole microseconds: as a float, 1000 * 0.1 may be off
        self._us = round(self.seconds * 1_000_000)

    def _after(self, t: float) -> float:
        return (round(t * 1_000_000) // self._us + 1) * self._us / 1_000_000

    def _facts(self) -> float:
        return self.seconds

    def _plain(self) -> str:
        return f"every {self.seconds:g} s"


class Cron(Timetable):
    """A cron expression of five fields, or of six fields with seconds first, or ``@daily`` etc., in a time zone.

    When the zone's clock is changed, ticks (scheduled times) follow the rules of Debian's cron. A job with fixed hours and
    minutes runs once for each scheduled time. If the clock skips that time, the job runs right after the change. If the clock
    shows that time twice, the job runs only at the first of the two. A job whose hour or minute field begins with ``*`` does
    not run during a skipped hour, and runs in both passes of a repeated hour.
    """

    expression: str
    tz: str

    kind = "cron"

    def __init__(self, expression: str, tz: str | tzinfo = "UTC", *, jitter: Seconds = 0.0, salt: str = "") -> None:
        super().__init__(jitter=jitter, salt=salt)
        if not isinstance(expression, str):
            raise ConfigError(f"cron= is {expression!r}: write it as text, as in '0 3 * * *'", parameter="cron")
        self.expression = " ".join(expression.split())
        self.tz = tz if isinstance(tz, str) else str(tz)
        self._zone = zone(self.tz)
        self._sim = _parsed(self.expression)
        self._interval = any(field.startswith("*") for field in self._sim.parts[1:3])
        if self._after(0.0) == math.inf:
            raise ConfigError(f"cron {self.expression!r} is never due: there is no such day", parameter="cron")

    def _after(self, t: float) -> float:
        try:
            return (self._next_by_clock if self._interval else self._next_once)(math.floor(t))
        except OverflowError:  # beyond the calendar
            return math.inf

    def _next_once(self, t: float) -> float:
        """Return the next tick after ``t`` (Unix seconds) of a job that runs once even if the clock shows its time twice."""
        for shown in self._due(self._shows(t)):
            tick = self._moment(shown)
            if tick > t:  # otherwise the clock has been set back, and shows a due time again
                return tick
        return math.inf

    def _next_by_clock(self, t: float) -> float:
        """Return the next tick after ``t`` (Unix seconds) of a job that runs each time that the clock shows a due time."""
        since, shown = t, self._shows(t)
        while True:
            due = next(self._due(shown), None)
            tick = math.inf if due is None else t + (due - shown).total_seconds()
            # Look for a change on the next day even if the tick is later: after the change, the clock may show a due time
            # again.
            changed = next((end for end in (min(tick, since + _DAY), tick) if self._offset(end) != self._offset(since)), None)
            if changed is None:
                return tick
            since = self._change(since, changed)
            t, shown = since - 1, self._shows(since) - timedelta(seconds=1)

    def _due(self, shown: datetime) -> CronSim:
        """Return an iterator over the times after ``shown`` at which the job is due, as the zone's clock shows them."""
        sim = copy.copy(self._sim)
        sim.dt = shown
        return sim

    def _shows(self, t: float) -> datetime:
        return datetime.fromtimestamp(t, self._zone).replace(tzinfo=None, fold=0)

    def _moment(self, shown: datetime) -> float:
        """Return the Unix time at which the zone's clock first shows ``shown``, or is set forward past ``shown``."""
        tick = shown.replace(tzinfo=self._zone).timestamp()
        if self._shows(tick) == shown:
            return tick
        return self._change(shown.replace(tzinfo=self._zone, fold=1).timestamp(), tick)

    def _offset(self, t: float) -> timedelta | None:
        return datetime.fromtimestamp(t, self._zone).utcoffset() if t < math.inf else None

    def _change(self, before: float, after: float) -> float:
        """Return the time of the change of the zone's clock between the times ``before`` and ``after``, all in Unix seconds."""
        was, low, high = self._offset(before), int(before), int(after)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == was else (low, middle)
        return high

    def _facts(self) -> list[str]:
        return [self.expression, self.tz]

    def _plain(self) -> str:
        return f"{self.expression} {self.tz}"


def from_text(text: str) -> Timetable:
    """Return the timetable from the text that `Timetable.text` returned, perhaps in another release. Raises ConfigError."""
    try:
        facts = control_records.table(text)
        options = {name: facts[name] for name in ("jitter", "salt") if name in facts}
        control_records.text(options.get("salt", ""), control_records.LONGEST)
        return Cron(*facts["cron"], **options) if "cron" in facts else Every(facts["every"], **options)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{text!r} is not a timetable that this release knows", parameter="timetable") from error


@functools.lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # UTC needs no tz data
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        if zoneinfo.available_timezones():
            known = "write it as Europe/Berlin, America/New_York or UTC"
        else:
            known = 'this machine has no time zone data: pip install "holdfast[cron]", or tzdata'
        raise ConfigError(f"tz= is {name!r}, which is not a known time zone: {known}", parameter="tz") from error


@functools.lru_cache(maxsize=4096)
def _parsed(expression: str) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        missing = f'cron {expression!r} needs a library that is not installed: pip install "holdfast[cron]"'
        raise ConfigError(f"{missing}; or use every=, which needs no library", parameter="cron") from error
    plain = _NICKNAMES.get(expression.lower(), expression)
    if plain.lower() == "@reboot":
        raise ConfigError("cron '@reboot' is not a time: call the function when the program starts", parameter="cron")
    try:
        return CronSim(plain, datetime(1970, 1, 1))  # noqa: DTZ001 (a clock's display has no zone)
    except CronSimError as error:
        raise ConfigError(_told(expression, plain, str(error)), parameter="cron") from error


def _told(expression: str, plain: str, why: str) -> str:
    fields = plain.split()
    if len(fields) not in {5, 6}:
        names = (
            f"one of {', '.join(_NICKNAMES)}, or five fields: minute hour day-of-month month day-of-week; six: a second first"
        )
        return f"cron {expression!r} is not {names}"
    name = why.removeprefix("Bad ")
    if name not in _FIELDS:
        return f"cron {expression!r}: {why}"
    field = fields[list(_FIELDS).index(name) - 6 + len(fields)]
    return f"cron {expression!r}: {field!r} is not a valid {name}: {_FIELDS[name]}; lists (1,5), ranges (1-5), steps (*/10)"
