"""Optimistic transactions for threads: WATCH, read, decide, MULTI, EXEC. `holdfast.aio` has them for asyncio."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from holdfast._api import transaction as transactions
from holdfast._api import transaction_options
from holdfast._core.requests import CallUser
from holdfast._core.transaction import TRIES, Changed, GivenUp, persist
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._runtime.drivers.sync_client import driver
from holdfast._runtime.process import current
from holdfast.errors import TransactionConflict

if TYPE_CHECKING:
    import redis
    from redis.client import Pipeline

T = TypeVar("T")


class Transaction(transactions.BaseTransaction):
    """A transaction: reads are sent at once, then commands are queued, and EXEC carries out all of them or none.

    Each ``with`` statement makes one try: EXEC is sent at the end of the block, unless the block raises. The object can be used
    once. `run` makes as many tries as needed.
    """

    _face = "sync"

    @hides_client()
    def __init__(self, client: object, *keys: str | bytes) -> None:
        super().__init__(client, *keys)
        self._turn = threading.RLock()

    @property
    def read(self) -> redis.Redis:
        """The client's commands, sent at once. To be used before the first command is queued."""
        return cast("redis.Redis", self._reading)

    @property
    def queue(self) -> Pipeline:
        """The client's commands, queued for EXEC at the end of the block; `results` has their replies then."""
        return cast("Pipeline", self._queued)

    def watch(self, *keys: str | bytes) -> None:
        """Watch more keys, whose names were read just now: call this before reading them and before queueing. Raises
        ServerError."""
        driver.run(self._watch_more(keys))

    def _now(self, *args: Any, **options: Any) -> Any:
        return driver.run(self._at_once(*args, **options))

    def _queue(self, name: str, *args: Any, **options: Any) -> Any:
        with self._turn:
            return super()._queue(name, *args, **options)

    def __enter__(self) -> Self:
        """Send WATCH and return the transaction. Raises ServerError if the server cannot be reached."""
        self._claim(threading.get_ident())
        try:
            driver.run(self._begin())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Send EXEC, or nothing if the block raised.

        Raises TransactionConflict if another client has changed a watched key, CommandFailed if commands failed inside EXEC,
        ServerError if the outcome is unknown.
        """
        try:
            driver.run(self._end(failed=kind is not None))
        finally:
            self._leave()

    def _leave(self) -> None:
        self._unclaim()
        if self._state != "over":  # An interrupt has ended the driver between two steps.
            driver.run(self._abandon())

    def run(self, function: Callable[[Transaction], T], *, tries: int = TRIES, wait: float | None = None) -> T:
        """Call a function with a transaction after WATCH, then send EXEC; repeat both after each conflict with another client.

        Args:
            function: called once for each try, so its other effects may happen several times.
            tries: maximum number of tries.
            wait: seconds after which no further try is made. None: only ``tries`` limits them.

        Returns the result of the function in the try that succeeded. Raises TransactionConflict, with the number of tries, if
        no try succeeded. Raises CommandFailed, ServerError, and the exceptions of the function.
        """
        bounds = transaction_options.limits(tries, wait)
        try:
            return cast("T", driver.run(persist(CallUser(lambda: self._try(function)), *bounds)))
        except GivenUp as given_up:
            raise self._given_up(given_up) from None

    def _try(self, function: Callable[[Transaction], T]) -> T:
        """Run the function once, in a new transaction."""
        fresh = type(self)(self._client, *self._keys)
        return fresh._tried(function)  # noqa: SLF001 - a new object of this class

    def _tried(self, function: Callable[[Transaction], T]) -> T:
        """Run the function in this transaction. Raises Changed if another client was quicker."""
        try:
            with self:
                value = function(self)
                if inspect.iscoroutine(value):
                    value.close()
                    transaction_options.no_coroutine(function)
        except TransactionConflict as conflict:
            if conflict is not self._conflict:
                raise
            raise Changed(self._why) from conflict
        except StopIteration as error:
            raise RuntimeError("the function of a transaction raised StopIteration") from error
        return value

    def _in_thread(self, function: Callable[[], object]) -> object:
        return function()

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        return current().client(key, make)


def transaction(client: object, *keys: str | bytes) -> Transaction:
    """Return a transaction on ``keys``: it is carried out only if no other client changes one of the keys before EXEC.

    ::

        with holdfast.transaction(client, "stock:7") as tx:
            left = int(tx.read.get("stock:7") or 0)
            if left > 0:
                tx.queue.set("stock:7", left - 1)

    Args:
        client: a redis.Redis, RedisCluster, valkey.Valkey or ValkeyCluster client, or a URL.
        keys: keys to watch, at least one; in a Cluster, all in one slot.

    Raises ConfigError if an argument is invalid. The ``with`` statement raises TransactionConflict if another client was
    faster; `Transaction.run` and `transactional` repeat the transaction then.
    """
    return Transaction(client, *keys)
