"""Connections for WAIT, which holds up all that is behind it: each has one user until everything is answered."""

from __future__ import annotations

import socket
from typing import Any

from holdfast._core.requests import Run
from holdfast._net import protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_connection import Connection

KEPT = 4
"""Connections that stay open when nobody uses them."""

LATE = 0.2
"""Seconds for the way of an answer whose time limit the server keeps."""


class Dedicated:
    """To one server; any thread may ask. The caller is blocked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: list[Connection] = []

    def replicate(self, run: Run[Any], replicas: int, timeout: float) -> tuple[Any, Any]:
        """The replies to a script that writes, and to WAIT behind it; an error reply is returned, not raised. Raises NotSent,
        Unknown or Refused."""
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
            self.clear()  # they are most likely dead too
            raise
        if len(self._idle) < KEPT and not any(type(reply) is protocol.ReplyError for reply in replies):
            self._idle.append(connection)
        else:
            connection.close()
        return replies

    def clear(self) -> None:
        """Close those that are idle."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return  # somebody was quicker

    def sockets(self) -> list[socket.socket]:
        """For a forked child to let go of."""
        return [connection.sock for connection in [*self._idle]]


def outcome(run: Run[Any], replies: tuple[Any, Any], endpoint: Endpoint) -> tuple[Any, int]:
    """The typed reply of the script, and how many replicas have acknowledged it. Raises Refused for an error reply."""
    first, acknowledged = replies
    protocol.check(acknowledged, endpoint)
    return protocol.value(run, first, endpoint), int(acknowledged)
