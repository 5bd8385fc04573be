"""`RWLock` (a read-write lock) for threads and for asyncio: its read side and its write side, and the lease of a writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Never

from holdfast._api import error_map
from holdfast._api.base_lock import L
from holdfast._api.flow import complete, of_asyncio
from holdfast._api.foreign_words import RWLOCK_METHODS, SIDES, ForeignMethods
from holdfast._api.lease import AioLease, BaseLease, Lease
from holdfast._api.lease_core import AioLeaseCore, LeaseCore, SyncLeaseCore
from holdfast._api.options import refuse_mistaken
from holdfast._api.permit import BaseAioPermits, BaseSyncPermits, HeldPermits, PermitsLock
from holdfast._core import permit
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import WireError
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast.errors import HoldfastError


class BaseWriteLease(BaseLease):
    """The lease of a writer. Base class for threads and for asyncio."""

    @property
    def downgraded(self) -> bool:
        """True once the writer has become a reader by `downgrade`."""
        downgraded: bool = self._core.downgraded
        return downgraded


class BaseWriteCore(LeaseCore):
    """The internal object of a writer's lease. Base class for threads and for asyncio."""

    downgraded = False
    """True once the writer has become a reader by `downgrade`."""

    async def downgrade_on_server(self) -> None:
        """Turn the writer's lease into a reader's. `downgrade` runs this operation."""
        self.check()
        held_lease = self.held_lease
        held_lease.shares = 1  # Set before the request: another reader here may get a permit before the answer comes.
        try:
            kept = await permit.change(held_lease.spec, held_lease.token, 1, self.fence)
        except WireError as error:
            raise error_map.server_error(held_lease.spec, error) from error_map.cause(error)
        if kept:
            self.downgraded = True
        elif not self.expired() and held_lease.lose("it expired, or another client broke the lock"):
            self.forget()
            self.notice_loss()
        self.check()


class BaseSide(PermitsLock[L, Client]):
    """One side of a read-write lock: the read side, which many hold, or the write side."""

    _what = "read-write lock"

    def __init__(
        self, client: Client, name: str | bytes, *, readers: HeldPermits, writers: HeldPermits, writes: bool, **options: Any
    ) -> None:
        self._readers, self._writers, self._writes = readers, writers, writes
        wanted, held = (permit.WRITING, writers) if writes else (permit.READING, readers)
        super().__init__(client, name, wanted, held, **options)

    def _new_attempt(self, driver: Any) -> Attempt:
        me = self._me()
        reads, writes = self._readers.held_by(me), self._writers.held_by(me)
        if writes is not None and not (self._writes and writes.downgraded):
            again = "it is not re-entrant" if self._writes else "call downgrade() of the writer's lease to become a reader"
            raise RuntimeError(f"{self._what} {self.name!r} is already held for writing by this thread or task: {again}")
        if self._writes and (reads or writes) is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading by this thread or task: a reader cannot become a writer, "
                "because two readers that tried would wait for each other forever; release the lock first"
            )
        if reads is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading by this thread or task already: a second acquisition could "
                "wait behind a writer that waits for the end of the first; release the lock first"
            )
        return super()._new_attempt(driver)


class BaseRWLock(ForeignMethods, Generic[L, Client]):
    """The options of a read-write lock. Base class for threads and for asyncio."""

    _foreign = RWLOCK_METHODS
    if not TYPE_CHECKING:
        __enter__ = __aenter__ = SIDES

    _side_types: tuple[type[BaseSide[Any, Any]], type[BaseSide[Any, Any]]]
    """The classes of the read side and of the write side."""
    _read: Any
    _write: Any

    @hides_client("RWLock.__init__")
    def __init__(
        self,
        client: Client,
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        options: dict[str, Any] = {
            "ttl": ttl,
            "wait": wait,
            "renew": renew,
            "on_lost": on_lost,
            "max_hold": max_hold,
            "progress_within": progress_within,
            "label": label,
            "prefix": prefix,
            "readers": HeldPermits(),
            "writers": HeldPermits(),
        }
        read, write = self._side_types
        self._read = read(client, name, writes=False, **options)
        self._write = write(client, name, writes=True, **options)

    @property
    def name(self) -> str:
        """The name of the lock, as passed."""
        name: str = self._write.name
        return name

    @property
    def key(self) -> str:
        """The key of the lock on the server."""
        key: str = self._write.key
        return key

    def __repr__(self) -> str:
        if not hasattr(self, "_write"):  # The options were refused.
            return f"<holdfast {type(self).__name__}, not made>"
        return repr(self._write).replace(type(self._write).__name__, type(self).__name__, 1)


class WriteLease(BaseWriteLease, Lease):
    """The lease of a writer, which can be turned into a reader's."""

    def downgrade(self) -> None:
        """Become a reader, so that other readers are admitted. The lease and its fence stay. A reader cannot become a writer.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._core.run(self._core.downgrade_on_server)


class _WriteCore(BaseWriteCore, SyncLeaseCore):
    """The internal object of a writer's lease, of a thread."""


class _Side(BaseSide[L, SyncClient], BaseSyncPermits[L]):
    def release(self) -> None:
        """Release one acquisition made through this object; any thread or task may do it. The caller's own acquisitions are
        released first.

        Raises NotHeld (a RuntimeError) if this object does not hold the lock, LeaseLost if the lease was lost before. Raises
        ServerError if the server cannot be reached. The lease then expires.
        """
        claimed: list[SyncLeaseCore] = []
        try:
            complete(self._give_back(1, claimed))
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(1, claimed)  # An interrupt can come at any line.
            raise


class ReadSide(_Side[Lease]):
    """The read side of a read-write lock, which many readers can hold at the same time."""


class WriteSide(_Side[WriteLease]):
    """The write side of a read-write lock. It works like a `Lock`, and its lease can be turned into a reader's."""

    _core_type = _WriteCore
    _lease_type = WriteLease

    def __enter__(self) -> WriteLease:
        """Acquire the lock for writing within ``wait`` and return the writer's lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached. Raises RuntimeError if this
        thread holds the lock already.
        """
        return super().__enter__()


class RWLock(BaseRWLock[Lease, SyncClient]):
    """A named lock that many readers hold at the same time, or one writer, anywhere.

    Use ``with lock.read:`` and ``with lock.write:``; each side works like a `Lock`. The lock is granted in the order of
    arrival, so neither side starves: readers that arrive after a waiting writer wait behind it. Readers that wait next to
    each other in the queue are admitted together. Each reader has its own lease, so a crashed reader blocks writers only until
    this lease expires.

    Neither side is re-entrant, and a reader cannot become a writer: such an attempt raises RuntimeError, because it could wait
    forever. A writer can become a reader (`WriteLease.downgrade`).

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _side_types = (ReadSide, WriteSide)
    _read: ReadSide
    _write: WriteSide

    @property
    def read(self) -> ReadSide:
        """The read side: many readers can hold it at the same time, while no writer holds the lock."""
        return self._read

    @property
    def write(self) -> WriteSide:
        """The write side: one writer can hold it, while no reader holds the lock."""
        return self._write


@of_asyncio
class AioWriteLease(BaseWriteLease, AioLease):
    """The lease of a writer, which can be turned into a reader's."""

    async def downgrade(self) -> None:
        """Become a reader, so that other readers are admitted. The lease and its fence stay. A reader cannot become a writer.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        await self._core.run(self._core.downgrade_on_server)


class _AioWriteCore(BaseWriteCore, AioLeaseCore):
    """The internal object of a writer's lease, of a task."""


class _AioSide(BaseSide[L, AsyncClient], BaseAioPermits[L]):
    async def release(self) -> None:
        """Release one acquisition made through this object; any thread or task may do it. The caller's own acquisitions are
        released first.

        Raises NotHeld (a RuntimeError) if this object does not hold the lock, LeaseLost if the lease was lost before. Raises
        ServerError if the server cannot be reached. The lease then expires.
        """
        await self._give_back(1, [])


@of_asyncio
class AioReadSide(_AioSide[AioLease]):
    """The read side of a read-write lock, which many readers can hold at the same time."""


@of_asyncio
class AioWriteSide(_AioSide[AioWriteLease]):
    """The write side of a read-write lock. It works like a `Lock`, and its lease can be turned into a reader's."""

    _core_type = _AioWriteCore
    _lease_type = AioWriteLease

    async def __aenter__(self) -> AioWriteLease:
        """Acquire the lock for writing within ``wait`` and return the writer's lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached. Raises RuntimeError if this task
        holds the lock already.
        """
        return await super().__aenter__()


@of_asyncio
class AioRWLock(BaseRWLock[AioLease, AsyncClient]):
    """A named lock that many readers hold at the same time, or one writer, anywhere.

    Use ``async with lock.read:`` and ``async with lock.write:``; each side works like a `Lock`. The lock is granted in the
    order of arrival, so neither side starves: readers that arrive after a waiting writer wait behind it. Readers that wait
    next to each other in the queue are admitted together. Each reader has its own lease, so a crashed reader blocks writers
    only until this lease expires.

    Neither side is re-entrant, and a reader cannot become a writer: such an attempt raises RuntimeError, because it could wait
    forever. A writer can become a reader (`WriteLease.downgrade`).

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _side_types = (AioReadSide, AioWriteSide)
    _read: AioReadSide
    _write: AioWriteSide

    @property
    def read(self) -> AioReadSide:
        """The read side: many readers can hold it at the same time, while no writer holds the lock."""
        return self._read

    @property
    def write(self) -> AioWriteSide:
        """The write side: one writer can hold it, while no reader holds the lock."""
        return self._write
