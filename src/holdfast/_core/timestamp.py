"""The timestamp lock. In this old design of a lock, the key holds the time at which the lock expires.

The design is that of the page SETNX in the Redis command reference ("Design pattern: Locking with SETNX"). A client sets the
key to the expiry time with SETNX. If the key exists, the client reads the time in it with GET. If that time has passed, the
client writes a new time with GETSET. It has the lock only if GETSET returns the time that it has read.

This module can share a lock with clients of that design, and is safer in two points. It replaces GETSET and DEL by a script
that first compares the value. So a client that loses a race does not overwrite the winner's time, and a late request does not
delete another client's lock. Also, a client that finds its own value in the key does not assume that it holds the lock, because
another client may have written the same time (`docs/legacy-faults.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.spec import margin
from holdfast._core.requests import Command, NewToken, Now, Refused, RunScript, Sleep, UnixTime, Unknown, WireError
from holdfast._core.retry import retry_idempotent
from holdfast._lua import Script, whole_number

POLL_FIRST, POLL_MOST = 0.02, 0.25
"""The first and the longest pause, in seconds, between two tries to acquire a busy lock. A release notifies nobody."""

PATIENCE = 30.0
"""During an outage, an acquire retries for this many seconds after the server's last reply, or for the ttl if it is longer."""

EARLIEST, LATEST = 1e8, 1e11
"""Range of the Unix times, in seconds, that a key may hold, from the year 1973 to 5138.

A present time in milliseconds is outside this range if it is read as seconds.
"""

_NUMBER = re.compile(rb"[ \t\r\n\0]*(\d{1,17}(?:\.\d*)?)[ \t\r\n\0]*")


@dataclass(frozen=True)
class Stamp:
    """A timestamp lock, with its key and options."""

    key: bytes
    ttl: float
    """Seconds from the acquire to the expiry of the lock."""
    unit: int
    """Time units per second in the key's value, which is in seconds (1) or milliseconds (1000)."""
    server: bool
    """True if times are read from the server's clock, False if from the clock of this machine."""
    timeout: float
    """Maximum seconds to wait for one reply of the server."""

    def value(self, wall: float, ttl: float) -> bytes:
        """Return the value that a client writes when it acquires or renews the lock at Unix time ``wall`` for ``ttl`` seconds.

        It is the expiry time in the lock's unit, rounded up, plus one. Deployed clients of this design add the one, too.
        """
        return b"%d" % (int(wall * self.unit) - int(-ttl * self.unit // 1) + 1)


class Strange(Exception):
    """Raised if the value of the key is not a time in the unit of this lock."""


@dataclass(slots=True)
class TimestampState:
    """The state of a timestamp lock, as one process knows it. The process holds the lock unless ``values`` is empty."""

    values: tuple[bytes, ...] = ()
    """Values that the key may hold. There are several after a renewal without a reply."""
    until: float = 0.0
    """Monotonic time, in seconds, until which the holder may rely on the lock."""
    ends: float = 0.0
    """Unix time of this machine's clock until which the holder may rely on the lock; infinity if the lock uses another
    clock."""


class Theirs(NamedTuple):
    """The result that another client holds the timestamp lock."""

    remaining: float
    """Seconds until the time in the key is reached, by the clock that the lock uses (the server's or this machine's)."""


class Moment(NamedTuple):
    """One moment by two clocks, in seconds: in monotonic time (``local``), and by the clock that the lock uses (``wall``)."""

    local: float
    wall: float
    """Unix time, in seconds, by the clock that the lock uses (the server's or this machine's); read after ``local``."""


def _read_clock(raw: object) -> float:
    assert isinstance(raw, list)
    return int(raw[0]) + int(raw[1]) / 1e6


COMPARE_AND_SET: Script[int] = Script("timestamp/compare_and_set", whole_number)
CLOCK: Script[float] = Script("timestamp/clock", _read_clock)


def read(stamp: Stamp, raw: bytes) -> float:
    """Return the time in the value ``raw`` of a key, in Unix seconds with fractions.

    Raises Strange if the value is not a time. The message of the error contains the value only if it is a number, because a
    text may be the secret token of another lock.
    """
    found = _NUMBER.fullmatch(raw)
    ours, other = ("milliseconds", "seconds") if stamp.unit > 1 else ("seconds", "milliseconds")
    if found is None:
        raise Strange(f"its key holds a value of {len(raw)} bytes that is not a Unix time in {ours}")
    number = float(found[1])
    if EARLIEST <= number / stamp.unit < LATEST:
        return number / stamp.unit
    if EARLIEST <= number * stamp.unit / 1000 < LATEST:
        raise Strange(
            f"its key holds a Unix time in {other}, but this lock counts in {ours}: all clients must pass the same unit="
        )
    raise Strange(f"its key holds the number {found[1].decode()}, which is not a Unix time in {ours} from 1973 to 5138")


async def moment(stamp: Stamp) -> Moment:
    """Return the present time by the clock that the lock uses. Raises WireError if the server's clock cannot be read."""
    local = await Now()
    if stamp.server:
        return Moment(local, (await RunScript(CLOCK, (stamp.key,), ("",), stamp.timeout)).value)
    return Moment(local, await UnixTime())


def _believed(stamp: Stamp, hold: TimestampState, now: Moment, ttl: float) -> None:
    """Set how long the holder may rely on the lock, which is ``ttl`` seconds from ``now``, less the drift margin.

    If the lock uses this machine's clock, somebody may set that clock while the lock is held. So the holder stops relying on
    the lock when either this machine's clock or the monotonic clock says that the lock's time is over.
    """
    # The time by this machine's clock needs no margin. The key holds the same time by the same clock, rounded up, plus one.
    hold.until = now.local + ttl - margin(ttl)
    hold.ends = float("inf") if stamp.server else now.wall + ttl


async def remaining(hold: TimestampState) -> float:
    """Return the seconds for which the holder may still rely on the lock."""
    left = hold.until - await Now()
    if hold.ends != float("inf"):
        left = min(left, hold.ends - await UnixTime())
    return max(0.0, left)


async def _won(stamp: Stamp, hold: TimestampState, now: Moment, mine: bytes) -> Theirs | None:
    hold.values = (mine,)
    _believed(stamp, hold, now, stamp.ttl)
    if await remaining(hold):
        return None
    hold.values = ()
    return Theirs(0.0)  # the reply took so long that the time has passed


async def attempt(stamp: Stamp, hold: TimestampState) -> Theirs | None:
    """Try once to acquire the lock. Return None on success, with ``hold`` filled in, and Theirs if another client holds it.

    A request without a reply may have acquired the lock. But the key's value does not prove it, because another client may have
    written the same value at the same time. So such an attempt counts as failed, and if it did acquire the lock, the lock
    expires. Raises Strange if the key holds other data, WireError if the server is unreachable.
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
        if (await RunScript(COMPARE_AND_SET, (stamp.key,), (mine, seen), stamp.timeout)).value:
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
    """Return True if any client holds the lock.

    Raises Strange if the key holds other data, WireError if the server is unreachable.
    """
    now = await moment(stamp)
    seen = await _look(stamp)
    return seen is not None and read(stamp, seen) >= now.wall


async def acquire(stamp: Stamp, hold: TimestampState, wait: float | None) -> Theirs | None:
    """Acquire the lock within ``wait`` seconds (None: without limit; 0: one try).

    Return None on success, with ``hold`` filled in. Return Theirs if another client held the lock for that time. After a first
    reply of the server, the operation retries during an outage, for at most `PATIENCE` seconds or the ttl, whichever is longer.
    Raises Strange if the key holds other data, WireError if the server is unreachable.
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
            # Try as soon as the time in the key has passed. The jitter keeps the waiters from trying all at the same moment.
            pause = min(POLL_MOST, POLL_FIRST * 2.0 ** min(tries, 10), found.remaining + POLL_FIRST)
        tries += 1
        await Sleep(min(pause * (0.5 + _jitter(await NewToken()) / 2), until - now))


def _jitter(token: str) -> float:
    """Return a pseudo-random fraction from 0 to 1, made from a random token."""
    return int(token[-4:], 16) / 0xFFFF


async def release(stamp: Stamp, hold: TimestampState) -> bool:
    """Release the lock. Return False, and leave the key as it is, if the lock's time had passed or the key held another value.

    Raises WireError if the server is unreachable. The lock then expires by itself.
    """
    values, hold.values = hold.values, ()
    return await _change(stamp, hold, b"", values)


async def renew(stamp: Stamp, hold: TimestampState, ttl: float) -> bool:
    """Extend the lock to ``ttl`` seconds from now. Return False if it is lost. Raises WireError if the server is
    unreachable."""
    wanted, now = TimestampState(), await moment(stamp)
    mine = stamp.value(now.wall, ttl)
    _believed(stamp, wanted, now, ttl)
    values, hold.values = hold.values, (*hold.values, mine)
    # A shorter time counts at once, because the reply may get lost.
    hold.until, hold.ends = min(hold.until, wanted.until), min(hold.ends, wanted.ends)
    if not await _change(stamp, hold, mine, values):
        return False
    hold.values, hold.until, hold.ends = (mine,), wanted.until, wanted.ends
    return True


async def _change(stamp: Stamp, hold: TimestampState, new: bytes, values: tuple[bytes, ...]) -> bool:
    """Replace the key's value by ``new`` (empty: delete the key) if the value is one of ``values``.

    Return False if the lock had expired, or the key held another value. Raises WireError if the server is unreachable.
    """
    for last in (False, False, True):
        if not await remaining(hold):
            break
        try:
            if (await RunScript(COMPARE_AND_SET, (stamp.key,), (new, *values), stamp.timeout)).value:
                return True
        except Unknown:
            # Not sent again. The first request may still arrive, and another client may write the same value meanwhile.
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
