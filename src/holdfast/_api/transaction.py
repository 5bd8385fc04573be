"""The common part of transactions in both APIs: the way from WATCH to EXEC, and the outcome.

The commands go by a pipeline of redis-py or valkey-py, so all of them are there as users know them; `_net.client_pipeline` says
what is not good enough about that. In a Cluster they go to the server that owns the slot, by a client of its own.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from itertools import islice
from typing import Any, ClassVar, Literal, TypeVar

from holdfast._api.transaction_options import address_of, checked_keys, raw, server_of
from holdfast._core.requests import CallClient, Sleep
from holdfast._core.transaction import GivenUp
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
    unread,
    verdict,
)
from holdfast._net.cluster import REFRESH_EVERY_S
from holdfast._net.endpoint import Endpoint
from holdfast._net.own_clients import open_client
from holdfast._net.redaction import hides_client
from holdfast._net.slots import slot_of
from holdfast.errors import CommandFailed, ConfigError, HoldfastError, ServerError, TransactionConflict

T = TypeVar("T")

NAMED = 5
"""Failed commands that an error's message names; the error has all of them."""

_watched: ContextVar[frozenset[tuple[object, ...]]] = ContextVar("holdfast_watched", default=frozenset())
"""Keys that this very call stack watches: (thread or task, server, key)."""


class BaseTransaction:
    """One try of a transaction, or what makes them, for both faces."""

    _face: ClassVar[Literal["sync", "asyncio"]]
    _turn: Any
    """A lock, of threads or of tasks: there is one connection."""

    @hides_client()
    def __init__(self, client: object, *keys: str | bytes) -> None:
        self._client: Any = client
        self._home = server_of(client, self._face)
        """The server, where it is not the client that carries the commands."""
        self._keys = checked_keys(keys, clustered=self._home is not None and self._home.cluster is not None)
        self._state = "new"
        self._pid = 0
        self._pipe: Any = None
        self._carry: Any = None
        """The pipeline's own `execute_command`."""
        self._tripwire: Tripwire | None = None
        self._results: list[Any] | None = None
        self._conflict: TransactionConflict | None = None
        self._why = ""
        self._who: object = None
        self._mine: frozenset[tuple[object, ...]] = frozenset()
        self._queued = Commands(self._queue)
        self._reading = Commands(self._read)

    def __repr__(self) -> str:
        face = "aio." if self._face == "asyncio" else ""
        return f"<holdfast.{face}Transaction on {self._names} at {self._where}>"

    @property
    def results(self) -> list[Any]:
        """The answers of EXEC, command by command. RuntimeError before it did."""
        if self._results is None:
            raise RuntimeError(f"{self!r} has no results: they come with EXEC, at the end of the block")
        return self._results

    @property
    def _names(self) -> str:
        return ", ".join(repr(key) for key in self._keys)

    @property
    def _where(self) -> str:
        return self._home.address if self._home is not None else address_of(self._client)

    @property
    def _slot(self) -> int | None:
        """Slot of the keys in a Cluster; None elsewhere."""
        clustered = self._home is not None and self._home.cluster is not None
        return slot_of(raw(self._keys[0])) if clustered else None

    # The order of calls

    def _may_read(self) -> None:
        if self._state == "queuing":
            raise RuntimeError(
                f"{self!r}: read before the first command is queued; what is queued is carried out at the end of the block, "
                "so a read would not see it"
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
        """Carry out a command at once."""
        self._may_read()
        return self._command(name, args)(*args, **options)

    def _now(self, *args: Any, **options: Any) -> Any:
        """Stand for the pipeline's `execute_command` until something is queued: one method may send many commands."""
        raise NotImplementedError

    def _queue(self, name: str, *args: Any, **options: Any) -> Any:
        """Queue a command, to be carried out by EXEC."""
        self._may("reading", "queuing")
        if self._state == "reading":
            self._pipe.multi()
            self._pipe.execute_command = self._carry
            self._state = "queuing"
        queued = self._command(name, args)(*args, **options)
        if queued is not self._pipe:
            getattr(queued, "close", lambda: None)()
            raise TypeError(f"{name} cannot be queued: the client makes more of it than one command")
        return self._queued

    def _command(self, name: str, args: tuple[Any, ...]) -> Callable[..., Any]:
        if not is_command(self._pipe.__class__, name):
            raise AttributeError(f"{name!r} is no command of the client")
        if name == "execute_command" and args:
            check_word(args[0])
        command: Callable[..., Any] = getattr(self._pipe, name)
        return command

    # The way from WATCH to EXEC

    def _claim(self, who: object) -> None:
        """Begin, once. ``who``: the thread or the task. Not in an operation, which may end in another task than it began in."""
        if self._state != "new":
            raise RuntimeError(f"{self!r} is in use, or was used before: make a new one for each use")
        self._who = who
        self._claim_keys(self._keys)
        self._state, self._pid = "reading", os.getpid()

    def _claim_keys(self, keys: tuple[str | bytes, ...]) -> None:
        mine = frozenset((self._who, self._home or self._client, raw(key)) for key in keys) - self._mine
        if mine & _watched.get():
            raise ConfigError(
                f"transaction on {self._names}: this very call is within another one that watches the same key, and would "
                "make that fail each time; do both in one",
                parameter="keys",
            )
        self._mine |= mine
        _watched.set(_watched.get() | mine)

    def _unclaim(self) -> None:
        _watched.set(_watched.get() - self._mine)

    async def _begin(self) -> None:
        """Operation: WATCH. Raises ServerError."""
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
            await Sleep(pause)  # more often than that nobody is asked who owns what
            await self._find_owner()
        self._tripwire = Tripwire(self._pipe)
        self._carry, self._pipe.execute_command = self._pipe.execute_command, self._now

    async def _watch_more(self, keys: tuple[str | bytes, ...]) -> None:
        """Operation behind `watch`."""
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
        """Operation: one command."""

        async def ask() -> Any:
            self._may_read()
            return await CallClient(lambda: self._carry(*args, **options))

        try:
            return await self._alone(ask)
        except Exception as error:
            raised = self._lost(error)
            if raised is error:
                raise
            raise raised from error

    async def _alone(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Operation: another one, while other threads and tasks wait."""
        await CallClient(self._turn.acquire)
        try:
            return await operation()
        finally:
            self._turn.release()

    async def _carrier(self) -> Any:
        """Operation: the client that carries the commands, the user's or one of ours."""
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
                raise self._server_error("nobody serves its slot; nothing was carried out")
            encoder = getattr(self._client, "get_encoder", None)
            decode = bool(encoder and encoder().decode_responses)
        elif home.local is not None:
            from holdfast._local.server import local  # here: most have a server

            url = home.local
            await CallClient(lambda: self._in_thread(lambda: local.ensure(url)))
        return self._ours((home, decode), functools.partial(open_client, home, self._face, decode=decode))

    async def _find_owner(self) -> None:
        assert self._home is not None
        cluster, timeout = self._home.cluster, self._home.timeout
        assert cluster is not None
        try:
            await CallClient(lambda: self._in_thread(lambda: cluster.refresh(timeout)))
        except Exception as error:
            raise self._not_begun(error) from error

    def _in_thread(self, function: Callable[[], object]) -> Any:
        """Something that blocks, where that does no harm."""
        raise NotImplementedError

    def _ours(self, key: tuple[Endpoint, bool], make: Callable[[], Any]) -> Any:
        """The client that is ours for a server."""
        raise NotImplementedError

    async def _end(self, *, failed: bool) -> None:
        """Operation: EXEC, or nothing of it if the block has failed."""
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
            raise (self._conflicted if found.conflict else self._server_error)(found.why) from error
        if results is None:
            await self._abandon()
            raise self._conflicted(CUT)
        self._results = results
        self._close()
        failed = {n: f"{names[n]}: {answer}" for n, answer in enumerate(results) if isinstance(answer, Exception)}
        if failed:
            raise CommandFailed(
                f"transaction on {self._names}: EXEC has carried it out, and {len(failed)} of {len(results)} commands failed: "
                + "; ".join(f"results[{n}], {why}" for n, why in islice(failed.items(), NAMED))
                + (" …" if len(failed) > NAMED else "")
                + ". The others were carried out, and stay: there is no rollback",
                keys=self._key_texts,
                results=results,
                failed=failed,
            )

    async def _exec(self) -> list[Any] | None:
        """None: not sent, as the connection was closed meanwhile. Afterwards nobody could tell whether EXEC came through."""
        try:
            ended = await CallClient(lambda: unread(self._pipe.connection))
        except Exception:  # noqa: BLE001 - each client says it in its own way
            ended = True
        return None if ended else await CallClient(lambda: self._pipe.execute(raise_on_error=False))

    async def _abandon(self) -> None:
        """Operation: DISCARD, or rather never MULTI, as the client sends all of it at once; and UNWATCH."""
        self._close()
        if self._pipe is not None:
            await self._alone(self._reset)

    async def _reset(self) -> None:
        pipe = self._pipe
        try:
            await CallClient(pipe.reset)
        except Exception:  # noqa: BLE001 - it is of no use any more, whatever it was
            connection, pipe.watching = pipe.connection, False
            if connection is not None:
                await CallClient(connection.disconnect)
            await CallClient(pipe.reset)

    def _close(self) -> None:
        """No more commands."""
        if self._tripwire is not None:
            self._tripwire.remove()
        self._tripwire = None
        self._state = "over"

    def _forsake(self, *, failed: bool) -> None:
        """Let go of the connection in a forked child: the parent goes on using it."""
        pipe, self._state = self._pipe, "over"
        pipe.watching, pipe.connection = False, None
        if not failed:
            raise self._not_mine()

    def _not_mine(self) -> RuntimeError:
        return RuntimeError(f"{self!r} is of the process that forked this one, which carries it out; nothing was done here")

    # The outcome

    def _lost(self, error: Exception) -> Exception:
        """Return the error that tells of a failed read. A connection that is lost watches nothing any more."""
        moving = is_moving(error, self._slot)
        if not moving and not kinds(error) & {*LOST, "WatchError", "Reconnected"}:
            return error
        self._state = "broken"
        return self._conflicted(MOVING if moving else CUT)

    def _conflicted(self, why: str) -> TransactionConflict:
        self._why = why
        self._conflict = TransactionConflict(
            f"transaction on {self._names}: {why}; nothing was carried out. Do it again from the first read on, "
            "as run() and @transactional do",
            keys=self._key_texts,
            tries=1,
            waited=0.0,
        )
        return self._conflict

    def _not_begun(self, error: Exception) -> HoldfastError:
        hint = ""
        if "MaxConnectionsError" in kinds(error) or "oo many connections" in str(error) or "No connection av" in str(error):
            hint = "; the client's pool has no connection left: a transaction needs one of its own until EXEC"
        what = "refused" if "ResponseError" in kinds(error) else "failed"
        return self._server_error(f"{what}: {brief(error)}{hint}; nothing was carried out")

    def _server_error(self, text: str) -> ServerError:
        return ServerError(f"transaction on {self._names} at {self._where}: {text}", address=self._where)

    def _given_up(self, given_up: GivenUp) -> TransactionConflict:
        tries = "1 try" if given_up.tries == 1 else f"{given_up.tries} tries"
        return TransactionConflict(
            f"transaction on {self._names} was given up after {tries} in {given_up.waited:.2f} s. The last time, "
            f"{given_up.why}; nothing was carried out. Allow more tries=, watch fewer keys, or let a holdfast.Lock bring "
            "all of them into line",
            keys=self._key_texts,
            tries=given_up.tries,
            waited=given_up.waited,
        )

    @property
    def _key_texts(self) -> tuple[str, ...]:
        return tuple(key if isinstance(key, str) else key.decode(errors="backslashreplace") for key in self._keys)
