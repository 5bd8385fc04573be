"""``local://``: the server of this user on this machine, started if it is not running.

A client first tries to connect to the socket (`paths.socket_path`). If that fails, it calls `ensure`, which starts the server.
"""

from __future__ import annotations

from holdfast._local.server.paths import SOCKET, listening, socket_path


def ensure(url: str = "local://", timeout: float = 10.0) -> str:
    """Start the local server if it is not running, and return the path of its socket.

    ``timeout``: maximum seconds for the start. Call this again whenever a connection to the socket fails, because the server
    may have ended. Raises ConfigError if the URL or its directory is invalid, or if there is no server program. Raises
    ServerError if the server does not start in time.
    """
    path = socket_path(url)
    if not listening(path):
        from holdfast._local.server.start import start

        start(path.removesuffix("/" + SOCKET), timeout)
    return path
