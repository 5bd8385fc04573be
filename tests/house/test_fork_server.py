"""A process of the fork server is like one of `subprocess.Popen`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import fork_server

REPORT = """
import json, os, signal, sys, threading
streams = sys.stdin, sys.stdout, sys.stderr
print(json.dumps({
    "name": __name__, "file": globals().get("__file__"), "argv": sys.argv, "path": sys.path,
    "main": sys.modules["__main__"].__dict__ is globals(), **{"$" + name: value for name, value in os.environ.items()},
    "directory": os.getcwd(),
    "parent": os.getppid(), "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "open": [fd for fd in range(100) if os.path.exists(f"/proc/self/fd/{fd}")], "umask": os.umask(0o22),
    "files": [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1)], "threads": threading.active_count(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno()) for s in streams],
    "signals": [str(signal.getsignal(n)) for n in (2, 13, 15)], "blocked": len(signal.pthread_sigmask(0, ())),
    "warnings": sys.warnoptions, "flags": list(sys.flags),
}), flush=True)
"""


ENVIRONMENT = {"PATH": "/bin", "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "ascii:replace"}


def report(start: type[subprocess.Popen[Any]], argv: list[str], out: Path, **options: Any) -> dict[str, Any]:
    with out.open("w+", encoding="utf-8") as file:
        with start(
            [sys.executable, *argv], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, **options
        ) as process:
            assert process.communicate()[1] == b""
            assert process.returncode == 0
        file.seek(0)
        found: dict[str, Any] = json.load(file)
        return found


def test_it_is_as_if_python_had_started(tmp_path: Path) -> None:
    file = tmp_path / "report.py"
    file.write_text(REPORT, encoding="utf-8")
    environment = dict(os.environ)
    with (tmp_path / "passed").open("w", encoding="utf-8") as passed:
        cases: list[tuple[list[str], dict[str, Any]]] = [
            (["-c", REPORT, "a", "-b"], {"env": environment, "start_new_session": True}),
            (["-c", REPORT], {"env": environment, "process_group": 0, "cwd": "/", "pass_fds": [passed.fileno()]}),
            (["-m", "report", "a", "-b"], {"env": ENVIRONMENT, "cwd": str(tmp_path)}),
            ([str(file), "a", "-b"], {"env": ENVIRONMENT}),
        ]
        for argv, options in cases:
            real, forked = (report(start, argv, tmp_path / "out", **options) for start in (subprocess.Popen, fork_server.Popen))
            assert real["parent"] == os.getpid()
            different = [key for key in real | forked if real.get(key) != forked.get(key)]
            assert [(key, real.get(key), forked.get(key)) for key in different] == [], argv


def test_the_end_is_that_of_the_program() -> None:
    for start in (subprocess.Popen, fork_server.Popen):
        ends = "import sys; print(end='not flushed'); sys.exit(7)"
        with start([sys.executable, "-c", ends], stdout=subprocess.PIPE) as process:
            assert (process.communicate()[0], process.returncode) == (b"not flushed", 7)
        waits = "import sys, time; print(flush=True); time.sleep(60)"
        with start([sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"\n"
            process.send_signal(signal.SIGINT)
            assert b"KeyboardInterrupt" in process.communicate()[1]
            assert process.returncode == -signal.SIGINT


def test_another_program_starts_as_usual() -> None:
    with fork_server.Popen(["echo", "this"], stdout=subprocess.PIPE) as process:
        assert process.communicate()[0] == b"this\n"
