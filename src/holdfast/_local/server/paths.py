"""The socket of this machine's own server for this user, and whether the server listens there.

``local://`` is the server in ``/tmp/holdfast-<uid>``, ``local:///path`` one in that directory. The place follows from
the user alone, never from the environment: a job in cron and the same user's terminal see different environments, and
must exclude each other. All that the server keeps is there too. It need not survive a reboot, since no holder does.

Every command that uses ``local://`` imports this: it stays light, and imports no pathlib.
"""

from __future__ import annotations

import os
import socket
import stat
import sys

from holdfast.errors import ConfigError

SOCKET = "server.sock"
LIMIT = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket's path that the kernel takes."""


def socket_path(url: str) -> str:
    """Return the socket of the server of this URL. Touches nothing; raises ConfigError if it must not be used."""
    return checked(_directory(url))


def checked(directory: str) -> str:
    """The path of the socket in a directory that, if it exists, is ours alone; else ConfigError."""
    path = f"{directory}/{SOCKET}"
    if len(os.fsencode(path)) > LIMIT:
        raise ConfigError(
            f"{directory} is too long a path: that of a socket has at most {LIMIT} bytes, {SOCKET} included.",
            parameter="url",
        )
    _check(directory)
    return path


def listening(path: str) -> bool:
    """Whether a server accepts connections there."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _directory(url: str) -> str:
    if not url.startswith("local:") or sys.platform == "win32":
        raise ConfigError("local:// is a server of this machine (Linux, macOS); not available here.", parameter="url")
    rest = url.removeprefix("local:")
    if rest in {"", "//"}:
        return f"/tmp/holdfast-{os.geteuid()}"  # noqa: S108  (checked before each use)
    path = rest.removeprefix("//")
    if not path.startswith("/") or any(c in path for c in "?#\0\n"):
        raise ConfigError("Write local:// or local:///directory, without host or options.", parameter="url")
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    return "/" + os.path.normpath(path).lstrip("/")


def _check(directory: str) -> None:
    """Anybody may create directories in /tmp. The owner of this directory grants our locks, so it must be ours."""
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
    raise ConfigError(f"{directory} {wrong}: no locks are kept there. Use local:///directory.", parameter="url")
