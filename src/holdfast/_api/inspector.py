"""The common base of `Inspector` in both APIs: the search for locks by pattern, and breaking a lock."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from holdfast._api.inspect import Broken, Holder, LockInfo, text
from holdfast._core import names
from holdfast._core.inspect import break_lock, scan
from holdfast._core.inspect.scan import Field, Survey
from holdfast._core.requests import Conflict, WireError
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._net.slots import slot_of
from holdfast._runtime.process import current
from holdfast.errors import HolderChanged, QuorumError, ServerError

log = logger("holdfast.Inspector")

C = TypeVar("C")

_SPECIAL = re.compile(r"\[!?\]?[^\]]*\]|[*?]")
"""Matches the wildcards in a pattern of `fnmatch`."""


def matching(pattern: str, prefix: bytes) -> tuple[bytes, Callable[[bytes], bool]]:
    """Return a pattern for the server to search its keys with, and a function that tests each key found.

    The second test is needed because the server's pattern may match too many keys: on the server, one character of a name may
    be encoded as three bytes.
    """
    pieces = [names.encoded(piece, "pattern") if piece else b"" for piece in _SPECIAL.split(pattern)]
    fits = re.compile(fnmatch.translate(pattern)).match

    def test(key: bytes) -> bool:
        name = names.name_of(key, prefix)
        return name is not None and fits(text(name)) is not None

    return scan.scan_pattern(prefix, pieces), test


class BaseInspector(Generic[C]):
    """The state of an `Inspector`: the part that the sync and the asyncio API share. ``C`` is the class that asks a server."""

    def __init__(self, client: object, prefix: str, caller: Callable[[object], C]) -> None:
        self._prefix = names.start(prefix)
        several = client if isinstance(client, list | tuple) else [client]
        self._callers: list[C] = [caller(one) for one in several]
        self._endpoints: list[Endpoint] = [one.endpoint for one in self._callers]  # type: ignore[attr-defined]

    @property
    def _address(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)

    def _field(self, parts: Sequence[Endpoint]) -> Field:
        timeout = max(endpoint.timeout for endpoint in self._endpoints)
        clustered = self._endpoints[0].cluster is not None
        return Field(len(self._endpoints), len(parts), timeout, slot_of if clustered else None)

    def _survey(self, pattern: str, parts: Sequence[Endpoint]) -> Survey:
        return Survey(self._field(parts), *matching(pattern, self._prefix))

    def _key(self, name: str | bytes | LockInfo, key: str | bytes | None) -> tuple[str, bytes]:
        """Return the name and the key of a lock, which is passed by its name or as a `LockInfo`."""
        if isinstance(name, LockInfo):
            return name.name, name.key
        lock = names.lock_keys(name, self._prefix.decode(), key)[0]
        return name if isinstance(name, str) else text(name), lock

    def _enough(self, lock: LockInfo, answered: int) -> None:
        """Raise QuorumError if no majority of the lock's servers has answered."""
        if answered <= lock.servers // 2:
            why = f"it takes {lock.servers // 2 + 1} of its {lock.servers} servers, and {answered} can be asked"
            nodes = {endpoint.address: "one of the servers of the lock" for endpoint in self._endpoints}
            raise QuorumError(f"lock {lock.name!r} cannot be broken: {why}", name=lock.name, nodes=nodes)

    def _breaking(
        self, where: Field, lock: LockInfo, holder: Holder | None, by: str | None
    ) -> Coroutine[Any, Any, list[break_lock.Outcome | WireError]]:
        """Return the operation that revokes the leases of these holders, on each server."""
        holders = lock.holders if holder is None else (holder,)
        if lock.kind in {"semaphore", "rwlock"}:
            return break_lock.break_permits(where, lock.key, [one.mark for one in holders], by_whom(by))
        return break_lock.break_lock(
            where, lock.key, holders[0].mark, by_whom(by), prefix=self._prefix, leads=lock.kind == "election"
        )

    def _broken(self, lock: LockInfo, answers: list[break_lock.Outcome | WireError]) -> Broken | None:
        """Return the outcome of breaking a lock from the servers' answers; None if it was not held.

        Raises HolderChanged if the lock has another holder by now, ServerError, QuorumError.
        """
        for conflict in (answer for answer in answers if isinstance(answer, Conflict)):
            raise ServerError(f"lock {lock.name!r}: {conflict.why}", address=self._address, key=text(lock.key))
        self._enough(lock, sum(not isinstance(answer, WireError) for answer in answers))
        done = [answer for answer in answers if isinstance(answer, break_lock.TakenAway)]
        if done:
            log.info("lock %r was taken away from %s", lock.name, lock.holder)
            return Broken(
                fence=max(answer.fence for answer in done),
                told=any(answer.told for answer in done),
                handed_over=any(answer.heir for answer in done),
            )
        if any(isinstance(answer, break_lock.Changed) for answer in answers):
            why = "another client holds it now, and keeps it: look again"
            raise HolderChanged(f"lock {lock.name!r} was not broken: {why}", name=lock.name, key=text(lock.key))
        return None

    def _error(self, error: WireError, what: str, key: bytes = b"") -> ServerError:
        from holdfast._api.error_map import told

        return told(error, what, text(key))


def by_whom(by: str | None) -> str:
    """Return the name of the client that breaks a lock, as one printable word; the default is ``host:pid``."""
    if by is None:
        facts = current().facts()
        by = f"{facts['host']}:{facts['pid']}"
    return re.sub(r"[^!-~]", "_", by)[:80] or "nobody"


def parts_of(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Return the servers that each have a part of the keys: for a Cluster, all primaries. Its slot map must be known."""
    cluster = endpoints[0].cluster
    return list(endpoints) if cluster is None else list(cluster.primaries())
