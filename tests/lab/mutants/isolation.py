"""Runs a piece of work in a process that may do anything: it has limits, and nothing that it starts outlives it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CPU, WALL, FILE = 10, 180, 256 << 20
"""CPU seconds of one process, seconds, and bytes of a file that a piece of work may take."""
IDLE, TICKS = 20.0, 5
"""A piece of work hangs if it uses no more hundredths of a CPU second in so many seconds: a waiting thread may look around."""


@dataclass(frozen=True)
class Outcome:
    """How it has ended: "ok", "failed", "killed" (by a limit, or a signal of its own), "hung" (beyond `WALL`, or `IDLE`)."""

    how: str
    said: str
    cpu: float


def enter() -> None:
    """Begin anew in a namespace of processes, where that is allowed: as its first process we cannot be killed from inside, and
    what we kill is all there is."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    able = shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    if os.getpid() != 1 and able:
        os.execvp("unshare", [*unshare, sys.executable, "-m", "lab.mutants", *sys.argv[1:]])  # noqa: S606  # it needs none


def isolated(work: Callable[[], int], patience: float = 1.0) -> Outcome:
    """Do it; it succeeds if it returns 0. ``patience`` is the part of `WALL` that it may take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-", ignore_cleanup_errors=True) as room:
        said = Path(room, "said")
        child = os.fork()
        if child == 0:
            _work(work, said)
        status = _wait(child, time.monotonic() + patience * WALL)
        _end_all(child)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = said.read_text(encoding="utf-8", errors="replace")[-20_000:] if said.exists() else ""
    how = "hung" if status is None else "killed" if os.WIFSIGNALED(status) else "failed" if os.WEXITSTATUS(status) else "ok"
    return Outcome(how, text, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)


def _work(work: Callable[[], int], said: Path) -> None:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        os.environ["TMPDIR"] = tempfile.tempdir = str(said.parent)
        output = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
        for number in (1, 2):
            os.dup2(output, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = work()
        sys.stdout.flush()
    except BaseException as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        sys.stdout.flush()
    finally:
        os._exit(code)


def _wait(child: int, until: float) -> int | None:
    """Its status; None if it takes too long. As the first process we also collect what others have left."""
    used, since = 0, time.monotonic()
    while time.monotonic() < until:
        if _used(child) > used + TICKS:
            used, since = _used(child), time.monotonic()
        elif time.monotonic() > since + IDLE:
            return None
        with suppress(ChildProcessError):
            found, status = os.waitpid(-1, os.WNOHANG)
            if found == child:
                return status
            if found:
                continue
        time.sleep(0.01)
    return None


def _used(child: int) -> int:
    """Return the CPU time of a process, in hundredths of a second. Elsewhere than on Linux it seems to be always busy."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return int(100 * time.monotonic())
    return sum(map(int, fields[11:15]))


def _end_all(child: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if os.getpid() == 1:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    deadline = time.monotonic() + 5
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < deadline:
            time.sleep(0.001)
