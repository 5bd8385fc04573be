"""Start programs of Python as forks of a process that has imported their modules already.

A short program spends most of its processor time on the start of Python and on imports: ``holdfast run NAME -- true`` 70 %.
A process that `Popen` starts has both behind it. Otherwise it is like one of `subprocess.Popen`: it is a child of the caller,
has the given streams, environment, directory and session, and runs a ``__main__`` of its own. Two things differ: the preloaded
modules are in ``sys.modules`` from the beginning, and ``/proc/PID/cmdline`` is that of the fork server. Tests about these, or
about the start itself, use `subprocess.Popen`.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.witness import SHARED

PROGRAM = str(Path(__file__).with_name("fork_server_program.py"))

COMMAND = (
    *("holdfast.cli.run", "holdfast.cli.servers", "holdfast.cli.contact", "holdfast.cli.supervise", "holdfast.cli.terminal"),
    *("holdfast._api.lock", "holdfast._runtime.drivers.sync", "holdfast._local.guardian.channel", "hiredis"),
)
"""The modules that `holdfast run` imports, and most programs with a lock."""

READ_AT_START = ("PYTHON", "COVERAGE", "LANG", "LC_")
"""How the names of environment variables begin that Python reads when it starts. Each set of values has a fork server."""

UNABLE = {"executable": None, "preexec_fn": None, "shell": False, "umask": -1, "uid": None, "gid": None, "gids": None}
"""Arguments of `subprocess.Popen` that the fork server does not handle, with their defaults."""

SET_CHILD_SUBREAPER = 36
"""An option of prctl(2)."""

LOCK = threading.Lock()
"""Held while a process is started: whether this process is a subreaper is one setting for all threads."""

_execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, by a fork server where that is possible: for ``python PROGRAM``, ``python -m`` and ``python -c``."""

    def __init__(self, args: list[str], *, modules: tuple[str, ...] = COMMAND, **options: Any) -> None:
        self.modules = modules
        super().__init__(args, **options)

    def _execute_child(self, *arguments: Any) -> None:
        given = inspect.signature(_execute_child).bind(self, *arguments).arguments
        argv = [os.fspath(word) for word in given["args"]]
        if not able(argv, given):
            _execute_child(self, *arguments)
            return
        environment = dict(os.environ if given["env"] is None else given["env"])
        streams = (given["p2cread"], given["c2pwrite"], given["errwrite"])
        passed = sorted(given["pass_fds"])
        request = {
            "argv": argv[1:],
            "environment": environment,
            "directory": os.fspath(given["cwd"] or "."),
            "session": given["start_new_session"],
            "group": given["process_group"],
            "numbers": [0, 1, 2, *passed],
        }
        fds = [number if fd == -1 else fd for number, fd in enumerate(streams)] + passed
        with LOCK, as_subreaper():
            self.pid = fork_server(environment, self.modules).fork(request, fds)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]


def able(argv: list[str], given: Mapping[str, Any]) -> bool:
    """Whether a fork server can start it."""
    if sys.platform != "linux" or argv[0] != sys.executable or any(given[name] != value for name, value in UNABLE.items()):
        return False
    return argv[1] in {"-m", "-c"} or not argv[1].startswith("-")


def run(
    argv: list[str], modules: tuple[str, ...] = COMMAND, *, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with ``capture_output=True, text=True``, by a fork server."""
    pipe = subprocess.PIPE
    with Popen(argv, modules=modules, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def fork_server(environment: Mapping[str, str], modules: tuple[str, ...]) -> ForkServer:
    """Return this process's fork server for programs in such an environment; start it if there is none."""
    read_at_start = frozenset((name, value) for name, value in environment.items() if name.startswith(READ_AT_START))
    return _fork_server(os.getpid(), read_at_start, modules)


@functools.cache
def _fork_server(_: int, read_at_start: frozenset[tuple[str, str]], modules: tuple[str, ...]) -> ForkServer:
    others = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
    return ForkServer({**others, **dict(read_at_start)}, modules)


class ForkServer:
    """A process that forks on request, and ends when this one has ended."""

    def __init__(self, environment: Mapping[str, str], modules: tuple[str, ...]) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        SHARED.add(f"socket:[{os.fstat(self.requests.fileno()).st_ino}]")
        argv = [sys.executable, PROGRAM, str(theirs.fileno()), *modules]
        with theirs:
            self.process = subprocess.Popen(argv, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def fork(self, request: Mapping[str, Any], fds: list[int]) -> int:
        """Start a process that gets the descriptors ``fds``, and return its pid. Its parent is the nearest subreaper."""
        socket.send_fds(self.requests, [json.dumps(request).encode()], fds)
        return int(self.requests.recv(20))


@contextmanager
def as_subreaper() -> Iterator[None]:
    """Meanwhile, this process becomes the parent of those of its descendants whose parent ends."""
    prctl = ctypes.CDLL(None).prctl
    prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
