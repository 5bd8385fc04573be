"""The common part of read-write locks in both APIs: the two sides, which exclude each other, and the writer's lease."""

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
    """A read-write lock."""

    @property
    def _read(self) -> Side: ...

    @property
    def _write(self) -> Side: ...


class BaseWriteLease(lease.BaseLease):
    """The lease of a writer, for both faces."""

    downgraded = False
    """It is a reader's by now."""

    async def _downgrade(self) -> None:
        """Operation behind `downgrade`."""
        self.check()
        held_lease = self._held_lease
        held_lease.shares = 1  # now: another reader of this process may be granted its permit before we hear of this
        try:
            kept = await permit.change(held_lease.spec, held_lease.token, 1, self.fence)
        except WireError as error:
            raise error_map.server_error(held_lease.spec, error) from error
        if kept:
            self.downgraded = True
        elif not self._expired() and held_lease.lose("its time was over, or it was taken away"):
            self._forget()
            self.notice_loss()
        self.check()


class Side(PermitsLock[Any]):
    """One side of a read-write lock: its readers', or its writers'."""

    _what = "read-write lock"

    def __init__(self, whole: Sides, client: object, name: str | bytes, *, writes: bool, **options: Any) -> None:
        self._whole, self._writes = whole, writes
        super().__init__(client, name, permit.WRITING if writes else permit.READING, **options)

    @property
    def lease(self) -> Any:
        """The lease of the latest acquisition by this object, until it is given back."""
        return next(reversed(self._holding()), None)

    def _new_attempt(self, process: Process) -> Attempt:
        me, whole = self._me(), self._whole
        reads, writes = whole._read._held_by(me), whole._write._held_by(me)  # noqa: SLF001
        if writes is not None and not (self._writes and writes.downgraded):
            again = "it is not re-entrant" if self._writes else "make that a reader's with its lease's downgrade()"
            raise RuntimeError(f"{self._what} {self.name!r} is held for writing here already: {again}")
        if self._writes and (reads or writes) is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading here: a reader cannot become a writer, because two who wanted "
                "that would wait for each other for ever; give it back first"
            )
        if reads is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading here already: taken once more, it would wait behind a writer "
                "who waits for this reader"
            )
        return super()._new_attempt(process)


class BaseRWLock(Generic[L]):
    """Options of a read-write lock, for both faces."""

    _side_types: tuple[type[Side], type[Side]]
    """Classes of the read side and of the write side."""

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
        """Name of the lock, as given."""
        name: str = self._write.name
        return name

    @property
    def key(self) -> str:
        """Key of the lock on the server."""
        key: str = self._write.key
        return key

    def __repr__(self) -> str:
        if not hasattr(self, "_write"):  # its options were refused
            return f"<holdfast {type(self).__name__}, not made>"
        return repr(self._write).replace(type(self._write).__name__, type(self).__name__, 1)
