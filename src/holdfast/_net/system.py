"""The machine as drivers and connections need it: time, randomness, sockets and threads.

They get it as a constructor argument. Production passes `SYSTEM`; the histories of `holdfast.testing.wired` pass a machine
whose time is virtual and whose sockets are scripted.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._clock import clock

if TYPE_CHECKING:
    from holdfast._net.endpoint import Endpoint


class Looper(Protocol):
    """The keeper, as the machine runs it: turns, and between them a wait for its selector."""

    selector: selectors.BaseSelector

    def run(self) -> None:
        """Take turns until it is told to stop."""

    def before_wait(self) -> float | None:
        """Do what is due; return how many seconds to wait for the selector (None: until something happens)."""

    def after_wait(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        """Read and write where the selector says so."""


class System:
    """The machine as it is."""

    clock: Callable[[], float] = staticmethod(clock)
    """Local time in seconds, as `holdfast._clock` has it."""
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """The time of event loops, in seconds."""
    sleep: Callable[[float], None] = staticmethod(time.sleep)
    urandom: Callable[[int], bytes] = staticmethod(os.urandom)
    lock: Callable[[], Any] = staticmethod(threading.Lock)
    selector: Callable[[], selectors.BaseSelector] = staticmethod(selectors.DefaultSelector)
    socketpair: Callable[[], tuple[socket.socket, socket.socket]] = staticmethod(socket.socketpair)

    def dial(self, endpoint: Endpoint, timeout: float) -> socket.socket:
        """Return a connected socket, without having sent anything of ours. Raises OSError, ServerError."""
        if endpoint.path is None:
            context = endpoint.ssl_context()
            # As bytes: a str goes through the IDNA codec, even if it is an address, and that loads tables of all characters.
            host = endpoint.host.encode() if endpoint.host.isascii() else endpoint.host
            sock = socket.create_connection((host, endpoint.port), timeout)  # type: ignore[arg-type]
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if context is not None:
                try:
                    return context.wrap_socket(sock, server_hostname=endpoint.host)
                except BaseException:
                    sock.close()
                    raise
            return sock
        if endpoint.local is None:
            return _dial_unix(endpoint.path, timeout)
        from holdfast._local.server import local, paths

        try:
            return _dial_unix(paths.socket_path(endpoint.local), timeout)
        except (FileNotFoundError, ConnectionRefusedError):
            return _dial_unix(local.ensure(endpoint.local), timeout)

    def readable(self, sock: socket.socket, seconds: float) -> bool:
        """Wait until there is something to read, for so many seconds at most; False if there is nothing by then. This is
        Python's own poll, which keeps to the time limit whatever signals come."""
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(max(0.0, 1000 * seconds)))

    def hang_up(self, sock: socket.socket) -> None:
        """End a connection, for whoever reads from it, too. Raises OSError."""
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which is that thread's

    def start(self, what: Callable[..., object], *args: Any, name: str) -> None:
        """Call it in a thread of its own. Raises RuntimeError or MemoryError where there are no more threads."""
        threading.Thread(target=what, args=args, name=name, daemon=True).start()

    def keep(self, keeper: Looper) -> threading.Thread:
        """Run the keeper, in a thread of its own."""
        thread = threading.Thread(target=keeper.run, name="holdfast-keeper", daemon=True)
        thread.start()
        return thread


def _dial_unix(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


SYSTEM = System()
