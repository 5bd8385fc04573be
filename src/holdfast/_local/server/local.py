"""``local://``: the server of this user on this machine, started if it is not running.

Usually the server is running, and `paths.socket_path` and a connect suffice. Only if the connect is refused, `ensure` imports
the code that starts a server.
"""

from __future__ import annotations

from holdfast._local.server.paths import SOCKET, listening, socket_path


def ensure(url: str = "local://", timeout: float = 10.0) -> str:
    """Return the path of the socket of the running local server, which is started if necessary.

    ``timeout``: maximum seconds for the start. Call this again whenever a connection to the socket fails, because the server
    may have ended. Raises ConfigError for a bad URL or directory, or if there is no server program; ServerError if the server
    does not start.
    """
    path = socket_path(url)
    if not listening(path):
        from holdfast._local.server.start import start

        start(path.removesuffix("/" + SOCKET), timeout)
    return path
