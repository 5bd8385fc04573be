"""Helpers of the tests of the command line: start `holdfast`, commands for it to run, and waits for their effects."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from support import fork_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROGRAM = [sys.executable, "-m", "holdfast"]

FAMILY = ["sh", "-c", "sleep 60 & echo $$ $!; wait"]
"""Says the pids of itself and of its child, and both stay."""

STUBBORN = [
    sys.executable,
    "-S",
    "-c",
    """
import os, signal, time
clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
say = lambda word: os.write(1, f"{word} {time.clock_gettime(clock)}\\n".encode())  # whole lines, whenever it is killed
signal.signal(signal.SIGTERM, lambda *_: say("term"))
while True:
    say("alive")
    time.sleep(0.01)
""",
]
"""Says every 10 ms that it is alive, and when it gets TERM, which it does not mind; times are of `program.clock`."""


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return state(pid) not in {"Z", "X", ""}


def state(pid: int) -> str:
    """The letter that ps shows, empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    """Pids of the children of a process that has one thread, or all of them by its first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Until it holds; fails when that takes unreasonably long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


CROWD = """
import os
wait, starting = os.pipe()
for _ in range(25):
    if not os.fork():
        os.setsid()
        os.execvp("sleep", ["sleep", "60"])
os.close(starting)
os.read(wait, 1)
"""
"""Python: leaves 25 daemons, and ends when each of them is another program, and so has closed the pipe."""


class Holdfast:
    """Starts ``holdfast run`` for a server, and ends what a failing test has left."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """``holdfast run ARGUMENTS``, all three streams pipes; ``env`` is added to the environment."""
        return self.popen([*PROGRAM, "run", *arguments], env=env, **options)

    def popen(
        self, argv: list[str], env: Mapping[str, str] | None = None, *, fresh: bool = False, **options: Any
    ) -> subprocess.Popen[str]:
        """Any command line, in the environment of `start`; with ``fresh``, Python is really started, and not forked."""
        clean = {k: v for k, v in os.environ.items() if k not in {"HOLDFAST_URL", "REDIS_URL"}}
        environment = {**clean, "HOLDFAST_URL": self.url, **(env or {})}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
        start = subprocess.Popen if fresh else fork_server.Popen
        process = start(argv, env=environment, text=True, **streams)
        self._started.append(process)
        return process

    def __call__(self, *arguments: str, input: str = "", **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: A002
        """The same, to its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(input, timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def end(self) -> None:
        """End what still runs; by its guardian, all that it started, too."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


def line(process: subprocess.Popen[str]) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return _line(process.stdout)


def _line(stream: IO[str]) -> str:
    """Reads no more than that line: `subprocess.Popen.communicate` would not find what a buffer had taken."""
    said = b""
    while not said.endswith(b"\n"):
        if not select.select([stream], [], [], 60)[0]:
            raise TimeoutError(f"nothing after {said!r}")
        if not (byte := os.read(stream.fileno(), 1)):
            break
        said += byte
    return said.decode().rstrip("\n")


def pids(process: subprocess.Popen[str]) -> list[int]:
    """The pids that `FAMILY` says."""
    return [int(word) for word in line(process).split()]


def error_line(process: subprocess.Popen[str]) -> str:
    """The next line on its stderr."""
    assert process.stderr is not None
    return _line(process.stderr)
