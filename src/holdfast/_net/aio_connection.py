"""One connection per event loop and server, shared by all tasks of the loop.

A request is sent at once if no other one is under way. Otherwise all requests of one iteration of the loop are sent in one
write. If only one request awaits a reply, its task goes on in the iteration that reads the reply: another iteration, with its
system call, would take a seventh of the processor time of an acquire and release. Only the loops of asyncio can do that.

If a task is cancelled, the reply to its request is still read, and dropped. A request that undoes the cancelled one follows on
the same connection, so the server executes it later.
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
from holdfast.errors import HoldfastError

MAX_IN_FLIGHT = 1000
"""Maximum number of requests on a connection that are sent and not answered yet. Further requests wait, in order.

A thousand requests keep any server busy, and the send and receive buffers stay small.
"""

READ_SIZE = 65536

CLOSE_WITHIN_S = 0.5
"""Maximum seconds to wait until a connection is closed. Over TLS, a transport waits for the server to confirm the end. A server
that has vanished never does. The limit of asyncio itself is half a minute."""

LATE_S = 0.05
"""If the loop calls a timer more than this many seconds late, the loop was busy.

A time limit that has passed meanwhile then says nothing about the server.
"""

MOST_EXTENDED_S = 1.0
"""Maximum seconds to go on waiting for replies after a time limit that has passed while the loop was busy."""

_Unsent = tuple[bytes, asyncio.Future[Any], float]
"""A request that was not sent before its connection ended: its bytes, the future of its reply, and its deadline."""


def _answer(future: asyncio.Future[Any], reply: Any) -> None:
    """Set the result of a future, and let the task that awaits it go on at once, without another iteration of the loop."""
    callbacks = getattr(future, "_callbacks", None)  # private, but asyncio has no other way to find the callback of the task
    if callbacks and len(callbacks) == 1:
        [(go_on, context)] = callbacks
        future.remove_done_callback(go_on)
        future.set_result(reply)
        context.run(go_on, future)
    elif not future.done():
        future.set_result(reply)


class _Protocol(asyncio.BufferedProtocol):
    """The open connection, as an asyncio protocol. ``in_flight`` has a future and a deadline for each unanswered request."""

    def __init__(
        self,
        endpoint: Endpoint,
        on_room: Callable[[], None],
        on_lost: Callable[[_Protocol, list[_Unsent]], None],
        system: System,
    ) -> None:
        self._monotonic = system.monotonic
        self.address = endpoint.address
        self.why: Callable[[BaseException], str] = endpoint.why
        """Function that returns an explanation of the exception that ended the connection."""
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.in_flight: deque[tuple[asyncio.Future[Any], float]] = deque()
        self.lost = False
        self.closed = self.loop.create_future()
        self._can_go_on = isinstance(self.loop, asyncio.BaseEventLoop)
        """True if a task may go on while the loop calls this protocol. uvloop would keep a KeyboardInterrupt of the task."""
        self._on_room = on_room
        self._on_lost = on_lost
        self._reader = hiredis.Reader()
        self._buffer = bytearray(READ_SIZE)
        self._out: list[bytes] = []
        self._flushing = False
        self.quiet_since = 0.0
        """Monotonic time, in seconds, of the server's last data, or of the first request that was sent after this data."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._flush_asked = 0.0
        """Monotonic time, in seconds, at which the next flush was requested."""
        self._extended = float("-inf")
        """Monotonic time, in seconds, at which the deadlines were last extended because the loop had been busy."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops (uvloop) have transports that do not inherit from asyncio's, but have the methods used here.
        self.transport = cast("asyncio.Transport", transport)

    def send(self, packed: bytes, timeout: float, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Send a request, now or in the loop's next iteration. Return a future of its reply (``future``, if that is set)."""
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
            self._flush_soon(now)
        else:
            self.quiet_since = now
            self.transport.write(packed)  # at once, because no other request is under way that could share the write
        self.in_flight.append((future, deadline))
        return future

    def ends(self) -> bool:
        """Return True if the connection has ended, as far as the loop knows. Writes are then dropped without an error."""
        return self.transport is None or self.transport.is_closing()

    def greet(self, commands: Handshake, timeout: float) -> list[asyncio.Future[Any]]:
        replies = [self.loop.create_future() for _ in range(len(commands))]
        deadline = self._monotonic() + timeout
        if replies:
            assert self.transport is not None
            self._set_timer(deadline)
            self.in_flight.extend((reply, deadline) for reply in replies)
            self.transport.write(commands.packed(resp.command))
        return replies

    def _flush_soon(self, now: float) -> None:
        self._flushing, self._flush_asked = True, now
        self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._out and not self.ends():
            out, self._out = self._out, []
            late = self._monotonic() - self._flush_asked
            if late > LATE_S:  # the requests leave only now, so their time limits begin now
                unsent = [self.in_flight.pop() for _ in out]
                self.in_flight.extend((future, deadline + late) for future, deadline in reversed(unsent))
            assert self.transport is not None
            self.transport.write(b"".join(out))

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # it takes any buffer
        self.quiet_since = self._monotonic()
        asked = len(self.in_flight)
        gets, next_one = self._reader.gets, self.in_flight.popleft
        alone: tuple[asyncio.Future[Any], Any] | None = None
        try:
            while (reply := gets()) is not False:
                future, _ = next_one()
                if asked == 1 and self._can_go_on:
                    alone = future, reply
                elif not future.done():
                    future.set_result(reply)
        except (*resp.MALFORMED, IndexError):
            self.abort("the reply cannot be parsed")
        if alone is not None:
            _answer(*alone)  # the last step, because the task may raise KeyboardInterrupt
            return
        if asked - len(self.in_flight) > 1 and not self._flushing:
            # The flush runs after the tasks that these replies wake, so that their next requests leave in one write.
            self._flush_soon(self.quiet_since)
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
        first, now = min(deadline for _, deadline in self.in_flight), self._monotonic()
        if now - first > LATE_S and self.quiet_since >= self._extended:  # the loop was busy, and the reply may wait to be read
            self._extended, until = now, now + min(now - first, MOST_EXTENDED_S)
            self.in_flight = deque((future, max(deadline, until)) for future, deadline in self.in_flight)
            self._set_timer(until)
        elif first <= now:
            # The unanswered requests fail with Unknown, and their operations repeat them on the next connection.
            self.abort("no answer in time")
        else:
            self._set_timer(first)

    def abort(self, why: str) -> None:
        if self.loop.is_closed():
            return  # an unfinished `_connect` is being garbage-collected, and nobody waits for a request
        if self.transport is not None:
            self.transport.abort()
        self._fail(why)

    def eof_received(self) -> None:
        # Fail now, because a transport over TLS accepts writes and drops them until `connection_lost` is called.
        self._fail(self.why(ConnectionResetError("the connection was closed")))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self.why(exc or ConnectionResetError("the connection was closed")))
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, float("inf")
        in_flight, self.in_flight = self.in_flight, deque()
        out, self._out = self._out, []
        unsent: list[_Unsent] = []
        while out and in_flight:  # the latest requests, which were to leave at the end of this iteration
            unsent.append((out.pop(), *in_flight.pop()))
        for future, _ in in_flight:
            if not future.done():
                future.set_exception(Unknown(f"{self.address}: {why}", self.address))
        if not self.lost:
            self.lost = True
            self._on_lost(self, unsent[::-1])


class _Waiting:
    """A request that waits because it could not be sent at once."""

    __slots__ = ("connects", "future", "limit", "packed", "sent", "timeout")

    def __init__(self, packed: bytes, timeout: float, future: asyncio.Future[Any], connects: bool) -> None:
        self.packed = packed
        self.timeout = timeout
        self.future = future
        self.connects = connects
        """True if no connection was open when the request was made. Its time limit then includes the time for connecting."""
        self.limit: asyncio.TimerHandle | None = None
        self.sent = 0.0


class AioConnection:
    """The connection of one event loop to one server, opened at its first use, and opened again after a loss."""

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
        """Hashes of the scripts whose text was sent on this connection. Without the text, the first use could cost a round trip
        more."""
        self._waiting: deque[_Waiting] = deque()

    def send(self, packed: bytes, timeout: float) -> asyncio.Future[Any] | None:
        """Send one command now, and return a future of its reply. Return None if only `exchange` can send it."""
        protocol = self._protocol
        if protocol is None or self._waiting or len(protocol.in_flight) >= MAX_IN_FLIGHT or protocol.ends():
            return None
        return protocol.send(packed, timeout)

    def silent_for(self) -> float:
        """Return for how many seconds the connection has been opening, or waiting for data; 0 if it does neither."""
        if self._opening is not None:
            return self._monotonic() - self._opening_since
        protocol = self._protocol
        return 0.0 if protocol is None or not protocol.in_flight else self._monotonic() - protocol.quiet_since

    @property
    def begins(self) -> bool:
        """Return True while the connection is being opened for the first time."""
        return self._opening is not None and not self._tried

    async def exchange(self, packed: bytes, timeout: float) -> tuple[Any, float]:
        """Send one command, and return its reply and the monotonic time, in seconds, at which it was sent.

        An error reply is returned, not raised. Raises NotSent if the command cannot be sent within ``timeout`` seconds, Unknown
        if it was sent and no reply arrives in time, and Refused if the server refuses the login. The timeout begins when the
        command is sent. If a connection must be opened first, the timeout begins with the call.
        """
        sent = self._clock()
        future = self.send(packed, timeout)
        if future is not None:
            return await future, sent
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        request = self._request(packed, max(timeout, 0.05), future)
        request.timeout, request.connects = timeout, self._protocol is None or self._protocol.ends()
        self._waiting.append(request)
        self._open()
        return await future, request.sent

    def _request(self, packed: bytes, limit: float, future: asyncio.Future[Any]) -> _Waiting:
        request = _Waiting(packed, limit, future, connects=True)
        request.limit = future.get_loop().call_later(limit, self._too_late, request, limit)
        future.add_done_callback(lambda _: cast("asyncio.TimerHandle", request.limit).cancel())
        return request

    def _too_late(self, request: _Waiting, limit: float) -> None:
        """Fail a request that has waited too long. ``limit``: seconds to wait again if the loop was busy; 0: do not."""
        # A request may have waited for its connection for most of its time. If it was sent then, the connection stays open,
        # because reconnecting would cost even more time.
        address = self.endpoint.address
        if request.future.done():
            return
        if limit and self._was_busy(request):
            request.limit = request.future.get_loop().call_later(limit, self._too_late, request, 0.0)
            return
        if request.sent:
            error: WireError = Unknown(f"{address}: no answer in time", address)
        elif self._protocol is not None:
            count = len(self._protocol.in_flight)
            error = NotSent(f"{address}: not sent in time: {count} requests wait for their replies", address, silent=True)
        else:
            why = self.endpoint.why(TimeoutError("no connection in time"))
            error = NotSent(f"{address}: {why}", address)
        request.future.set_exception(error)

    def _was_busy(self, request: _Waiting) -> bool:
        return request.limit is not None and request.future.get_loop().time() > request.limit.when() + LATE_S

    def _drain(self) -> None:
        if self._waiting and self._protocol is not None and not self._protocol.ends():
            self._send_waiting(self._waiting, self._protocol)

    def _send_waiting(self, waiting: deque[_Waiting], protocol: _Protocol) -> None:
        sent = self._clock()
        while waiting and len(protocol.in_flight) < MAX_IN_FLIGHT:
            request = waiting.popleft()
            if not request.future.done():
                if request.limit is not None and not request.connects:
                    request.limit.cancel()
                request.sent = sent
                protocol.send(request.packed, request.timeout, request.future)

    def _lost(self, protocol: _Protocol, unsent: list[_Unsent]) -> None:
        """Handle the loss of a connection. Requests that are not sent yet are sent on a new connection."""
        now = self._monotonic()
        waiting = [self._request(packed, max(deadline - now, 0.0), future) for packed, future, deadline in unsent]
        self._waiting.extendleft(reversed(waiting))
        if self._protocol is protocol:
            self._protocol = None
            self.told.clear()
            if self._waiting:
                self._open()
        elif waiting:
            self._refuse(NotSent(f"{self.endpoint.address}: closed", self.endpoint.address))

    def _open(self) -> None:
        """Begin to open the connection, unless that has begun already.

        All callers wait for the same opening. The cancellation of one caller does not stop it.
        """
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
            if not (protocol.lost or protocol.ends()):
                self._protocol = protocol
                self._drain()
                return
            error = NotSent(f"{address} closed the connection", address)
        self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        """Fail all requests that are not sent yet with a copy of ``error``."""
        self.told.clear()  # the requests with the texts of these scripts were not sent
        address = self.endpoint.address
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if not request.future.done():
                # Each request gets its own exception. One that is raised in several places would collect all their tracebacks.
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
                protocol.why = str  # after the login, failures have nothing to do with certificates
        except BaseException as error:
            protocol.abort("closed")
            if isinstance(error, HoldfastError):  # a ``local://`` server did not start, or there is no program for it
                raise NotSent(str(error), endpoint.address) from None
            if isinstance(error, OSError | TimeoutError | Unknown):
                why = endpoint.why(error) or "no answer in time"
                raise NotSent(f"no server at {endpoint.address}: {why}", endpoint.address) from error
            raise
        return protocol

    def drop(self) -> None:
        """Close the connection because its server is no longer the primary. The next request opens a new one."""
        if self._protocol is not None:
            self._protocol.abort("the server is no longer the primary")

    async def close(self) -> None:
        """Close the connection, and wait until the loop has finished closing it, or for about CLOSE_WITHIN_S seconds."""
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])  # otherwise the loop might end before the socket is closed
        protocol, self._protocol = self._protocol, None
        self._refuse(NotSent(f"{self.endpoint.address}: closed", self.endpoint.address))
        if protocol is not None and protocol.transport is not None:
            protocol.transport.close()
            limit = protocol.loop.call_later(CLOSE_WITHIN_S, protocol.transport.abort)
            await protocol.closed
            limit.cancel()

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
