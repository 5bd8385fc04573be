"""The timestamp lock: the value of its key is the time at which it expires. As it is deployed, with its weaknesses.

After the page of SETNX in the command reference of Redis ("Design pattern: Locking with SETNX"): SETNX the time of the end; if
the key is taken, GET it; if that time has passed, GETSET one's own, and win only if what comes back is still the expired one.
To others it looks the same, but two things are safer here. GETSET and DEL are done by a script that looks first, so whoever
loses a race writes over nobody's time, and nobody else's lock is deleted, however late a request arrives. And nothing is
concluded from the value alone: two clients may write the same one (`docs/legacy.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.records import margin
from holdfast._core.requests import Command, NewToken, Now, Refused, Run, Sleep, UnixTime, Unknown, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script, whole_number

POLL_FIRST, POLL_MOST = 0.02, 0.25
"""Seconds between two looks at a lock that is taken, at first and later: whoever gives it back tells nobody."""

PATIENCE = 30.0
"""Seconds for which one who waits for ever puts up with a server that is away."""

EARLIEST, LATEST = 1e8, 1e11
"""Unix times in seconds that a lock may have: from 1973 to 5138. In milliseconds they are other numbers altogether."""

_NUMBER = re.compile(rb"[ \t\r\n\0]*(\d{1,17}(?:\.\d*)?)[ \t\r\n\0]*")


@dataclass(frozen=True)
class Stamp:
    """A timestamp lock."""

    key: bytes
    ttl: float
    """Seconds for which a holder may rely on it."""
    unit: int
    """So many of its units are a second: 1 or 1000."""
    server: bool
    """The server's clock counts, not one's own."""
    timeout: float
    """Seconds that an answer may take."""

    def value(self, wall: float, ttl: float) -> bytes:
        """Return the value that an acquire at this Unix time writes: the end, rounded up, plus one unit, as deployed."""
        return b"%d" % (int(wall * self.unit) - int(-ttl * self.unit // 1) + 1)


class Strange(Exception):
    """The key does not hold a time in the unit of this lock."""


@dataclass(slots=True)
class Hold:
    """The holder's facts about its lock; nothing is held while there are no values."""

    values: tuple[bytes, ...] = ()
    """Values that the key may have: one, or several while a renewal was not answered."""
    until: float = 0.0
    """Local time until which it may be relied on."""
    ends: float = 0.0
    """The same by the clock of the machine, where that counts; infinity otherwise."""


class Theirs(NamedTuple):
    """Somebody else has the lock."""

    remaining: float
    """Seconds until the time in the key, by the clock that counts."""


class Moment(NamedTuple):
    """Return the time."""

    local: float
    wall: float
    """Unix time by the clock that counts, not before ``local``."""


def _read_clock(raw: object) -> float:
    assert isinstance(raw, list)
    return int(raw[0]) + int(raw[1]) / 1e6


COMPARE_AND_SET: Script[int] = Script("timestamp/compare_and_set", whole_number)
CLOCK: Script[float] = Script("timestamp/clock", _read_clock)


def read(stamp: Stamp, raw: bytes) -> float:
    """The Unix time in seconds that a value stands for, fractions included. Raises Strange. The value is told to nobody: it may
    be another lock's secret."""
    found = _NUMBER.fullmatch(raw)
    ours, other = ("milliseconds", "seconds") if stamp.unit > 1 else ("seconds", "milliseconds")
    if found is None:
        raise Strange(f"it holds a value of {len(raw)} bytes that is no Unix time in {ours}")
    number = float(found[1])
    if EARLIEST <= number / stamp.unit < LATEST:
        return number / stamp.unit
    if EARLIEST <= number * stamp.unit / 1000 < LATEST:
        raise Strange(f"it holds a Unix time in {other}, and this lock counts in {ours}: all who use it count alike (unit=)")
    raise Strange(f"it holds the number {found[1].decode()}, which is no Unix time in {ours} of our days")


async def moment(stamp: Stamp) -> Moment:
    """Return the time by the clock that counts. Raises WireError."""
    local = await Now()
    if stamp.server:
        return Moment(local, (await Run(CLOCK, (stamp.key,), ("",), stamp.timeout)).value)
    return Moment(local, await UnixTime())


def _believed(stamp: Stamp, hold: Hold, now: Moment, ttl: float) -> None:
    """From now on it may be relied on for so long. If clocks may be set, the lock ends by both: whichever is first."""
    hold.until = now.local + ttl - margin(ttl)
    hold.ends = float("inf") if stamp.server else now.wall + ttl


async def remaining(hold: Hold) -> float:
    """Seconds for which it may still be relied on."""
    left = hold.until - await Now()
    if hold.ends != float("inf"):
        left = min(left, hold.ends - await UnixTime())
    return max(0.0, left)


async def _won(stamp: Stamp, hold: Hold, now: Moment, mine: bytes) -> Theirs | None:
    hold.values = (mine,)
    _believed(stamp, hold, now, stamp.ttl)
    if await remaining(hold):
        return None
    hold.values = ()
    return Theirs(0.0)  # the answer took so long that it is over


async def attempt(stamp: Stamp, hold: Hold) -> Theirs | None:
    """Try once; None: it is held, as ``hold`` says from then on. Raises Strange, WireError.

    A request without an answer may have taken the lock. Then the key holds our value; but so it does if somebody else has
    written the same in that moment. So that is waited for like anybody's, and ends by itself.
    """
    now = await moment(stamp)
    mine = stamp.value(now.wall, stamp.ttl)
    try:
        if (await Command(("SETNX", stamp.key, mine), stamp.timeout)).value:
            return await _won(stamp, hold, now, mine)
    except Unknown:
        pass
    seen = await _look(stamp)
    if seen is None:
        return Theirs(0.0)
    ends = read(stamp, seen)
    if ends >= now.wall:
        return Theirs(ends - now.wall)
    try:
        if (await Run(COMPARE_AND_SET, (stamp.key,), (mine, seen), stamp.timeout)).value:
            return await _won(stamp, hold, now, mine)
    except Unknown:
        pass
    return Theirs(0.0)


async def _look(stamp: Stamp) -> bytes | None:
    try:
        found: bytes | None = (await retry_idempotent(Command(("GET", stamp.key), stamp.timeout))).value
    except Refused as error:
        if error.code == "WRONGTYPE":
            raise Strange("it holds a list, a hash, or the like, and no time") from error
        raise
    return found


async def locked(stamp: Stamp) -> bool:
    """Somebody has it. Raises Strange, WireError."""
    now = await moment(stamp)
    seen = await _look(stamp)
    return seen is not None and read(stamp, seen) >= now.wall


async def acquire(stamp: Stamp, hold: Hold, wait: float | None) -> Theirs | None:
    """Take the lock within ``wait`` seconds (None: for ever; 0: one try); None: it is held, as ``hold`` says.

    A server that is away is ridden out once it has answered. Raises Strange, WireError.
    """
    began = await Now()
    until = float("inf") if wait is None else began + wait
    answered: float | None = None
    tries, pause = 0, POLL_MOST
    while True:
        try:
            found = await attempt(stamp, hold)
        except WireError as error:
            if answered is None or (isinstance(error, Refused) and not error.transient):
                raise
            now = await Now()
            if now >= min(until, answered + max(stamp.ttl, PATIENCE)):
                raise
        else:
            if found is None:
                return None
            answered = now = await Now()
            if now >= until:
                return found
            # As soon as its time has passed, but not all who wait in the same moment.
            pause = min(POLL_MOST, POLL_FIRST * 2.0 ** min(tries, 10), found.remaining + POLL_FIRST)
        tries += 1
        await Sleep(min(pause * (0.5 + _jitter(await NewToken()) / 2), until - now))


def _jitter(token: str) -> float:
    """From 0 to 1."""
    return int(token[-4:], 16) / 0xFFFF


async def release(stamp: Stamp, hold: Hold) -> bool:
    """Give it back. False: its time was over, or there was another value in the key; nothing was deleted then.

    Raises WireError when the server stays away: the lock ends by itself then.
    """
    values, hold.values = hold.values, ()
    return await _change(stamp, hold, b"", values)


async def renew(stamp: Stamp, hold: Hold, ttl: float) -> bool:
    """Have it for so many seconds from now. False: it is lost. Raises WireError."""
    wanted, now = Hold(), await moment(stamp)
    mine = stamp.value(now.wall, ttl)
    _believed(stamp, wanted, now, ttl)
    values, hold.values = hold.values, (*hold.values, mine)
    hold.until, hold.ends = min(hold.until, wanted.until), min(hold.ends, wanted.ends)  # who asks for less has less at once
    if not await _change(stamp, hold, mine, values):
        return False
    hold.values, hold.until, hold.ends = (mine,), wanted.until, wanted.ends
    return True


async def _change(stamp: Stamp, hold: Hold, new: bytes, values: tuple[bytes, ...]) -> bool:
    """Put a new value (or nothing) in the place of one's own, as long as it is one's own. Raises WireError."""
    for last in (False, False, True):
        if not await remaining(hold):
            break
        try:
            if (await Run(COMPARE_AND_SET, (stamp.key,), (new, *values), stamp.timeout)).value:
                return True
        except Unknown:
            # Not once more: the first may be under way, and find there what is the same value and somebody else's by then.
            found = await _look(stamp) or b""
            if found in values and found != new:
                raise
            return found == new or not new
        except WireError as error:
            if last or (isinstance(error, Refused) and not error.transient):
                raise
            await Sleep(POLL_FIRST)
        else:
            break
    return False
