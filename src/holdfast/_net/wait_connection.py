"""Connections for the command WAIT. Each serves one request at a time, because WAIT blocks all later commands on its
connection."""

from __future__ import annotations

import socket
from typing import Any

from holdfast._core.requests import RunScript
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import Connection
from holdfast._net.system import SYSTEM, System

KEPT = 4
"""Maximum number of idle connections that stay open."""

LATE = 0.2
"""Seconds that the client waits longer than WAIT may take on the server, so that the reply arrives even if WAIT times out."""


class Dedicated:
    """A server's connections for scripts that are followed by WAIT. Any thread may call the methods, which block."""

    def __init__(self, endpoint: Endpoint, system: System = SYSTEM) -> None:
        self._endpoint = endpoint
        self._system = system
        self._idle: list[Connection] = []

    def replicate(self, run: RunScript[Any], replicas: int, timeout: float) -> tuple[Any, Any]:
        """Run a script that writes, then WAIT. Return the replies to both, which may be error replies.

        ``replicas``: number of replicas that WAIT waits for. ``timeout``: maximum seconds of that wait. Raises NotSent if no
        connection can be opened, Unknown if no reply comes in time, and Refused if the server refuses the login.
        """
        wait = protocol.command("WAIT", replicas, max(1, int(1000 * timeout)))
        replies = self._exchange(protocol.pack(run) + wait, timeout + LATE)
        if protocol.is_noscript(replies[0]):
            replies = self._exchange(protocol.pack(run, whole=True) + wait, timeout + LATE)
        return replies[0], replies[1]

    def _exchange(self, packed: bytes, timeout: float) -> list[Any]:
        idle = self._idle  # `clear` replaces it
        try:
            connection = idle.pop()
        except IndexError:
            connection = Connection(self._endpoint, timeout, self._system)
        replies: list[Any] = []
        until = self._system.monotonic() + timeout
        try:
            connection.send(packed)
            while len(replies) < 2:
                connection.set_timeout(max(until - self._system.monotonic(), 0.001))
                replies += connection.receive()
        except BaseException:
            connection.close()
            self.clear()  # the other connections are most likely dead too
            raise
        if idle is self._idle and len(idle) < KEPT and not any(type(reply) is protocol.ReplyError for reply in replies):
            idle.append(connection)
        else:
            connection.close()
        return replies

    def clear(self) -> None:
        """Close the idle connections. A connection in use is closed after its use."""
        idle, self._idle = self._idle, []
        while idle:
            try:
                idle.pop().close()
            except IndexError:
                return  # another thread closed the last one

    def sockets(self) -> list[socket.socket]:
        return [connection.sock for connection in [*self._idle]]


def outcome(run: RunScript[Any], replies: tuple[Any, Any], endpoint: Endpoint) -> tuple[Any, int]:
    """Return the parsed reply of the script, and the number of replicas that have acknowledged its writes.

    Raises Refused if one of the replies is an error, and Unknown if the script's reply is malformed.
    """
    first, acknowledged = replies
    protocol.check(acknowledged, endpoint)
    return protocol.value(run, first, endpoint), int(acknowledged)
