"""The timestamp lock for asyncio: the same names and the same behaviour as in `holdfast.legacy`."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Never, Protocol, TypeVar

from holdfast import aio
from holdfast._api.caller import AioCaller
from holdfast._api.options import acquire_wait, refuse_mistaken
from holdfast._clock import clock as local_clock
from holdfast._core import timestamp
from holdfast._core.timestamp import Hold, Stamp
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, LockTimeout, NotHeld, ServerError
from holdfast.legacy import _migrating, _shared
from holdfast.legacy._migrating import Both
from holdfast.legacy._shared import BaseLock, BaseMigratingLease, BaseStampLease, Clock, OwnedLease, Unit

__all__ = ["Migrating", "MigratingLease", "TimestampLease", "TimestampLock"]


class TimestampLease(BaseStampLease):
    """One acquisition of a `TimestampLock`: what ``async with`` gives. It has no fence: its key has no room for one."""

    def __init__(self, caller: AioCaller, stamp: Stamp, hold: Hold) -> None:
        super().__init__(current(), stamp, hold)
        self._caller = caller

    async def renew(self, ttl: float | None = None) -> None:
        """Have the lock for ``ttl`` seconds from now (default: as long as last); never adds to what is left.

        Raises LeaseLost, NotHeld or ServerError.
        """
        await _run(self._caller, self._stamp, self._renew(ttl))

    async def release(self) -> None:
        """Give the lock back, if its time has not passed and what stands in the key is its own. Raises LeaseLost otherwise,
        NotHeld the second time, ServerError if the server cannot be reached (the lock then ends by itself)."""
        await _run(self._caller, self._stamp, self._release())


T = TypeVar("T")


async def _run(caller: AioCaller, stamp: Stamp, operation: Coroutine[Any, Any, T]) -> T:
    return await caller.run(_shared.understood(operation, stamp), stamp.key, _shared.called(stamp))


class _Returnable(OwnedLease, Protocol):
    async def release(self) -> None: ...


L = TypeVar("L", bound=_Returnable)


class Base(BaseLock[L]):
    """The methods of an asyncio.Lock."""

    async def _take(self, wait: float | None) -> L:
        """Raises LockTimeout."""
        raise NotImplementedError

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if it stayed busy. As threading.Lock's, except that without arguments it waits as long as
        this object's ``wait`` says. Raises ServerError."""
        try:
            lease = await self._take(acquire_wait(self._wait, blocking, timeout))
        except LockTimeout:
            return False
        self._taken(id(asyncio.current_task()), lease)
        return True

    async def release(self) -> None:
        """Give the lock back; any task may. Raises NotHeld (a RuntimeError) if it is not held, LeaseLost, ServerError."""
        lease = self.lease
        if lease is None:
            raise self._not_held()
        await lease.release()

    async def __aenter__(self) -> L:
        """Take the lock within ``wait``. Raises LockTimeout, ServerError."""
        return self._enter(id(asyncio.current_task()), await self._take(self._wait))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back the lease of this ``async with``, and no other. LeaseLost is raised if the body succeeded, else noted on
        its exception; a server that cannot be reached is a warning."""
        try:
            await self._left(id(asyncio.current_task())).release()
        except NotHeld:
            pass  # given back inside the body, or taken by the process that forked this one
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except ServerError as unreachable:
            warnings.warn(f"{unreachable}; the lock ends by itself", HoldfastWarning, stacklevel=2)


class TimestampLock(Base[TimestampLease]):
    """The lock whose key holds the time at which it expires, as it is deployed in many languages: SETNX, GET, GETSET.

    For the time until all who use the key have moved to `holdfast.Lock`. It excludes, and is excluded by, every client of that
    algorithm, as long as their clocks agree. Fits wherever an asyncio.Lock does. Warns once per process.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        key: as the others call it.
        ttl: seconds of the lease, 0.05 at least; the same for all who use the key. Renewed by hand only.
        wait: seconds to wait for a busy lock; None: for ever; 0: not at all.
        unit: in what the others count: "s" or "ms".
        clock: "own": this machine's, as the others do; "server": the server's, where nobody goes by another one.

    Raises:
        ConfigError: an option is out of range, nothing was sent; or, later: what is in the key is no time in this unit.
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
        self._caller = AioCaller(client)
        self._stamp = _shared.make_stamp(self._caller.timeout, key, ttl, unit, clock)
        super().__init__(self._stamp.key, wait)
        if self._warns:
            _shared.warn_once()

    async def locked(self) -> bool:
        """True while the time in the key has not passed. Asks the server; raises ServerError."""
        return await _run(self._caller, self._stamp, timestamp.locked(self._stamp))

    async def _take(self, wait: float | None) -> TimestampLease:
        hold, since = Hold(), local_clock()
        try:
            _shared.granted(
                await _run(self._caller, self._stamp, timestamp.acquire(self._stamp, hold, wait)), self._stamp, since
            )
            return TimestampLease(self._caller, self._stamp, hold)
        except GeneratorExit:
            raise  # dropped with its event loop, where nothing can be awaited: it ends by itself
        except BaseException:
            if hold.values:  # interrupted when it was ours already
                await _run(self._caller, self._stamp, timestamp.release(self._stamp, hold))
            raise


class MigratingLease(BaseMigratingLease[aio.Lease, TimestampLease]):
    """One acquisition of a `Migrating` lock: what ``async with`` gives."""

    def __init__(self, lock: Migrating, both: Both[aio.Lease, TimestampLease]) -> None:
        super().__init__(both)
        self._lock = lock

    async def renew(self, ttl: float | None = None) -> None:
        """Have both for ``ttl`` seconds from now (default: as long as last). Raises LeaseLost, NotHeld or ServerError."""
        await self._both.new.renew(ttl)
        await self._both.old.renew(ttl)

    async def release(self) -> None:
        """Give both back. Raises LeaseLost if one was lost before, NotHeld the second time, ServerError."""
        await _migrating.give_back(self._lock._new, self._lock._old, self._both)  # noqa: SLF001


class Migrating(Base[MigratingLease]):
    """The lock for the time between: a `TimestampLock` and a `holdfast.Lock` in one.

    Its holder excludes clients that know only one of the two. It takes the new lock first, then the key of the old one, and
    gives them back the other way round. When one of them is lost, so is the whole. The new one is renewed while held, the old
    one by hand only: so the whole is held for ``ttl`` seconds, unless `MigratingLease.renew` is called.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        key: of the old lock, as the others call it.
        name: of the new lock; None: as the key.
        ttl: seconds of the lease, 0.05 at least; the same for all who use the key.
        wait: seconds to wait for a busy lock; None: for ever; 0: not at all.
        unit: in what the others count: "s" or "ms".
        clock: "own": this machine's, as the others do; "server": the server's, where nobody goes by another one.
        prefix: start of the new lock's keys on the server.

    Raises:
        ConfigError: an option is out of range, nothing was sent; or, later: what is in the key is no time in this unit.
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
        super().__init__(self._old._stamp.key, wait)  # noqa: SLF001

    @property
    def name(self) -> str:
        """Name of the new lock."""
        name: str = self._new.lock(0).name
        return name

    async def locked(self) -> bool:
        """True while anybody holds one of the two. Asks the server; raises ServerError."""
        return await self._old.locked() or await self._new.lock(0).locked()

    async def _take(self, wait: float | None) -> MigratingLease:
        return MigratingLease(self, await _migrating.take(self._new, self._old, wait, local_clock))


class _New:
    """The new lock, as a half."""

    def __init__(self, client: object, name: str | bytes, ttl: float, prefix: str) -> None:
        self._options = client, name, ttl, prefix
        self.lock(0)  # checks them

    def lock(self, wait: float | None) -> aio.Lock:
        client, name, ttl, prefix = self._options
        return aio.Lock(client, name, ttl=ttl, prefix=prefix, wait=wait)

    async def take(self, wait: float | None) -> aio.Lease:
        lease = await self.lock(wait).__aenter__()
        lease._body = None  # noqa: SLF001 - a loss does not cancel the task: the other half could not do that
        return lease

    async def give_back(self, lease: aio.Lease) -> None:
        await lease.release()

    def holds(self, lease: aio.Lease) -> bool:
        return bool(lease.remaining())


class _Old(TimestampLock):
    """The old one. Leaving needs no warning."""

    _warns = False

    async def take(self, wait: float | None) -> TimestampLease:
        return await self._take(wait)

    async def give_back(self, lease: TimestampLease) -> None:
        await lease.release()

    def holds(self, lease: TimestampLease) -> bool:
        return bool(lease.remaining())
