"""Scripted Redis clients, which stand for clients of redis-py that a user passes to holdfast.

The library uses them through `holdfast._net.client_adapter`. They behave as redis-py where this matters to a lock: a call
uses an idle connection or opens one, a call that failed is tried again, and error replies are raised as exceptions that the
client defines.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from holdfast._core.requests import WireError
from holdfast._net.aio_connection import AioConnection
from holdfast._net.protocol import ReplyError, command
from holdfast._net.sync_connection import Connection

if TYPE_CHECKING:
    from holdfast._net.endpoint import Endpoint
    from holdfast_lab.wired.machine import Machine

TRIES = 2
"""How often a client tries a call. An ECHO of the tests is tried once, because the server must receive it only once."""


class ResponseError(Exception):
    """Raised for an error reply of the server."""


class NoScriptError(ResponseError):
    """Raised for the error NOSCRIPT. As in redis-py, the text omits this word."""


def _value(reply: Any) -> Any:
    if isinstance(reply, ReplyError):
        text = str(reply)
        raise NoScriptError(text.partition(" ")[2]) if text.startswith("NOSCRIPT") else ResponseError(text)
    return reply


def _tries(parts: tuple[bytes, ...]) -> int:
    return 1 if parts[0] == b"ECHO" else TRIES


class SyncClient:
    """A client for threads."""

    def __init__(self, machine: Machine, endpoint: Endpoint, timeout: float, counts: Counter[str]) -> None:
        self._machine, self._endpoint, self._timeout, self._counts = machine, endpoint, timeout, counts
        self._connection: Connection | None = None

    def execute_command(self, *parts: bytes, **_: Any) -> Any:
        """Return the reply to a command.

        Raises ConnectionError if no reply arrives, and ResponseError if the reply is an error.
        """
        for left in reversed(range(_tries(parts))):
            try:
                if self._connection is None:
                    self._connection = Connection(self._endpoint, self._timeout, self._machine)
                self._connection.set_timeout(self._timeout)
                reply = self._connection.exchange(command(*parts))
            except WireError as error:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                if not left:
                    raise ConnectionError(str(error)) from error
                self._counts["wired tried again"] += 1
            else:
                self._counts["wired by client"] += 1
                return _value(reply)
        raise AssertionError("a call is tried at least once")


class AioClient:
    """A client for the tasks of one event loop."""

    def __init__(self, machine: Machine, endpoint: Endpoint, timeout: float, counts: Counter[str]) -> None:
        self._machine, self._endpoint, self._timeout, self._counts = machine, endpoint, timeout, counts
        self._idle: list[AioConnection] = []
        self._all: list[AioConnection] = []

    async def execute_command(self, *parts: bytes, **_: Any) -> Any:
        """Return the reply to a command.

        Raises ConnectionError if no reply arrives, and ResponseError if the reply is an error.
        """
        for left in reversed(range(_tries(parts))):
            if not self._idle:
                self._idle.append(AioConnection(self._endpoint, self._machine))
                self._all.append(self._idle[-1])
            connection = self._idle.pop()
            try:
                reply, _sent = await connection.exchange(command(*parts), self._timeout)
            except WireError as error:
                await connection.close()
                if not left:
                    raise ConnectionError(str(error)) from error
                self._counts["wired tried again"] += 1
            else:
                self._idle.append(connection)
                self._counts["wired by client"] += 1
                return _value(reply)
        raise AssertionError("a call is tried at least once")

    async def close(self) -> None:
        for connection in self._all:
            await connection.close()
