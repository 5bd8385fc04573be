"""``local://``: this machine's own server for this user, started when it does not run.

The common case is that the server runs: `paths.socket_path`, connect, done. Only when that connect is refused, `ensure`
loads what it takes to start one.
"""

from __future__ import annotations

from holdfast._local.server.paths import SOCKET, listening, socket_path


def ensure(url: str = "local://", timeout: float = 10.0) -> str:
    """The path of the socket of a running server, started if need be; ``timeout`` (seconds) bounds the start.

    Call it again whenever a connection to that socket fails: the server may have ended since.
    Raises ConfigError for a bad URL or directory, or if there is no server program; ServerError if it does not start.
    """
    path = socket_path(url)
    if not listening(path):
        from holdfast._local.server.start import start

        start(path.removesuffix("/" + SOCKET), timeout)
    return path
