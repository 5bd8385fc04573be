"""`Inspector` finds locks, shows who holds them and who waits, and breaks them. For threads and for asyncio."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Generic, Never, TypeVar

from holdfast._api.caller import AioCaller, BaseCaller, Caller
from holdfast._api.error_map import cause
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import INSPECTOR_METHODS, ForeignMethods
from holdfast._api.inspect import Broken, Holder, LockInfo, describe, text
from holdfast._api.options import checked_timeout, explain_words, refuse_mistaken
from holdfast._core import names
from holdfast._core.inspect import break_lock, scan
from holdfast._core.inspect.scan import LINE, Field, Survey
from holdfast._core.requests import Answer, AskPlace, Call, Conflict, RunOn, WireError
from holdfast._durations import Seconds
from holdfast._log import logger
from holdfast._net.clients import AsyncClient, Client, Servers, SyncClient
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import listed
from holdfast._net.slots import slot_of
from holdfast._runtime.process import current
from holdfast.errors import HolderChanged, QuorumError, ServerError

log = logger("holdfast.Inspector")

T = TypeVar("T")

_SPECIAL = re.compile(r"\[!?\]?[^\]]*\]|[*?]")
"""Matches the wildcards in a pattern of `fnmatch`."""


def matching(pattern: str, prefix: bytes) -> tuple[bytes, Callable[[bytes], bool]]:
    """Return a pattern for the server to search its keys with, and a function that tests each key found.

    The function is needed because the server's pattern may match too many keys. On the server, one character of a name may be
    encoded as three bytes.
    """
    pieces = [names.encoded(piece, "pattern") if piece else b"" for piece in _SPECIAL.split(pattern)]
    fits = re.compile(fnmatch.translate(pattern)).match

    def test(key: bytes) -> bool:
        name = names.name_of(key, prefix)
        return name is not None and fits(text(name)) is not None

    return scan.scan_pattern(prefix, pieces), test


class BaseInspector(ForeignMethods, Steps, Generic[Client]):
    """The state and the flows of an `Inspector`. Base class for threads and for asyncio."""

    _foreign = INSPECTOR_METHODS

    _caller_type: type[BaseCaller]

    @hides_client("Inspector.__init__", words=explain_words)
    def __init__(self, client: Client | Servers[Client], *, prefix: str = "hf:") -> None:
        self._prefix = names.start(prefix)
        self._callers = [self._caller_type(one) for one in listed(client)]
        self._endpoints: list[Endpoint] = [one.endpoint for one in self._callers]

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
        if isinstance(name, LockInfo):
            return name.name, name.key
        lock = names.lock_keys(name, self._prefix.decode(), key)[0]
        return name if isinstance(name, str) else text(name), lock

    def _enough(self, lock: LockInfo, answered: int) -> None:
        if answered <= lock.servers // 2:
            why = f"this needs answers from {lock.servers // 2 + 1} of its {lock.servers} servers, and {answered} answered"
            nodes = {endpoint.address: "one of the servers of the lock" for endpoint in self._endpoints}
            raise QuorumError(f"lock {lock.name!r} cannot be broken: {why}", name=lock.name, nodes=nodes)

    def _breaking(
        self, where: Field, lock: LockInfo, holder: Holder | None, by: str | None
    ) -> Coroutine[Any, Any, list[break_lock.Outcome | WireError]]:
        """Return the operation that ends the lease of ``holder`` on each server. None: the leases of all holders end.

        ``by``: the name of the client that breaks the lock, for the former holder; None: ``host:pid``.
        """
        holders = lock.holders if holder is None else (holder,)
        if lock.kind in {"semaphore", "rwlock"}:
            return break_lock.break_permits(where, lock.key, [one.mark for one in holders], by_whom(by))
        return break_lock.break_lock(
            where, lock.key, holders[0].mark, by_whom(by), prefix=self._prefix, leads=lock.kind == "election"
        )

    def _broken(self, lock: LockInfo, answers: list[break_lock.Outcome | WireError]) -> Broken | None:
        """Return the outcome of breaking a lock from the servers' answers; None if it was not held."""
        for conflict in (answer for answer in answers if isinstance(answer, Conflict)):
            raise ServerError(f"lock {lock.name!r}: {conflict.why}", address=self._address, key=text(lock.key))
        self._enough(lock, sum(not isinstance(answer, WireError) for answer in answers))
        done = [answer for answer in answers if isinstance(answer, break_lock.TakenAway)]
        if done:
            log.info("lock %r was revoked from %s", lock.name, lock.holder)
            return Broken(
                fence=max(answer.fence for answer in done),
                told=any(answer.told for answer in done),
                handed_over=any(answer.heir for answer in done),
            )
        if any(isinstance(answer, break_lock.OtherHolder) for answer in answers):
            why = "another client holds the lock now; ask again who holds it"
            raise HolderChanged(f"lock {lock.name!r} was not broken: {why}", name=lock.name, key=text(lock.key))
        return None

    async def _page(self, survey: Survey, pattern: str) -> list[LockInfo]:
        found = [describe(seen, self._prefix) for seen in await self._run(scan.page(survey), f"locks {pattern!r}")]
        # An event, a latch or a barrier is never held: its key only shows that it was used.
        return [lock for lock in found if lock.kind not in {"event", "latch", "barrier"} or lock.holders or lock.waiters]

    @hides_frames
    async def _show(self, name: str | bytes | LockInfo, key: str | bytes | None) -> LockInfo:
        called, lock = self._key(name, key)
        operation = scan.read_locks(self._field(await self._parts()), [lock], LINE)
        (seen,) = await self._run(operation, f"lock {called!r}", lock)
        return describe(seen, self._prefix, name=called, line=True)

    async def _wait(self, name: str | bytes | LockInfo, timeout: Seconds | None, key: str | bytes | None) -> bool:
        called, lock = self._key(name, key)
        wait = checked_timeout(timeout)
        return await self._run(break_lock.wait(self._field(await self._parts()), lock, wait), f"lock {called!r}", lock)

    async def _break(
        self, lock: str | bytes | LockInfo, holder: Holder | None, key: str | bytes | None, by: str | None
    ) -> Broken | None:
        seen = lock if isinstance(lock, LockInfo) else await self._show(lock, key)
        if seen.holder is None:
            self._enough(seen, seen.answered)
            return None
        operation = self._breaking(self._field(await self._parts()), seen, holder, by)
        return self._broken(seen, await self._run(operation, f"lock {seen.name!r}", seen.key, "--break"))

    async def _schedules(self) -> list[str]:
        """Return the names of the schedules under the prefix, sorted. Raises ServerError."""
        prefix = self._prefix + b"schedule:"
        operation = scan.keys_on(self._field(await self._parts()), scan.scan_pattern(prefix, [b"", b""]))
        keys = await self._run(operation, "schedules")
        return sorted(text(name) for key in keys if (name := names.name_of(key, prefix)) is not None)

    async def _parts(self) -> list[Endpoint]:
        """Return the servers to search for keys: all primaries of a Cluster, otherwise the servers that were passed."""
        try:
            await self._callers[0].driver(b"")  # For a Cluster, this looks up the servers of its slots.
        except WireError as error:
            raise self._error(error, "locks") from cause(error)
        cluster = self._endpoints[0].cluster
        return list(self._endpoints) if cluster is None else list(cluster.primaries())

    async def _run(self, operation: Coroutine[Any, Any, T], what: str, key: bytes = b"", right: str = "--inspect") -> T:
        """Run an operation on all servers and return its result. ``right``: its option of ``holdfast acl``."""
        try:
            servers = [await caller.driver(b"") for caller in self._callers]
            parts = [await self._caller_type(part).driver(b"") for part in await self._parts()]
            return await self._run_on(servers[0], _placed(operation, servers, parts))
        except WireError as error:
            raise self._error(error, what, key, right) from cause(error)
        finally:
            operation.close()  # An operation of an inspector has nothing to clean up.

    def _error(self, error: WireError, what: str, key: bytes = b"", right: str = "--inspect") -> ServerError:
        from holdfast._api.access import prefix_option
        from holdfast._api.error_map import told

        return told(error, what, text(key), (*prefix_option(self._prefix), right))


class Inspector(InThreads, BaseInspector[SyncClient]):
    """A view of the locks on a server: who holds them, and who waits. It can also break a lock. Looking changes nothing.

    Tokens are never shown.

    Args:
        client: a redis.Redis or valkey.Valkey client (also of a Cluster), or a URL; for a Redlock, its servers.
        prefix: prefix of the locks.
    """

    _caller_type = Caller

    def locks(self, pattern: str = "*") -> Iterator[LockInfo]:
        """Yield the locks that are held or waited for, as they are found, in no particular order.

        One request looks at fifty locks, so that a busy server can serve others in between. Locks that are acquired or released
        meanwhile may be missing. ``pattern`` selects names, as in `fnmatch`. Raises ServerError.
        """
        survey = self._survey(pattern, complete(self._parts()))
        while not survey.over:
            yield from complete(self._page(survey, pattern))

    def show(self, name: str | bytes | LockInfo, *, key: str | bytes | None = None, **mistaken: Never) -> LockInfo:
        """Return a lock with all its holders and waiters, up to a thousand of each. Raises ServerError.

        ``key`` is the lock's own ``key=``, if it was created with one.
        """
        refuse_mistaken(mistaken, "Inspector.show")
        return complete(self._show(name, key))

    def wait(
        self, name: str | bytes | LockInfo, timeout: Seconds | None = None, *, key: str | bytes | None = None, **mistaken: Never
    ) -> bool:
        """Wait until nobody holds the lock, up to ``timeout`` seconds (None: no limit). Return False on timeout.

        This neither acquires the lock nor queues for it, so another client may hold the lock again when the call returns. The
        call polls the server once a second, and when the lease expires, because it gets no notification of a release. ``key``:
        as in `show`. Raises ServerError.
        """
        refuse_mistaken(mistaken, "Inspector.wait")
        return complete(self._wait(name, timeout, key))

    def break_lock(
        self,
        lock: str | bytes | LockInfo,
        *,
        holder: Holder | None = None,
        key: str | bytes | None = None,
        by: str | None = None,
        **mistaken: Never,
    ) -> Broken | None:
        """Break the lock: its holder loses the lease, and the first waiter acquires it at once. Return None if nobody held it.

        The former holder is notified. The returned fence is higher than the holder's fences. If you pass a result of `show` or
        `locks`, and the lock has another holder by now, that holder keeps it and HolderChanged is raised. If you pass a name,
        the present holder loses the lock.

        Args:
            lock: the lock as seen by `show` or `locks`, or its name.
            holder: the one holder that loses its lease, if the lock has several. None: all holders that were seen lose theirs.
            key: the lock's own ``key=``, if it was created with one and is passed by name.
            by: your name, for the former holder and its log; default: ``host:pid``.

        Raises:
            HolderChanged: the lock has another holder by now.
            ServerError: the server cannot be reached.
            QuorumError: too few of several servers can be reached.
        """
        refuse_mistaken(mistaken, "Inspector.break_lock")
        return complete(self._break(lock, holder, key, by))


@of_asyncio
class AioInspector(InTasks, BaseInspector[AsyncClient]):
    """A view of the locks on a server: who holds them, and who waits. It can also break a lock. Looking changes nothing.

    Tokens are never shown.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client (also of a Cluster), or a URL; for a Redlock, its
            servers.
        prefix: prefix of the locks.
    """

    _caller_type = AioCaller

    async def locks(self, pattern: str = "*") -> AsyncIterator[LockInfo]:
        """Yield the locks that are held or waited for, as they are found, in no particular order.

        One request looks at fifty locks, so that a busy server can serve others in between. Locks that are acquired or released
        meanwhile may be missing. ``pattern`` selects names, as in `fnmatch`. Raises ServerError.
        """
        survey = self._survey(pattern, await self._parts())
        while not survey.over:
            for lock in await self._page(survey, pattern):
                yield lock

    async def show(self, name: str | bytes | LockInfo, *, key: str | bytes | None = None, **mistaken: Never) -> LockInfo:
        """Return a lock with all its holders and waiters, up to a thousand of each. Raises ServerError.

        ``key`` is the lock's own ``key=``, if it was created with one.
        """
        refuse_mistaken(mistaken, "Inspector.show")
        return await self._show(name, key)

    async def wait(
        self, name: str | bytes | LockInfo, timeout: Seconds | None = None, *, key: str | bytes | None = None, **mistaken: Never
    ) -> bool:
        """Wait until nobody holds the lock, up to ``timeout`` seconds (None: no limit). Return False on timeout.

        This neither acquires the lock nor queues for it, so another client may hold the lock again when the call returns. The
        call polls the server once a second, and when the lease expires, because it gets no notification of a release. ``key``:
        as in `show`. Raises ServerError.
        """
        refuse_mistaken(mistaken, "Inspector.wait")
        return await self._wait(name, timeout, key)

    async def break_lock(
        self,
        lock: str | bytes | LockInfo,
        *,
        holder: Holder | None = None,
        key: str | bytes | None = None,
        by: str | None = None,
        **mistaken: Never,
    ) -> Broken | None:
        """Break the lock: its holder loses the lease, and the first waiter acquires it at once. Return None if nobody held it.

        The former holder is notified. The returned fence is higher than the holder's fences. If you pass a result of `show` or
        `locks`, and the lock has another holder by now, that holder keeps it and HolderChanged is raised. If you pass a name,
        the present holder loses the lock.

        Args:
            lock: the lock as seen by `show` or `locks`, or its name.
            holder: the one holder that loses its lease, if the lock has several. None: all holders that were seen lose theirs.
            key: the lock's own ``key=``, if it was created with one and is passed by name.
            by: your name, for the former holder and its log; default: ``host:pid``.

        Raises:
            HolderChanged: the lock has another holder by now.
            ServerError: the server cannot be reached.
            QuorumError: too few of several servers can be reached.
        """
        refuse_mistaken(mistaken, "Inspector.break_lock")
        return await self._break(lock, holder, key, by)


def by_whom(by: str | None) -> str:
    """Return the name of the client that breaks a lock, as one printable word; the default is ``host:pid``."""
    if by is None:
        facts = current().facts()
        by = f"{facts['host']}:{facts['pid']}"
    return re.sub(r"[^!-~]", "_", by)[:80] or "nobody"


async def _placed(operation: Coroutine[Any, Any, T], servers: Sequence[Any], parts: Sequence[Any]) -> T:
    """Run an operation of an inspector, and send each `AskPlace` request to the server whose index it contains.

    ``servers``: drivers of the servers that the inspector was created with; a Cluster has one driver. ``parts``: drivers for
    requests about all keys of a server (`AskPlace.all_of`). A Cluster has one for each primary.
    """
    reply: Any = None
    error: Exception | None = None
    while True:
        try:
            request = operation.send(reply) if error is None else operation.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        reply = error = None
        try:
            if isinstance(request, AskPlace):
                request = RunOn((parts if request.all_of else servers)[request.place], _only(request.call))
            reply = await request
        except WireError as failed:
            error = failed


async def _only(call: Call) -> Answer[Any]:
    return await call
