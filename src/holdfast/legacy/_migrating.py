"""`Migrating` for threads and for asyncio. It acquires a new lock and then an old (timestamp) lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Never, NoReturn, Protocol, TypeVar

from holdfast._api.flow import complete, of_asyncio
from holdfast._api.lease import core_of
from holdfast._api.options import refuse_mistaken
from holdfast._clock import clock as local_clock
from holdfast._core.names import raw_key
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast.errors import LeaseLost
from holdfast.legacy._shared import AioBase, Base, BaseLegacyLock, LegacyCore
from holdfast.legacy._timestamp import (
    AioTimestampLease,
    AioTimestampLock,
    BaseTimestampLease,
    BaseTimestampLock,
    Clock,
    TimestampLease,
    TimestampLock,
    Unit,
)

L = TypeVar("L")
M = TypeVar("M", bound="BaseMigratingLease")
S = TypeVar("S", bound=BaseTimestampLease)
New = TypeVar("New")
Old = TypeVar("Old")


class Half(Protocol[L]):
    """The new or the old lock of a migrating lock, with the methods that the algorithm calls."""

    async def take(self, wait: float | None) -> L:
        """Acquire the lock within ``wait`` seconds (None: without limit). Raises LockTimeout."""

    async def give_back(self, lease: L) -> None:
        """Release the lock. Raises LeaseLost if the lease was lost."""

    def holds(self, lease: L) -> bool:
        """Return True if the lease has not ended."""


class Both(NamedTuple, Generic[New, Old]):
    """The two leases of one holder of a migrating lock. One is of the new lock, the other of the old lock."""

    new: New
    old: Old


async def take(new: Half[New], old: Half[Old], wait: float | None, clock: Callable[[], float]) -> Both[New, Old]:
    """Acquire the new lock, then the old one, within ``wait`` seconds (None: without limit). Raises LockTimeout.

    Clients that use a migrating lock wait for the new lock, in the order of their arrival. Only the holder of the new lock
    tries to acquire the old one. ``clock``: function that returns the monotonic time in seconds.
    """
    until = None if wait is None else clock() + wait

    def left() -> float | None:
        return None if until is None else max(0.0, until - clock())

    while True:
        first = await new.take(left())
        second: Old | None = None
        try:
            second = await old.take(left())
            if new.holds(first):
                return Both(first, second)
        except BaseException:
            await _undo(new, old, first, second)
            raise
        await _undo(new, old, first, second)  # the new lock was lost during the wait for the old one: start again


async def give_back(new: Half[New], old: Half[Old], both: Both[New, Old]) -> None:
    """Release the old lock, then the new one, so that the next holder of the new lock finds the old lock free."""
    try:
        await old.give_back(both.old)
    finally:
        await new.give_back(both.new)


async def _undo(new: Half[New], old: Half[Old], first: New, second: Old | None) -> None:
    try:
        if second is not None:
            await old.give_back(second)
    except LeaseLost:
        pass
    finally:
        try:
            await new.give_back(first)
        except LeaseLost:
            pass


class BaseMigratingLease:
    """One acquisition of a migrating lock, with the leases of its two locks. Base class for threads and for asyncio."""

    def __init__(self, new: Half[Any], old: Half[Any], both: Both[Any, Any]) -> None:
        self._both = both
        self._core = LegacyCore(core_of(both.old).is_over, lambda: give_back(new, old, both))

    @property
    def fence(self) -> int:
        """The fence of the new lock, greater than that of each earlier holder. Clients that use only the old lock get none."""
        fence: int = self._both.new.fence
        return fence

    @property
    def key(self) -> str:
        """The key of the old lock, which holds the expiry time."""
        key: str = self._both.old.key
        return key

    @property
    def name(self) -> str:
        """The name of the new lock (`holdfast.Lock`), one of the two locks that are held."""
        name: str = self._both.new.name
        return name

    def __repr__(self) -> str:
        return f"<holdfast lease of {self.name!r}, {self._both.new!r} and {self._both.old!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lease cannot be pickled: it belongs to the process that acquired the lock {self.name!r}")

    def remaining(self) -> float:
        """Return the seconds until the first of the two locks' leases ends; 0.0 if one has ended. Sends no request."""
        left: float = min(self._both.new.remaining(), self._both.old.remaining())
        return left

    def check(self) -> None:
        """Raise LeaseLost if the lease of either lock is lost, NotHeld if they were released. Sends no request."""
        self._both.old.check()
        self._both.new.check()


class BaseMigrating(BaseLegacyLock[M], Generic[M, Client]):
    """The options and the flows of a migrating lock. Base class for threads and for asyncio."""

    _old_type: Callable[..., Any]
    _new_type: Callable[..., Any]
    _lease_type: Callable[..., M]

    @hides_client("Migrating.__init__")
    def __init__(
        self,
        client: Client,
        key: str | bytes,
        *,
        name: str | bytes | None = None,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        unit: Unit = "s",
        clock: Clock = "own",
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        self._old = self._old_type(client, key, ttl=ttl, unit=unit, clock=clock)
        self._new = self._new_type(client, key if name is None else name, ttl, prefix)
        super().__init__(raw_key(key), wait)

    @property
    def name(self) -> str:
        """The name of the new lock, one of the two locks."""
        name: str = self._new.lock(0).name
        return name

    async def _take(self, wait: float | None) -> M:
        return self._lease_type(self._new, self._old, await take(self._new, self._old, wait, local_clock))


class _BaseNew:
    def __init__(self, client: object, name: str | bytes, ttl: Seconds, prefix: str) -> None:
        self._options = client, name, ttl, prefix
        self.lock(0)  # Checks the options.

    def lock(self, wait: float | None) -> Any:
        client, name, ttl, prefix = self._options
        return self._lock_type()(client, name, ttl=ttl, prefix=prefix, wait=wait)

    @staticmethod
    def _lock_type() -> Any:
        raise NotImplementedError

    @staticmethod
    def holds(lease: Any) -> bool:
        return bool(lease.remaining())


class _BaseOld(BaseTimestampLock[S, Client]):
    """The old (timestamp) lock inside a `Migrating` lock. It gives no warning, because its user is migrating already."""

    _warns = False

    async def take(self, wait: float | None) -> S:
        return await self._take(wait)

    @staticmethod
    async def give_back(lease: S) -> None:
        await core_of(lease).release()

    @staticmethod
    def holds(lease: S) -> bool:
        return bool(lease.remaining())


class _New(_BaseNew):
    @staticmethod
    def _lock_type() -> Any:
        from holdfast._api.lock import Lock

        return Lock

    async def take(self, wait: float | None) -> Any:
        return self.lock(wait).__enter__()

    @staticmethod
    async def give_back(lease: Any) -> None:
        lease.release()


class _Old(_BaseOld[TimestampLease, SyncClient], TimestampLock):
    pass


class _AioNew(_BaseNew):
    @staticmethod
    def _lock_type() -> Any:
        from holdfast._api.lock import AioLock as Lock  # Imported late: programs of threads need no asyncio.

        return Lock

    async def take(self, wait: float | None) -> Any:
        lease = await self.lock(wait).__aenter__()
        core_of(lease).body_task = None  # A loss does not cancel the task: a loss of the old lock could not do that.
        return lease

    @staticmethod
    async def give_back(lease: Any) -> None:
        await lease.release()


class _AioOld(_BaseOld[AioTimestampLease, AsyncClient], AioTimestampLock):
    pass


class MigratingLease(BaseMigratingLease):
    """One acquisition of a `Migrating` lock, as ``with`` returns it."""

    def renew(self, ttl: Seconds | None = None) -> None:
        """Renew both leases for ``ttl`` seconds from now (None: as before). Raises LeaseLost, NotHeld or ServerError."""
        self._both.new.renew(ttl)
        self._both.old.renew(ttl)

    def release(self) -> None:
        """Release the old lock and the new one.

        Raises LeaseLost if one was lost, NotHeld if both were released before, ServerError.
        """
        complete(self._core.release())


class Migrating(BaseMigrating[MigratingLease, SyncClient], Base[MigratingLease]):
    """The lock for a migration, which is a `TimestampLock` and a `holdfast.Lock` in one.

    Its holder excludes clients that use only one of the two. It acquires the new lock first, then the key of the old one, and
    releases them in the reverse order. If either lock is lost, the lease is lost. The new lock is renewed automatically
    while it is held. The old lock is renewed only by `MigratingLease.renew`. Without that call, the lease ends after ``ttl``
    seconds.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        key: the key that the other users of the old lock use.
        name: name of the new lock; None: the same as the key.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: the clock that all users of the key use: "own" (each user its machine's clock) or "server" (the server's clock).
        prefix: start of the new lock's keys on the server.

    Raises:
        ConfigError: an option is invalid; nothing was sent. Methods raise it if the key's value is not a time in ``unit``.
    """

    _old_type, _new_type = _Old, _New
    _lease_type = MigratingLease

    def locked(self) -> bool:
        """Return True if any client holds one of the two locks. Asks the server; raises ServerError."""
        return bool(self._old.locked() or self._new.lock(0).locked())


@of_asyncio
class AioMigratingLease(BaseMigratingLease):
    """One acquisition of a `Migrating` lock, as ``async with`` returns it."""

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Renew both leases for ``ttl`` seconds from now (None: as before). Raises LeaseLost, NotHeld or ServerError."""
        await self._both.new.renew(ttl)
        await self._both.old.renew(ttl)

    async def release(self) -> None:
        """Release the old lock and the new one.

        Raises LeaseLost if one was lost, NotHeld if both were released before, ServerError.
        """
        await self._core.release()


@of_asyncio
class AioMigrating(BaseMigrating[AioMigratingLease, AsyncClient], AioBase[AioMigratingLease]):
    """The lock for a migration, which is a `TimestampLock` and a `holdfast.Lock` in one.

    Its holder excludes clients that use only one of the two. It acquires the new lock first, then the key of the old one, and
    releases them in the reverse order. If either lock is lost, the lease is lost. The new lock is renewed automatically
    while it is held. The old lock is renewed only by `MigratingLease.renew`. Without that call, the lease ends after ``ttl``
    seconds.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        key: the key that the other users of the old lock use.
        name: name of the new lock; None: the same as the key.
        ttl: seconds of the lease, 0.05 at least; the same for all users of the key.
        wait: seconds to wait for a busy lock; None: without limit; 0: not at all.
        unit: unit of the times that the other users store: "s" or "ms".
        clock: the clock that all users of the key use: "own" (each user its machine's clock) or "server" (the server's clock).
        prefix: start of the new lock's keys on the server.

    Raises:
        ConfigError: an option is invalid; nothing was sent. Methods raise it if the key's value is not a time in ``unit``.
    """

    _old_type, _new_type = _AioOld, _AioNew
    _lease_type = AioMigratingLease

    async def locked(self) -> bool:
        """Return True if any client holds one of the two locks. Asks the server; raises ServerError."""
        return bool(await self._old.locked() or await self._new.lock(0).locked())
