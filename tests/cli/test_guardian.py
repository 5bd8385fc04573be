"""The guardian by itself: as the program that watches private servers, and as the dead man's switch of ``holdfast run``."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from holdfast._local.guardian import channel, descendants
from holdfast._local.guardian import guardian as guardian_process
from holdfast._local.guardian import program as guardian_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = [sys.executable, *guardian_program.PROGRAM]

# A command that says "PID of itself, PID of its child" and stays; the child does, too.
FAMILY = ["sh", "-c", "sleep 60 & echo $$ $!; wait"]


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Until it holds; fails when that takes unreasonably long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


@contextlib.contextmanager
def program(*arguments: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    with process:
        yield process
        if process.stdin and not process.stdin.closed:
            process.stdin.close()


def pids(process: subprocess.Popen[bytes]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


class TestProgram:
    def test_without_a_command_it_says_how_it_is_used(self) -> None:
        with program(stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert process.stderr.read().startswith(b"usage: ")
        assert process.returncode == os.EX_USAGE

    def test_end_of_file_kills_the_group_and_removes_the_directory(self, tmp_path: Path) -> None:
        directory = tmp_path / "server"
        (directory / "data").mkdir(parents=True)
        with program("--remove", str(directory), "--", *FAMILY) as process:
            family = pids(process)
            assert all(running(pid) for pid in family)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            assert not any(running(pid) for pid in family)
            assert not directory.exists()

    def test_a_parent_killed_with_9_is_the_end_of_the_group(self, tmp_path: Path) -> None:
        directory = tmp_path / "server"
        directory.mkdir()
        script = f"""
import subprocess, sys, time
subprocess.Popen({[*PROGRAM, "--remove", str(directory), "--", *FAMILY]!r}, stdin=subprocess.PIPE)
time.sleep(60)
"""
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
            family = pids(parent)
            parent.kill()
            wait_until(lambda: not any(running(pid) for pid in family) and not directory.exists())

    def test_the_directory_stays_for_the_logs_when_the_command_ends_by_itself(self, tmp_path: Path) -> None:
        directory = tmp_path / "server"
        directory.mkdir()
        with program("--remove", str(directory), "--", "sh", "-c", "echo broken >&1; exit 3") as process:
            assert process.stdout is not None
            assert process.stdout.read() == b"broken\n"  # and its end: nobody keeps our pipe open
            assert process.wait() == 3
            assert directory.exists()
            assert process.stdin is not None
            process.stdin.close()
            wait_until(lambda: not directory.exists())

    def test_a_signal_that_ends_the_command_is_told(self) -> None:
        with program("--", "sh", "-c", "kill -9 $$") as process:
            assert process.wait() == 128 + 9

    def test_what_the_command_leaves_behind_is_killed(self) -> None:
        with program("--", "sh", "-c", "sleep 60 >/dev/null & echo $!") as process:
            [left] = pids(process)
            process.wait()
            assert not running(left)

    def test_a_command_that_cannot_be_executed(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.touch()
        for command, code in (("no-such-command", 127), (str(plain), 126)):
            with program("--", command, stderr=subprocess.PIPE) as process:
                assert process.stderr is not None
                message = process.stderr.read().decode()
                assert process.wait() == code
                assert command in message
                assert "Traceback" not in message

    def test_term_is_the_end_but_not_what_a_terminal_sends(self) -> None:
        with program("--", *FAMILY) as process:
            family = pids(process)
            for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
                process.send_signal(signum)
            process.terminate()
            assert process.wait() == 128 + 9
            assert not any(running(pid) for pid in family)

    def test_the_command_has_an_empty_stdin_and_a_group_of_its_own(self) -> None:
        script = "cat; ps -o pgid= -o pid= -p $$"
        with program("--", "sh", "-c", script) as process:
            group, pid = pids(process)
            assert group == pid != os.getpgrp()

    @pytest.mark.parametrize("arguments", [[], ["--"], ["--remove", "--", "true"], ["--delete", "x", "--", "true"]])
    def test_usage(self, arguments: list[str]) -> None:
        with program(*arguments, stderr=subprocess.DEVNULL) as process:
            assert process.wait() == 64


PREAMBLE = """
import os, select, signal, sys, time
from holdfast._local.guardian.program import clock
from holdfast._local.guardian.channel import launch

heard = []

def hear(guardian, until="gone"):
    while heard or not guardian.dead:
        if not heard:
            select.select([guardian], [], [], 10)
            heard.extend(guardian.reports())
        while heard:  # what was said after that is for the next call
            word, number, _ = heard.pop(0)
            print(f"{word} {number}\\n", end="", flush=True)  # in one piece: the command may print at the same time
            if word == until:
                return

def launch_reading(*argv):
    global said
    said, write = os.pipe()
    before = os.dup(1)
    os.dup2(write, 1)
    guardian = launch(argv, os.environ)
    os.dup2(before, 1)
    os.close(write)
    return guardian

start = clock()
"""


def drive(script: str) -> list[str]:
    """Run a parent that has a guardian; returns the lines it and the command have printed."""
    done = subprocess.run([sys.executable, "-c", PREAMBLE + script], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


# Says when it gets TERM, on the clock that all processes share, and does not mind.
STUBBORN = """
import os, signal, time
clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
signal.signal(signal.SIGTERM, lambda *_: os.write(1, f"{time.clock_gettime(clock)}\\n".encode()))
os.write(1, b"ready\\n")
while True:
    time.sleep(0.01)  # short: a signal that comes just before it does not end it
"""


class TestSwitch:
    def test_term_and_kill_come_by_themselves_and_in_time(self) -> None:
        """Without another word from its parent the guardian sends TERM, and KILL to a command that does not mind it."""
        lines = drive(f"""
guardian = launch_reading(sys.executable, "-S", "-c", {STUBBORN!r})
guardian.start("A=B", grace=10.0)
assert os.read(said, 100) == b"ready\\n"
start = clock()
guardian.deadline(start + 0.2, start + 0.7)
hear(guardian)
print("killed", clock() - start)
print("termed", float(os.read(said, 100)) - start)
guardian.close()
""")
        assert [line.split()[0] for line in lines] == ["pid", "ending", "exited", "gone", "killed", "termed"]
        words = dict(line.split() for line in lines)
        assert words["exited"] == "9"
        assert 0.2 <= float(words["termed"]) < 0.7
        assert float(words["killed"]) >= 0.7

    def test_a_later_deadline_moves_both(self) -> None:
        lines = drive("""
guardian = launch(["sleep", "0.6"], os.environ)
guardian.deadline(start + 0.5, start + 0.5)
guardian.start("A=B", grace=0.1)
guardian.deadline(start + 50, start + 60)
hear(guardian)
guardian.close()
""")
        assert lines[1:] == ["exited 0", "gone 0"]

    def test_a_deadline_in_the_past_starts_nothing(self) -> None:
        lines = drive("""
guardian = launch(["echo", "started"], os.environ)
guardian.deadline(clock() - 0.1, clock() + 1)
guardian.start("A=B", grace=0.1)
hear(guardian, "late")
guardian.close()
""")
        assert lines == ["late 0"]

    def test_a_deadline_that_has_passed_before_the_start_costs_nothing(self) -> None:
        """It waits for a word: it has run when that comes, and neither before nor after."""
        [line] = drive("""
def switches():
    with open(f"/proc/{guardian.pid}/status") as file:
        return sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)

guardian = launch(["true"], os.environ)
guardian.deadline(clock() - 1, clock() - 1)
guardian.ask(0.0)
while guardian.asked < clock() + 9:
    select.select([guardian], [], [], 10)
    guardian.reports()
before = switches()
time.sleep(0.5)
print(switches() - before)
guardian.close()
""")
        assert int(line) < 20

    def test_a_renewal_after_term_does_not_save_a_command_that_ignores_it(self) -> None:
        lines = drive(f"""
guardian = launch_reading(sys.executable, "-S", "-c", {STUBBORN!r})
guardian.start("A=B", grace=0.2)
os.read(said, 100)
guardian.deadline(clock(), clock() + 9)
hear(guardian, "ending")
guardian.deadline(clock() + 60, clock() + 61)
hear(guardian)
guardian.close()
""")
        assert lines[1:] == ["ending 0", "exited 9", "gone 0"]

    def test_a_command_that_ignores_term_is_killed_long_before_the_end_of_the_lease(self) -> None:
        """After the grace of the first TERM, by the guardian itself: a second one does not put that off."""
        lines = drive(f"""
guardian = launch_reading(sys.executable, "-S", "-c", {STUBBORN!r})
guardian.deadline(start + 600, start + 600)
guardian.start("A=B", grace=60)
os.read(said, 100)
guardian.term(0.2)
guardian.term(60)
hear(guardian)
guardian.close()
""")
        assert lines[1:] == ["exited 9", "gone 0"]

    def test_a_stopped_command_hears_term(self) -> None:
        lines = drive("""
guardian = launch(["sh", "-c", "trap 'exit 7' TERM; kill -STOP $$; sleep 60"], os.environ)
guardian.start("A=B", grace=30)
hear(guardian, "stopped")
guardian.term(30)
hear(guardian)
guardian.close()
""")
        assert lines[1:] == [f"stopped {signal.SIGSTOP.value}", f"exited {7 << 8}", "gone 0"]

    def test_closing_the_channel_kills_the_family(self) -> None:
        [line] = drive(f"""
guardian = launch_reading(*{FAMILY!r})
guardian.start("A=B", grace=10)
print(os.read(said, 100).decode(), end="", flush=True)
guardian.close()
""")
        assert not any(running(int(pid)) for pid in line.split())

    def test_a_signal_right_behind_the_start_is_not_lost(self) -> None:
        lines = drive("""
for _ in range(10):
    guardian = launch(["sleep", "60"], os.environ)
    guardian.start("A=B", grace=10)
    guardian.signal(signal.SIGUSR1)
    hear(guardian)
    guardian.close()
""")
        assert [line for line in lines if line.startswith("exited")] == [f"exited {signal.SIGUSR1.value}"] * 10

    def test_what_ends_by_itself_soon_is_left_in_peace(self) -> None:
        lines = drive("""
guardian = launch(["sh", "-c", "(trap 'echo termed' TERM; sleep 0.05; echo flushed) & exit 5"], os.environ)
guardian.start("A=B", grace=10)
hear(guardian)
guardian.close()
""")
        ours = [line for line in lines if line != "flushed"]  # who says it is not asked to wait for the others
        assert ours[1:] == [f"exited {5 << 8}", "gone 0"]
        assert "flushed" in lines[: lines.index("gone 0")]

    def test_what_outlives_the_command_is_sent_term_then_kill(self) -> None:
        lines = drive(f"""
stdin, go = os.pipe()
os.dup2(stdin, 0)
guardian = launch_reading("sh", "-c", "{sys.executable} -S -c \\"$0\\" & read line; exit 5", {STUBBORN!r})
guardian.start("A=B", grace=0.7)
ready = os.read(said, 100).decode()
os.write(go, b"\\n")
hear(guardian)
print(ready + os.read(said, 100).decode(), end="")
guardian.close()
""")
        assert lines[1:5] == [f"exited {5 << 8}", "left 0", "gone 0", "ready"]
        assert len(lines) == 6  # the time at which it got TERM

    def test_a_command_that_has_ended_keeps_its_number_while_it_has_company(self) -> None:
        """Signals are sent to the group by that number: it must not become somebody else's meanwhile."""
        lines = drive("""
guardian = launch(["sh", "-c", "trap '' TERM; setsid sleep 60 & exit 0"], os.environ)
guardian.start("A=B", grace=60)
hear(guardian, "daemon")
with open(f"/proc/{guardian._group}/stat") as file:
    print(file.read().rpartition(")")[2].split()[0])
guardian.kill()
hear(guardian)
guardian.close()
""")
        assert lines[1] == "exited 0"
        assert lines[3:] == ["Z", "gone 0"]

    def test_zombies_that_nobody_reaps_are_not_waited_for(self) -> None:
        """One of the group is a zombie, its parent, outside of it, does not care: the parent is ended, so that is over."""
        script = """
import os, time
if not os.fork():
    if not os.fork():
        os._exit(0)  # the zombie, of this group
    os.setpgid(0, 0)
    time.sleep(60)
time.sleep(0.1)
"""
        lines = drive(f"""
guardian = launch([sys.executable, "-S", "-c", {script!r}], os.environ)
guardian.start("A=B", grace=60)
hear(guardian)
guardian.close()
""")
        assert lines[1:] == ["exited 0", "left 0", "gone 0"]

    def test_without_a_subreaper_the_group_is_what_ends(self) -> None:
        """As on macOS, or where a sandbox refuses it: what is left in the group, and nothing outside of it."""
        lines = drive("""
from holdfast._local.guardian import descendants as _descendants
_descendants.become_subreaper = lambda: False
guardian = launch(["sh", "-c", "sleep 60 & echo group $!; setsid sleep 60 >&- 2>&- & echo session $!; exit 5"], os.environ)
guardian.start("A=B", grace=60, keep_daemons=True)
hear(guardian)
guardian.close()
guardian = launch_reading("sh", "-c", "sleep 60 & echo $!; kill -9 $PPID; sleep 60")
guardian.start("A=B", grace=60)
hear(guardian)
guardian.take_over(print)
print("left", os.read(said, 100).decode(), end="")
""")
        words = [line.split() for line in lines]
        found = {word[0]: int(word[1]) for word in words if word[0] in {"group", "session"}}
        assert [word for word in words if word[0] not in {*found, "pid"}][:-1] == [
            ["exited", "1280"],
            ["left", "0"],
            ["gone", "0"],
        ]
        assert words[-1][0] == "left"
        assert not running(found["group"])
        assert not running(int(words[-1][1]))
        os.kill(found["session"], signal.SIGKILL)

    @pytest.mark.parametrize("listed", ["by the kernel", "in /proc", "nowhere"])
    @pytest.mark.parametrize("numbers", ["small", "large"])
    def test_a_child_that_proc_hides_is_a_child(self, monkeypatch: pytest.MonkeyPatch, listed: str, numbers: str) -> None:
        """As with hidepid, where it belongs to another user (su): nothing but the kernel tells whose child it is."""

        def hidden(path: str, mode: str) -> object:
            if path.endswith("/stat"):
                raise PermissionError
            if path.endswith("/mounts"):
                return io.BytesIO(b"proc /proc proc rw,relatime,hidepid=invisible 0 0\n")
            return open(path, mode)  # noqa: PTH123

        if listed != "by the kernel":
            monkeypatch.setattr(descendants, "_children_of", descendants._searched)
        if numbers == "large":
            monkeypatch.setattr(descendants, "PROBED", 1)
        if listed == "nowhere":
            monkeypatch.setattr(os, "listdir", lambda _: ["1"])
        with subprocess.Popen(["sleep", "60"]) as process:
            try:
                monkeypatch.setattr(descendants, "open", hidden, raising=False)
                found = descendants.children()
            finally:
                monkeypatch.undo()
                process.kill()
        assert found is not None
        known = [child.parent for child in found if child.pid == process.pid]
        assert known == ([] if (listed, numbers) == ("nowhere", "large") else [os.getpid()])

    def test_children_in_the_proc_of_a_namespace_around(self) -> None:
        """However large the numbers; a namespace within counts, too."""
        program = """
import os, subprocess
from holdfast._local.guardian import descendants as _descendants
_descendants.PROBED = 0
children = [subprocess.Popen([*unshare, "sleep", "60"]) for unshare in ([], [], ["unshare", "--pid", "--fork", "--kill-child"])]
assert not _descendants.own_proc()
print(sorted(one.pid for one in children) == sorted(one.pid for one in _descendants.children()))
"""
        command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", program]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"

    @pytest.mark.parametrize("limit", ["known", "unknown"])
    def test_numbers_that_have_started_over(self, limit: str) -> None:
        """The newest process has a lower number than its parent, and no descriptor is free to read the highest number."""
        program = f"""
import io, os, resource, subprocess
from holdfast._local.guardian import descendants
descendants.PROBED = os.getpid() + 1000
def limited(path, mode):
    if path.endswith("/pid_max"):
        return io.BytesIO(b"%d" % (descendants.PROBED + {limit == "unknown"}))
    return open(path, mode)
descendants.open = limited
orphans = descendants.Orphans()
child = subprocess.Popen(["sleep", "60"])
assert descendants.own_proc()
del descendants.open
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
found = []
for newest in (1, os.getpid()):
    descendants._newest_number = lambda: newest
    found.append(descendants.children())
child.kill()
print(*(one and [each.pid for each in one] == [child.pid] for one in found))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == ("True True\n" if limit == "known" else "None None\n")

    def test_numbers_that_are_large(self) -> None:
        """As on a machine that has run for long, where the highest number is 4194304: those since this process are few."""
        program = """
import io, os, resource, subprocess
from holdfast._local.guardian import descendants
descendants.PROBED = os.getpid() // 2
descendants.open = lambda path, mode: io.BytesIO(b"4194304") if path.endswith("/pid_max") else open(path, mode)
orphans = descendants.Orphans()
child = subprocess.Popen(["sleep", "60"])
assert descendants.own_proc()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
print([each.pid for each in descendants.children()] == [child.pid])
child.kill()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"

    def test_what_cannot_be_listed_is_not_gone(self) -> None:
        """Beside a child that was there before: only the kernel's word that no child is left ends the wait."""
        lines = drive("""
from holdfast._local.guardian import descendants as _descendants
other = os.fork() or time.sleep(60)
orphans = _descendants.Orphans()
heard, say = os.pipe()
guardian = os.fork()
if not guardian:
    os.write(say, str(os.fork() or time.sleep(60)).encode())
    time.sleep(60)
left = [int(os.read(heard, 100)), other]
_descendants.descendants = lambda: None
class Quarantined:
    def sleep(seconds):
        if left:
            os.kill(left.pop(), signal.SIGKILL)
_descendants.time = Quarantined
orphans.end(guardian, print)
print(len(left), "left")
for pid in left:
    os.kill(pid, signal.SIGKILL)
""")
        assert lines == ["0 left"]

    def test_what_one_listing_misses_is_not_gone(self) -> None:
        """Beside a child that was there before: a process may be forked, or given another parent, in this very moment."""
        lines = drive("""
from holdfast._local.guardian import descendants as _descendants
other = os.fork() or time.sleep(60)
orphans = _descendants.Orphans()
heard, say = os.pipe()
guardian = os.fork()
if not guardian:
    os.write(say, str(os.fork() or time.sleep(60)).encode())
    time.sleep(60)
left = int(os.read(heard, 100))
look, looks = _descendants.descendants, []
def misses():
    looks.append(look())
    return [one for one in looks[-1] if one.pid == other or len(looks) > 1]
_descendants.descendants = misses
orphans.end(guardian, print)
print(os.path.exists(f"/proc/{left}"), os.path.exists(f"/proc/{other}"))
for pid in {left, other}:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
""")
        assert lines == ["False True"]

    def test_a_guardian_that_was_reaped_is_sent_nothing(self) -> None:
        """Its number may be a stranger's by then."""
        lines = drive("""
guardian = launch(["sleep", "60"], os.environ)
guardian.start("A=B", grace=60)
hear(guardian, "pid")
kill = os.kill
def noted(pid, signum):
    if pid == guardian.pid:
        print(signal.Signals(signum).name)
    kill(pid, signum)
os.kill = noted
guardian.take_over(print)
""")
        assert lines[1:] == ["SIGKILL"]

    def test_a_command_that_ends_right_after_the_look_at_it_says_how(self) -> None:
        """Among the children that have ended it is then the leader, whose status is not known yet."""
        lines = drive("""
from holdfast._local.guardian import program as _guardian
class EndsAfterTheLook(_guardian.Group):
    def _look_at_leader(self):
        stops = super()._look_at_leader()
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return stops
group = EndsAfterTheLook()
group.start(["sleep", "60"], os.environ)
while not group.gone:
    group.reap()
print(group.status)
""")
        assert lines == [str(int(signal.SIGKILL))]

    def test_a_group_without_members_in_a_list_is_not_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The list is of another PID namespace, or was read while somebody forked."""
        with subprocess.Popen(["sleep", "60"], process_group=0) as process:
            assert guardian_program.alive(process.pid)
            monkeypatch.setattr(os, "listdir", lambda _: ["1"])
            assert guardian_program.alive(process.pid)
            process.kill()
        assert not guardian_program.alive(process.pid)

    def test_errors_of_exec(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.touch()
        for command, error in (("no-such-command", "2"), (str(plain), "13"), (str(plain / "x"), "20")):
            lines = drive(f"""
guardian = launch([{command!r}], os.environ)
guardian.start("A=B", grace=10)
hear(guardian)
guardian.close()
""")
            assert lines[1:] == [f"failed {error}", "gone 0"]

    def test_dispositions_and_mask(self) -> None:
        """Ignored signals stay ignored, as nohup wants it; all others are reset, and so is the mask."""
        lines = drive("""
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell's background job has inherited it as ignored
signal.signal(signal.SIGTTOU, signal.SIG_DFL)  # so has a test that follows one with `main` in its process
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
guardian = launch(["cat", "/proc/self/status"], os.environ)
guardian.start("A=B", grace=10)
hear(guardian)
guardian.close()
""")
        ordinary = (1 << 31) - 1  # the C library keeps the first of the real-time signals to itself
        masks = {line[:6]: int(line[7:], 16) & ordinary for line in lines if line.startswith(("SigBlk", "SigIgn"))}
        assert masks == {"SigBlk": 0, "SigIgn": 1 << signal.SIGHUP - 1 | 1 << signal.SIGINT - 1}

    def test_the_guardian_keeps_to_itself(self) -> None:
        """It has its own group in our session, minds no signal, and after the start holds nothing but its channel."""
        lines = drive("""
os.set_inheritable(os.open("/etc/passwd", os.O_RDONLY), True)
guardian = launch(["sleep", "60"], os.environ)
guardian.start("A=B", grace=10)
hear(guardian, "pid")
for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    os.kill(guardian.pid, signum)
guardian.signal(signal.SIGINT)
hear(guardian, "exited")
""")
        assert lines[1:] == ["exited 2"]
        lines = drive("""
guardian = launch(["sleep", "60"], os.environ)
guardian.start("A=B", grace=10)
hear(guardian, "pid")
guardian.signal(signal.SIGSTOP)
hear(guardian, "stopped")  # it is in its loop
files = f"/proc/{guardian.pid}/fd/"
print(sorted(os.readlink(files + name).split(":")[0] for name in os.listdir(files)))
print(open(f"/proc/{guardian.pid}/comm").read(), end="")
assert os.getpgid(guardian.pid) == guardian.pid
assert os.getsid(guardian.pid) == os.getsid(0)
guardian.close()
""")
        null, pipes = ["/dev/null"] * 3, ["pipe"] * 3  # two to wake it, one for an error of exec
        assert lines[2:] == [str([*null, *pipes, "socket"]), "hf-guardian"]


def test_where_there_is_no_prctl_nobody_becomes_a_subreaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not descendants.become_subreaper()


def test_processes_that_end_are_looked_at_less_and_less_often() -> None:
    guardian = guardian_process._Guardian(-1, -1, [], {}, ())
    guardian.group.pid, guardian.killed_at = 1, 0.0
    pauses = [guardian._timeout() for _ in range(12)]
    assert pauses[:3] == pytest.approx([0.0045, 0.00675, 0.010125])
    assert pauses[-1] == 0.1


@pytest.mark.parametrize(("lease", "margin"), [(30.0, 0.5), (5.0, 0.5), (2.0, 0.2)])
def test_a_command_is_killed_a_tenth_of_its_lease_before_the_end(lease: float, margin: float) -> None:
    assert guardian_program.kill_margin(lease) == margin


def test_a_report_names_a_process_that_may_have_blanks_in_its_name() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        guardian = channel.GuardianChannel(ours.fileno(), -1, None)
        theirs.sendall(b"pong\nexited 256\nrefused 7 tmux: server\n")
        assert guardian.reports() == [("exited", 256, ""), ("refused", 7, "tmux: server")]


def test_who_stands_outside_the_group_is_sent_term_half_way_to_the_kill() -> None:
    guardian = guardian_process._Guardian(-1, -1, [], {}, ())
    guardian.group = SimpleNamespace(send=lambda _signum: None)  # type: ignore[assignment]
    guardian._tell_of_refusals = lambda: None  # type: ignore[method-assign]
    guardian._term_outsiders = lambda _now: None  # type: ignore[method-assign,assignment]
    before = guardian_program.clock()
    guardian._term(10.0)
    assert before + 10 <= guardian.doom <= guardian_program.clock() + 10
    assert guardian.half == pytest.approx(guardian.doom - 5)


def test_a_command_that_was_sent_term_is_killed_before_the_end_of_its_lease_all_the_same() -> None:
    guardian, killed = guardian_process._Guardian(-1, -1, [], {}, ()), list[float]()
    guardian.group = SimpleNamespace(pid=1, status=None, gone=False)  # type: ignore[assignment]
    guardian._term_outsiders = lambda _now: None  # type: ignore[method-assign,assignment]
    guardian._kill = lambda: killed.append(0.0)  # type: ignore[method-assign]
    guardian.kill_at, guardian.doom = 50.0, 100.0
    guardian._act(49.9)
    assert not killed
    guardian._act(50.0)
    assert killed
    killed.clear()
    guardian.kill_at = 200.0
    guardian._act(99.9)
    assert not killed
    guardian._act(100.0)
    assert killed


def test_a_group_whose_number_may_be_a_strangers_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader was reaped, and no child is left in its group: the kernel may give the number to another process."""
    sent = list[int]()
    monkeypatch.setattr(guardian_program, "send", lambda pid, _signum: sent.append(pid))
    group = object.__new__(guardian_program.Group)
    with subprocess.Popen(["sleep", "60"], process_group=0) as process:
        group.pid, group._reaped = process.pid, True
        group.send(signal.SIGTERM)
        assert sent == [process.pid], "a child of ours is in it"
        process.kill()
    group.send(signal.SIGTERM)
    assert sent == [process.pid]


def test_without_a_proc_of_its_own_only_the_children_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [descendants.OsProcess(7, 1, 7, 7, 1)]
    monkeypatch.setattr(descendants, "children", lambda: found)
    monkeypatch.setattr(descendants, "own_proc", lambda: False)
    monkeypatch.setattr(descendants, "read_process", None)
    monkeypatch.setattr(descendants, "_children_of", lambda: lambda _pid: [8])
    assert descendants.descendants() == found


def test_a_chain_of_forks_is_followed_for_twenty_links_in_one_go() -> None:
    guardian, pids = guardian_process._Guardian(-1, -1, [], {}, ()), iter(range(100, 200))
    guardian.group = SimpleNamespace(send=lambda _signum: None, status=0, pid=1)  # type: ignore[assignment]
    killed = list[int]()
    guardian._others = lambda: [SimpleNamespace(pid=next(pids), send=killed.append)]  # type: ignore[method-assign,list-item]
    guardian._tell_of_refusals = lambda: None  # type: ignore[method-assign]
    guardian._tell_of = lambda *_: None  # type: ignore[method-assign]
    guardian._kill_all(0.0)
    assert len(killed) == 20
