"""Optimistic transactions with WATCH, reads, MULTI and EXEC, and errors that tell the outcome. For threads and for asyncio.

Commands are sent through a pipeline of redis-py or valkey-py, so users find the methods that they know. `_net.client_pipeline`
works around defects of the pipeline. In a Cluster, holdfast opens a client to the server of the keys' slot.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeVar, cast

from holdfast._api.error_map import remedy_of
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import ASYNC_WITH, TRANSACTION_METHODS, WITH, ForeignMethods
from holdfast._api.options import explain_words, refuse_mistaken
from holdfast._api.transaction_options import address_of, checked_keys, limits, no_coroutine, raw, server_of
from holdfast._core.requests import CallClient, CallUser, NotSent, Refused, Sleep, WireError
from holdfast._core.transaction import TRIES, GivenUp, RetryableConflict, persist
from holdfast._durations import Seconds
from holdfast._net.client_pipeline import (
    CUT,
    LOST,
    MOVED,
    MOVING,
    Commands,
    Tripwire,
    brief,
    check_word,
    is_command,
    is_moving,
    kinds,
    named,
    refusal,
    shorten,
    unread,
    verdict,
)
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.cluster import REFRESH_EVERY_S
from holdfast._net.endpoint import Endpoint
from holdfast._net.own_clients import open_client
from holdfast._net.redaction import hides_client
from holdfast._net.slots import slot_of
from holdfast._runtime.drivers.sync_client import driver
from holdfast._runtime.process import current
from holdfast.errors import CommandFailed, ConfigError, HoldfastError, ServerError, TransactionConflict

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    from redis.asyncio.client import Pipeline as AioPipeline
    from redis.client import Pipeline

T = TypeVar("T")

NAMED = 5
"""Number of failed commands that an error's message lists; the error's attributes have all of them."""

_watched: ContextVar[frozenset[tuple[object, ...]]] = ContextVar("holdfast_watched", default=frozenset())
"""Keys that the current call stack watches, each as (thread or task, server, key)."""


class BaseTransaction(ForeignMethods, Steps, Generic[Client]):
    """A transaction. A ``with`` statement tries once, `run` repeats tries. Base class for threads and for asyncio."""

    _foreign = TRANSACTION_METHODS

    @hides_client("Transaction.__init__", words=explain_words)
    def __init__(self, client: Client, *keys: str | bytes) -> None:
        self._client: Any = client
        self._home = server_of(client, self._api)
        """The server for which holdfast opens a client; None if the user's client sends the commands."""
        self._keys = checked_keys(keys, clustered=self._home is not None and self._home.cluster is not None)
        self._state = "new"
        self._pid = 0
        self._pipe: Any = None
        self._carry: Any = None
        """The pipeline's original `execute_command`, which sends a command or queues it."""
        self._tripwire: Tripwire | None = None
        self._results: list[Any] | None = None
        self._conflict: TransactionConflict | None = None
        self._why = ""
        self._who: object = None
        self._mine: frozenset[tuple[object, ...]] = frozenset()
        self._turn = self._new_turn()
        """A mutex for the connection: between threads in the sync API, between tasks in the asyncio API."""
        self._queued = Commands(self._queue)
        self._reading = Commands(self._read)

    def __repr__(self) -> str:
        api = "aio." if self._api == "asyncio" else ""
        return f"<holdfast.{api}Transaction on {self._names} at {self._where}>"

    @property
    def results(self) -> list[Any]:
        """The replies of EXEC, one for each queued command. Raises RuntimeError before EXEC."""
        if self._results is None:
            raise RuntimeError(f"{self!r} has no results yet: EXEC at the end of the block returns them")
        return self._results

    @staticmethod
    def _new_turn() -> Any:
        raise NotImplementedError

    @staticmethod
    def _driver() -> Any:
        """Return the driver that runs a transaction's operations; in asyncio, that of the running loop."""
        raise NotImplementedError

    @staticmethod
    async def _call_in(transaction: Any, function: Callable[[Any], Any]) -> Any:
        """Call the function of the user inside the ``with`` statement of a transaction, and await it in asyncio."""
        raise NotImplementedError

    @property
    def _names(self) -> str:
        return ", ".join(repr(key) for key in self._keys)

    @property
    def _where(self) -> str:
        return self._home.address if self._home is not None else address_of(self._client)

    @property
    def _slot(self) -> int | None:
        clustered = self._home is not None and self._home.cluster is not None
        return slot_of(raw(self._keys[0])) if clustered else None

    # Flows

    async def _operate(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self._run_on(self._driver(), operation)

    @hides_frames
    async def _enter(self) -> None:
        self._claim(self._this_task())
        try:
            await self._operate(self._begin())
        except BaseException as error:
            await self._leave(error)
            raise

    async def _exit(self, *, failed: bool) -> None:
        error: BaseException | None = None
        try:
            await self._operate(self._end(failed=failed))
        except BaseException as raised:
            error = raised
            raise
        finally:
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        self._unclaim()
        if self._state != "over" and not isinstance(error, self._dropped):
            await self._operate(self._abandon())  # An interrupt has ended the driver between two steps.

    @hides_frames
    async def _repeat(self, function: Callable[[Any], Any], tries: int, wait: Seconds | None) -> Any:
        bounds = limits(tries, wait)
        one_try = self._as_function(self._try)
        try:
            return await self._operate(persist(CallUser(lambda: one_try(function)), *bounds))
        except GivenUp as given_up:
            raise self._given_up(given_up) from None

    async def _try(self, function: Callable[[Any], Any]) -> Any:
        """Run the function once, in a new transaction. Raises RetryableConflict if another client was quicker."""
        fresh = type(self)(self._client, *self._keys)
        try:
            return await self._call_in(fresh, function)
        except TransactionConflict as conflict:
            why = fresh._reason_of(conflict)  # noqa: SLF001 - a new object of this class
            if not why:
                raise
            raise RetryableConflict(why) from conflict

    # The allowed order of calls

    def _may_read(self) -> None:
        if self._state == "queuing":
            raise RuntimeError(
                f"{self!r}: read before the first command is queued; queued commands run at the end of the block, so a read "
                "would not see them"
            )
        self._may("reading")

    def _may(self, *states: str) -> None:
        if self._state == "broken":
            assert self._conflict is not None
            raise self._conflict
        if self._state not in states:
            raise RuntimeError(f"{self!r} is used outside of its block")
        if os.getpid() != self._pid:
            raise self._not_mine()

    def _read(self, name: str, *args: Any, **options: Any) -> Any:
        self._may_read()
        return self._command(name, args)(*args, **options)

    def _now(self, *args: Any, **options: Any) -> Any:
        """Send a command at once. This replaces the pipeline's `execute_command`, which a client's method may call several
        times."""
        raise NotImplementedError

    def _queue(self, name: str, *args: Any, **options: Any) -> Any:
        self._may("reading", "queuing")
        if self._state == "reading":
            self._pipe.multi()
            self._pipe.execute_command = self._carry
            self._state = "queuing"
        queued = self._command(name, args)(*args, **options)
        if queued is not self._pipe:
            getattr(queued, "close", lambda: None)()
            raise TypeError(f"{name} cannot be queued: it is a helper of the client that sends several commands")
        return self._queued

    def _command(self, name: str, args: tuple[Any, ...]) -> Callable[..., Any]:
        if not is_command(self._pipe.__class__, name):
            raise AttributeError(f"{name!r} is not a command of the client")
        if name == "execute_command" and args:
            check_word(args[0])
        command: Callable[..., Any] = getattr(self._pipe, name)
        return command

    # The steps from WATCH to EXEC

    def _claim(self, who: object) -> None:
        """Mark this transaction as used, and its keys as watched by ``who``, the calling thread or task. Possible only once.

        This is not part of the operation `_begin`, because an operation may begin in one task and end in another.
        """
        if self._state != "new":
            raise RuntimeError(f"{self!r} is in use, or was used before: create a new one for each use")
        self._who = who
        self._claim_keys(self._keys)
        self._state, self._pid = "reading", os.getpid()

    def _claim_keys(self, keys: tuple[str | bytes, ...]) -> None:
        mine = frozenset((self._who, self._home or self._client, raw(key)) for key in keys) - self._mine
        if mine & _watched.get():
            raise ConfigError(
                f"transaction on {self._names}: the calling code is inside another transaction that watches the same "
                "key, so the outer one would fail each time; put both into one transaction",
                parameter="keys",
            )
        self._mine |= mine
        _watched.set(_watched.get() | mine)

    def _unclaim(self) -> None:
        _watched.set(_watched.get() - self._mine)

    async def _begin(self) -> None:
        try:
            await self._watch_first()
        except BaseException:
            await self._abandon()
            raise

    async def _watch_first(self) -> None:
        for pause in (0.0, REFRESH_EVERY_S, None) if self._slot is not None else (None,):
            self._pipe = (await self._carrier()).pipeline(transaction=True)
            try:
                await CallClient(lambda: self._pipe.watch(*self._keys))
                break
            except Exception as error:
                if pause is None or not kinds(error) & (LOST | MOVED):
                    raise self._not_begun(error) from error
            await CallClient(self._pipe.reset)
            await Sleep(pause)  # The Cluster is asked for its slot owners at most once in this time.
            await self._find_owner()
        self._tripwire = Tripwire(self._pipe)
        self._carry, self._pipe.execute_command = self._pipe.execute_command, self._now

    async def _watch_more(self, keys: tuple[str | bytes, ...]) -> None:
        self._may_read()
        clustered = self._slot is not None
        checked_keys((self._keys[0], *keys) if clustered else keys, clustered=clustered)
        self._claim_keys(keys)
        try:
            await self._at_once("WATCH", *keys)
        except TransactionConflict:
            raise
        except Exception as error:
            raise self._not_begun(error) from error
        self._keys += tuple(key for key in keys if key not in self._keys)

    async def _at_once(self, *args: Any, **options: Any) -> Any:
        async def ask() -> Any:
            self._may_read()
            return await CallClient(lambda: self._carry(*args, **options))

        try:
            return await self._alone(ask)
        except Exception as error:
            raised = self._lost(error)
            if raised is error:
                raise
            shorten(error)
            raise raised from error

    async def _alone(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an operation while other threads and tasks are kept from using the connection."""
        await CallClient(self._turn.acquire)
        try:
            return await operation()
        finally:
            self._turn.release()

    async def _carrier(self) -> Any:
        """Return the client that sends the commands: the user's, or one that holdfast opens."""
        home = self._home
        if home is None:
            return self._client
        decode = False
        if home.cluster is not None:
            if not home.cluster.known:
                await self._find_owner()
            assert self._slot is not None
            home = home.cluster.owner(self._slot)
            if home is None:
                raise self._server_error("no server owns its slot; nothing was carried out")
            encoder = getattr(self._client, "get_encoder", None)
            decode = bool(encoder and encoder().decode_responses)
        elif home.local is not None:
            from holdfast._local.server import local  # Imported late: most programs use a server of their own.

            url = home.local
            await CallClient(lambda: self._in_thread(lambda: local.ensure(url)))
        return self._ours((home, decode), functools.partial(open_client, home, self._api, decode=decode))

    async def _find_owner(self) -> None:
        assert self._home is not None
        cluster, timeout = self._home.cluster, self._home.timeout
        assert cluster is not None
        try:
            await CallClient(lambda: self._in_thread(lambda: cluster.refresh(timeout)))
        except Exception as error:
            raise self._not_begun(error) from error

    def _in_thread(self, function: Callable[[], object]) -> Any:
        """Run a blocking function, outside of the event loop if there is one."""
        raise NotImplementedError

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        """Return the client that holdfast has opened for the server in ``key``. If there is none yet, ``make`` opens it."""
        raise NotImplementedError

    async def _end(self, *, failed: bool) -> None:
        if os.getpid() != self._pid:
            self._forsake(failed=failed)
        elif failed or self._state == "broken":
            await self._abandon()
            if not failed:
                assert self._conflict is not None
                raise self._conflict
        else:
            await self._execute()

    async def _execute(self) -> None:
        names = [named(command) for command in self._pipe.command_stack]
        self._state = "executing"
        before = sys.exception()
        try:
            results = await self._alone(self._exec)
        except BaseException as error:
            await self._abandon()
            found = verdict(error, before, self._slot)
            if isinstance(found, BaseException):
                raise found from None
            shorten(error)
            raise (self._conflicted if found.conflict else self._server_error)(found.why) from error
        if results is None:
            await self._abandon()
            raise self._conflicted(CUT)
        self._results = results
        self._close()
        failed = {n: f"{names[n]}: {answer}" for n, answer in enumerate(results) if isinstance(answer, Exception)}
        if failed:
            raise CommandFailed(
                f"transaction on {self._names}: EXEC carried it out, and {len(failed)} of {len(results)} commands failed: "
                + "; ".join(f"results[{n}], {why}" for n, why in islice(failed.items(), NAMED))
                + (" …" if len(failed) > NAMED else "")
                + ". The other commands were carried out: there is no rollback",
                keys=self._key_texts,
                results=results,
                failed=failed,
            )

    async def _exec(self) -> list[Any] | None:
        """Send EXEC and return the replies. Return None if the server has closed the connection meanwhile.

        EXEC is not sent then, because its outcome on a closed connection would be unknown.
        """
        try:
            ended = await CallClient(lambda: unread(self._pipe.connection))
        except Exception:  # noqa: BLE001 - the clients raise different errors for a closed connection
            ended = True
        return None if ended else await CallClient(lambda: self._pipe.execute(raise_on_error=False))

    async def _abandon(self) -> None:
        """Send UNWATCH and close the transaction. DISCARD is not needed, because the client sends MULTI together with EXEC."""
        self._close()
        if self._pipe is not None:
            await self._alone(self._reset)

    async def _reset(self) -> None:
        pipe = self._pipe
        try:
            await CallClient(pipe.reset)
        except Exception:  # noqa: BLE001 - whatever it is, the connection cannot be used any more
            connection, pipe.watching = pipe.connection, False
            if connection is not None:
                await CallClient(connection.disconnect)
            await CallClient(pipe.reset)

    def _close(self) -> None:
        """Refuse further commands."""
        if self._tripwire is not None:
            self._tripwire.remove()
        self._tripwire = None
        self._state = "over"

    def _forsake(self, *, failed: bool) -> None:
        """Drop the connection in a forked child without sending anything, because the parent process goes on using it."""
        pipe, self._state = self._pipe, "over"
        pipe.watching, pipe.connection = False, None
        if not failed:
            raise self._not_mine()

    def _not_mine(self) -> RuntimeError:
        return RuntimeError(f"{self!r} belongs to the process that forked this one, and runs there; nothing was done here")

    # The outcome

    def _lost(self, error: Exception) -> Exception:
        """Return the error to raise for a failed read. If WATCH has no effect any more, this is a TransactionConflict."""
        moving = is_moving(error, self._slot)
        if not moving and not kinds(error) & {*LOST, "WatchError", "Reconnected"}:
            return error
        self._state = "broken"
        return self._conflicted(MOVING if moving else CUT)

    def _conflicted(self, why: str) -> TransactionConflict:
        self._why = why
        self._conflict = TransactionConflict(
            f"transaction on {self._names}: {why}; nothing was carried out. Repeat it from the first read on, as run() and "
            "@transactional do",
            keys=self._key_texts,
            tries=1,
            waited=0.0,
        )
        return self._conflict

    def _reason_of(self, conflict: TransactionConflict) -> str:
        """Return why this transaction failed with this error; empty if it is the error of another transaction."""
        return self._why if conflict is self._conflict else ""

    def _not_begun(self, error: Exception) -> HoldfastError:
        text, advice = brief(error), ""
        found: WireError | None = None
        if "MaxConnectionsError" in kinds(error) or "oo many connections" in str(error) or "No connection av" in str(error):
            text += "; the client's pool has no free connection: a transaction needs one of its own until EXEC"
        elif kinds(error) & {"AuthenticationError", "ResponseError"}:
            found = refusal(error, text, self._where)
        elif "ConnectionError" in kinds(error) and " connecting to " in text:
            found = NotSent(f"no server at {self._where}: {text.partition('. ')[2].removesuffix('.')}", self._where)
        if found is not None:
            text, advice = str(found).removesuffix("."), remedy_of(found)
        shorten(error)
        what, code = ("refused", found.code) if isinstance(found, Refused) else ("failed", "")
        return self._server_error(f"{what}: {text}; nothing was carried out{advice}", code)

    def _server_error(self, text: str, code: str = "") -> ServerError:
        return ServerError(f"transaction on {self._names} at {self._where}: {text}", address=self._where, code=code)

    def _given_up(self, given_up: GivenUp) -> TransactionConflict:
        tries = "1 try" if given_up.tries == 1 else f"{given_up.tries} tries"
        return TransactionConflict(
            f"transaction on {self._names} was given up after {tries} in {given_up.waited:.2f} s. The last time, "
            f"{given_up.why}; nothing was carried out. Pass more tries=, watch fewer keys, or use a holdfast.Lock around the "
            "transaction",
            keys=self._key_texts,
            tries=given_up.tries,
            waited=given_up.waited,
        )

    @property
    def _key_texts(self) -> tuple[str, ...]:
        return tuple(key if isinstance(key, str) else key.decode(errors="backslashreplace") for key in self._keys)


class Transaction(InThreads, BaseTransaction[SyncClient]):
    """A transaction: reads are sent at once, then commands are queued, and EXEC carries out all of them or none.

    There is one try for each ``with`` statement: EXEC is sent at the end of the block, unless the block raises. Create a new
    object for each ``with`` statement. `run` tries again if another client changed a watched key.
    """

    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    @property
    def read(self) -> redis.Redis:
        """The client's commands, sent at once. Use them before the first command is queued."""
        return cast("redis.Redis", self._reading)

    @property
    def queue(self) -> Pipeline:
        """The client's commands, queued for EXEC at the end of the block. After the block, `results` has the replies."""
        return cast("Pipeline", self._queued)

    def watch(self, *keys: str | bytes) -> None:
        """Watch more keys, such as keys whose names were just read. Call this before reading these keys, and before queueing.

        Raises ServerError if the server cannot be reached, TransactionConflict if the connection was lost meanwhile.
        """
        complete(self._operate(self._watch_more(keys)))

    def _now(self, *args: Any, **options: Any) -> Any:
        return complete(self._operate(self._at_once(*args, **options)))

    def _queue(self, name: str, *args: Any, **options: Any) -> Any:
        with self._turn:
            return super()._queue(name, *args, **options)

    def __enter__(self) -> Self:
        """Send WATCH and return the transaction. Raises ServerError if the server cannot be reached."""
        complete(self._enter())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Send EXEC. If the block raised, send UNWATCH instead.

        Raises TransactionConflict if another client has changed a watched key, or if the connection was lost before EXEC.
        Raises CommandFailed if commands failed inside EXEC, ServerError if the outcome is unknown.
        """
        complete(self._exit(failed=kind is not None))

    def run(
        self, function: Callable[[Transaction], T], *, tries: int = TRIES, wait: Seconds | None = None, **mistaken: Never
    ) -> T:
        """Send WATCH, call ``function`` with the transaction, and send EXEC. Repeat this after each conflict.

        Args:
            function: called once for each try, so its other effects may happen several times.
            tries: maximum number of tries.
            wait: seconds after which no further try is made. None: ``tries`` is the only limit.

        Returns the result of the function in the try that succeeded. Raises TransactionConflict if no try succeeded; its
        message has the number of tries. Raises CommandFailed, ServerError, and the exceptions of the function.
        """
        refuse_mistaken(mistaken, "Transaction.run")
        return cast("T", complete(self._repeat(function, tries, wait)))

    _new_turn = staticmethod(threading.RLock)

    @staticmethod
    def _driver() -> Any:
        return driver

    @staticmethod
    async def _call_in(transaction: Transaction, function: Callable[[Transaction], T]) -> T:
        with transaction:
            value = function(transaction)
            if inspect.iscoroutine(value):
                value.close()
                no_coroutine(function)
        return value

    def _in_thread(self, function: Callable[[], object]) -> object:
        return function()

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        return current().client(key, make)


def transaction(client: SyncClient, *keys: str | bytes) -> Transaction:
    """Return a transaction on ``keys``: it is carried out only if no other client changes one of the keys before EXEC.

        with holdfast.transaction(client, "stock:7") as tx:
            left = int(tx.read.get("stock:7") or 0)
            if left > 0:
                tx.queue.set("stock:7", left - 1)

    Args:
        client: a redis.Redis, RedisCluster, valkey.Valkey or ValkeyCluster client, or a URL.
        keys: keys to watch, at least one; in a Cluster, all in one slot.

    Raises ConfigError if an argument is invalid. The ``with`` statement raises TransactionConflict if another client was
    faster; `Transaction.run` and `transactional` then repeat the transaction.
    """
    return Transaction(client, *keys)


@of_asyncio
class AioTransaction(InTasks, BaseTransaction[AsyncClient]):
    """A transaction: reads are sent at once, then commands are queued, and EXEC carries out all of them or none.

    There is one try for each ``async with`` statement: EXEC is sent at the end of the block, unless the block raises. Create a
    new object for each ``async with`` statement. `run` tries again if another client changed a watched key.
    """

    if not TYPE_CHECKING:
        __enter__ = WITH

    @property
    def read(self) -> redis.asyncio.Redis:
        """The client's commands, sent at once. Use them before the first command is queued."""
        return cast("redis.asyncio.Redis", self._reading)

    @property
    def queue(self) -> AioPipeline:
        """The client's commands, queued for EXEC at the end of the block. After the block, `results` has the replies."""
        return cast("AioPipeline", self._queued)

    async def watch(self, *keys: str | bytes) -> None:
        """Watch more keys, such as keys whose names were just read. Call this before reading these keys, and before queueing.

        Raises ServerError if the server cannot be reached, TransactionConflict if the connection was lost meanwhile.
        """
        await self._operate(self._watch_more(keys))

    async def _now(self, *args: Any, **options: Any) -> Any:
        return await self._operate(self._at_once(*args, **options))

    async def __aenter__(self) -> Self:
        """Send WATCH and return the transaction. Raises ServerError if the server cannot be reached."""
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send EXEC. If the block raised, send UNWATCH instead.

        Raises TransactionConflict if another client has changed a watched key, or if the connection was lost before EXEC.
        Raises CommandFailed if commands failed inside EXEC, ServerError if the outcome is unknown.
        """
        await self._exit(failed=kind is not None)

    async def run(
        self,
        function: Callable[[AioTransaction], Awaitable[T]],
        *,
        tries: int = TRIES,
        wait: Seconds | None = None,
        **mistaken: Never,
    ) -> T:
        """Send WATCH, call ``function`` with the transaction, and send EXEC. Repeat this after each conflict.

        Args:
            function: a coroutine function, called once for each try, so its other effects may happen several times.
            tries: maximum number of tries.
            wait: seconds after which no further try is made. None: ``tries`` is the only limit.

        Returns the result of the function in the try that succeeded. Raises TransactionConflict if no try succeeded; its
        message has the number of tries. Raises CommandFailed, ServerError, and the exceptions of the function.
        """
        refuse_mistaken(mistaken, "Transaction.run")
        return cast("T", await self._repeat(function, tries, wait))

    @staticmethod
    def _new_turn() -> Any:
        from asyncio import Lock  # Imported late: programs of threads need no asyncio.

        return Lock()

    @staticmethod
    def _driver() -> Any:
        from holdfast._runtime.drivers.aio_client import driver  # Imported late: programs of threads need no asyncio.

        return driver()

    @staticmethod
    async def _call_in(transaction: AioTransaction, function: Callable[[AioTransaction], Awaitable[T]]) -> T:
        async with transaction:
            return await function(transaction)

    def _in_thread(self, function: Callable[[], object]) -> Any:
        return self._in_background(function)

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        return self._driver().client(key, make)


@of_asyncio
def aio_transaction(client: AsyncClient, *keys: str | bytes) -> AioTransaction:
    """Return a transaction on ``keys``: it is carried out only if no other client changes one of the keys before EXEC.

        async with holdfast.aio.transaction(client, "stock:7") as tx:
            left = int(await tx.read.get("stock:7") or 0)
            if left > 0:
                tx.queue.set("stock:7", left - 1)

    Args:
        client: a redis.asyncio.Redis, RedisCluster, valkey.asyncio.Valkey or ValkeyCluster client, or a URL.
        keys: keys to watch, at least one; in a Cluster, all in one slot.

    Raises ConfigError if an argument is invalid. The ``async with`` statement raises TransactionConflict if another client was
    faster; `Transaction.run` and `transactional` then repeat the transaction.
    """
    return AioTransaction(client, *keys)
