"""The common part of the timestamp locks of the sync and asyncio APIs: options and their checks, errors, facts of a lease."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeVar

from holdfast._api.lease import BaseLease, Entered, core_of
from holdfast._api.options import MIN_TTL, checked_wait, seconds
from holdfast._clock import clock as local_clock
from holdfast._clock import wall
from holdfast._core import timestamp
from holdfast._core.lock.records import answer_within
from holdfast._core.names import raw_key
from holdfast._core.timestamp import Hold, Stamp, Strange, Theirs
from holdfast._log import of_the_user
from holdfast._runtime.flag import Flag
from holdfast._runtime.process import Process
from holdfast.errors import ConfigError, HoldfastWarning, LeaseLost, LockTimeout, NotHeld
from holdfast.legacy._migrating import Both

Unit = Literal["s", "ms"]
Clock = Literal["own", "server"]

UNITS = {"s": 1, "ms": 1000}
CLOCKS = {"own": False, "server": True}

PAGE = "docs/legacy.md"

_warned = Flag()


L = TypeVar("L")
T = TypeVar("T")
New = TypeVar("New", bound=BaseLease)
Old = TypeVar("Old", bound="BaseStampLease")


def make_stamp(timeout: float, key: str | bytes, ttl: float, unit: object, clock: object) -> Stamp:
    """Return the checked options of a timestamp lock. Raises ConfigError, which names the parameter."""
    raw = raw_key(key)
    ttl = seconds(ttl, "ttl", MIN_TTL)
    if unit not in UNITS:
        raise ConfigError(
            f"unit must be 's' or 'ms', the unit in which other users store the time, not {unit!r}", parameter="unit"
        )
    if clock not in CLOCKS:
        raise ConfigError(f"clock must be 'own' or 'server', not {clock!r}", parameter="clock")
    return Stamp(raw, ttl, UNITS[str(unit)], CLOCKS[str(clock)], min(timeout, answer_within(ttl)))


def warn_once() -> None:
    """Warn of the dangers of timestamp locks, once per process. The warning points to the line of the user's code."""
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            "TimestampLock is only as good as the clocks of all its users: a client whose clock is ahead steals a live lock, "
            f"and its own lock outlives its lease. {PAGE} explains this, and how to move to holdfast.Lock, which depends on no "
            "client's clock",
            HoldfastWarning,
            of_the_user(),
        )


class LegacyCore:
    """The state of a lease that other modules of holdfast may use; users do not see it."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self.is_over = is_over
        """Function that returns True if the lease was released, or belongs to the process that forked this one."""


@dataclass(eq=False, slots=True)
class Taken(Generic[L]):
    """One acquisition by a lock object, with the thread or task that made it."""

    lease: L
    owner: int = 0

    def is_over(self) -> bool:
        """Return True if the lease was released."""
        return bool(core_of(self.lease).is_over())


class Detachable(NamedTuple):
    """The method of a lock that `django.hold` and `sqlalchemy.hold` call; for other locks it is a field of `Member`."""

    detach: Callable[[object], None]


class BaseLock(Generic[L]):
    """The state of a timestamp or migrating lock object, common to the sync and asyncio APIs."""

    def __init__(self, key: bytes, wait: object) -> None:
        self._wait = checked_wait(wait)
        self._text = key.decode(errors="backslashreplace")
        self._current: Taken[L] | None = None
        self._entered: Entered[Taken[L]] = Entered()

    @property
    def key(self) -> str:
        """Return the key that holds the expiry time."""
        return self._text

    @property
    def lease(self) -> L | None:
        """Return the lease of the latest acquisition by this lock object; None if there is none, or if it was released."""
        taken = self._current
        return None if taken is None or taken.is_over() else taken.lease

    def __repr__(self) -> str:
        return f"<holdfast.{type(self).__module__.removeprefix('holdfast.')}.{type(self).__name__} {self._text!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lock cannot be pickled: create one with the same key ({self._text!r}) in the other process")

    def _not_held(self) -> NotHeld:
        return NotHeld(f"lock {self._text!r} is not held by this object", name=self._text, key=self._text)

    def _taken(self, owner: int, lease: L) -> None:
        self._current = Taken(lease, owner)

    def _enter(self, owner: int, lease: L) -> L:
        taken: Taken[L] = Taken(lease)
        self._current = taken
        self._entered.push(owner, taken)
        return lease

    def _as_member(self) -> Detachable:
        return Detachable(self._detach)

    def _detach(self, _core: object) -> None:
        """Forget the ``with`` block that was entered last, because other code, the end of a transaction, releases its lease."""
        taken = self._current
        assert taken is not None
        self._entered.remove(taken)

    def _left(self, owner: int) -> L:
        """Remove and return the lease of the ``with`` block that ends."""
        taken = self._entered.innermost(owner)
        self._entered.remove(taken)
        again = self._current
        # If the lock was released and acquired again inside the body, as a Condition does, the newer lease is released.
        newer = taken.is_over() and again is not None and not again.is_over() and again.owner == taken.owner
        return again.lease if newer and again is not None else taken.lease


class BaseStampLease:
    """One acquisition of a timestamp lock: the part common to the sync and asyncio APIs."""

    def __init__(self, process: Process, stamp: Stamp, hold: Hold) -> None:
        self._process = process
        self._stamp = stamp
        self._hold = hold
        self._over = False
        """True once the lease was released."""
        self._lost = ""
        """Reason why the lease is lost; empty if the lease is not lost."""
        self._ttl = stamp.ttl
        self._core = LegacyCore(self._is_over)

    @property
    def key(self) -> str:
        """Return the key that holds the expiry time."""
        return self._stamp.key.decode(errors="backslashreplace")

    def __repr__(self) -> str:
        state = "released" if self._over else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of the timestamp lock {self.key!r}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that acquired the lock {self.key!r}")

    def remaining(self) -> float:
        """Return the seconds until the lease ends, if all clocks agree; 0.0 if it has ended. Sends no request."""
        if self._is_over() or self._lost:
            return 0.0
        return max(0.0, min(self._hold.until - local_clock(), self._hold.ends - wall()))

    def check(self) -> None:
        """Raise LeaseLost if the time of the lease has passed, NotHeld if it was released. Sends no request."""
        if self._is_over():
            raise self._not_held()
        if not self.remaining():
            raise self._lease_lost(self._lost or "its time has passed, and it was not renewed")

    def _is_over(self) -> bool:
        """Return True if the lease was released, or belongs to the process that forked this one."""
        return self._over or not self._process.here

    async def _release(self) -> None:
        """Release the lock, as the public `release` does. Raises WireError instead of ServerError."""
        if self._is_over():
            raise self._not_held()
        in_time = bool(self.remaining())
        self._over = True
        if not await timestamp.release(self._stamp, self._hold):
            raise self._lease_lost(self._lost or (_TAKEN if in_time else "its time had passed when it was released"))

    async def _renew(self, ttl: float | None) -> None:
        """Renew the lease, as the public `renew` does. Raises WireError instead of ServerError."""
        self.check()
        ttl = self._ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL)
        if not await timestamp.renew(self._stamp, self._hold, ttl):
            self._lost = _TAKEN if self.remaining() else "its time has passed before it was renewed"
            raise self._lease_lost(self._lost)
        self._ttl = ttl

    def _not_held(self) -> NotHeld:
        why = "belongs to the process that forked this one" if not self._process.here else "was released already"
        return NotHeld(f"lease of the timestamp lock {self.key!r} {why}", name=self.key, key=self.key)

    def _lease_lost(self, reason: str) -> LeaseLost:
        return LeaseLost(
            f"lease of the timestamp lock {self.key!r} was lost: {reason}; another client may hold the lock now",
            name=self.key,
            key=self.key,
            fence=0,
            reason=reason,
        )


_TAKEN = (
    "its key has another value: that of a client whose clock is ahead of ours, or of one that lost the race for the expired "
    "lock, and has overwritten our value"
)


class BaseMigratingLease(Generic[New, Old]):
    """One acquisition of a migrating lock, with the leases of its two locks: the part common to the sync and asyncio APIs."""

    def __init__(self, both: Both[New, Old]) -> None:
        self._both = both
        self._core = core_of(both.old)

    @property
    def fence(self) -> int:
        """Return the fence of the new lock, greater than that of each earlier holder. The old lock alone has no fence."""
        return self._both.new.fence

    @property
    def key(self) -> str:
        """Return the key of the old lock, which holds the expiry time."""
        return self._both.old.key

    @property
    def name(self) -> str:
        """Return the name of the new lock (`holdfast.Lock`), one of the two locks that are held."""
        return self._both.new.name

    def __repr__(self) -> str:
        return f"<holdfast lease of {self.name!r}, {self._both.new!r} and {self._both.old!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that acquired the lock {self.name!r}")

    def remaining(self) -> float:
        """Return the seconds until the first of the two locks' leases ends; 0.0 if one has ended. Sends no request."""
        return min(self._both.new.remaining(), self._both.old.remaining())

    def check(self) -> None:
        """Raise LeaseLost if the lease of either lock is lost, NotHeld if they were released. Sends no request."""
        self._both.old.check()
        self._both.new.check()


def granted(theirs: Theirs | None, stamp: Stamp, since: float) -> None:
    """Raise LockTimeout if the lock stayed busy.

    ``theirs``: facts about the other holder; None: the lock was acquired. ``since``: monotonic time, in seconds, of the first
    try.
    """
    if theirs is not None:
        key, waited = stamp.key.decode(errors="backslashreplace"), local_clock() - since
        raise LockTimeout(
            f"{called(stamp)} is busy: its holder's time ends in {theirs.remaining:.1f} s; "
            f"waited {waited:.1f} s, try again later",
            name=key,
            key=key,
            waited=waited,
            holder=None,
            remaining=theirs.remaining,
        )


async def understood(operation: Coroutine[Any, Any, T], stamp: Stamp) -> T:
    """Await an operation on a timestamp lock, and return its result. Raises ConfigError if the value in the key is not a time
    in the lock's unit."""
    try:
        return await operation
    except Strange as strange:
        raise ConfigError(f"{called(stamp)} cannot be used: {strange}; nothing was changed", parameter="key") from strange


def called(stamp: Stamp) -> str:
    """Return the description of a timestamp lock for messages."""
    return f"timestamp lock {stamp.key.decode(errors='backslashreplace')!r}"
