"""Sockets that can be garbage-collected without a ResourceWarning."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

S = TypeVar("S", bound=socket.socket)

_kinds: dict[str, Any] = {}


def silent(kind: type[S]) -> type[S]:
    """Return a subclass of a socket class whose objects can be garbage-collected without a ResourceWarning.

    Open sockets are left to the garbage collector after an interrupt, or if `ConnectionPool.clear` replaces the idle list. A
    TLS socket is left to it if the server resets the connection before the handshake, because `ssl.SSLContext.wrap_socket` then
    raises an error and does not close the socket. The ``__del__`` is written in C. CPython ignores exceptions of a ``__del__``
    written in Python, so a Ctrl-C could be lost.
    """
    found: type[S] | None = _kinds.get(kind.__name__)
    if found is None:
        found = _kinds.setdefault(
            kind.__name__, type(kind.__name__, (kind,), {"__slots__": (), "__del__": socket.SocketType.close})
        )
    return found
