"""Connections for WAIT, which blocks all later commands of its connection: each connection serves one request at a
time."""

from __future__ import annotations

import socket
from typing import Any

from holdfast._core.requests import Run
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import Connection

KEPT = 4
"""Number of idle connections that stay open."""

LATE = 0.2
"""Seconds added to a client's timeout, so that the reply of a blocking command, which the server times out, can
still arrive."""


class Dedicated:
    """The connections to one server for scripts followed by WAIT.

    Any thread may call the methods, which block the calling thread.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: list[Connection] = []

    def replicate(self, run: Run[Any], replicas: int, timeout: float) -> tuple[Any, Any]:
        """Run a script that writes, followed by WAIT, and return the replies to both. An error reply is returned, not
        raised.

        ``timeout``: seconds for WAIT. Raises NotSent, Unknown or Refused.
        """
        wait = protocol.command("WAIT", replicas, max(1, int(1000 * timeout)))
        replies = self._exchange(protocol.pack(run) + wait, timeout + LATE)
        if protocol.is_noscript(replies[0]):
            replies = self._exchange(protocol.pack(run, whole=True) + wait, timeout + LATE)
        return replies[0], replies[1]

    def _exchange(self, packed: bytes, timeout: float) -> list[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = Connection(self._endpoint, timeout)
        replies: list[Any] = []
        try:
            connection.set_timeout(timeout)
            connection.send(packed)
            while len(replies) < 2:
                replies += connection.receive()
        except BaseException:
            connection.close()
            self.clear()  # the other connections are most likely dead too
            raise
        if len(self._idle) < KEPT and not any(type(reply) is protocol.ReplyError for reply in replies):
            self._idle.append(connection)
        else:
            connection.close()
        return replies

    def clear(self) -> None:
        """Close the idle connections."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return  # another thread closed the last one

    def sockets(self) -> list[socket.socket]:
        """Return the sockets of the idle connections, which a forked child closes."""
        return [connection.sock for connection in [*self._idle]]


def outcome(run: Run[Any], replies: tuple[Any, Any], endpoint: Endpoint) -> tuple[Any, int]:
    """Return the typed reply of the script, and the number of replicas that acknowledged it. Raises Refused for an
    error reply."""
    first, acknowledged = replies
    protocol.check(acknowledged, endpoint)
    return protocol.value(run, first, endpoint), int(acknowledged)
