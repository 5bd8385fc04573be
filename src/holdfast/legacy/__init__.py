"""The timestamp lock, as many programs use it (SETNX, GET, GETSET), and the migration from it to
`holdfast.Lock`.

The locks of this module are for threads; `holdfast.legacy.aio` has the same names for asyncio. ``docs/legacy-faults.md``
shows how such locks break.

_shared    the common part of the sync and asyncio APIs
_migrating   one lock composed of a new and an old one
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeVar

from holdfast._api import sync_lock
from holdfast._api.caller import Caller
from holdfast._api.flow import complete
from holdfast._api.options import acquire_wait, refuse_mistaken
from holdfast._clock import clock as local_clock
from holdfast._core import timestamp
from holdfast._core.names import raw_key
from holdfast._core.timestamp import Hold, Stamp
from holdfast._lazy import later
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, LockTimeout, NotHeld, ServerError
from holdfast.legacy import _migrating, _shared
from holdfast.legacy._migrating import Both, at_once
from holdfast.legacy._shared import BaseLock, BaseMigratingLease, BaseStampLease, Clock, Unit

__all__ = ["Migrating", "MigratingLease", "TimestampLease", "TimestampLock"]

if not TYPE_CHECKING:
    __getattr__ = later(globals(), {"aio": "holdfast.legacy.aio"})  # threads need no event loop


class TimestampLease(BaseStampLease):
    """One acquisition of a `TimestampLock`, the target of ``with``. It has no fence: the key has no room for one."""

    def __init__(self, caller: Caller, stamp: Stamp, hold: Hold) -> None:
        super().__init__(current(), stamp, hold)
        self._caller = caller

    def renew(self, ttl: float | None = None) -> None:
        """Renew the lease for ``ttl`` seconds from now (None: the same as before). The time left is replaced, not
        extended.

        Raises LeaseLost, NotHeld or ServerError.
        """
        _run(self._caller, self._stamp, self._renew(ttl))

    def release(self) -> None:
        """Release the lock, if the lease has not expired and the value in the key is still this lease's.

        Raises LeaseLost otherwise, NotHeld if it was released before, and ServerError if the server cannot be reached
        (the lock then ends by itself).
        """
        _run(self._caller, self._stamp, self._release())


T = TypeVar("T")


def _run(caller: Caller, stamp: Stamp, operation: Coroutine[Any, Any, T]) -> T:
    return complete(caller.run(_shared.understood(operation, stamp), stamp.key, _shared.called(stamp)))


class _Returnable(Protocol):
    def release(self) -> None: ...


L = TypeVar("L", bound=_Returnable)


class Base(BaseLock[L]):
    """The methods of a threading.Lock, for locks of this package."""

    def _take(self, wait: float | None) -> L:
        """Acquire the lock within ``wait`` seconds (None: without limit), and return the lease. Raises LockTimeout."""
        raise NotImplementedError

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, as threading.Lock does. Return False if it stayed busy. Raises ServerError.

        Without arguments, the call waits as long as this object's ``wait`` allows.
        """
        try:
            self._taken(threading.get_ident(), self._take(acquire_wait(self._wait, blocking, timeout)))
        except LockTimeout:
            return False
        return True

    def release(self) -> None:
        """Release the lock; any thread may do this. Raises NotHeld (a RuntimeError) if it is not held, LeaseLost,
        ServerError."""
        lease = self.lease
        if lease is None:
            raise self._not_held()
        lease.release()

    def __enter__(self) -> L:
        """Acquire the lock within ``wait`` seconds. Raises LockTimeout, ServerError."""
        return self._enter(threading.get_ident(), self._take(self._wait))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lease of this ``with``, and no other.

        LeaseLost is raised if the body succeeded, otherwise it becomes a note on the body's exception. An unreachable
        server causes only a warning.
        """
        try:
            self._left(threading.get_ident()).release()
        except NotHeld:
            pass  # released inside the body, or acquired by the process that forked this one
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except ServerError as unreachable:
            warnings.warn(f"{unreachable}; the lock ends by itself", HoldfastWarning, stacklevel=2)


class TimestampLock(Base[TimestampLease]):
    """The lock whose key holds the time at which it expires, as it is deployed in many languages: SETNX, GET, GETSET.

    Use it until all users of the key have moved to `holdfast.Lock`. It excludes, and is excluded by, every client of this
    algorithm, as long as their clocks agree. It can replace a threading.Lock. The first one created in a process warns
    of the dangers.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        key: the key that the other users of the lock use.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key; renewed only by `TimestampLease.renew`.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: "own": this machine's clock, if each user of the key uses its own; "server": the server's clock, if all users do.

    Raises:
        ConfigError: an option is invalid (nothing was sent), or, from a method, the key's value is not a time in ``unit``.
    """

    _warns = True

    @hides_client()
    def __init__(
        self,
        client: object,
        key: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        unit: Unit = "s",
        clock: Clock = "own",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._caller = Caller(client)
        self._stamp = _shared.make_stamp(self._caller.timeout, key, ttl, unit, clock)
        super().__init__(self._stamp.key, wait)
        if self._warns:
            _shared.warn_once()

    def locked(self) -> bool:
        """Return True if a client holds the lock: the time in the key has not passed. Asks the server; raises ServerError."""
        return _run(self._caller, self._stamp, timestamp.locked(self._stamp))

    def _take(self, wait: float | None) -> TimestampLease:
        hold, since = Hold(), local_clock()
        try:
            _shared.granted(_run(self._caller, self._stamp, timestamp.acquire(self._stamp, hold, wait)), self._stamp, since)
            return TimestampLease(self._caller, self._stamp, hold)
        except BaseException:
            if hold.values:  # interrupted after the lock was acquired
                _run(self._caller, self._stamp, timestamp.release(self._stamp, hold))
            raise


class MigratingLease(BaseMigratingLease[sync_lock.Lease, TimestampLease]):
    """One acquisition of a `Migrating` lock, the target of ``with``."""

    def __init__(self, new: _New, old: _Old, both: Both[sync_lock.Lease, TimestampLease]) -> None:
        super().__init__(both)
        self._new, self._old = new, old

    def renew(self, ttl: float | None = None) -> None:
        """Renew the leases of both locks for ``ttl`` seconds from now (None: the same as before). Raises LeaseLost, NotHeld or
        ServerError."""
        self._both.new.renew(ttl)
        self._both.old.renew(ttl)

    def release(self) -> None:
        """Release the old lock and the new one. Raises LeaseLost if one was lost, NotHeld if both were released before,
        ServerError."""
        at_once(_migrating.give_back(self._new, self._old, self._both))


class Migrating(Base[MigratingLease]):
    """The lock for a migration: a `TimestampLock` and a `holdfast.Lock` in one.

    Its holder excludes clients that use only one of the two. It acquires the new lock first, then the key of the old one, and
    releases them in the reverse order. When one of them is lost, the whole lease is lost. The new lock is renewed automatically
    while it is held. The old lock is renewed only by `MigratingLease.renew`. Without that call, the lease ends after ``ttl``
    seconds.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        key: key of the old lock, as its other users call it.
        name: name of the new lock; None: the same as the key.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: "own": this machine's clock, if each user of the key uses its own; "server": the server's clock, if all users do.
        prefix: start of the new lock's keys on the server.

    Raises:
        ConfigError: an option is invalid (nothing was sent), or, from a method, the key's value is not a time in ``unit``.
    """

    @hides_client()
    def __init__(
        self,
        client: object,
        key: str | bytes,
        *,
        name: str | bytes | None = None,
        ttl: float = 30.0,
        wait: float | None = None,
        unit: Unit = "s",
        clock: Clock = "own",
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._old = _Old(client, key, ttl=ttl, unit=unit, clock=clock)
        self._new = _New(client, key if name is None else name, ttl, prefix)
        super().__init__(raw_key(key), wait)

    @property
    def name(self) -> str:
        """Return the name of the new lock, one of the two locks."""
        name: str = self._new.lock(0).name
        return name

    def locked(self) -> bool:
        """Return True while any client holds one of the two locks. Asks the server; raises ServerError."""
        return self._old.locked() or self._new.lock(0).locked()

    def _take(self, wait: float | None) -> MigratingLease:
        return MigratingLease(self._new, self._old, at_once(_migrating.take(self._new, self._old, wait, local_clock)))


class _New:
    """The new lock (`holdfast.Lock`) inside a `Migrating` lock."""

    def __init__(self, client: object, name: str | bytes, ttl: float, prefix: str) -> None:
        self._options = client, name, ttl, prefix
        self.lock(0)  # checks the options

    def lock(self, wait: float | None) -> sync_lock.Lock:
        client, name, ttl, prefix = self._options
        return sync_lock.Lock(client, name, ttl=ttl, prefix=prefix, wait=wait)

    async def take(self, wait: float | None) -> sync_lock.Lease:
        return self.lock(wait).__enter__()

    async def give_back(self, lease: sync_lock.Lease) -> None:
        lease.release()

    def holds(self, lease: sync_lock.Lease) -> bool:
        return bool(lease.remaining())


class _Old(TimestampLock):
    """The old (timestamp) lock inside a `Migrating` lock. It does not warn of the dangers of timestamp locks, because its user
    is migrating."""

    _warns = False

    async def take(self, wait: float | None) -> TimestampLease:
        return self._take(wait)

    async def give_back(self, lease: TimestampLease) -> None:
        lease.release()

    def holds(self, lease: TimestampLease) -> bool:
        return bool(lease.remaining())
