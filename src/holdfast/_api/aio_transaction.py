"""`holdfast.aio.transaction`: the same as `holdfast.transaction`, for asyncio."""

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
    """One transaction: reads at once, then queued commands, which EXEC carries out together or not at all.

    As ``async with`` it is one try: EXEC at the end of the block, or nothing if the block raises. It is used once.
    `run` makes as many as needed.
    """

    _face = "asyncio"

    @hides_client()
    def __init__(self, client: object, *keys: str | bytes) -> None:
        super().__init__(client, *keys)
        self._turn = asyncio.Lock()

    @property
    def read(self) -> redis.asyncio.Redis:
        """The client's commands, carried out at once: before the first one is queued."""
        return cast("redis.asyncio.Redis", self._reading)

    @property
    def queue(self) -> Pipeline:
        """The client's commands, carried out by EXEC at the end of the block; `results` has their answers."""
        return cast("Pipeline", self._queued)

    async def watch(self, *keys: str | bytes) -> None:
        """Watch more keys, whose names only reading tells: before they are read, and before anything is queued."""
        await driver().run(self._watch_more(keys))

    async def _now(self, *args: Any, **options: Any) -> Any:
        return await driver().run(self._at_once(*args, **options))

    async def __aenter__(self) -> Self:
        """WATCH. Raises ServerError."""
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
        """EXEC; or nothing, if the block raises. Raises TransactionConflict, CommandFailed, ServerError."""
        try:
            await driver().run(self._end(failed=kind is not None))
        finally:
            self._unclaim()

    async def run(self, function: Callable[[Transaction], Awaitable[T]], *, tries: int = TRIES, wait: float | None = None) -> T:
        """Call a function with a transaction that has begun, then EXEC; all of it again, if somebody else was quicker.

        Args:
            function: a coroutine function, called once for each try. All that it does besides its transaction is done at each
            try.
            tries: how often at most.
            wait: seconds after which it is not tried again; None: as long as there are tries.

        Returns what the function returned in the try that counts. Raises TransactionConflict with the number of tries,
        CommandFailed, ServerError, and what the function raises.
        """
        bounds = transaction_options.limits(tries, wait)
        try:
            return cast("T", await driver().run(persist(CallUser(lambda: self._try(function)), *bounds)))
        except GivenUp as given_up:
            raise self._given_up(given_up) from None

    async def _try(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        transaction = type(self)(self._client, *self._keys)
        try:
            async with transaction:
                return await function(transaction)
        except TransactionConflict as conflict:
            if conflict is not transaction._conflict:  # noqa: SLF001
                raise
            raise Changed(transaction._why) from conflict  # noqa: SLF001

    def _in_thread(self, function: Callable[[], object]) -> Any:
        return asyncio.get_running_loop().run_in_executor(None, function)

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        return driver().client(key, make)


def transaction(client: object, *keys: str | bytes) -> Transaction:
    """A transaction on ``keys``: it counts only if nobody else has changed one of them until EXEC.

    ::

        async with holdfast.aio.transaction(client, "stock:7") as tx:
            left = int(await tx.read.get("stock:7") or 0)
            if left > 0:
                tx.queue.set("stock:7", left - 1)

    Args:
        client: a redis.asyncio.Redis, RedisCluster, valkey.asyncio.Valkey or ValkeyCluster client, or a URL.
        keys: to watch, one at least; in a Cluster, of one slot.

    Raises ConfigError. The ``async with`` raises TransactionConflict if somebody else was quicker; `Transaction.run` and
    `transactional` try again.
    """
    return Transaction(client, *keys)
