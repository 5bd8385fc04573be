"""A pipelined connection of the keeper: never blocks the thread that uses it, not even while it is opened."""

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
from holdfast._core.requests import Call, NotSent, Refused, Run, Unknown, WireError
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._net.protocol import Reader, is_demoted, is_noscript, pack, parsed
from holdfast._net.sync_connection import CONNECT_TIMEOUT, open_socket
from holdfast._net.system import SYSTEM, System

log = logger("holdfast.keeper")

READ_SIZE = 16384

CONNECTED_WITHIN = 0.2
"""Seconds that a connection may take at least, however soon an answer is wanted."""


class ConnectionKeeper(Protocol):
    """The owner of connections, as they see it: the keeper, or a thread that asks several servers itself."""

    @property
    def selector(self) -> selectors.BaseSelector:
        """Tells when there is something to read."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Held while somebody else may use a connection."""

    def call(self, what: Callable[[], None]) -> None:
        """Call this soon, in the thread that looks after the connection."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Do something of which nobody else's lease may depend."""

    def moved(self, endpoint: Endpoint, where: object) -> None:
        """A connection was opened to this one of the servers that the endpoint may mean."""


class _Request:
    """Something that was asked, or is to be."""

    __slots__ = ("call", "deadline", "packed", "sent", "then", "whole")

    def __init__(self, call: Call, packed: bytes, then: Then) -> None:
        self.call = call
        self.packed = packed
        self.then = then
        self.sent = self.deadline = 0.0
        self.whole = False
        """With the text of its script: the server did not know it."""


class PipelinedConnection:
    """Used by the keeper thread alone, except for the socket that a helper thread opens for it."""

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
        """It was not opened in time, when that was tried last."""
        self._backoff = 0.0
        self._reader = Reader()
        self._not_now: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)
        if endpoint.tls is not None:
            import ssl

            self._not_now += (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self._lent: Waiter | None = None
        """Waiter that reads the socket instead of the selector."""
        self.returned = False
        """The waiter has stopped reading: the socket can be taken back."""
        self._whole_first = whole_first
        """Each connection is told a script with its first use: there may be nobody to read that the server does not know it."""
        self._told: set[str] = set()
        self._out = b""
        self._queued: list[_Request] = []
        self._sent: deque[_Request] = deque()
        self._due = float("inf")
        """No later than the first deadline of what was sent and not answered, or waits for the connection."""

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:
        """Send a call, opening the connection if need be. ``then`` is called exactly once, by the keeper thread, with the typed
        reply or the WireError instead of one. ``packed``: its bytes, where others get the same."""
        whole = self._whole_first and isinstance(call, Run) and call.script.sha not in self._told
        request = _Request(call, pack(call, whole=True) if whole else packed or pack(call), then)
        request.whole = whole
        self._send(request)

    def _settle(self, request: _Request, reply: Any) -> None:
        """There is an answer."""
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
        """Since when the server has owed an answer, or a connection (local seconds); infinity if it owes nothing."""
        return self._sent[0].sent if self._sent else self._queued[0].sent if self._queued else float("inf")

    @property
    def begins(self) -> bool:
        """Its first connection is being opened."""
        return self._opening and self._tries == 1

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
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
        # When packets vanish, the kernel asks again after a second, and a short lease would end meanwhile: we try anew.
        self._due = min(self._due, now + max(request.call.timeout, CONNECTED_WITHIN))
        if not self._opening:
            self._opening = True
            self._tries += 1
            try:
                self._system.start(self._open, self._tries, name="holdfast-connect")
            except (RuntimeError, MemoryError) as error:  # no more threads
                if threading.main_thread().is_alive():
                    self._opened(NotSent(str(error), self._endpoint.address), self._tries)
                else:  # the program ends, and wants what it holds given back: Python 3.12.1 starts no thread any more
                    self._open(self._tries)

    def _open(self, number: int) -> None:
        """Open the socket, in a thread of its own: a server that hangs must not delay renewals on other servers."""
        try:
            result: socket.socket | WireError = open_socket(self._endpoint, CONNECT_TIMEOUT, self._system)
        except WireError as error:
            result = error
        except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting commands must be answered
            result = NotSent(f"{self._endpoint.address}: {error!r}", self._endpoint.address)
        self._keeper.call(lambda: self._opened(result, number))
        if self._closed and isinstance(result, socket.socket):
            result.close()  # the keeper may have ended, and looks at nothing any more

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
            self._write(request)

    def _write(self, request: _Request) -> None:
        request.sent = now = self._clock()
        request.deadline = deadline = now + request.call.timeout
        self._sent.append(request)
        if request.whole and isinstance(request.call, Run):
            self._told.add(request.call.script.sha)
        self._due = min(self._due, deadline)
        waiting, self._out = bool(self._out), self._out + request.packed
        self.on_writable(idle=not waiting)

    def on_writable(self, *, idle: bool = False) -> None:
        """Send what is to be sent. ``idle``: nobody has asked to be told when there is room."""
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
        with self._keeper.mutex:  # somebody may borrow the socket just now
            if self._out:
                self.reclaim()
            key = self._keeper.selector.get_map().get(self.sock)
            if self._lent is None and key is not None and key.events != wanted:
                self._keeper.selector.modify(self.sock, wanted, self)

    def on_readable(self) -> None:
        """Read all there is: what TLS has decrypted already would not wake the selector again."""
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
                return  # that was all: asking once more would only say so

    def _dispatch(self) -> None:
        try:
            while (reply := self._reader.gets()) is not False:
                if self._on_push is not None and isinstance(reply, list) and reply[:1] in ([b"message"], [b"smessage"]):
                    self._keeper.safely(self._on_push, reply)
                    continue
                if isinstance(reply, list) and reply[:1] == [b"sunsubscribe"]:
                    self.fail("the slot of the inbox was moved to another server")
                    return
                if not self._sent:
                    self.fail("an answer to nothing")
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
            self.on_readable()  # this thread may have been held up meanwhile, and what has come is no silence
            self._due = self._first_deadline()
        if now >= self._due:
            self.fail("no answer in time", silent=True)

    def _first_deadline(self) -> float:
        return min((request.deadline for request in self._sent), default=float("inf"))

    def next_at(self) -> float:
        return self._due

    def fail(self, why: str, *, silent: bool = False) -> None:
        with self._keeper.mutex:  # or it would be borrowed, or given back, in the middle of this
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
        """The server is at ``place`` now, another line has found out. Elsewhere one would listen to a server to which nobody
        speaks any more."""
        try:
            elsewhere = self.sock is not None and self.sock.getpeername() != place
        except OSError:
            elsewhere = True
        if elsewhere:
            self.fail("the primary is another server now")

    def has_unread(self) -> bool:
        """Something has come that nobody has read yet. Any thread may ask."""
        sock = self.sock
        if sock is None or self._endpoint.tls is not None:
            return False
        try:
            return bool(sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False  # nothing; or closed just now

    def lend_socket(self, waiter: Waiter) -> socket.socket | None:
        """The socket, for a waiter to look at instead of the selector. None where that is not possible. The keeper's mutex is
        held, as for `reclaim`."""
        if self.sock is None or self._lent is not None or self._out or self._endpoint.tls is not None:
            return None
        self._lent, self.returned = waiter, False
        self._keeper.selector.unregister(self.sock)
        return self.sock

    def lent_to(self, waiter: Waiter) -> bool:
        """This one looks at it."""
        return self._lent is waiter

    def reclaim(self) -> None:
        """Have the selector look at the socket again, if it is lent."""
        self.returned = False
        if self._lent is not None and self.sock is not None:
            try:
                self._keeper.selector.register(self.sock, selectors.EVENT_READ, self)
            except KeyError:
                pass  # an interrupt had hit just before this was noted
            except OSError:  # or in the middle of the selector's own books: a new socket sets them right
                self._keeper.call(lambda: self.fail("the selector has lost it"))
            self._lent = None

    def close(self) -> None:
        self._closed = True
        self.fail("closed")
