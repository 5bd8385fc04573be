"""The common base of read-write locks in both APIs: the read side and the write side, and the lease of a writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Never, Protocol

from holdfast._api import error_map, lease
from holdfast._api.lock import L
from holdfast._api.options import refuse_mistaken
from holdfast._api.permit import PermitsLock
from holdfast._core import permit
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import WireError
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import Process


class Sides(Protocol):
    """A read-write lock with its two sides, as each of the sides sees it."""

    @property
    def _read(self) -> Side: ...

    @property
    def _write(self) -> Side: ...


class BaseWriteLease(lease.BaseLease):
    """The lease of a writer: the part that the sync and the asyncio API share."""

    downgraded = False
    """True once the writer has become a reader by `downgrade`."""

    async def _downgrade(self) -> None:
        """Turn the writer's lease into a reader's. `downgrade` runs this operation."""
        self.check()
        held_lease = self._held_lease
        held_lease.shares = 1  # Before the request: another reader here may be granted a permit before the answer comes.
        try:
            kept = await permit.change(held_lease.spec, held_lease.token, 1, self.fence)
        except WireError as error:
            raise error_map.server_error(held_lease.spec, error) from error
        if kept:
            self.downgraded = True
        elif not self._expired() and held_lease.lose("it expired, or another client revoked it"):
            self._forget()
            self.notice_loss()
        self.check()


class Side(PermitsLock[Any]):
    """One side of a read-write lock: the read side, which many hold, or the write side."""

    _what = "read-write lock"

    def __init__(self, whole: Sides, client: object, name: str | bytes, *, writes: bool, **options: Any) -> None:
        self._whole, self._writes = whole, writes
        super().__init__(client, name, permit.WRITING if writes else permit.READING, **options)

    @property
    def lease(self) -> Any:
        """The lease of the latest acquisition through this side; None once it is released."""
        return next(reversed(self._holding()), None)

    def _new_attempt(self, process: Process) -> Attempt:
        me, whole = self._me(), self._whole
        reads, writes = whole._read._held_by(me), whole._write._held_by(me)  # noqa: SLF001
        if writes is not None and not (self._writes and writes.downgraded):
            again = "it is not re-entrant" if self._writes else "call downgrade() of the writer's lease to become a reader"
            raise RuntimeError(f"{self._what} {self.name!r} is already held for writing by this thread or task: {again}")
        if self._writes and (reads or writes) is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading by this thread or task: a reader cannot become a writer, "
                "since two readers that tried would wait for each other forever; release it first"
            )
        if reads is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading by this thread or task already: acquired again, it could wait "
                "behind a writer that waits for this reader"
            )
        return super()._new_attempt(process)


class BaseRWLock(Generic[L]):
    """The options of a read-write lock: the part that the sync and the asyncio API share."""

    _side_types: tuple[type[Side], type[Side]]
    """The classes of the read side and of the write side."""

    @hides_client("RWLock.__init__")
    def __init__(
        self,
        client: object,
        name: str | bytes,
        *,
        ttl: float = 30.0,
        wait: float | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: float | None = None,
        progress_within: float | None = None,
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
        }
        read, write = self._side_types
        self._read: Any = read(self, client, name, writes=False, **options)
        self._write: Any = write(self, client, name, writes=True, **options)

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
