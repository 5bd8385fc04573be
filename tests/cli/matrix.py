"""The matrix: how the work of a ``holdfast run`` was started x what ended it. Does it overlap with the next holder?

Nothing is inferred from pauses. The work writes a heartbeat into a file every 20 ms or so: /proc/uptime, which is one clock in
all namespaces. The next holder, a `holdfast.Lock` that has been waiting for the same lock, notes the same clock as its first
act. A heartbeat with a later stamp is an overlap.

The work ignores TERM, INT and HUP, the worst that it may do. The command, a shell, minds them, and ends when its stdin is
closed.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from cli.commands import PROGRAM, children, running
from holdfast.cli.output import EX_LOST
from support import fork_server

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from support.servers import PrivateServer

TTL, KILL_AFTER, MAX_RUNTIME = 2.0, 0.3, 3.0
WATCHED = 0.25
"""Seconds for which the next holder keeps the lock, while the work before would beat a dozen times."""

WORK = """\
trap '' TERM INT HUP
beat() { [ -e "$1.stop" ] && exit; read -r up _ </proc/uptime; echo "$up" >>"$1"; read -r -t 0.02 <>"$1.never"; }
link() { beat "$1"; link "$1" & exit; }
case $2 in
again) link "$1";;
flee) beat "$1"; setsid bash "$0" "$1" flee & exit;;
*) while true; do beat "$1"; done;;
esac
"""
"""For bash, which needs no other process for any of this. Its arguments: the file of the heartbeats, and how it is to go on."""

SESSION = "import subprocess, sys; subprocess.run(sys.argv[1:], start_new_session=True)"

STARTS = {
    "direct": "exec {work}",
    "group": "{work} & read -r line",
    "session": "setsid {work} & read -r line",
    "double fork": "({work} &) ; read -r line",
    "timeout": "timeout 60 {work} & read -r line",
    "set -m": "bash -c 'set -m; {work} & wait' & read -r line",
    "new session": f"{sys.executable} -S -c '{SESSION}' {{work}} & read -r line",
    "daemon": "(setsid {work} </dev/null >/dev/null 2>&1 &) ; read -r line",
    "su": "su nobody -s /bin/bash -c '{work}' & read -r line",
    "foreign pids": "({work} &) ; read -r line",
    "foreign pids, session": "(setsid {work} &) ; read -r line",
    "namespace": "unshare --pid --fork /bin/sh -c '({work} &); exec {work}' & read -r line",
    "chain": "{work} again & read -r line",
    "fleeing chain": "{work} flee & read -r line",
}
"""The script for /bin/sh. "foreign pids": all of it, holdfast included, in a PID namespace without a /proc of its own.
"namespace": only the work is in one."""

ENDS = (
    "normal end",
    "TERM",
    "INT",
    "HUP",
    "loss",
    "break",
    "DEL",
    "max-runtime",
    "kill run",
    "kill guardian",
    "kill both",
    "STOP run",
    "STOP guardian",
    "STOP both",
)


def starts() -> list[str]:
    """Ways to start that this user has: another user and another namespace need root."""
    return [start for start in STARTS if os.geteuid() == 0 or not start.startswith(("su", "foreign", "namespace"))]


def promise(start: str, end: str) -> str:
    """Return the promise for a cell: "none overlaps", or one of the cases that the documentation calls out of reach.

    "own affair": a command that itself ignores the signal goes on, and keeps the lock; so there is nothing to see. "lease": the
    lock was broken by hand, and another client may have it at once; the work is dead before the lease would have ended. "direct
    child": both halves are killed or stopped, and no process is left to kill anything but, by the kernel, the direct child.
    "nothing": the same, for other descendants; or for a chain that leaves its group each time, when the lock is lost.
    """
    if start == "direct" and end in {"normal end", "TERM", "INT", "HUP"}:
        return "own affair"
    if end == "kill both":
        return "direct child" if start == "direct" else "nothing"
    if end == "STOP both":
        return "nothing"
    if start == "fleeing chain" and end in {"loss", "break", "DEL"}:
        return "nothing"
    return "lease" if end in {"break", "DEL"} else "none overlaps"


def now() -> float:
    """The clock of /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def await_(condition: Callable[[], object], seconds: float = 40.0) -> bool:
    """Wait until it holds; False if it does not in this time. Sparing: many cells wait at the same time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Cell:
    """One run, one way to end it, one holder after it."""

    def __init__(self, server: PrivateServer, client: redis.Redis, start: str, end: str, name: str) -> None:
        self.server, self.client, self.start, self.end, self.name = server, client, start, end, name
        self.promise = promise(start, end)
        self._environment = dict(os.environ)  # here, as pytest changes the variables while threads carry cells out
        self.holdfast = self.guardian = 0
        self.ended_at = self.next_at = math.inf
        """When the lock was taken away, and when the next holder had the lock."""
        self.acquired, self.enough = threading.Event(), threading.Event()

    def run(self) -> str:
        """Carry it out. Returns what was wrong, empty if nothing was."""
        with contextlib.ExitStack() as stack:
            self._lay_out(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-matrix-"))))
            following = threading.Thread(target=self._follow)
            stack.callback(
                lambda: following.join() if following.ident else None
            )  # after the clean-up, or it might wait for ever
            process = self._begin()
            while self._ended_early(process):  # the machine is so busy that it was ended before the work began
                process.kill()
                process.communicate()
                process = self._begin()
            stack.callback(self._clean_up, process)
            if not self._has_begun():
                return self._complaint("the work has not begun", process)
            self.holdfast = process.pid
            if self.start.startswith("foreign"):  # unshare, then the first process of the namespace, then holdfast
                [init] = children(process.pid)
                self.holdfast = next(pid for pid in children(init))
            if self.end.startswith(("kill", "STOP")):
                [self.guardian] = [pid for pid in children(self.holdfast) if self._is_guardian(pid)]
            following.start()
            stack.callback(self.enough.set)
            queue = f"hf:{{{self.name}}}:queue"
            await_(lambda: self.acquired.is_set() or self.client.zcard(queue))
            self._bring_about(process)
            return self._judge(process)

    def _lay_out(self, directory: Path) -> None:
        """Make its files, when its turn comes: thousands of cells may wait for theirs, and an ended soak must leave none."""
        directory.chmod(0o711)  # the work of another user finds its files in it
        self.directory, self.script = directory, directory / "work"
        self.file, never = directory / "beats", directory / "beats.never"
        self.script.write_text(WORK, encoding="utf-8")
        self.script.chmod(0o644)
        self.file.touch()
        os.mkfifo(never)
        for path in (self.file, never):
            path.chmod(0o666)

    def _begin(self) -> subprocess.Popen[bytes]:
        """Start it. For the server it is a user of its own, who can be taken away."""
        self.client.acl_setuser(self.name, enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all"])
        url = self.server.url.replace("://", f"://{self.name}:any@", 1)
        limit = ["--max-runtime", f"{MAX_RUNTIME}"] if self.end == "max-runtime" else []
        times = ["--ttl", f"{TTL}", "--kill-after", f"{KILL_AFTER}"]
        command = STARTS[self.start].format(work=f"bash {self.script} {self.file}")
        argv = [*PROGRAM, "run", *times, *limit, self.name, "--", "/bin/sh", "-c", command]
        if self.start.startswith("foreign"):
            argv = ["unshare", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", '"$@"; sleep 1000', "sh", *argv]
        environment = {**self._environment, "HOLDFAST_URL": url}
        with (self.directory / "said").open("wb") as said:
            return fork_server.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=said, stderr=said, cwd="/")

    def _follow(self) -> None:
        """The next holder. That it began is what counts: on a very busy machine it may lose its lease at once."""
        with contextlib.suppress(holdfast.LeaseLost), holdfast.Lock(self.server.url, self.name, ttl=10 * TTL):
            self.next_at = now()
            self.acquired.set()
            self.enough.wait()

    def _bring_about(self, process: subprocess.Popen[bytes]) -> None:
        """Have it end."""
        if self.end == "normal end":
            assert process.stdin is not None
            process.stdin.close()
        elif self.end in {"TERM", "INT", "HUP"}:
            os.kill(self.holdfast, signal.Signals[f"SIG{self.end}"])
        elif self.end == "loss":
            self.client.acl_deluser(self.name)  # closes its connections, and it gets no other
        elif self.end == "break":
            see = holdfast.Inspector(self.server.url)
            see.break_lock(see.show(self.name), by="the matrix")
            self.ended_at = now()
        elif self.end == "DEL":
            self.client.delete(f"hf:{{{self.name}}}")
            self.ended_at = now()
        elif self.end != "max-runtime":
            kind, whom = self.end.split()
            pids = {"run": [self.holdfast], "guardian": [self.guardian], "both": [self.holdfast, self.guardian]}[whom]
            for signum in [signal.SIGSTOP] if kind == "STOP" else [signal.SIGSTOP, signal.SIGKILL]:
                for pid in pids:
                    os.kill(pid, signum)

    def _judge(self, process: subprocess.Popen[bytes]) -> str:
        """Compare what happens with what is promised."""
        if self.promise == "own affair":
            time.sleep(WATCHED)
            return self._complaint("the lock was given back while the command ran", process) if self.acquired.is_set() else ""
        if self.start == "fleeing chain" and not await_(self.acquired.is_set, 2.0):
            Path(f"{self.file}.stop").touch()  # while it lives, the lock is kept
        if not await_(self.acquired.is_set):
            return self._complaint("the lock was not given back", process)
        time.sleep(WATCHED)
        latest = self.next_at
        if self.promise == "lease":
            latest = self.ended_at + TTL
            await_(lambda: now() > latest + WATCHED or (process.poll() is not None and not self.left()))
        if self.promise == "nothing":
            return ""
        if (late := self.beats()[-1] - latest) > 0 and not self._fled(process):
            return self._complaint(f"it worked on for {late:.2f} s", process)
        left = self.left()
        return self._complaint(f"{left} live on", process) if left else ""

    def _fled(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it is the chain that nobody can end at once, and the lease was lost: its renewals were late."""
        Path(f"{self.file}.stop").touch()
        return self.start == "fleeing chain" and process.wait() == EX_LOST

    def _ended_early(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the work has begun, or the lease or the runtime has ended before. In a namespace, only what it said
        shows the latter."""

        def ended() -> bool:
            said = self._said()
            return (
                process.poll() == EX_LOST or "the lease could not be renewed" in said or "the command still ran after" in said
            )

        await_(lambda: self._has_begun() or ended())
        return not self._has_begun() and ended()

    def _said(self) -> str:
        return (self.directory / "said").read_text()

    def _has_begun(self) -> bool:
        return len(self.beats()) >= 2

    def beats(self) -> list[float]:
        """All heartbeats, the latest one last."""
        return sorted(float(text) for text in self.file.read_text().split("\n")[:-1])

    def left(self) -> list[int]:
        """Numbers of the processes that do the work and live."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self._works((entry / "cmdline").read_bytes()) and running(int(entry.name)):
                    found.append(int(entry.name))
        return found

    def _works(self, command_line: bytes) -> bool:
        return command_line.startswith(b"bash\0" + os.fsencode(self.script) + b"\0")

    @staticmethod
    def _is_guardian(pid: int) -> bool:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "hf-guardian"

    def _complaint(self, what: str, process: subprocess.Popen[bytes]) -> str:
        return f"{self.start} / {self.end}: {what} (exit code {process.poll()}, {self._said()!r})"

    def _clean_up(self, process: subprocess.Popen[bytes]) -> None:
        """End all of it, whatever has become of it."""
        Path(f"{self.file}.stop").touch()
        ours = {self.holdfast, self.guardian, process.pid} - {0}
        for pid in ours:
            if process.poll() is None or pid == self.guardian:
                with contextlib.suppress(ProcessLookupError):
                    if pid == process.pid or self._is_ours(pid):
                        os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        await_(lambda: not self.left(), 5)

    def _is_ours(self, pid: int) -> bool:
        """Whether it is a part of this cell still, and not another process of the same number."""
        with contextlib.suppress(OSError):
            return os.fsencode(self.name) in Path(f"/proc/{pid}/cmdline").read_bytes() or self._is_guardian(pid)
        return False
