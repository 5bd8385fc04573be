"""The common base of read-write locks in both APIs: the read side and the write side, and the lease of a writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Never

from holdfast._api import error_map, lease
from holdfast._api.lock import L
from holdfast._api.options import refuse_mistaken
from holdfast._api.permit import HeldPermits, PermitsLock
from holdfast._core import permit
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import WireError
from holdfast._durations import Seconds
from holdfast._net.clients import Client
from holdfast._net.redaction import hides_client


class BaseWriteCore(lease.LeaseCore):
    """The internal object of a writer's lease: the part that the sync and the asyncio API share."""

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
        elif not self.expired() and held_lease.lose("it expired, or another client revoked it"):
            self.forget()
            self.notice_loss()
        self.check()


class Side(PermitsLock[L, Client]):
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
                "because two readers that tried would wait for each other forever; release it first"
            )
        if reads is not None:
            raise RuntimeError(
                f"{self._what} {self.name!r} is held for reading by this thread or task already: acquired again, it could wait "
                "behind a writer that waits for this reader"
            )
        return super()._new_attempt(driver)


class BaseRWLock(Generic[L, Client]):
    """The options of a read-write lock: the part that the sync and the asyncio API share."""

    _side_types: tuple[type[Side[Any, Any]], type[Side[Any, Any]]]
    """The classes of the read side and of the write side."""

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
        self._read: Any = read(client, name, writes=False, **options)
        self._write: Any = write(client, name, writes=True, **options)

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
