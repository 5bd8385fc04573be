"""Blocking connections, each used by one thread at a time, and the pool of idle ones."""

from __future__ import annotations

import os
import socket
import struct
import weakref
from typing import Any

import hiredis

from holdfast._core.requests import NotSent, Refused, Unknown
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.silent_socket import silent
from holdfast._net.system import SYSTEM, System
from holdfast.errors import HoldfastError

CONNECT_TIMEOUT = 2.0
"""Maximum seconds to wait until a connection is open."""

READ_SIZE = 16384

SENT_AT_ONCE = 32768
"""Maximum bytes of a request that is sent by one call. The buffers of an idle connection have room for so many, so that the
call does not block. A larger request is sent in pieces, within its time limit."""

KERNEL_WAIT_S = 0.005
"""Seconds for which recv blocks in the kernel (SO_RCVTIMEO) before the connection polls for the rest of the time limit.

Nearly all replies arrive within these seconds, which saves the poll system call. The kernel starts the interval anew after each
signal. So while signals arrive more often than this, the request's time limit is not enforced.
"""


def _not_reached(endpoint: Endpoint, error: OSError | HoldfastError) -> NotSent:
    """Return the NotSent for an error of a connection attempt.

    A HoldfastError comes from ``local://`` if the server cannot start. Its text already names the remedy.
    """
    if isinstance(error, HoldfastError):
        return NotSent(str(error), endpoint.address)
    silent = isinstance(error, TimeoutError)
    return NotSent(f"no server at {endpoint.address}: {endpoint.why(error)}", endpoint.address, silent=silent)


def open_socket(endpoint: Endpoint, timeout: float, system: System = SYSTEM) -> socket.socket:
    """Return a connected socket, logged in to the server.

    Raises NotSent if the server does not answer within ``timeout`` seconds, and Refused if it refuses the login.
    """
    timeout = min(timeout, endpoint.timeout)
    if endpoint.finder is not None:
        endpoint = endpoint.finder.find(timeout)
    try:
        sock = system.dial(endpoint, timeout)
    except (OSError, HoldfastError) as error:
        raise _not_reached(endpoint, error) from (error if isinstance(error, OSError) else None)
    until = system.monotonic() + timeout  # connecting has a limit of its own, because a host may have several addresses
    try:
        sock.settimeout(timeout)
        commands = endpoint.handshake()
        sock.sendall(commands.packed(protocol.command))
        reader = protocol.Reader()
        for _ in range(len(commands)):
            while (reply := reader.gets()) is False:
                sock.settimeout(max(until - system.monotonic(), 0.001))
                data = sock.recv(4096)
                if not data:
                    raise ConnectionResetError("the connection was closed")
                reader.feed(data)
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(str(reply), endpoint.address)
    except hiredis.ProtocolError as error:
        sock.close()
        raise NotSent(f"{endpoint.address} is not a Redis or Valkey server: {error}", endpoint.address) from error
    except OSError as error:
        sock.close()
        silent = isinstance(error, TimeoutError)
        raise NotSent(f"no answer from {endpoint.address}: {endpoint.why(error)}", endpoint.address, silent=silent) from error
    except BaseException:
        sock.close()
        raise
    return sock


class Connection:
    """One blocking connection, used by one thread at a time."""

    __slots__ = ("__weakref__", "_polls", "_reader", "_recv", "_send", "_system", "_timeout", "address", "sock")

    def __init__(self, endpoint: Endpoint, timeout: float, system: System = SYSTEM) -> None:
        self._system = system
        self.sock = open_socket(endpoint, max(timeout, 0.05), system)
        self.sock.__class__ = silent(type(self.sock))
        self.address = endpoint.address
        self._polls = endpoint.tls is not None or os.name != "posix"
        self._timeout = 0.0 if self._polls else timeout
        self._reader = hiredis.Reader()
        self._send = self.sock.sendall
        self._recv = self.sock.recv
        if not self._polls:
            self.sock.settimeout(None)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CONNECT_TIMEOUT), 0))
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(KERNEL_WAIT_S * 1e6)))

    def set_timeout(self, seconds: float) -> None:
        if self._polls and seconds != self._timeout:
            self.sock.settimeout(seconds)
        self._timeout = seconds

    def exchange(self, packed: bytes) -> Any:
        """Send one command and return its reply, which may be an error reply.

        Raises Unknown if the connection is lost or the time limit passes before the whole reply has arrived.
        """
        until = self._system.monotonic() + self._timeout if self._polls else 0.0
        try:
            if len(packed) > SENT_AT_ONCE:
                self._send_in_pieces(packed)
            else:
                self._send(packed)
            try:
                data = self._recv(4096)
            except BlockingIOError:
                until = self._system.monotonic() + self._timeout - KERNEL_WAIT_S
                data = self._more(4096, until)
            if not data:
                raise self._ended()
            self._reader.feed(data)
            reply = self._reader.gets()
            # If the clock was not read so far, the first part of the reply has come within KERNEL_WAIT_S.
            return self._rest(until or self._system.monotonic() + self._timeout) if reply is False else reply
        except (OSError, *protocol.MALFORMED) as error:
            raise self._unknown(error) from error

    def _rest(self, until: float) -> Any:
        """Read the rest of a reply that arrives in parts, until monotonic time ``until``, and return the reply."""
        reader = self._reader
        while True:
            data = self._more(READ_SIZE, until)
            if not data:
                raise self._ended()
            reader.feed(data)
            reply = reader.gets()
            if reply is not False:
                if self._polls:
                    self.sock.settimeout(self._timeout)
                return reply

    def _more(self, size: int, until: float) -> bytes:
        """Return up to ``size`` bytes that arrive by monotonic time ``until``. Raises TimeoutError if none arrive.

        After that time, return bytes that have arrived already, because this thread may have been held up.
        """
        left = until - self._system.monotonic()
        if self._polls:
            self.sock.settimeout(max(left, 0.001))
        elif not self._system.readable(self.sock, left):
            raise TimeoutError
        return self._recv(size)

    def send(self, packed: bytes) -> None:
        """Send encoded commands without waiting for their replies.

        Raises Unknown if the connection is lost, or if the time limit passes before all is sent.
        """
        try:
            if len(packed) > SENT_AT_ONCE:
                self._send_in_pieces(packed)
            else:
                self._send(packed)
        except OSError as error:
            raise self._unknown(error) from error

    def _send_in_pieces(self, packed: bytes) -> None:
        """Send a large request. Raises TimeoutError if the server does not take all of it within the time limit.

        With ``sendall``, the time limit would begin anew with each piece, in the kernel and in `ssl`.
        """
        rest, until = memoryview(packed), self._system.monotonic() + self._timeout
        while rest:
            left = until - self._system.monotonic()
            if left <= 0:
                raise TimeoutError
            self.sock.settimeout(left)
            rest = rest[self.sock.send(rest) :]
        self.sock.settimeout(self._timeout if self._polls else None)

    def receive(self) -> list[Any]:
        """Wait until some bytes arrive, and return the replies that are complete, perhaps none.

        Raises Unknown if the connection is lost or the time limit passes.
        """
        data, wait = None, self._timeout
        try:
            if self._polls or wait > KERNEL_WAIT_S:  # the kernel's wait must not exceed the limit
                try:
                    data = self._recv(READ_SIZE)
                except BlockingIOError:
                    wait -= KERNEL_WAIT_S
            if data is None:
                data = self._more(READ_SIZE, self._system.monotonic() + wait)
            if not data:
                raise self._ended()
            self._reader.feed(data)
            replies = []
            while (reply := self._reader.gets()) is not False:
                replies.append(reply)
            return replies
        except (OSError, *protocol.MALFORMED) as error:
            raise self._unknown(error) from error

    def _ended(self) -> Unknown:
        return Unknown(f"{self.address} closed the connection before it answered", self.address)

    def _unknown(self, error: Exception) -> Unknown:
        if isinstance(error, protocol.MALFORMED):
            return Unknown(f"{self.address} is not a Redis or Valkey server: {error}", self.address)
        silent = isinstance(error, BlockingIOError | TimeoutError)
        return Unknown(f"{self.address}: {'no answer in time' if silent else error}", self.address, silent=silent)

    def hang_up(self) -> None:
        """Shut down the connection, so that a thread that is reading from it sees the end of file. Any thread may call this."""
        try:
            self._system.hang_up(self.sock)
        except OSError:
            pass

    def close(self) -> None:
        self.sock.close()


FULL = object()
"""Returned instead of a reply if all connections of the pool are in use."""


class ConnectionPool:
    """Connections to one server, each used by one thread at a time. ``limit`` is their maximum number; None: no maximum."""

    def __init__(self, endpoint: Endpoint, limit: int | None = None, system: System = SYSTEM) -> None:
        self.endpoint = endpoint
        self._system = system
        self._limit = limit
        self._idle = self._none_open()
        """The idle connections, and None for each one that may still be opened. `clear` replaces the list."""
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        """The open connections, idle or in use."""

    def _none_open(self) -> list[Connection | None]:
        return [None] * (self._limit or 0)

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send one command on an idle or a new connection, and return its reply, which may be an error reply.

        Return FULL if all connections of the pool are in use. Raises NotSent if no connection can be opened, Unknown if no
        reply comes within ``timeout`` seconds, and Refused if the server refuses the login.
        """
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:
            if self._limit is not None:
                return FULL
            connection = None
        try:
            if connection is None:
                connection = Connection(self.endpoint, timeout, self._system)
                self._open.add(connection)
            connection.set_timeout(timeout)
            reply = connection.exchange(packed)
        except BaseException:
            # The reply may still arrive after an interrupt, so nobody may use this connection again.
            if connection is not None:
                connection.close()
            if self._limit is not None:
                idle.append(None)
            raise
        if idle is self._idle:
            idle.append(connection)  # closed by `clear`, or garbage-collected, if `clear` replaces the list just now
        else:
            connection.close()
        return reply

    def clear(self) -> None:
        """Close all connections: the idle ones now, and each one in use after its use."""
        idle, self._idle = self._idle, self._none_open()
        self._close(idle)

    def use_up(self) -> None:
        """Leave no connection to any thread until `clear` is called, as if other threads used all of them."""
        self._idle.clear()

    def close_idle(self) -> None:
        self._close(self._idle)

    def _close(self, idle: list[Connection | None]) -> None:
        places = 0
        try:
            while True:
                connection = idle.pop()
                places += 1
                if connection is not None:
                    connection.close()
        except IndexError:
            pass
        if self._limit is not None:
            idle += [None] * places

    def sockets(self) -> list[socket.socket]:
        return [connection.sock for connection in [*self._open] if connection.sock.fileno() >= 0]
