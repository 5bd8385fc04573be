"""One connection per event loop and server, shared by all its tasks: commands leave in order, replies come in order.

A cancelled task takes nothing with it: its reply is read and dropped, and what it sends to undo its request goes behind it
on the same connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any

import hiredis

from holdfast._core.requests import NotSent, Refused, Unknown
from holdfast._drive.clock import clock
from holdfast._wire import resp
from holdfast._wire.blocking import CONNECT_TIMEOUT
from holdfast._wire.endpoint import Endpoint
from holdfast.errors import ServerError


class _Protocol(asyncio.Protocol):
    """The open connection. In flight: a future and its deadline for each request not answered yet."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.address = endpoint.address
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader()
        self._in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self.closed = self.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, packed: bytes, timeout: float) -> asyncio.Future[Any]:
        """Write a request now; the future is its reply."""
        if self.transport is None or self.transport.is_closing():
            raise NotSent(f"no connection to {self.address}", self.address)
        future = self.loop.create_future()
        deadline = self.loop.time() + timeout
        self._in_flight.append((future, deadline))
        self.transport.write(packed)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return future

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                future, _ = self._in_flight.popleft()
                if not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort("an answer that cannot be read")

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if not self._in_flight:
            return
        first = min(deadline for _, deadline in self._in_flight)
        if first <= self.loop.time():
            # A server that owes one answer is not to be trusted with more requests; all of them are asked again.
            self.abort("no answer in time")
        else:
            self._set_timer(first)

    def abort(self, why: str) -> None:
        if self.transport is not None:
            self.transport.abort()
        self._fail(why)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc or "the connection was closed"))
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        in_flight, self._in_flight = self._in_flight, deque()
        for future, _ in in_flight:
            if not future.done():
                future.set_exception(Unknown(f"{self.address}: {why}", self.address))


class Multiplex:
    """The connection of one loop to one server, opened on first use and again after it was lost."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._protocol: _Protocol | None = None
        self._opening: asyncio.Task[_Protocol] | None = None

    async def exchange(self, packed: bytes, timeout: float) -> tuple[Any, float]:
        """Send one command: its reply (an error reply is returned, not raised) and the time it was sent."""
        protocol = self._protocol
        if protocol is None or protocol.transport is None or protocol.transport.is_closing():
            protocol = await self._open(timeout)
        sent = clock()
        return await protocol.send(packed, timeout), sent

    async def _open(self, timeout: float) -> _Protocol:
        """Open the connection, once for all who want it. Nobody's cancellation ends it for the others."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect(min(CONNECT_TIMEOUT, self.endpoint.timeout)))
            self._opening.add_done_callback(self._opened)
        try:
            async with asyncio.timeout(max(timeout, 0.05)):
                return await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise NotSent(f"{self.endpoint.address}: no connection in time", self.endpoint.address) from error

    def _opened(self, task: asyncio.Task[_Protocol]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._protocol = task.result()

    async def _connect(self, timeout: float) -> _Protocol:
        endpoint = self.endpoint
        protocol = _Protocol(endpoint)
        try:
            async with asyncio.timeout(timeout):
                await self._dial(protocol)
                commands = endpoint.handshake()
                replies = [protocol.send(resp.command(*parts), timeout) for parts in commands]
                for reply in await asyncio.gather(*replies):
                    if isinstance(reply, hiredis.ReplyError):
                        raise Refused(str(reply), endpoint.address)
        except BaseException as error:
            protocol.abort("closed")
            if isinstance(error, OSError | TimeoutError | Unknown | ServerError):
                raise NotSent(f"no server at {endpoint.address}: {error or 'no answer in time'}", endpoint.address) from error
            raise
        return protocol

    async def _dial(self, protocol: _Protocol) -> None:
        endpoint = self.endpoint
        loop = protocol.loop
        if endpoint.path is None:
            await loop.create_connection(
                lambda: protocol,
                endpoint.host,
                endpoint.port,
                ssl=endpoint.ssl_context(),
            )
            return
        if endpoint.local is None:
            await loop.create_unix_connection(lambda: protocol, endpoint.path)
            return
        from holdfast._servers import local

        try:
            await loop.create_unix_connection(lambda: protocol, local.socket_path(endpoint.local))
        except (FileNotFoundError, ConnectionRefusedError):
            path = await loop.run_in_executor(None, local.ensure, endpoint.local)
            await loop.create_unix_connection(lambda: protocol, path)

    async def close(self) -> None:
        """Close, and let the loop finish doing so."""
        if self._opening is not None:
            self._opening.cancel()
        protocol, self._protocol = self._protocol, None
        if protocol is not None and protocol.transport is not None:
            protocol.transport.close()
            await protocol.closed

    def sockets(self) -> list[socket.socket]:
        protocol = self._protocol
        if protocol is None or protocol.transport is None:
            return []
        return [protocol.transport.get_extra_info("socket")]
