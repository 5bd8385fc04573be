"""Blocking connections, and the stack of idle ones: for threads, one exchange at a time on each connection."""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Any

import hiredis

from holdfast._core.requests import NotSent, Refused, Unknown, WireError
from holdfast._wire import resp
from holdfast._wire.endpoint import Endpoint
from holdfast.errors import ServerError

CONNECT_TIMEOUT = 2.0


def open_socket(endpoint: Endpoint, timeout: float) -> socket.socket:
    """A connected socket, logged in. Raises NotSent or Refused."""
    timeout = min(timeout, endpoint.timeout)
    try:
        sock = _dial(endpoint, timeout)
    except (OSError, ServerError) as error:  # ServerError: this machine's own server did not start
        raise NotSent(f"no server at {endpoint.address}: {error}", endpoint.address) from error
    try:
        sock.settimeout(timeout)
        commands = endpoint.handshake()
        sock.sendall(b"".join(resp.command(*parts) for parts in commands))
        reader = hiredis.Reader()
        for _ in commands:
            while (reply := reader.gets()) is False:
                data = sock.recv(4096)
                if not data:
                    raise NotSent(f"{endpoint.address} closed the connection", endpoint.address)
                reader.feed(data)
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(str(reply), endpoint.address)
    except OSError as error:
        sock.close()
        raise NotSent(f"no answer from {endpoint.address}: {error}", endpoint.address) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _dial(endpoint: Endpoint, timeout: float) -> socket.socket:
    if endpoint.path is None:
        # As bytes: a str goes through the IDNA codec, even if it is an address, and that loads tables of all characters.
        host = endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
        sock = socket.create_connection((host, endpoint.port), timeout)  # type: ignore[arg-type]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        context = endpoint.ssl_context()
        if context is not None:
            try:
                return context.wrap_socket(sock, server_hostname=endpoint.host)
            except BaseException:
                sock.close()
                raise
        return sock
    if endpoint.local is None:
        return _dial_unix(endpoint.path, timeout)
    from holdfast._servers import local

    try:
        return _dial_unix(local.socket_path(endpoint.local), timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        return _dial_unix(local.ensure(endpoint.local), timeout)


def _dial_unix(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


class Connection:
    """One connection, used by one thread at a time."""

    __slots__ = ("_polls", "_reader", "_recv", "_send", "_timeout", "address", "sock")

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self.sock = open_socket(endpoint, max(timeout, 0.05))
        self.address = endpoint.address
        self._polls = endpoint.tls is not None or os.name != "posix"
        self._timeout = 0.0
        self._reader = hiredis.Reader()
        self._send = self.sock.sendall
        self._recv = self.sock.recv
        if not self._polls:
            self.sock.settimeout(None)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CONNECT_TIMEOUT), 0))

    def set_timeout(self, seconds: float) -> None:
        """Limit how long a reply is waited for."""
        if seconds == self._timeout:
            return
        self._timeout = seconds
        if self._polls:
            self.sock.settimeout(seconds)
            return
        # A blocking socket with the kernel's own time limit costs one system call less per send and receive than
        # settimeout(), which polls first.
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def exchange(self, packed: bytes) -> Any:
        """Send one command and read its reply; an error reply is returned, not raised. Raises Unknown."""
        try:
            self._send(packed)
            reader, recv = self._reader, self._recv
            while True:
                data = recv(4096)
                if not data:
                    raise Unknown(f"{self.address} closed the connection before it answered", self.address)
                reader.feed(data)
                reply = reader.gets()
                if reply is not False:
                    return reply
        except hiredis.ProtocolError as error:
            raise Unknown(f"{self.address} is no Redis or Valkey server: {error}", self.address) from error
        except OSError as error:
            why = "no answer in time" if isinstance(error, BlockingIOError | TimeoutError) else str(error)
            raise Unknown(f"{self.address}: {why}", self.address) from error

    def close(self) -> None:
        self.sock.close()


class Pool:
    """The idle connections to one server. Grows with the number of threads that ask at the same moment."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: list[Connection] = []
        self._mutex = threading.Lock()

    def exchange(self, packed: bytes, timeout: float) -> Any:
        """Send one command on a connection of its own. Raises NotSent, Unknown or Refused."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = Connection(self.endpoint, timeout)
        try:
            connection.set_timeout(timeout)
            reply = connection.exchange(packed)
        except WireError:
            connection.close()
            self.clear()  # the others are most likely dead too, and each would cost a round of asking again
            raise
        except BaseException:
            # Interrupted: its reply may still come, so nobody may use this connection again.
            connection.close()
            raise
        self._idle.append(connection)
        return reply

    def clear(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def sockets(self) -> list[socket.socket]:
        return [connection.sock for connection in self._idle]
