"""The program of `support.fork_server`: it forks on request, and the fork runs a program of Python."""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ABOVE = 500
"""Descriptors from here on hold the given ones until these have their numbers."""

Request = dict[str, Any]


def main() -> None:
    """Import the modules, serve, and in a fork run the program. The arguments are a descriptor and the names of the modules."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is for the tests
    requests = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    del sys.path[0]
    gc.freeze()
    if request := serve(requests, interrupt):
        gc.unfreeze()
        run(request["argv"])


def serve(requests: socket.socket, interrupt: Any) -> Request | None:
    """Fork for each request. Return the request in the fork, and None in this process when the tests have ended."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 100)
        if not message:
            return None
        request: Request = json.loads(message)
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            requests.detach()  # `set_up` closes it
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            signal.signal(signal.SIGINT, interrupt)
            while os.getppid() == parent:  # when it has ended, the tests are the parent
                time.sleep(0.0002)
            set_up(request, fds, write)
            return request
        for fd in (write, *fds):
            os.close(fd)
        os.waitpid(child, 0)
        requests.send(os.read(read, 20))
        os.close(read)


def set_up(request: Request, fds: list[int], started: int) -> None:
    """Do what `subprocess.Popen` does in a child, write the pid to ``started``, and close all but the given descriptors."""
    if request["session"]:
        os.setsid()
    if request["group"] != -1:
        os.setpgid(0, request["group"])
    os.chdir(request["directory"])
    as_set_by_python = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}  # PEP 538
    os.environ.clear()
    os.environ.update(as_set_by_python | request["environment"])
    os.write(started, str(os.getpid()).encode())
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, ABOVE) for fd in fds]
    for fd, number in zip(high, request["numbers"], strict=True):
        os.dup2(fd, number)
    for before, after in pairwise([*request["numbers"][2:], os.sysconf("SC_OPEN_MAX")]):
        os.closerange(before + 1, after)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = opened(fd, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def opened(fd: int, like: TextIOWrapper) -> TextIOWrapper:
    """Open a standard stream as Python does when it starts."""
    unbuffered = like.write_through  # PYTHONUNBUFFERED
    binary = open(fd, "wb" if fd else "rb", 0 if fd and unbuffered else -1, closefd=False)  # noqa: SIM115
    by_line = not unbuffered and (fd == 2 or os.isatty(fd))
    return TextIOWrapper(binary, like.encoding, like.errors, line_buffering=by_line, write_through=unbuffered)


def run(argv: list[str]) -> None:
    """Do what ``python ARGV`` does."""
    first, *others = argv
    if first == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = [first, *others[1:]]
        execute(others[0])
    else:
        sys.path.insert(0, str(Path(first).absolute().parent))
        sys.argv = argv
        execute(Path(first).read_text(encoding="utf-8"), first)


def execute(program: str, file: str | None = None) -> None:
    sys.modules["__main__"] = module = ModuleType("__main__")
    if file:
        module.__file__ = file
    exec(compile(program, file or "<string>", "exec"), module.__dict__)  # noqa: S102


if __name__ == "__main__":
    main()
