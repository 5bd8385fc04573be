"""The socket path of this user's server on this machine, and the check whether the server listens.

``local://`` is the server in ``/tmp/holdfast-<uid>``, and ``local:///path`` is the server in the directory ``/path``. The
default does not depend on environment variables, so that a user's cron jobs and terminals use the same server. The server's
data is in the same directory. It need not survive a reboot, because no holder of a lock survives a reboot.

Every command that uses ``local://`` imports this module, so the module does not import pathlib, which is slow.
"""

from __future__ import annotations

import os
import socket
import stat
import sys

from holdfast.errors import ConfigError

SOCKET = "server.sock"
LIMIT = 103 if sys.platform == "darwin" else 107
"""Maximum number of bytes in the path of a socket that the kernel accepts."""


def socket_path(url: str) -> str:
    """Return the path of the socket of the server with this URL, without changing any file.

    Raises ConfigError if the URL is invalid, or if other users may use the server's directory.
    """
    return checked(_directory(url))


def checked(directory: str) -> str:
    """Return the path of the server's socket in ``directory``.

    Raises ConfigError if the path is too long, or if other users may use the directory.
    """
    path = f"{directory}/{SOCKET}"
    if len(os.fsencode(path)) > LIMIT:
        raise ConfigError(
            f"The path {directory} is too long: the path of a socket has at most {LIMIT} bytes, including {SOCKET}.",
            parameter="url",
        )
    _check(directory)
    return path


def listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def is_local(url: str) -> bool:
    """Return True for the URL of a server on this machine, which is started at its first use. The URL may be invalid."""
    return url.startswith("local:")


def _directory(url: str) -> str:
    if not is_local(url) or sys.platform == "win32":
        raise ConfigError("local:// (a server on this machine) is available on Linux and macOS only.", parameter="url")
    rest = url.removeprefix("local:")
    if rest in {"", "//"}:
        return f"/tmp/holdfast-{os.geteuid()}"  # noqa: S108  (checked before each use)
    path = rest.removeprefix("//")
    if not path.startswith("/") or any(c in path for c in "?#\0\n"):
        raise ConfigError("A local URL must be local:// or local:///directory, without host or options.", parameter="url")
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    return "/" + os.path.normpath(path).lstrip("/")


def _check(directory: str) -> None:
    """Raise ConfigError if the directory exists, and another user owns or may use it.

    Without this check, another user could create the directory in /tmp first, and run a false server there.
    """
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used: {error.strerror}.", parameter="url") from error
    if not stat.S_ISDIR(status.st_mode):
        wrong = "is not a directory"
    elif status.st_uid != os.geteuid():
        wrong = f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    elif status.st_mode & 0o077:
        wrong = f"is open to others (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 it)"
    else:
        return
    raise ConfigError(f"{directory} {wrong}, so it is unsafe for locks. Use local:///directory.", parameter="url")
