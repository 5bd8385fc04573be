"""One connection per event loop and server, shared by all its tasks: commands leave in order, replies come in order.

All requests of one turn of the loop leave in one write. A cancelled task takes nothing with it: its reply is read and
dropped, and what it sends to undo its request goes behind it on the same connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._net import protocol as resp
from holdfast._net.endpoint import Endpoint, Handshake
from holdfast._net.sync_connection import CONNECT_TIMEOUT
from holdfast._net.system import SYSTEM, System
from holdfast.errors import ServerError

MAX_IN_FLIGHT = 1000
"""Requests sent and not answered at one time; the others wait for their turn, in order. Enough to keep any server busy, few
enough for the last of them to be answered long before a time limit, and for the buffers on both sides to stay small."""

READ_SIZE = 65536


class _Protocol(asyncio.BufferedProtocol):
    """The open connection. In flight: a future and its deadline for each request not answered yet."""

    def __init__(
        self, endpoint: Endpoint, on_room: Callable[[], None], on_lost: Callable[[_Protocol], None], system: System
    ) -> None:
        self._monotonic = system.monotonic
        self.address = endpoint.address
        self.why: Callable[[BaseException], str] = endpoint.why
        """Function that explains the loss of the connection."""
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self.lost = False
        self.closed = self.loop.create_future()
        self._on_room = on_room
        self._on_lost = on_lost
        self._reader = resp.Reader()
        self._buffer = bytearray(READ_SIZE)
        self._out: list[bytes] = []
        self._flushing = False
        self.quiet_since = 0.0
        """When the last answer came, or the first request after all were answered was sent (monotonic)."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops (uvloop) have transports that inherit nothing of asyncio's: what is used of one is all that counts.
        self.transport = cast("asyncio.Transport", transport)

    def send(self, packed: bytes, timeout: float, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Send a request before this turn of the loop is over; the future is its reply."""
        assert self.transport is not None
        if future is None:
            future = self.loop.create_future()
        now = self._monotonic()
        deadline = now + timeout
        if deadline < self._timer_at:
            self._set_timer(deadline)
        if self._flushing:
            self._out.append(packed)
        elif self.in_flight:
            self._out.append(packed)
            self._flush_soon()
        else:
            self.quiet_since = now
            self.transport.write(packed)  # nobody else is here whose request could share this write
        self.in_flight.append((future, deadline))
        return future

    def greet(self, commands: Handshake, timeout: float) -> list[asyncio.Future[Any]]:
        """Send the commands that open the connection; the futures are their replies."""
        replies = [self.loop.create_future() for _ in range(len(commands))]
        deadline = self._monotonic() + timeout
        if replies:
            assert self.transport is not None
            self._set_timer(deadline)
            self.in_flight.extend((reply, deadline) for reply in replies)
            self.transport.write(commands.packed(resp.command))
        return replies

    def _flush_soon(self) -> None:
        self._flushing = True
        self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out:
            out, self._out = self._out, []
            assert self.transport is not None
            self.transport.write(b"".join(out))

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # it takes any buffer
        self.quiet_since = self._monotonic()
        asked = len(self.in_flight)
        gets, next_one = reader.gets, self.in_flight.popleft
        try:
            while (reply := gets()) is not False:
                future, _ = next_one()
                if not future.done():
                    future.set_result(reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort("an answer that cannot be read")
        if asked - len(self.in_flight) > 1 and not self._flushing:
            # Behind the tasks that are woken now, in the same turn of the loop: what they ask next leaves together.
            self._flush_soon()
        self._on_room()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_later(at - self._monotonic(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if not self.in_flight:
            return
        first = min(deadline for _, deadline in self.in_flight)
        if first <= self._monotonic():
            # A server that owes one answer is not to be trusted with more requests; all of them are asked again.
            self.abort("no answer in time")
        else:
            self._set_timer(first)

    def abort(self, why: str) -> None:
        if self.transport is not None:
            self.transport.abort()
        self._fail(why)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self.why(exc or ConnectionResetError("the connection was closed")))
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        in_flight, self.in_flight = self.in_flight, deque()
        self._out = []
        for future, _ in in_flight:
            if not future.done():
                future.set_exception(Unknown(f"{self.address}: {why}", self.address))
        if not self.lost:
            self.lost = True
            self._on_lost(self)


class _Waiting:
    """A request that could not be sent at once."""

    __slots__ = ("connects", "future", "limit", "packed", "sent", "timeout")

    def __init__(self, packed: bytes, timeout: float, future: asyncio.Future[Any], connects: bool) -> None:
        self.packed = packed
        self.timeout = timeout
        self.future = future
        self.connects = connects
        """There was no connection when it came: the time that takes is part of its own."""
        self.limit: asyncio.TimerHandle | None = None
        self.sent = 0.0


class AioConnection:
    """The connection of one loop to one server, opened on first use and again after it was lost."""

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        self.endpoint = endpoint
        self._system = system
        self._clock = system.clock
        self._monotonic = system.monotonic
        self._protocol: _Protocol | None = None
        self._opening: asyncio.Task[_Protocol] | None = None
        self._opening_since = 0.0
        self._tried = False
        self.told: set[str] = set()
        """Scripts that were sent whole on this connection, by those who may not be there to read that one is unknown."""
        self._waiting: deque[_Waiting] = deque()

    def send(self, packed: bytes, timeout: float) -> asyncio.Future[Any] | None:
        """Send one command: the future is its reply (an error reply is a result), or fails with Unknown if there is none
        within ``timeout`` seconds. None: not now, as there is no connection or too much in flight; `exchange` waits."""
        protocol = self._protocol
        if protocol is None or self._waiting or len(protocol.in_flight) >= MAX_IN_FLIGHT:
            return None
        return protocol.send(packed, timeout)

    def silent_for(self) -> float:
        """Seconds for which the server has owed an answer, or a connection."""
        if self._opening is not None:
            return self._monotonic() - self._opening_since
        protocol = self._protocol
        return 0.0 if protocol is None or not protocol.in_flight else self._monotonic() - protocol.quiet_since

    @property
    def begins(self) -> bool:
        """Its first connection is being opened."""
        return self._opening is not None and not self._tried

    async def exchange(self, packed: bytes, timeout: float) -> tuple[Any, float]:
        """Send one command, in its turn: its reply (an error reply is returned, not raised) and the time it was sent.

        Raises Unknown if there is no answer within ``timeout`` seconds after that (or after the call, where a connection was
        to be opened first), NotSent if it cannot be sent within them, Refused if the server does not let us in.
        """
        sent = self._clock()
        future = self.send(packed, timeout)
        if future is not None:
            return await future, sent
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        request = _Waiting(packed, timeout, future, connects=self._protocol is None)
        limit = request.limit = loop.call_later(max(timeout, 0.05), self._too_late, request)
        self._waiting.append(request)
        self._open()
        try:
            return await future, request.sent
        finally:
            limit.cancel()

    def _too_late(self, request: _Waiting) -> None:
        # If it was sent, the connection stays, and is given the whole time to answer: it has cost enough to get it.
        address = self.endpoint.address
        if not request.future.done():
            why = self.endpoint.why(TimeoutError("no connection in time"))
            error = Unknown(f"{address}: no answer in time", address) if request.sent else None
            request.future.set_exception(error or NotSent(f"{address}: {why}", address))

    def _drain(self) -> None:
        """Send what waits, as far as there is room."""
        waiting, protocol = self._waiting, self._protocol
        if not waiting or protocol is None:
            return
        sent = self._clock()
        while waiting and len(protocol.in_flight) < MAX_IN_FLIGHT:
            request = waiting.popleft()
            if not request.future.done():
                if request.limit is not None and not request.connects:
                    request.limit.cancel()
                request.sent = sent
                protocol.send(request.packed, request.timeout, request.future)

    def _lost(self, protocol: _Protocol) -> None:
        """Requests that were sent are unknown; the others go over the next connection."""
        if self._protocol is protocol:
            self._protocol = None
            self.told.clear()
            if self._waiting:
                self._open()

    def _open(self) -> None:
        """Open the connection, once for all who want it. Nobody's cancellation ends it for the others."""
        if self._protocol is None and self._opening is None:
            self._opening_since = self._monotonic()
            self._opening = asyncio.create_task(self._connect(min(CONNECT_TIMEOUT, self.endpoint.timeout)))
            self._opening.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[_Protocol]) -> None:
        self._opening, self._tried = None, True
        address = self.endpoint.address
        error = NotSent(f"{address}: closed", address) if task.cancelled() else task.exception()
        if error is None:
            protocol = task.result()
            if not protocol.lost:
                self._protocol = protocol
                self._drain()
                return
            error = NotSent(f"{address} closed the connection", address)
        self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        """Tell those who wait that they wait in vain."""
        self.told.clear()  # none of what they were to send has been sent
        address = self.endpoint.address
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if not request.future.done():
                # Each its own: one that is raised in many places collects the tracebacks of all.
                own = type(error)(str(error), address) if isinstance(error, WireError) else error
                own.__cause__ = error.__cause__
                request.future.set_exception(own)

    async def _connect(self, timeout: float) -> _Protocol:
        endpoint = self.endpoint
        if endpoint.finder is not None:
            endpoint = await asyncio.get_running_loop().run_in_executor(None, endpoint.finder.find, timeout)
        protocol = _Protocol(endpoint, self._drain, self._lost, self._system)
        try:
            async with asyncio.timeout(timeout):
                await _dial(endpoint, protocol)
                commands = endpoint.handshake()
                for reply in await asyncio.gather(*protocol.greet(commands, timeout)):
                    if isinstance(reply, hiredis.ReplyError):
                        raise Refused(str(reply), endpoint.address)
                protocol.why = str  # it is in: what ends it from now on has nothing to do with certificates
        except BaseException as error:
            protocol.abort("closed")
            if isinstance(error, OSError | TimeoutError | Unknown | ServerError):
                why = endpoint.why(error) or "no answer in time"
                raise NotSent(f"no server at {endpoint.address}: {why}", endpoint.address) from error
            raise
        return protocol

    def drop(self) -> None:
        """Close the connection, to a server that is not the one we want any more: the next request goes over a new one."""
        if self._protocol is not None:
            self._protocol.abort("it is not the primary any more")

    async def close(self) -> None:
        """Close, and let the loop finish doing so."""
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])  # or the loop might end before it has let go of its socket
        protocol, self._protocol = self._protocol, None
        self._refuse(NotSent(f"{self.endpoint.address}: closed", self.endpoint.address))
        if protocol is not None and protocol.transport is not None:
            protocol.transport.close()
            await protocol.closed

    def sockets(self) -> list[socket.socket]:
        protocol = self._protocol
        if protocol is None or protocol.transport is None:
            return []
        return [protocol.transport.get_extra_info("socket")]


async def _dial(endpoint: Endpoint, protocol: _Protocol) -> None:
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
    from holdfast._local.server import local, paths

    try:
        await loop.create_unix_connection(lambda: protocol, paths.socket_path(endpoint.local))
    except (FileNotFoundError, ConnectionRefusedError):
        path = await loop.run_in_executor(None, local.ensure, endpoint.local)
        await loop.create_unix_connection(lambda: protocol, path)
