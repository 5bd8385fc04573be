"""`inspect` for threads. `_api.aio_inspect` is the same for asyncio; `_api.inspect` is what they share."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from holdfast._api.caller import Caller
from holdfast._api.inspect import Broken, Holder, LockInfo, describe
from holdfast._api.inspector import BaseInspector, parts_of
from holdfast._core.inspect import break_lock, scan
from holdfast._core.inspect.scan import LINE
from holdfast._core.requests import Answer, AskPlace, Call, ServerRequest, WireError
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import current

T = TypeVar("T")


class Inspector(BaseInspector[Caller]):
    """Sees who holds which locks, and who waits for them. Takes nothing, and shows no tokens.

    Args:
        client: a redis.Redis or valkey.Valkey client (also of a Cluster), or a URL; of a Redlock, the list of its servers.
        prefix: of the locks' keys.
    """

    @hides_client()
    def __init__(self, client: object, *, prefix: str = "hf:") -> None:
        super().__init__(client, prefix, Caller)

    def locks(self, pattern: str = "*") -> Iterator[LockInfo]:
        """Locks that are held, or waited for, as they are found: in no order.

        Fifty are looked at in one run, so a server with many serves others meanwhile; what is taken or given back
        meanwhile may be missing. ``pattern``: of names, as in `fnmatch`. Raises ServerError.
        """
        survey = self._survey(pattern, self._parts())
        while not survey.over:
            for seen in self._run(scan.page(survey), f"locks {pattern!r}"):
                yield describe(seen, self._prefix)

    def show(self, name: str | bytes | LockInfo, *, key: str | bytes | None = None) -> LockInfo:
        """A lock, with all who hold it and all who wait, a thousand at most; ``key``: as the lock's. Raises ServerError."""
        called, lock = self._key(name, key)
        operation = scan.look(self._field(self._parts()), [lock], LINE)
        (seen,) = self._run(operation, f"lock {called!r}", lock)
        return describe(seen, self._prefix, name=called, line=True)

    def wait(self, name: str | bytes | LockInfo, timeout: float | None = None, *, key: str | bytes | None = None) -> bool:
        """Wait until nobody has the lock, for ``timeout`` seconds; False: somebody has it still.

        It takes nothing, and stands in no line: somebody else may have the lock again when this returns. Nobody tells it, so it
        looks once a second, and when the lease ends. Raises ServerError.
        """
        called, lock = self._key(name, key)
        return self._run(break_lock.wait(self._field(self._parts()), lock, timeout), f"lock {called!r}", lock)

    def break_lock(
        self,
        lock: str | bytes | LockInfo,
        *,
        holder: Holder | None = None,
        key: str | bytes | None = None,
        by: str | None = None,
    ) -> Broken | None:
        """Take the lock away from who has it; None: nobody has.

        Pass a result of `show` or `locks`: if the lock has another holder by now, that holder keeps it, and HolderChanged is
        raised. With a name alone, whoever has it now. The first waiter gets it at once. The former holder is notified and loses
        its lease; its fences are below the one returned. ``by``: your name, for the former holder and its log. ``holder``: of
        what several share, who alone is to lose it; without, all who were seen.

        Raises HolderChanged, ServerError, QuorumError.
        """
        seen = lock if isinstance(lock, LockInfo) else self.show(lock, key=key)
        if seen.holder is None:
            self._enough(seen, seen.answered)
            return None
        operation = self._breaking(self._field(self._parts()), seen, holder, by)
        return self._broken(seen, self._run(operation, f"lock {seen.name!r}", seen.key))

    def _parts(self) -> list[Any]:
        try:
            self._callers[0].driver(b"")  # of a Cluster, it asks who owns what
        except WireError as error:
            raise self._error(error, "locks") from error
        return parts_of(self._endpoints)

    def _run(self, operation: Coroutine[Any, Any, T], what: str, key: bytes = b"") -> T:
        try:
            return _Driver(self._callers, self._endpoints).run(operation)
        except WireError as error:
            raise self._error(error, what, key) from error


class _Driver(Driver):
    """Asks several servers."""

    def __init__(self, callers: list[Caller], endpoints: list[Any]) -> None:
        super().__init__(current(), endpoints[0])
        self._callers = callers
        self._parts = parts_of(endpoints)

    def do(self, request: AskPlace | ServerRequest) -> Any:
        return self._ask(request) if isinstance(request, AskPlace) else super().do(request)

    def _ask(self, request: AskPlace) -> Answer[Any]:
        if request.all_of:
            driver = Driver(self.process, self._parts[request.place])
        else:
            driver = self._callers[request.place].driver(b"")
        return driver.run(_only(request.call))


async def _only(call: Call) -> Answer[Any]:
    return await call
