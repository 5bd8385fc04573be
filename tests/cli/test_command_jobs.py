"""Jobs that are commands: what they are told, what is made of their end, and that they never outlive their run."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cli.commands import CROWD, FAMILY, STUBBORN, pids, running, wait_until
from holdfast._local.guardian import program as guardian_program
from holdfast._local.guardian.channel import GuardianChannel
from holdfast.errors import ConfigError, LeaseLost
from holdfast.schedule import command
from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.run import Cancelled, Run


class Lease:
    """The attributes that a command needs of a run. ``until``: on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def remaining(self) -> float:
        return self.until - time.monotonic()

    def check(self) -> None:
        pass


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def run(lease: Lease | None = None) -> Run:
    return Run("nightly", 1_790_000_000.5, 2, 41, lease=lease)


def test_a_command_knows_its_run_but_no_password(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "redis://user:secret@localhost")
    monkeypatch.setenv("REDIS_URL", "redis://localhost")
    script = "cat; env | grep -E '^(HOLDFAST|REDIS_|LEVEL)' | sort; pwd"
    said = Command(shell(script), env={"LEVEL": "9"}, directory=str(tmp_path))(run())
    assert said.splitlines()[-5:] == [
        "HOLDFAST_JOB=nightly", "HOLDFAST_SCHEDULED=1790000000.5", "LEVEL=9", "REDIS_URL=redis://localhost", str(tmp_path),
    ]  # fmt: skip
    assert Command(shell("echo $HOLDFAST_FENCE $HOLDFAST_ATTEMPT $HOLDFAST_URL"), pass_url=True)(run()) == (
        "41 2 redis://user:secret@localhost"
    )


def test_the_last_lines_are_the_result_and_all_are_passed_on() -> None:
    heard: list[str] = []
    script = "seq 1 2000; printf 'a\\033[1m\\ttab'; head -c 10000 /dev/zero | tr '\\0' x"
    said = Command(shell(script), echo=heard.append)(run())
    assert heard[:2000] == [str(number) for number in range(1, 2001)]
    assert heard[2000].startswith("a?[1m\ttabxxx")
    assert sum(map(len, heard[2000:])) == 10009
    assert said.splitlines()[0] == heard[-5]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sh", "-c", "echo one; echo two >&2; exit 3"], "exit code 3: one\ntwo"),
        (["sh", "-c", "kill -9 $$"], "ended by SIGKILL"),
        (["sh", "-c", "kill -40 $$"], "ended by signal 40"),
        (["false"], "exit code 1"),
        (["no-such-command"], "cannot run 'no-such-command': No such file or directory"),
    ],
)
def test_another_exit_code_is_an_error(argv: list[str], said: str) -> None:
    with pytest.raises(JobFailed) as caught:
        Command(argv)(run())
    assert str(caught.value) == said


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(JobFailed, match=r"cannot start the command: No such file or directory: .*/nowhere"):
        Command(["true"], directory="/nowhere")(run())


def test_a_cancelled_run_ends_its_whole_group_first_with_term(tmp_path: object) -> None:
    ended, told = run(), threading.Event()
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        told.set()

    script = "trap 'echo term' TERM; sleep 60 & echo $$ $!; wait; wait"
    command = Command(shell(script), kill_after=10, echo=echo)

    def cancel() -> None:
        told.wait(10)
        ended.reason = "max_runtime is over"
        ended.cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(Cancelled, match="max_runtime is over"):
        command(ended)
    canceller.join()
    assert heard[1] == "term"
    assert not any(running(int(pid)) for pid in heard[0].split())


def test_a_command_ends_before_a_lease_that_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    deadline = GuardianChannel.deadline

    def note(guardian: GuardianChannel, term_at: float, kill_at: float) -> None:
        told.append(kill_at)
        deadline(guardian, term_at, kill_at)

    monkeypatch.setattr(GuardianChannel, "deadline", note)
    lease = Lease(5)  # on a busy machine, the command needs seconds to begin
    end = lease.remaining() + guardian_program.clock()
    heard: list[str] = []
    with pytest.raises(LeaseLost, match="the command was ended before it expired"):
        Command(STUBBORN, echo=heard.append)(run(lease))
    assert told
    assert max(told) < end - 0.49, "a tenth before its end"
    assert float(heard[-1].split()[1]) < end + 0.5, "and as it was told, on a busy machine"


def test_a_lease_that_is_over_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_PATIENCE", 30.0)  # on a busy machine, the guardian needs time for its first answer
    heard: list[str] = []
    with pytest.raises(LeaseLost):
        Command(["echo", "x"], echo=heard.append)(run(Lease(-1)))
    assert heard == []


def test_a_command_dies_with_the_process_that_runs_it() -> None:
    program = f"""
from holdfast.schedule.command import Command
from holdfast.schedule.run import Run
Command({FAMILY!r}, echo=lambda line: print(line, flush=True))(Run("x", 1, 1, 1))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        family = pids(process)
        assert all(map(running, family))
        process.kill()
        wait_until(lambda: not any(map(running, family)))


def test_a_command_does_not_go_on_without_its_guardian() -> None:
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) == 1:
            os.kill(int(said.split()[1]), signal.SIGKILL)

    with pytest.raises(JobFailed, match="the guardian process has died: the command was killed"):
        Command(shell("echo $$ $PPID; exec sleep 60"), echo=echo)(run())
    assert not running(int(heard[0].split()[0]))


AWAY = "(setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' &); "
"""For a shell: a child in a session of its own, which has lost its parent."""


def test_a_daemon_of_a_job_is_ended_and_named() -> None:
    heard: list[str] = []
    said = Command(shell(AWAY + "sleep 0.2"), echo=heard.append)(run())
    assert not running(int(said))
    assert heard[1:] == [f"the command left a daemon behind, process {said} (sleep); it was sent TERM"]


def test_of_many_daemons_of_a_job_the_first_are_named() -> None:
    heard: list[str] = []
    Command([sys.executable, "-S", "-c", CROWD], echo=heard.append)(run())
    named = [said for said in heard if "left a daemon behind, process" in said]
    assert len(named) == 10
    assert [said for said in heard if said not in named] == [
        "the command left more daemons behind (sleep); they were sent TERM and are not listed"
    ]


def test_a_cancelled_run_ends_what_has_left_the_group() -> None:
    ended = run()
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) == 2:
            ended.reason = "max_runtime is over"
            ended.cancelled.set()

    script = AWAY + "timeout 60 sh -c 'echo $$; sleep 60'; echo went on"
    with pytest.raises(Cancelled, match="max_runtime is over"):
        Command(shell(script), echo=echo)(ended)
    assert len(heard) == 2
    assert not any(running(int(pid)) for pid in heard)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_without_its_guardian_all_descendants_of_a_command_end(number: int) -> None:
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) == 2:
            os.kill(int(said), number)

    how = {signal.SIGKILL: "has died", signal.SIGSTOP: "does not answer"}[signal.Signals(number)]
    with pytest.raises(JobFailed, match=f"the guardian process {how}: the command was killed"):
        Command(shell(AWAY + "sleep 0.2; echo $PPID; sleep 60"), echo=echo)(run(Lease(2)))
    assert not running(int(heard[0]))


def test_what_does_not_end_without_its_guardian_is_named() -> None:
    """A process that is traced stays a zombie until its tracer lets go of it."""
    heard: list[str] = []
    libc = ctypes.CDLL(None, use_errno=True)

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) == 1:
            pid, guardian = map(int, said.split())
            assert libc.ptrace(0x4206, pid, None, None) == 0, os.strerror(ctypes.get_errno())  # PTRACE_SEIZE
            os.kill(guardian, signal.SIGKILL)
        elif len(heard) == 2:
            os.waitpid(int(heard[0].split()[0]), 0)

    with pytest.raises(JobFailed, match="the guardian process has died: the command was killed"):
        Command(shell("echo $$ $PPID; sleep 60; exit"), echo=echo)(run())
    pid = heard[0].split()[0]
    assert heard[1] == f"process {pid} (sh) has not ended after KILL: it hangs in the kernel, or is traced"


def test_a_process_that_reaps_its_children_by_itself_signals_no_strangers() -> None:
    """The program around the guardian has ended, and its number is nobody's, or somebody else's."""
    program = """
import os, signal, time
from pathlib import Path
from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.run import Run
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def echo(said):
    if said.isdecimal():
        behind = int(Path(f"/proc/{said}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(behind, signal.SIGKILL)
        while os.path.exists(f"/proc/{behind}"):
            time.sleep(0.001)
        os.kill(int(said), signal.SIGKILL)
try:
    Command(["/bin/sh", "-c", "echo $PPID; exec sleep 60"], echo=echo)(Run("x", 1, 1, 1))
except JobFailed as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "the guardian process has died: the command was killed" in done.stdout
    assert done.stderr == ""


def test_a_renewal_does_not_put_off_the_end_of_a_cancelled_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guardian that is stopped then is not waited for until the end of the lease."""
    monkeypatch.setattr(command, "_SILENCE", 600.0)
    lease, ended = Lease(600), run()
    ended.lease = lease
    guardian = renewals = 0

    def remaining() -> float:
        nonlocal renewals
        renewals += ended.cancelled.is_set()
        if renewals == 2:  # the first after the guardian was told to send TERM
            os.kill(guardian, signal.SIGSTOP)
        return 600.0

    def echo(said: str) -> None:
        nonlocal guardian
        if said.isdecimal():
            guardian = int(said)
            ended.reason = "max_runtime is over"
            ended.cancelled.set()

    lease.remaining = remaining  # type: ignore[method-assign]
    job = Command(shell("trap '' TERM; echo $PPID; while :; do sleep 0.1; done"), echo=echo, kill_after=0.3)
    with pytest.raises(Cancelled, match="max_runtime is over"):
        job(ended)


def test_what_stands_behind_a_guardian_may_be_killed() -> None:
    """The guardian is the other half: it ends the command when its owner ends."""
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) == 1:
            parent = int(Path(f"/proc/{said}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)

    assert Command(shell("echo $PPID; sleep 0.1; echo over"), echo=echo)(run()).endswith("over")


def test_a_guardian_of_a_job_is_known_by_its_own_name_only() -> None:
    said = Command(shell("tr '\\0' ' ' < /proc/$PPID/cmdline"))(run())
    assert said.split() == ["hf-guardian"]


@pytest.mark.parametrize("argv", ["a b", "", []])
def test_a_command_is_a_list(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="write it as a list"):
        Command(argv)


def test_behind_a_guardian_that_is_killed_nothing_lives_on_without_a_descriptor_left() -> None:
    """Lists of processes cannot be read then: the kernel is asked about each number."""
    heard: list[str] = []

    def echo(said: str) -> None:
        heard.append(said)
        if len(heard) > 1:
            return
        guardian = int(said.split()[1])
        behind = int(Path(f"/proc/{guardian}/stat").read_text().rpartition(")")[2].split()[1])
        resource.prlimit(behind, resource.RLIMIT_NOFILE, (3, 3))
        os.kill(guardian, signal.SIGKILL)

    script = "setsid sh -c 'echo $$ $0; exec sleep 60 >&- 2>&-' $PPID; sleep 60"
    with pytest.raises(JobFailed, match="the guardian process has died: the command was killed"):
        Command(shell(script), echo=echo)(run())
    assert not running(int(heard[0].split()[0]))
