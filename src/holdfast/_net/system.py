"""The parts of the operating system that drivers and connections use: time, randomness, sockets and threads.

Production uses the object `SYSTEM`. The simulator in `holdfast_lab.wired` passes an object with virtual time and simulated
sockets instead.
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

from holdfast._clock import clock, monotonic

if TYPE_CHECKING:
    from holdfast._net.endpoint import Endpoint


class Looper(Protocol):
    """The methods of the keeper that run its loop. `System` calls `run`, and the simulator calls the others."""

    selector: selectors.BaseSelector

    def run(self) -> None: ...

    def before_wait(self) -> float | None:
        """Do the work that is due, and return for how many seconds to wait for sockets. None: no limit."""

    def after_wait(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> None:
        """Read from and write to the sockets in ``ready``, which the selector has reported."""


class System:
    """The real operating system."""

    clock: Callable[[], float] = staticmethod(clock)
    """Function that returns the monotonic time of `holdfast._clock`, in seconds."""
    monotonic: Callable[[], float] = staticmethod(monotonic)
    """Function that returns the time of `holdfast._clock.monotonic`, in seconds, for limits of input and output."""
    sleep: Callable[[float], None] = staticmethod(time.sleep)
    urandom: Callable[[int], bytes] = staticmethod(os.urandom)
    lock: Callable[[], Any] = staticmethod(threading.Lock)
    rlock: Callable[[], Any] = staticmethod(threading.RLock)
    selector: Callable[[], selectors.BaseSelector] = staticmethod(selectors.DefaultSelector)
    socketpair: Callable[[], tuple[socket.socket, socket.socket]] = staticmethod(socket.socketpair)

    def dial(self, endpoint: Endpoint, timeout: float) -> socket.socket:
        """Return a connected socket on which no command was sent yet.

        Raises OSError if the server cannot be reached within ``timeout`` seconds, and ServerError or ConfigError if a
        ``local://`` server cannot be started.
        """
        if endpoint.path is None:
            context = endpoint.ssl_context()
            # The host is passed as bytes, because Python loads the IDNA codec with its large tables for any str.
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
        """Wait for at most ``seconds`` seconds, also if signals arrive meanwhile. Return True if the socket is readable."""
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(max(0.0, 1000 * seconds)))

    def hang_up(self, sock: socket.socket) -> None:
        """Shut down a connection, so that a thread that is reading from it sees the end of file.

        Raises OSError if the connection is closed already.
        """
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not through TLS, whose state only the reading thread may use

    def start(self, what: Callable[..., object], *args: Any, name: str) -> None:
        """Call ``what`` in a new thread with this name. Raises RuntimeError or MemoryError if no thread can be started."""
        threading.Thread(target=what, args=args, name=name, daemon=True).start()

    def keep(self, keeper: Looper) -> threading.Thread:
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
