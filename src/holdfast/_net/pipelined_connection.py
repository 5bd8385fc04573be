"""A pipelined connection of the keeper: several requests may be unanswered at a time. No method blocks."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import hiredis

from holdfast._core.lock.ports import Then
from holdfast._core.lock.records import Waiter
from holdfast._core.requests import Call, NotSent, Refused, RunScript, Unknown, WireError
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import Reader, is_demoted, is_noscript, pack, parsed
from holdfast._net.sync_connection import CONNECT_TIMEOUT, open_socket
from holdfast._net.system import SYSTEM, System

log = logger("holdfast.keeper")

READ_SIZE = 16384

CONNECTED_WITHIN = 0.2
"""Minimum seconds to wait for a connection to open, however short a request's timeout is."""


class ConnectionKeeper(Protocol):
    """The methods that pipelined connections call on their owner: the keeper, or connections to several servers (`Fanout`)."""

    @property
    def selector(self) -> selectors.BaseSelector:
        """Return the selector that reports which sockets are readable."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex to hold while another thread may use a connection's socket."""

    def call(self, what: Callable[[], None]) -> None:
        """Call ``what`` soon, in the thread that runs the connection."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``. If it raises an exception, a keeper logs the exception and returns False; a `Fanout` raises it."""

    def moved(self, endpoint: Endpoint, where: object) -> None:
        """Close the connections to ``endpoint`` that do not lead to the address ``where``. If ``where`` is None, close all."""


class _Request:
    """A request that is queued, or sent and unanswered."""

    __slots__ = ("call", "deadline", "packed", "sent", "then", "whole")

    def __init__(self, call: Call, packed: bytes, then: Then) -> None:
        self.call = call
        self.packed = packed
        self.then = then
        self.sent = self.deadline = 0.0
        self.whole = False
        """True if the request contains the script's text, because the server may not have the script."""


class PipelinedConnection:
    """A connection to one server that never blocks. A helper thread opens its socket."""

    def __init__(
        self,
        keeper: ConnectionKeeper,
        endpoint: Endpoint,
        on_push: Callable[[list[Any]], None] | None = None,
        on_closed: Callable[[], None] | None = None,
        *,
        whole_first: bool = False,
        system: System = SYSTEM,
    ) -> None:
        self._keeper = keeper
        self._system = system
        self._clock = system.clock
        self._endpoint = endpoint
        self._on_push = on_push
        self._on_closed = on_closed
        self.sock: socket.socket | None = None
        self._opening = False
        self._tries = 0
        """Number of the latest try to open the connection. Results of earlier tries are ignored."""
        self._closed = False
        self._retry_at = 0.0
        self._silent = False
        """True if the latest try to open the connection failed by a timeout."""
        self._backoff = 0.0
        self._reader = Reader()
        self._not_now: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)
        if endpoint.tls is not None:
            import ssl

            self._not_now += (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self._lent: Waiter | None = None
        """Waiter that watches the socket instead of the selector; None: the socket is not lent."""
        self.returned = False
        """True if the waiter no longer watches the lent socket, so that the keeper's selector may watch it again."""
        self._whole_first = whole_first
        """True if a script is sent with its text at its first use, because a NOSCRIPT reply and a second request would take too
        long."""
        self._told: set[str] = set()
        self._out = b""
        self._queued: list[_Request] = []
        self._sent: deque[_Request] = deque()
        self._due = float("inf")
        """Monotonic time, in seconds, before which no request of this connection exceeds its time limit."""

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:
        """Send a call, and open the connection first if necessary. ``packed``: the encoded call; None: encode it here.

        The thread that owns the connection calls ``then`` exactly once, with the reply as its script's parser returns it, or a
        WireError.
        """
        whole = self._whole_first and isinstance(call, RunScript) and call.script.sha not in self._told
        request = _Request(call, pack(call, whole=True) if whole else packed or pack(call), then)
        request.whole = whole
        self._send(request)

    def _settle(self, request: _Request, reply: Any) -> None:
        if type(reply) is not hiredis.ReplyError:
            try:
                answer = parsed(request.call, reply)
            except WireError as odd:
                answer = odd
            request.then(answer, request.sent)
        elif is_noscript(reply) and not request.whole:
            request.packed, request.whole = pack(request.call, whole=True), True
            self._send(request)
        else:
            error = Refused(str(reply), self._endpoint.address)
            request.then(error, request.sent)
            if is_demoted(error, self._endpoint):
                self._keeper.moved(self._endpoint, None)

    def owes_since(self) -> float:
        """Return the monotonic time, in seconds, since which the oldest call waits; infinity if no call waits."""
        return self._sent[0].sent if self._sent else self._queued[0].sent if self._queued else float("inf")

    @property
    def begins(self) -> bool:
        """Return True while the connection is being opened for the first time."""
        return self._opening and self._tries == 1

    @property
    def busy(self) -> bool:
        return bool(self._sent or self._queued or self._opening)

    def _send(self, request: _Request) -> None:
        if self.sock is not None:
            self._write(request)
            return
        request.sent = now = self._clock()
        if self._closed or (not self._opening and now < self._retry_at):
            address = self._endpoint.address
            request.then(NotSent(f"no connection to {address}", address, silent=self._silent), now)
            return
        self._queued.append(request)
        # When packets are lost, the kernel retries a connect only after a second, and a short lease would end meanwhile. So
        # give up early and connect anew.
        self._due = min(self._due, now + max(request.call.timeout, CONNECTED_WITHIN))
        if not self._opening:
            self._opening = True
            self._tries += 1
            try:
                self._system.start(self._open, self._tries, name="holdfast-connect")
            except (RuntimeError, MemoryError) as error:  # no thread can be started
                if threading.main_thread().is_alive():
                    self._opened(NotSent(str(error), self._endpoint.address), self._tries)
                else:  # the program ends and releases its leases, and Python 3.12.1 then starts no thread any more
                    self._open(self._tries)

    def _open(self, number: int) -> None:
        """Open the socket, in a helper thread, because a server that hangs must not delay renewals on other servers.

        ``number``: number of this try. If a later try has begun meanwhile, the socket is closed again.
        """
        try:
            result: socket.socket | WireError = open_socket(self._endpoint, CONNECT_TIMEOUT, self._system)
        except WireError as error:
            result = error
        except BaseException as error:  # noqa: BLE001 - whatever the error is, the waiting commands must be answered
            result = NotSent(f"{self._endpoint.address}: {error!r}", self._endpoint.address)
        self._keeper.call(lambda: self._opened(result, number))
        if self._closed and isinstance(result, socket.socket):
            result.close()  # the keeper may have ended, and would never close the socket

    def _opened(self, result: socket.socket | WireError, number: int) -> None:
        if number != self._tries or not self._opening:
            if not isinstance(result, WireError):
                result.close()
            return
        self._opening, self._due = False, float("inf")
        queued, self._queued = self._queued, []
        if isinstance(result, WireError) or self._closed:
            self._backoff = min(1.0, max(0.05, 2 * self._backoff))
            self._retry_at = self._clock() + self._backoff
            error = result if isinstance(result, WireError) else NotSent("closed", self._endpoint.address)
            self._silent = error.silent
            if not isinstance(result, WireError):
                result.close()
            for request in queued:
                self._keeper.safely(request.then, error, self._clock())
            return
        self._backoff = 0.0
        result.setblocking(False)
        self.sock = result
        self._reader = Reader()
        self._keeper.selector.register(result, selectors.EVENT_READ, self)
        if self._endpoint.finder is not None:
            self._keeper.moved(self._endpoint, result.getpeername())
        for request in queued:
            if self.sock is result:
                self._write(request)
            else:  # an earlier request has found the connection lost; on another connection, this one could be sent too late
                address = self._endpoint.address
                error = NotSent(f"{address}: the connection was lost", address)
                self._keeper.safely(request.then, error, self._clock())

    def _write(self, request: _Request) -> None:
        request.sent = now = self._clock()
        request.deadline = deadline = now + request.call.timeout
        self._sent.append(request)
        if request.whole and isinstance(request.call, RunScript):
            self._told.add(request.call.script.sha)
        self._due = min(self._due, deadline)
        waiting, self._out = bool(self._out), self._out + request.packed
        self.on_writable(idle=not waiting)

    def on_writable(self, *, idle: bool = False) -> None:
        """Send as many queued bytes as the socket accepts now. ``idle``: True if the selector does not watch for
        writability."""
        if self.sock is None:
            return
        try:
            sent = self.sock.send(self._out)
        except self._not_now:
            sent = 0
        except OSError as error:
            self.fail(str(error))
            return
        self._out = self._out[sent:]
        if idle and not self._out:
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        with self._keeper.mutex:  # a waiter may borrow the socket at this moment
            if self._out:
                self.reclaim()
            key = self._keeper.selector.get_map().get(self.sock)
            if self._lent is None and key is not None and key.events != wanted:
                self._keeper.selector.modify(self.sock, wanted, self)

    def on_readable(self) -> None:
        """Read until nothing is left, because the selector does not report bytes that TLS has decrypted already."""
        while self.sock is not None:
            try:
                data = self.sock.recv(READ_SIZE)
            except self._not_now:
                return
            except OSError as error:
                self.fail(str(error))
                return
            if not data:
                self.fail("the connection was closed")
                return
            self._reader.feed(data)
            self._dispatch()
            if len(data) < READ_SIZE and self._endpoint.tls is None:
                return  # the socket is empty, and another recv would only confirm that

    def _dispatch(self) -> None:
        try:
            while self.sock is not None and (reply := self._reader.gets()) is not False:
                if self._on_push is not None and isinstance(reply, list) and reply[:1] in ([b"message"], [b"smessage"]):
                    self._keeper.safely(self._on_push, reply)
                    continue
                if isinstance(reply, list) and reply[:1] == [b"sunsubscribe"]:
                    self.fail("the slot of the inbox was moved to another server")
                    return
                if not self._sent:
                    self.fail("a reply without a request")
                    return
                request = self._sent.popleft()
                self._keeper.safely(self._settle, request, reply)
        except hiredis.ProtocolError as error:
            self.fail(str(error))

    def overdue(self, now: float) -> None:
        if now < self._due:
            return
        if self._opening:
            address = self._endpoint.address
            self._opened(NotSent(f"no answer from {address}: not connected in time", address, silent=True), self._tries)
            return
        self._due = self._first_deadline()
        if now >= self._due and self._lent is None:
            self.on_readable()  # this thread may have been delayed, and the reply may have arrived meanwhile
            self._due = self._first_deadline()
        if now >= self._due:
            self.fail("no answer in time", silent=True)

    def _first_deadline(self) -> float:
        return min((request.deadline for request in self._sent), default=float("inf"))

    def next_at(self) -> float:
        return self._due

    def fail(self, why: str, *, silent: bool = False) -> None:
        with self._keeper.mutex:  # the mutex is held so that no waiter borrows or returns the socket during these steps
            sock, self.sock = self.sock, None
            lent, self._lent = self._lent, None
            if sock is not None and sock in self._keeper.selector.get_map():
                self._keeper.selector.unregister(sock)
        if sock is not None:
            if lent is not None:
                lent.put(None)
            sock.close()
            if self._on_closed is not None:
                log.debug("inbox on %s lost: %s", self._endpoint.address, why)
                self._on_closed()
        self._out, self._due = b"", float("inf")
        self._told.clear()
        sent, self._sent = self._sent, deque()
        for request in sent:
            error = Unknown(f"{self._endpoint.address}: {why}", self._endpoint.address, silent=silent)
            self._keeper.safely(request.then, error, request.sent)

    def serves(self, endpoint: Endpoint) -> bool:
        return self._endpoint is endpoint

    def leave_for(self, place: Any) -> None:
        """Close this connection if it does not lead to the new primary, at the address ``place``.

        An old primary publishes no notifications any more, so a connection to it would wait in vain.
        """
        try:
            elsewhere = self.sock is not None and self.sock.getpeername() != place
        except OSError:
            elsewhere = True
        if elsewhere:
            self.fail("the primary is another server now")

    def has_unread(self) -> bool:
        """Return True if the socket has unread bytes. With TLS, always return False. Any thread may call this."""
        sock = self.sock
        if sock is None or self._endpoint.tls is not None:
            return False
        try:
            return bool(sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False  # there is nothing to read, or the socket was closed just now

    def lend_socket(self, waiter: Waiter) -> socket.socket | None:
        """Lend the socket to a waiter, and return it; return None if that is not possible now.

        Until the waiter returns the socket, the waiter watches it, and the keeper's selector does not. The caller holds the
        keeper's mutex.
        """
        if self.sock is None or self._lent is not None or self._out or self._endpoint.tls is not None:
            return None
        self._lent, self.returned = waiter, False
        self._keeper.selector.unregister(self.sock)
        return self.sock

    def lent_to(self, waiter: Waiter) -> bool:
        return self._lent is waiter

    def reclaim(self) -> None:
        """Take a lent socket back from the waiter, so that the selector watches it again."""
        self.returned = False
        if self._lent is not None and self.sock is not None:
            try:
                self._keeper.selector.register(self.sock, selectors.EVENT_READ, self)
            except KeyError:
                pass  # it is registered already, because an interrupt came before `_lent` was cleared
            except OSError:  # an interrupt left the selector inconsistent; a new socket repairs that
                self._keeper.call(lambda: self.fail("the selector lost the socket"))
            self._lent = None

    def close(self) -> None:
        self._closed = True
        self.fail("closed")
