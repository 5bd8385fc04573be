"""`Inspector` for asyncio: find locks, show who holds them and who waits, and break them. `holdfast` has it for threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from holdfast._api.caller import AioCaller
from holdfast._api.inspect import Broken, Holder, LockInfo, describe
from holdfast._api.inspector import BaseInspector, parts_of
from holdfast._core.inspect import break_lock, scan
from holdfast._core.inspect.scan import LINE
from holdfast._core.requests import Answer, AskPlace, Call, ServerAwaited, WireError
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.aio import Driver, kept
from holdfast._runtime.process import current

T = TypeVar("T")


class Inspector(BaseInspector[AioCaller]):
    """A view of the locks on a server: who holds them, and who waits. It can also break a lock. Looking changes nothing.

    Tokens are never shown.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client (also of a Cluster), or a URL; for a Redlock, the list
            of its servers.
        prefix: prefix of the locks.
    """

    @hides_client()
    def __init__(self, client: object, *, prefix: str = "hf:") -> None:
        super().__init__(client, prefix, AioCaller)

    async def locks(self, pattern: str = "*") -> AsyncIterator[LockInfo]:
        """Yield the locks that are held or waited for, in no particular order, while they are found.

        One request looks at fifty locks, so that a busy server can serve others in between. Locks that are acquired or released
        meanwhile may be missing. ``pattern`` selects names, as in `fnmatch`. Raises ServerError.
        """
        survey = self._survey(pattern, await self._parts())
        while not survey.over:
            for seen in await self._run(scan.page(survey), f"locks {pattern!r}"):
                yield describe(seen, self._prefix)

    async def show(self, name: str | bytes | LockInfo, *, key: str | bytes | None = None) -> LockInfo:
        """Return a lock with all its holders and waiters, up to a thousand of each. Raises ServerError.

        ``key`` is the lock's own ``key=``, if it was created with one.
        """
        called, lock = self._key(name, key)
        operation = scan.look(self._field(await self._parts()), [lock], LINE)
        (seen,) = await self._run(operation, f"lock {called!r}", lock)
        return describe(seen, self._prefix, name=called, line=True)

    async def wait(self, name: str | bytes | LockInfo, timeout: float | None = None, *, key: str | bytes | None = None) -> bool:
        """Wait until nobody holds the lock, up to ``timeout`` seconds (None: no limit). Return False if the lock is still held
        then.

        This neither acquires the lock nor queues for it, so another client may hold the lock again when the call returns. The
        call polls the server once a second, and when the lease expires, because no notification of a release is sent. ``key``:
        as in `show`. Raises ServerError.
        """
        called, lock = self._key(name, key)
        return await self._run(break_lock.wait(self._field(await self._parts()), lock, timeout), f"lock {called!r}", lock)

    async def break_lock(
        self,
        lock: str | bytes | LockInfo,
        *,
        holder: Holder | None = None,
        key: str | bytes | None = None,
        by: str | None = None,
    ) -> Broken | None:
        """Break the lock: its holder loses the lease, and the first waiter acquires it at once. Return None if nobody held it.

        The former holder is notified. Its fences are lower than the one returned. Pass a result of `show` or `locks` as lock:
        if the lock has another holder by now, that holder keeps it, and HolderChanged is raised. With a name alone, the present
        holder loses the lock.

        Args:
            lock: the lock as seen by `show` or `locks`, or its name.
            holder: the only holder that loses its lease, if the lock has several. None: all that were seen lose theirs.
            key: the lock's own ``key=``, if it was created with one and is passed by name.
            by: your name, for the former holder and its log; default: ``host:pid``.

        Raises:
            HolderChanged: the lock has another holder by now.
            ServerError: the server cannot be reached.
            QuorumError: of several servers, too few can be reached.
        """
        seen = lock if isinstance(lock, LockInfo) else await self.show(lock, key=key)
        if seen.holder is None:
            self._enough(seen, seen.answered)
            return None
        operation = self._breaking(self._field(await self._parts()), seen, holder, by)
        return self._broken(seen, await self._run(operation, f"lock {seen.name!r}", seen.key))

    async def _parts(self) -> list[Any]:
        try:
            await self._callers[0].driver(b"")  # For a Cluster, this looks up the servers of its slots.
        except WireError as error:
            raise self._error(error, "locks") from error
        return parts_of(self._endpoints)

    async def _run(self, operation: Coroutine[Any, Any, T], what: str, key: bytes = b"") -> T:
        try:
            return await _Driver(self._callers, self._endpoints).run(operation)
        except WireError as error:
            raise self._error(error, what, key) from error


class _Driver(Driver):
    """A driver that sends requests to several servers."""

    def __init__(self, callers: list[AioCaller], endpoints: list[Any]) -> None:
        super().__init__(current(), endpoints[0])
        self._callers = callers
        self._parts = parts_of(endpoints)

    def awaited(self, request: AskPlace | ServerAwaited) -> Awaitable[Any]:
        return self._ask(request) if isinstance(request, AskPlace) else super().awaited(request)

    async def _ask(self, request: AskPlace) -> Answer[Any]:
        if request.all_of:
            driver = kept(self.process, self._parts[request.place], Driver)
        else:
            driver = await self._callers[request.place].driver(b"")
        return await driver.run(_only(request.call))


async def _only(call: Call) -> Answer[Any]:
    return await call
