"""Start the local server, which serves ``local://`` URLs. If several processes need it at once, only one of them starts it."""

from __future__ import annotations

import fcntl
import math
import os
import select
import subprocess
import time
from pathlib import Path

from holdfast._clock import monotonic
from holdfast._local.server import binary, paths, supervisor
from holdfast._local.server.process import make_private
from holdfast.errors import ConfigError, ServerError

IDLE = 600.0
"""Seconds without use after which a local server ends. HOLDFAST_LOCAL_IDLE of the starting process overrides it."""

_KEPT = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that are passed from the starting process to the server.

All others are left out, because they may contain secrets, and the server outlives that process.
"""


def start(directory: str, timeout: float) -> None:
    """Start the local server in ``directory`` and wait until it listens, at most ``timeout`` seconds.

    Raises ConfigError if there is no server program, if the directory is unsafe or cannot be used, or if HOLDFAST_LOCAL_IDLE is
    invalid. Raises ServerError if the server does not start in time.
    """
    deadline = monotonic() + timeout
    arguments = [repr(_idle()), binary.find()]
    place = Path(directory)
    try:
        make_private(place)
        path = paths.checked(directory)  # checked, because another user may have created it
        turn, log = _open(place / "start.lock"), _open(place / supervisor.LOG)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used: {error.strerror}.", parameter="url") from error
    try:
        _wait_for_turn(turn, path, deadline - timeout / 2)
        if not paths.listening(path):
            _launch(place, arguments, log, deadline)
    finally:
        fcntl.flock(turn, fcntl.LOCK_UN)  # a mere close would leave the lock to a child that was forked meanwhile
        os.close(turn)
        os.close(log)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _idle() -> float:
    text = os.environ.get("HOLDFAST_LOCAL_IDLE") or str(IDLE)
    try:
        idle = float(text)
    except ValueError:
        idle = math.nan
    if not idle > 0:
        raise ConfigError(f"HOLDFAST_LOCAL_IDLE={text}: must be seconds above 0, or inf.", parameter="HOLDFAST_LOCAL_IDLE")
    return idle


def _wait_for_turn(turn: int, path: str, deadline: float) -> None:
    """Wait until this process has locked a file, which a process locks while it starts the server.

    ``turn``: file descriptor of the file. Return earlier if the server listens on the socket ``path``, or at monotonic time
    ``deadline``. Without the lock, ten processes would start ten supervisors, and nine of these would end because the directory
    is in use. There is only one server even after the deadline, because the supervisor also locks the directory.
    """
    while monotonic() < deadline and not paths.listening(path):
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            return


def _launch(place: Path, arguments: list[str], log: int, deadline: float) -> None:
    """Run the supervisor (the program that starts the server and watches it), and wait for its report.

    ``place``: directory of the server. ``arguments``: further arguments of the supervisor. ``log``: file descriptor for its
    output. Raises ServerError if the server does not start by monotonic time ``deadline``.
    """
    hear, report = os.pipe()
    said = ""
    try:
        with subprocess.Popen(
            [binary.interpreter(), "-I", "-S", supervisor.__file__, str(place), str(report), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[report],
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            start_new_session=True,
        ):  # the supervisor forks, and only its child stays, so the end of the `with` waits only for the fork
            os.close(report)
            report = -1
            said = _hear(hear, deadline)
    except OSError as error:
        said = str(error)
    finally:
        for fd in (hear, report):
            if fd >= 0:
                os.close(fd)
    if said != "ok":
        said = said or supervisor.tail(str(place / supervisor.LOG)) or "no reason given"
        raise ServerError(f"The local server in {place} did not start: {said}", address=str(place / paths.SOCKET))


def _hear(hear: int, deadline: float) -> str:
    if not select.select([hear], [], [], max(0.0, deadline - monotonic()))[0]:
        return "the server does not answer yet; it may still be loading a long file"
    return os.read(hear, 65536).decode("utf-8", "replace")
