"""What transactions of both faces share: the way from WATCH to EXEC, and what came of it.

The commands go by a pipeline of redis-py or valkey-py, so all of them are there as users know them; `_wire.pipeline` says what
is not good enough about that. In a Cluster they go to the server that owns the slot, by a client of its own.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, Literal, NoReturn

from holdfast._core.optimism import Ask, GivenUp
from holdfast._core.requests import Sleep
from holdfast._face import checked_wait, whole_number
from holdfast._wire.client import check_face, resolve
from holdfast._wire.cluster import EVERY
from holdfast._wire.endpoint import Endpoint
from holdfast._wire.opened import opened
from holdfast._wire.pipeline import LOST, MOVED, Commands, Tripwire, brief, chain, is_command, kinds, named
from holdfast._wire.slots import slot_of
from holdfast.errors import CommandFailed, ConfigError, HoldfastError, ServerError, TransactionConflict

_watched: ContextVar[frozenset[tuple[object, ...]]] = ContextVar("holdfast_watched", default=frozenset())
"""What this very call stack watches: (thread or task, server, key)."""


def limits(tries: int, wait: float | None) -> tuple[int, float | None]:
    """Checked bounds of `run`."""
    if whole_number(tries, "tries") < 1:
        raise ConfigError("tries must be at least 1", parameter="tries")
    return tries, checked_wait(wait)


def checked_keys(keys: tuple[str | bytes, ...], *, clustered: bool) -> tuple[str | bytes, ...]:
    """Keys to watch. Raises ConfigError."""
    if not keys:
        raise ConfigError("keys: a transaction watches one key at least, or nobody else would be noticed", parameter="keys")
    for key in keys:
        if not isinstance(key, str | bytes) or not key:
            raise ConfigError(f"keys must be str or bytes, and not empty, not {key!r}", parameter="keys")
    if clustered and len({slot_of(_raw(key)) for key in keys}) > 1:
        raise ConfigError(
            "keys: in a Cluster, all keys of a transaction are in one slot; give them a part in common: {user:7}:cart",
            parameter="keys",
        )
    return keys


def _raw(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


class BaseTransaction:
    """One try of a transaction, or what makes them, for both faces."""

    _face: ClassVar[Literal["sync", "asyncio"]]

    def __init__(self, client: object, *keys: str | bytes) -> None:
        self._client: Any = client
        self._home = self._server_of(client)
        """The server, where it is not the client that carries the commands."""
        self._keys = checked_keys(keys, clustered=self._home is not None and self._home.cluster is not None)
        self._state = "new"
        self._pid = 0
        self._pipe: Any = None
        self._tripwire: Tripwire | None = None
        self._results: list[Any] | None = None
        self._conflict: TransactionConflict | None = None
        self._why = ""
        self._mine: frozenset[tuple[object, ...]] = frozenset()
        self._queued = Commands(self._queue)
        self._reading = Commands(self._read)

    def _server_of(self, client: Any) -> Endpoint | None:
        if isinstance(client, list | tuple | dict):
            raise ConfigError("client: a transaction is on one server, or in one slot of a Cluster", parameter="client")
        if isinstance(getattr(client, "url", client), str) or hasattr(client, "nodes_manager"):
            return resolve(client, self._face)
        check_face(client, self._face)
        if not callable(getattr(client, "pipeline", None)) or not hasattr(client, "connection_pool"):
            raise ConfigError(
                "client must be a redis.Redis or RedisCluster, a valkey.Valkey or ValkeyCluster, one of their asyncio "
                f"namesakes or a URL, not {type(client).__module__}.{type(client).__name__}",
                parameter="client",
            )
        return None

    def __repr__(self) -> str:
        face = "aio." if self._face == "asyncio" else ""
        return f"<holdfast.{face}Transaction on {self._names} at {self._where}>"

    @property
    def results(self) -> list[Any]:
        """What EXEC answered, command by command. RuntimeError before it did."""
        if self._results is None:
            raise RuntimeError(f"{self!r} has no results: they come with EXEC, at the end of the block")
        return self._results

    @property
    def _names(self) -> str:
        return ", ".join(repr(key) for key in self._keys)

    @property
    def _where(self) -> str:
        if self._home is not None:
            return self._home.address
        pool = self._client.connection_pool
        options = getattr(pool, "connection_kwargs", {})
        named: str | None = getattr(pool, "service_name", None) or options.get("path")
        return named or f"{options.get('host') or 'localhost'}:{options.get('port') or 6379}"

    # What may be done when

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

    def _read(self, name: str, *args: Any, **options: Any) -> Any:
        """Carry out a command at once."""
        raise NotImplementedError

    def _queue(self, name: str, *args: Any, **options: Any) -> Any:
        """Queue a command, to be carried out by EXEC."""
        self._may("reading", "queuing")
        if self._state == "reading":
            self._pipe.multi()
            self._state = "queuing"
        queued = self._command(name)(*args, **options)
        if queued is not self._pipe:
            close = getattr(queued, "close", lambda: None)
            close()
            raise TypeError(f"{name} cannot be queued: the client makes more of it than one command")
        return self._queued

    def _command(self, name: str) -> Callable[..., Any]:
        if not is_command(self._pipe.__class__, name):
            raise AttributeError(f"{name!r} is no command of the client")
        command: Callable[..., Any] = getattr(self._pipe, name)
        return command

    # The way from WATCH to EXEC

    def _claim(self, who: object) -> None:
        """Begin, once. ``who``: the thread or the task. Not in an operation, which may end in another task than it began in."""
        if self._state != "new":
            raise RuntimeError(f"{self!r} is in use, or was used before: make a new one for each use")
        mine = frozenset((who, self._home or self._client, _raw(key)) for key in self._keys)
        if mine & _watched.get():
            raise ConfigError(
                f"transaction on {self._names}: this very call is within another one that watches the same key, and would "
                "make that fail each time; do both in one",
                parameter="keys",
            )
        self._state, self._pid, self._mine = "reading", os.getpid(), mine
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
        clustered = self._home is not None and self._home.cluster is not None
        for pause in (0.0, EVERY, None) if clustered else (None,):
            self._pipe = (await self._carrier()).pipeline(transaction=True)
            try:
                await Ask(lambda: self._pipe.watch(*self._keys))
                break
            except Exception as error:
                if pause is None or not kinds(error) & (LOST | MOVED):
                    raise self._not_begun(error) from error
            await Ask(self._pipe.reset)
            await Sleep(pause)  # more often than that nobody is asked who owns what
            await self._find_owner()
        self._tripwire = Tripwire(self._pipe.connection)

    async def _watch_more(self, keys: tuple[str | bytes, ...]) -> None:
        """Operation behind `watch`."""
        self._may_read()
        clustered = self._home is not None and self._home.cluster is not None
        checked_keys((self._keys[0], *keys) if clustered else keys, clustered=clustered)
        try:
            await Ask(lambda: self._pipe.watch(*keys))
        except Exception as error:
            lost = self._lost(error)
            raise self._not_begun(error) if lost is error else lost from error
        self._keys += tuple(key for key in keys if key not in self._keys)

    async def _carrier(self) -> Any:
        """Operation: the client that carries the commands, the user's or one of ours."""
        home = self._home
        if home is None:
            return self._client
        decode = False
        if home.cluster is not None:
            if not home.cluster.known:
                await self._find_owner()
            home = home.cluster.owner(slot_of(_raw(self._keys[0])))
            if home is None:
                raise ServerError(
                    f"transaction on {self._names}: nobody serves its slot; nothing was carried out", address=self._where
                )
            encoder = getattr(self._client, "get_encoder", None)
            decode = bool(encoder and encoder().decode_responses)
        elif home.local is not None:
            from holdfast._servers import local  # here: most have a server

            url = home.local
            await Ask(lambda: self._in_thread(lambda: local.ensure(url)))
        return self._ours((home, decode), functools.partial(opened, home, self._face, decode=decode))

    async def _find_owner(self) -> None:
        assert self._home is not None
        cluster, timeout = self._home.cluster, self._home.timeout
        assert cluster is not None
        try:
            await Ask(lambda: self._in_thread(lambda: cluster.refresh(timeout)))
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
            results = await Ask(lambda: self._pipe.execute(raise_on_error=False))
        except BaseException as error:  # noqa: BLE001 - what it was, the verdict says
            await self._abandon()
            verdict = self._verdict(error, before)
            raise verdict from (None if verdict in chain(error, before) else error)
        self._results = results
        self._close()
        failed = {n: f"{names[n]}: {answer}" for n, answer in enumerate(results) if isinstance(answer, Exception)}
        if failed:
            raise CommandFailed(
                f"transaction on {self._names}: EXEC has carried it out, and {len(failed)} of {len(results)} commands failed: "
                + "; ".join(f"results[{n}], {why}" for n, why in failed.items())
                + ". The others were carried out, and stay: there is no rollback",
                keys=self._key_texts,
                results=results,
                failed=failed,
            )

    async def _abandon(self) -> None:
        """Operation: DISCARD, or rather never MULTI, as the client sends all of it at once; and UNWATCH."""
        pipe = self._pipe
        self._close()
        if pipe is None:
            return
        try:
            await Ask(pipe.reset)
        except Exception:  # noqa: BLE001 - it is of no use any more, whatever it was
            connection, pipe.watching = pipe.connection, False
            if connection is not None:
                await Ask(connection.disconnect)
            await Ask(pipe.reset)

    def _close(self) -> None:
        """No more commands."""
        if self._tripwire is not None:
            self._tripwire.remove()
        self._tripwire = None
        self._state = "over"

    def _forsake(self, *, failed: bool) -> None:
        """In a forked child: the connection is the parent's, who goes on using it."""
        pipe, self._state = self._pipe, "over"
        pipe.watching, pipe.connection = False, None
        if not failed:
            raise RuntimeError(f"{self!r} is of the process that forked this one, which carries it out; nothing was done here")

    # What came of it

    def _lost(self, error: Exception) -> Exception:
        """What a failed read is to be raised as. A connection that is lost watches nothing any more."""
        if not kinds(error) & {*LOST, "WatchError", "Reconnected"}:
            return error
        self._state = "broken"
        return self._conflicted("the connection that watched its keys was lost before EXEC")

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

    def _verdict(self, error: BaseException, before: BaseException | None) -> BaseException:
        """What a failed EXEC is to be raised as; itself if it is not the client's. ``before``: what was handled then."""
        upon = chain(error, before)
        found = set().union(*map(kinds, upon))
        # Behind an interrupt and behind a lost connection the client cleans up, and may come upon the tripwire.
        first = next((one for one in upon if not isinstance(one, Exception) or kinds(one) & LOST), None)
        verdict: BaseException = error
        if first is not None and not isinstance(first, Exception):
            verdict = first
        elif first is not None:
            verdict = self._server_error(
                f"no answer to EXEC: {first}. It may or may not have been carried out, as a whole, and is not tried again by "
                "itself: look at what it writes before you do"
            )
        elif "Reconnected" in found:
            verdict = self._conflicted("the connection that watched its keys was lost before EXEC")
        elif "WatchError" in found:
            verdict = self._conflicted("a key that it watches was changed by somebody else before EXEC")
        elif found & MOVED:
            verdict = self._conflicted(f"its slot is moving ({brief(error)})")
        elif "ResponseError" in found:
            verdict = self._server_error(f"refused: {brief(error)}; nothing was carried out")
        return verdict

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


def no_coroutine(name: object) -> NoReturn:
    """A coroutine function in the face for threads."""
    raise ConfigError(f"{name} is a coroutine function: use holdfast.aio.transaction", parameter="function")
