"""Optimistic transactions for asyncio: WATCH, read, decide, MULTI, EXEC. `holdfast` has them for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from holdfast._api import transaction as transactions
from holdfast._api import transaction_options
from holdfast._core.requests import CallUser
from holdfast._core.transaction import TRIES, Changed, GivenUp, persist
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.aio_client import driver
from holdfast.errors import TransactionConflict

if TYPE_CHECKING:
    import redis.asyncio
    from redis.asyncio.client import Pipeline

T = TypeVar("T")


class Transaction(transactions.BaseTransaction):
    """A transaction: reads are sent at once, then commands are queued, and EXEC carries out all of them or none.

    Each ``async with`` statement makes one try: EXEC is sent at the end of the block, unless the block raises. The object can
    be used once. `run` makes as many tries as needed.
    """

    _face = "asyncio"

    @hides_client()
    def __init__(self, client: object, *keys: str | bytes) -> None:
        super().__init__(client, *keys)
        self._turn = asyncio.Lock()

    @property
    def read(self) -> redis.asyncio.Redis:
        """The client's commands, sent at once. To be used before the first command is queued."""
        return cast("redis.asyncio.Redis", self._reading)

    @property
    def queue(self) -> Pipeline:
        """The client's commands, queued for EXEC at the end of the block; `results` has their replies then."""
        return cast("Pipeline", self._queued)

    async def watch(self, *keys: str | bytes) -> None:
        """Watch more keys, whose names were read just now: call this before reading them and before queueing. Raises
        ServerError."""
        await driver().run(self._watch_more(keys))

    async def _now(self, *args: Any, **options: Any) -> Any:
        return await driver().run(self._at_once(*args, **options))

    async def __aenter__(self) -> Self:
        """Send WATCH and return the transaction. Raises ServerError if the server cannot be reached."""
        self._claim(asyncio.current_task())
        try:
            await driver().run(self._begin())
        except BaseException:
            self._unclaim()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send EXEC, or nothing if the block raised.

        Raises TransactionConflict if another client has changed a watched key, CommandFailed if commands failed inside EXEC,
        ServerError if the outcome is unknown.
        """
        try:
            await driver().run(self._end(failed=kind is not None))
        finally:
            self._unclaim()

    async def run(self, function: Callable[[Transaction], Awaitable[T]], *, tries: int = TRIES, wait: float | None = None) -> T:
        """Call a function with a transaction after WATCH, then send EXEC; repeat both after each conflict with another client.

        Args:
            function: a coroutine function, called once for each try, so its other effects may happen several times.
            tries: maximum number of tries.
            wait: seconds after which no further try is made. None: only ``tries`` limits them.

        Returns the result of the function in the try that succeeded. Raises TransactionConflict, with the number of tries, if
        no try succeeded. Raises CommandFailed, ServerError, and the exceptions of the function.
        """
        bounds = transaction_options.limits(tries, wait)
        try:
            return cast("T", await driver().run(persist(CallUser(lambda: self._try(function)), *bounds)))
        except GivenUp as given_up:
            raise self._given_up(given_up) from None

    async def _try(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run the function once, in a new transaction."""
        fresh = type(self)(self._client, *self._keys)
        return await fresh._tried(function)  # noqa: SLF001 - a new object of this class

    async def _tried(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run the function in this transaction. Raises Changed if another client was quicker."""
        try:
            async with self:
                return await function(self)
        except TransactionConflict as conflict:
            if conflict is not self._conflict:
                raise
            raise Changed(self._why) from conflict

    def _in_thread(self, function: Callable[[], object]) -> Any:
        return asyncio.get_running_loop().run_in_executor(None, function)

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        return driver().client(key, make)


def transaction(client: object, *keys: str | bytes) -> Transaction:
    """Return a transaction on ``keys``: it is carried out only if no other client changes one of the keys before EXEC.

    ::

        async with holdfast.aio.transaction(client, "stock:7") as tx:
            left = int(await tx.read.get("stock:7") or 0)
            if left > 0:
                tx.queue.set("stock:7", left - 1)

    Args:
        client: a redis.asyncio.Redis, RedisCluster, valkey.asyncio.Valkey or ValkeyCluster client, or a URL.
        keys: keys to watch, at least one; in a Cluster, all in one slot.

    Raises ConfigError if an argument is invalid. The ``async with`` statement raises TransactionConflict if another client was
    faster; `Transaction.run` and `transactional` repeat the transaction then.
    """
    return Transaction(client, *keys)
