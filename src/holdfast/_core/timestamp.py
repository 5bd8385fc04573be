"""The timestamp lock, whose key holds the time at which it expires: the old design as it is deployed, with its weaknesses.

The design is that of the SETNX page in the Redis command reference ("Design pattern: Locking with SETNX"): SETNX the expiry
time. If the key exists, GET it. If the time in it has passed, GETSET a new time, and win only if the reply is still the expired
one. To other clients this lock looks the same, but two things are safer. First, a script that compares the value replaces
GETSET and DEL. So a client that loses a race overwrites nobody's time, and a late request never deletes another client's lock.
Second, nothing is concluded from the value alone, because two clients may write the same value (`docs/legacy.md`).
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
"""Seconds between two tries to acquire a busy lock, at first and at most: a release notifies nobody."""

PATIENCE = 30.0
"""Seconds for which an outage of the server is tolerated by a wait without limit."""

EARLIEST, LATEST = 1e8, 1e11
"""Unix times, in seconds, that a lock may hold: the years 1973 to 5138. No time in milliseconds is in this range."""

_NUMBER = re.compile(rb"[ \t\r\n\0]*(\d{1,17}(?:\.\d*)?)[ \t\r\n\0]*")


@dataclass(frozen=True)
class Stamp:
    """A timestamp lock: its key and options."""

    key: bytes
    ttl: float
    """Seconds for which a holder may rely on the lock."""
    unit: int
    """Number of the lock's time units in a second: 1 or 1000."""
    server: bool
    """True if the lock goes by the server's clock, False if by the clock of this machine."""
    timeout: float
    """Longest wait for one reply, in seconds."""

    def value(self, wall: float, ttl: float) -> bytes:
        """Return the value that an acquire at Unix time ``wall`` writes: the expiry time in the lock's unit, rounded up, plus
        one.

        Deployed clients of this design add the one, too.
        """
        return b"%d" % (int(wall * self.unit) - int(-ttl * self.unit // 1) + 1)


class Strange(Exception):
    """Raised if the key does not hold a time in the unit of this lock."""


@dataclass(slots=True)
class Hold:
    """The state of a timestamp lock in its holder. If ``values`` is empty, the lock is not held."""

    values: tuple[bytes, ...] = ()
    """Values that the key may have: one, or several while a renewal has no reply."""
    until: float = 0.0
    """Monotonic time, in seconds, until which the holder may rely on the lock."""
    ends: float = 0.0
    """Unix time of this machine until which the holder may rely on the lock; infinity if the server's clock counts."""


class Theirs(NamedTuple):
    """The result that another client holds the timestamp lock."""

    remaining: float
    """Seconds until the time in the key, by the lock's clock (the server's or this machine's)."""


class Moment(NamedTuple):
    """One moment, by the monotonic clock and by the clock of a timestamp lock (the server's or this machine's)."""

    local: float
    wall: float
    """Unix time, in seconds, by the lock's clock; read after ``local``."""


def _read_clock(raw: object) -> float:
    assert isinstance(raw, list)
    return int(raw[0]) + int(raw[1]) / 1e6


COMPARE_AND_SET: Script[int] = Script("timestamp/compare_and_set", whole_number)
CLOCK: Script[float] = Script("timestamp/clock", _read_clock)


def read(stamp: Stamp, raw: bytes) -> float:
    """Return the Unix time, in seconds with fractions, that a value stands for. Raises Strange if the value is not one.

    Errors do not show the value, which may be another lock's secret.
    """
    found = _NUMBER.fullmatch(raw)
    ours, other = ("milliseconds", "seconds") if stamp.unit > 1 else ("seconds", "milliseconds")
    if found is None:
        raise Strange(f"its key holds a value of {len(raw)} bytes that is not a Unix time in {ours}")
    number = float(found[1])
    if EARLIEST <= number / stamp.unit < LATEST:
        return number / stamp.unit
    if EARLIEST <= number * stamp.unit / 1000 < LATEST:
        raise Strange(f"its key holds a Unix time in {other}, but this lock counts in {ours}: all users must pass one unit=")
    raise Strange(f"its key holds the number {found[1].decode()}, which is not a Unix time in {ours} of this era")


async def moment(stamp: Stamp) -> Moment:
    """Return the present time by the lock's clock (the server's or this machine's). Raises WireError."""
    local = await Now()
    if stamp.server:
        return Moment(local, (await Run(CLOCK, (stamp.key,), ("",), stamp.timeout)).value)
    return Moment(local, await UnixTime())


def _believed(stamp: Stamp, hold: Hold, now: Moment, ttl: float) -> None:
    """Set the time until which the holder may rely on the lock to ``ttl`` seconds from now, less the drift margin.

    If the lock uses this machine's Unix clock, somebody may set that clock meanwhile. So the lock ends by the Unix clock or the
    monotonic clock, whichever is first.
    """
    hold.until = now.local + ttl - margin(ttl)
    hold.ends = float("inf") if stamp.server else now.wall + ttl


async def remaining(hold: Hold) -> float:
    """Return the seconds for which the holder may still rely on the lock."""
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
    return Theirs(0.0)  # the reply took so long that the time has passed


async def attempt(stamp: Stamp, hold: Hold) -> Theirs | None:
    """Try once to acquire the lock. Return None on success, after filling in ``hold``. Raises Strange or WireError.

    A request without a reply may have acquired the lock. Then the key holds the value that was sent. But another client may
    have written the same value at that moment. So the lock counts as another client's, and ends by itself.
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
            raise Strange("its key holds a list, a hash or data of another type, not a time") from error
        raise
    return found


async def locked(stamp: Stamp) -> bool:
    """Return True if any client holds the lock. Raises Strange or WireError."""
    now = await moment(stamp)
    seen = await _look(stamp)
    return seen is not None and read(stamp, seen) >= now.wall


async def acquire(stamp: Stamp, hold: Hold, wait: float | None) -> Theirs | None:
    """Acquire the lock within ``wait`` seconds (None: without limit; 0: one try). Return None on success.

    On success ``hold`` is filled in. Once the server has replied, an outage is tolerated. Raises Strange or WireError.
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
            # As soon as the time in the key has passed, with jitter, so that the waiters do not all try at the same moment.
            pause = min(POLL_MOST, POLL_FIRST * 2.0 ** min(tries, 10), found.remaining + POLL_FIRST)
        tries += 1
        await Sleep(min(pause * (0.5 + _jitter(await NewToken()) / 2), until - now))


def _jitter(token: str) -> float:
    """Return a fraction from 0 to 1 that is drawn from a random token."""
    return int(token[-4:], 16) / 0xFFFF


async def release(stamp: Stamp, hold: Hold) -> bool:
    """Release the lock. Return False if its time had passed or its key held another value; nothing was deleted then.

    Raises WireError if the server is unreachable: the lock then ends by itself.
    """
    values, hold.values = hold.values, ()
    return await _change(stamp, hold, b"", values)


async def renew(stamp: Stamp, hold: Hold, ttl: float) -> bool:
    """Extend the lock to ``ttl`` seconds from now. Return False if it is lost. Raises WireError."""
    wanted, now = Hold(), await moment(stamp)
    mine = stamp.value(now.wall, ttl)
    _believed(stamp, wanted, now, ttl)
    values, hold.values = hold.values, (*hold.values, mine)
    # A shorter time counts at once, because the reply may get lost.
    hold.until, hold.ends = min(hold.until, wanted.until), min(hold.ends, wanted.ends)
    if not await _change(stamp, hold, mine, values):
        return False
    hold.values, hold.until, hold.ends = (mine,), wanted.until, wanted.ends
    return True


async def _change(stamp: Stamp, hold: Hold, new: bytes, values: tuple[bytes, ...]) -> bool:
    """Replace the holder's value by ``new``, or delete it if ``new`` is empty, if the key holds one of ``values``.

    Return False if the lock had expired or the key held another value. Raises WireError.
    """
    for last in (False, False, True):
        if not await remaining(hold):
            break
        try:
            if (await Run(COMPARE_AND_SET, (stamp.key,), (new, *values), stamp.timeout)).value:
                return True
        except Unknown:
            # Not sent again: the first request may still arrive, and another client may write the same value meanwhile.
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
