"""`TimestampLock` for threads and for asyncio, the lock whose key holds the time at which the lock expires."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, Never, NoReturn, TypeVar

from holdfast._api.caller import AioCaller, BaseCaller, Caller
from holdfast._api.flow import complete, of_asyncio
from holdfast._api.options import MIN_TTL, refuse_mistaken, seconds
from holdfast._clock import clock as local_clock
from holdfast._clock import wall
from holdfast._core import timestamp
from holdfast._core.lock.spec import answer_within
from holdfast._core.names import raw_key
from holdfast._core.timestamp import Stamp, Strange, Theirs, TimestampState
from holdfast._durations import Seconds
from holdfast._log import of_the_user
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.flag import Flag
from holdfast._runtime.process import current
from holdfast.errors import ConfigError, HoldfastWarning, LeaseLost, LockTimeout, NotHeld
from holdfast.legacy._shared import AioBase, Base, BaseLegacyLock, LegacyCore

Unit = Literal["s", "ms"]
Clock = Literal["own", "server"]

UNITS = {"s": 1, "ms": 1000}
CLOCKS = {"own": False, "server": True}

PAGE = "docs/legacy.md"

_warned = Flag()

T = TypeVar("T")
S = TypeVar("S", bound="BaseTimestampLease")


def make_stamp(timeout: float, key: str | bytes, ttl: Seconds, unit: object, clock: object) -> Stamp:
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
    """Warn of the dangers of timestamp locks, once per process."""
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            "TimestampLock is only as good as the clocks of all its users: a client whose clock is ahead steals a live lock, "
            f"and its own lock outlives its lease. {PAGE} explains this, and how to move to holdfast.Lock, which depends on no "
            "client's clock",
            HoldfastWarning,
            of_the_user(),
        )


class BaseTimestampLease:
    """One acquisition of a timestamp lock. Base class for threads and for asyncio."""

    def __init__(self, caller: BaseCaller, stamp: Stamp, hold: TimestampState) -> None:
        self._process = current()
        self._caller = caller
        self._stamp = stamp
        self._hold = hold
        self._over = False
        """True once the lease was released."""
        self._lost = ""
        """Reason why the lease is lost; empty if the lease is not lost."""
        self._ttl = stamp.ttl
        self._core = LegacyCore(self._is_over, self._release)

    @property
    def key(self) -> str:
        """The key that holds the expiry time."""
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
        """Raise LeaseLost if the lease has expired or a renewal has failed, NotHeld if it was released. Sends no request."""
        if self._is_over():
            raise self._not_held()
        if not self.remaining():
            raise self._lease_lost(self._lost or "its time has passed, and it was not renewed")

    def _is_over(self) -> bool:
        return self._over or not self._process.here

    async def _release(self) -> None:
        if self._is_over():
            raise self._not_held()
        in_time = bool(self.remaining())
        self._over = True
        if not await _ask(self._caller, self._stamp, timestamp.release(self._stamp, self._hold)):
            raise self._lease_lost(self._lost or (_TAKEN if in_time else "its time had passed when it was released"))

    async def _renew(self, ttl: Seconds | None) -> None:
        self.check()
        ttl = self._ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL)
        if not await _ask(self._caller, self._stamp, timestamp.renew(self._stamp, self._hold, ttl)):
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
    "its key has another value: a client whose clock is ahead of ours has taken the lock, or a client that was too late for "
    "the expired lock has overwritten our value"
)


class BaseTimestampLock(BaseLegacyLock[S], Generic[S, Client]):
    """The options and the flows of a timestamp lock. Base class for threads and for asyncio."""

    _caller_type: type[BaseCaller]
    _lease_type: Callable[[BaseCaller, Stamp, TimestampState], S]
    _warns = True

    @hides_client("TimestampLock.__init__")
    def __init__(
        self,
        client: Client,
        key: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        unit: Unit = "s",
        clock: Clock = "own",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._caller = self._caller_type(client)
        self._stamp = make_stamp(self._caller.timeout, key, ttl, unit, clock)
        super().__init__(self._stamp.key, wait)
        if self._warns:
            warn_once()

    async def _locked(self) -> bool:
        return await _ask(self._caller, self._stamp, timestamp.locked(self._stamp))

    async def _take(self, wait: float | None) -> S:
        hold, since = TimestampState(), local_clock()
        try:
            granted(await _ask(self._caller, self._stamp, timestamp.acquire(self._stamp, hold, wait)), self._stamp, since)
            return self._lease_type(self._caller, self._stamp, hold)
        except self._dropped:
            raise  # The coroutine was dropped with its event loop, so nothing can be awaited. The lock ends by itself.
        except BaseException:
            if hold.values:  # An interrupt came after the lock was acquired.
                await _ask(self._caller, self._stamp, timestamp.release(self._stamp, hold))
            raise


def granted(theirs: Theirs | None, stamp: Stamp, since: float) -> None:
    """Raise LockTimeout if ``theirs`` (facts about another holder) is not None. ``since``: monotonic time of the first try."""
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


async def _ask(caller: BaseCaller, stamp: Stamp, operation: Coroutine[Any, Any, T]) -> T:
    """Run an operation on a timestamp lock. Raises ConfigError if the key's value is not a time in the lock's unit."""
    try:
        return await caller.run(operation, stamp.key, called(stamp))
    except Strange as strange:
        raise ConfigError(f"{called(stamp)} cannot be used: {strange}; nothing was changed", parameter="key") from strange


def called(stamp: Stamp) -> str:
    return f"timestamp lock {stamp.key.decode(errors='backslashreplace')!r}"


class TimestampLease(BaseTimestampLease):
    """One acquisition of a `TimestampLock`, as ``with`` returns it. It has no fence: the key has no room for one."""

    def renew(self, ttl: Seconds | None = None) -> None:
        """Renew the lease for ``ttl`` seconds from now (None: as before). The remaining time is not added.

        Raises LeaseLost, NotHeld or ServerError.
        """
        complete(self._renew(ttl))

    def release(self) -> None:
        """Release the lock, if the lease has not expired and the value in the key is still this lease's.

        Raises LeaseLost otherwise, NotHeld if it was released before, and ServerError if the server cannot be reached
        (the lock then ends by itself).
        """
        complete(self._release())


class TimestampLock(BaseTimestampLock[TimestampLease, SyncClient], Base[TimestampLease]):
    """The lock whose key holds the time at which the lock expires. Programs in many languages use it (SETNX, GET, GETSET).

    Use it until all users of the key have moved to `holdfast.Lock`. It excludes, and is excluded by, every client of this
    algorithm, as long as the clocks of all users agree. It can replace a threading.Lock. The first `TimestampLock`
    of a process warns of the dangers.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        key: the key that the other users of the lock use.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key; renewed only by `TimestampLease.renew`.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: the clock that all users of the key use: "own" (each user its machine's clock) or "server" (the server's clock).

    Raises:
        ConfigError: an option is invalid; nothing was sent. Methods raise it if the key's value is not a time in ``unit``.
    """

    _caller_type = Caller
    _lease_type = TimestampLease

    def locked(self) -> bool:
        """Return True if a client holds the lock, which means that the time in its key has not passed.

        Asks the server; raises ServerError.
        """
        return complete(self._locked())


@of_asyncio
class AioTimestampLease(BaseTimestampLease):
    """One acquisition of a `TimestampLock`, as ``async with`` returns it. It has no fence: the key has no room for one."""

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Renew the lease for ``ttl`` seconds from now (None: as before). The remaining time is not added.

        Raises LeaseLost, NotHeld or ServerError.
        """
        await self._renew(ttl)

    async def release(self) -> None:
        """Release the lock, if the lease has not expired and the value in the key is still this lease's.

        Raises LeaseLost otherwise, NotHeld if it was released before, and ServerError if the server cannot be reached
        (the lock then ends by itself).
        """
        await self._release()


@of_asyncio
class AioTimestampLock(BaseTimestampLock[AioTimestampLease, AsyncClient], AioBase[AioTimestampLease]):
    """The lock whose key holds the time at which the lock expires. Programs in many languages use it (SETNX, GET, GETSET).

    Use it until all users of the key have moved to `holdfast.Lock`. It excludes, and is excluded by, every client of this
    algorithm, as long as the clocks of all users agree. It can replace an asyncio.Lock. The first `TimestampLock`
    of a process warns of the dangers.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        key: the key that the other users of the lock use.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key; renewed only by `TimestampLease.renew`.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: the clock that all users of the key use: "own" (each user its machine's clock) or "server" (the server's clock).

    Raises:
        ConfigError: an option is invalid; nothing was sent. Methods raise it if the key's value is not a time in ``unit``.
    """

    _caller_type = AioCaller
    _lease_type = AioTimestampLease

    async def locked(self) -> bool:
        """Return True if a client holds the lock, which means that the time in its key has not passed.

        Asks the server; raises ServerError.
        """
        return await self._locked()
