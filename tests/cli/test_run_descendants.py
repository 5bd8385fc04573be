"""Nothing of the command outlives the lock: children in other groups and sessions, orphans, daemons, re-forking chains."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.commands import CROWD, PROGRAM, children, error_line, line, pids, running, state, wait_until

if TYPE_CHECKING:
    import redis

    from cli.commands import Holdfast

LOG_TERM = """
import os, signal, sys, time
def note(*_):
    global end
    os.write(log, b"TERM\\n")
    end = min(end, time.monotonic() + {"stay": 60, "linger": 0.3}.get(sys.argv[2], 0))
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
end = time.monotonic() + 60
signal.signal(signal.SIGTERM, note)
print(os.getpid(), flush=True)
while time.monotonic() < end:
    time.sleep(0.01)
"""
"""Says its number, and notes each TERM in a file. The first one ends it: with ``linger`` after a while, with ``stay`` not."""

OUTSIDE = {
    "timeout": "timeout 60 {child} & wait; echo over",
    "set -m": "exec bash -c 'set -m; \"$@\"; echo over' bash {child}",
    "setsid": "setsid -w {child}; echo over",
    "double fork": "(setsid {child} &) ; sleep 60; echo over",
    "group": "{child} & wait",
}
"""Ways to start a child, most of them outside of the command's group."""

ENDS = ("term", "max-runtime", "deleted", "holdfast killed", "guardian killed")


def child(tmp_path: Path, word: str = "obey") -> str:
    """Command line, for a shell, of the child that notes each TERM."""
    path = tmp_path / "child.py"
    path.write_text(LOG_TERM)
    return " ".join([sys.executable, "-S", str(path), str(tmp_path / "terms"), word])


def terms(tmp_path: Path) -> int:
    """How many TERMs it got."""
    return (tmp_path / "terms").read_text().count("TERM")


def shell(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def cmdline(pid: int) -> str:
    """The arguments of a process, as ``pgrep -f`` sees them."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


@pytest.mark.turns
@pytest.mark.fault(67)
@pytest.mark.parametrize("how", OUTSIDE)
def test_a_child_outside_the_group_ends_before_the_lock_is_given_back(
    hf: Holdfast, name: str, tmp_path: Path, how: str, client: redis.Redis
) -> None:
    """However it ends, and with one TERM at most. All ways to end it at the same time."""
    pids, runs, waiting = {}, {}, {}
    for end in ENDS:
        directory = tmp_path / end.replace(" ", "-")
        directory.mkdir()
        word = "stay" if "killed" in end else "obey"
        options = ["--max-runtime", "4"] if end == "max-runtime" else []
        command = shell(OUTSIDE[how].format(child=child(directory, word)))
        runs[end] = hf.start("--ttl", "4", *options, f"{name}-{end}", *command)
    for end, process in runs.items():
        pids[end] = int(line(process))
        if end != "deleted":  # there, the next holder starts at once, and --kill-after is what the old one has
            look = f"! grep -v zombie /proc/{pids[end]}/status 2>&- | grep ^State"
            waiting[end] = hf.start("--ttl", "4", f"{name}-{end}", *shell(look))
    runs["term"].terminate()
    runs["holdfast killed"].kill()
    os.kill(children(runs["guardian killed"].pid)[0], signal.SIGKILL)
    client.delete(f"hf:{{{name}-deleted}}")
    for end, process in runs.items():
        process.wait(30)
        wait_until(lambda pid=pids[end]: not running(pid))  # type: ignore[misc]
        twice = how == "timeout"  # timeout(1) itself sends what it is sent to its child, and to its group
        assert "killed" in end or 1 <= terms(tmp_path / end) <= 1 + twice, end
    assert {end: process.wait(30) for end, process in waiting.items()} == dict.fromkeys(waiting, 0)


@pytest.mark.fault(71)
def test_a_chain_that_forks_anew_is_ended(hf: Holdfast, name: str, tmp_path: Path) -> None:
    """Each link lives for a millisecond and minds no TERM: no listing of processes shows the one that lives now."""
    script = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
os.close(1), os.close(2)
if os.fork():
    os._exit(0)
while True:
    time.sleep(0.001)
    if os.fork():
        os._exit(0)
    os.close(os.open({str(tmp_path / "alive")!r}, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime({str(tmp_path / "alive")!r})
"""
    done = hf("--kill-after", "100ms", name, "--", sys.executable, "-S", "-c", script)
    assert (done.returncode, done.stdout) == (0, "ready\n")
    alive = tmp_path / "alive"
    last = alive.stat().st_mtime_ns
    assert "the command left processes behind" in done.stderr
    assert hf("-n", name, "--", "sleep", "0.1").returncode == 0
    assert alive.stat().st_mtime_ns == last


def test_of_many_daemons_of_a_name_the_first_are_named(hf: Holdfast, name: str) -> None:
    """A chain that forks anew, each link in a session of its own, would fill the log with a line for each."""
    done = hf(name, "--", sys.executable, "-S", "-c", CROWD)
    *first, last = done.stderr.splitlines()
    assert len(first) == 10
    assert all("left a daemon behind, process" in said and "(sleep)" in said for said in first)
    assert last == f"holdfast: {name}: the command left more daemons behind (sleep); they were sent TERM and are not listed"


@pytest.mark.fault(71)
def test_a_chain_beside_a_daemon_that_is_kept_keeps_the_lock(hf: Holdfast, name: str, tmp_path: Path) -> None:
    """No two listings that miss it prove that only the daemon is left."""
    script = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + 1.5
os.close(1), os.close(2)
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
open({str(tmp_path / "over")!r}, "x")
"""
    program = tmp_path / "chain.py"
    program.write_text(script)
    command = f"setsid -f sh -c 'echo $$; exec sleep 20 >&- 2>&-'; {sys.executable} -S {program} &"
    done = hf("--ttl", "30", "--keep-daemons", "--kill-after", "10s", name, *shell(command))
    over = (tmp_path / "over").exists()
    os.kill(int(done.stdout), signal.SIGKILL)
    assert (done.returncode, over) == (0, True), done.stderr


def test_a_process_whose_first_thread_has_ended_is_ended(hf: Holdfast, name: str, tmp_path: Path) -> None:
    """To /proc it looks like a zombie, while its other threads run."""
    program = tmp_path / "threads.py"
    program.write_text("""
import ctypes, os, threading, time
def stay():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    os.write(1, b"up\\n")
    os.close(1)
    os.close(2)
    time.sleep(60)
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
""")
    done = hf(name, *shell(f"setsid -f {sys.executable} -S {program} | read line"))
    assert done.returncode == 0
    assert "it was sent TERM" in done.stderr
    assert hf("-n", name, "--", "true").returncode == 0


WITHOUT_PIDFD = {
    "Python has none": "del os.pidfd_open",
    "the kernel has none": "os.pidfd_open = lambda pid: fail(errno.ENOSYS)",
    "a sandbox refuses it": "os.pidfd_open = lambda pid: fail(errno.EPERM)",
}


@pytest.mark.turns
@pytest.mark.parametrize("why", WITHOUT_PIDFD)
def test_without_pidfd_all_are_ended(hf: Holdfast, name: str, why: str) -> None:
    """Grandchildren are signalled by their number."""
    program = f"""
import errno, os, sys
def fail(number):
    raise OSError(number, os.strerror(number))
{WITHOUT_PIDFD[why]}
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""
    script = 'setsid sh -c \'trap "" TERM; (trap "" TERM; echo $$; exec >&- 2>&-; sleep 60; sleep 60); :\' & sleep 60'
    process = hf.popen([sys.executable, "-c", program, "run", "--kill-after", "300ms", name, *shell(script)])
    pid = int(line(process))
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "signalled" in err) == (143, False)
    assert not running(pid)
    assert hf("-n", name, "--", "true").returncode == 0


def test_a_failure_in_place_of_a_guardian_keeps_the_lock(hf: Holdfast, name: str) -> None:
    program = """
import sys
from holdfast._local.guardian import descendants as _descendants
from holdfast.cli import main
left = _descendants.Orphans._left
def fail(self):
    _descendants.Orphans._left = left
    raise RuntimeError("once")
_descendants.Orphans._left = fail
sys.exit(main(sys.argv[1:]))
"""
    process = hf.popen([sys.executable, "-c", program, "run", name, *shell("echo $$ $PPID; exec sleep 60")])
    pid, guardian = map(int, line(process).split())
    os.kill(guardian, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 137
    assert not running(pid)


NAMESPACES = {
    "foreign /proc": [],
    "own /proc": ["--mount-proc"],
    "no /proc": ["--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"],
}


@pytest.mark.turns
@pytest.mark.fault(72)
@pytest.mark.parametrize("proc", NAMESPACES)
@pytest.mark.parametrize("first", [True, False], ids=["process 1", "another"])
def test_in_a_pid_namespace(hf: Holdfast, name: str, proc: str, first: bool) -> None:
    """If /proc is that of an outer namespace, its numbers are translated; otherwise the kernel is asked about each number."""
    unshare = ["unshare", "--pid", "--fork", *NAMESPACES[proc]]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.fail("this test wants the right to make a PID namespace: run it as root")
    inside = [] if first else ["sh", "-c", '"$@"; exit $?', "sh"]
    # The children hold the pipe, so the end of file says that they have ended.
    script = "sleep 60 2>&- & (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' 2>&- &); sleep 0.2; exit 3"
    run = [*unshare, *inside, *PROGRAM, "run", "--kill-after", "300ms", name, *shell(script)]
    process = hf.popen(run)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert err.count("the command left a daemon behind") == err.count("left processes behind") == 1
    assert hf("-n", name, "--", "true").returncode == 0


@pytest.mark.fault(68)
@pytest.mark.parametrize("unshare", [[], ["unshare", "--pid", "--fork"]], ids=["own /proc", "foreign /proc"])
def test_children_from_before_outlive_a_guardian_that_is_killed(hf: Holdfast, name: str, unshare: list[str]) -> None:
    """A shell that has jobs becomes holdfast by exec. The command kills its guardian: its descendants end, the jobs do not."""
    command = "(setsid sleep 61 &) ; sleep 0.1; echo up; kill -9 $PPID; sleep 60"
    job = "(read line; echo job) <&9 &"
    jobs = f"exec 9<&0; {job} (sh -c '{job} sleep 0.1' &); sleep 0.2"
    process = hf.popen([*unshare, "sh", "-c", f'{jobs}; exec "$@"', "sh", *PROGRAM, "run", name, *shell(command)])
    assert line(process) == "up"
    assert error_line(process) == f"holdfast: {name}: the guardian process has died: the command was killed"
    assert process.wait(20) == 137
    out, err = process.communicate(timeout=60)  # closes stdin, at which the jobs end
    assert (out, err) == ("" if unshare else "job\njob\n", "")  # the end of process 1 is that of its namespace


def test_who_is_killed_by_name(hf: Holdfast, name: str) -> None:
    """``pkill -9 -f "holdfast run"`` kills holdfast and not its guardian, which kills the command."""
    process = hf.start(name, *shell("timeout 60 sh -c 'echo $$; sleep 60'; sleep 60"), fresh=True)
    pid = int(line(process))
    [guardian] = children(process.pid)
    assert "holdfast run" in cmdline(process.pid).replace(" -m ", " ")
    assert cmdline(guardian) == "hf-guardian"
    process.kill()
    wait_until(lambda: not running(pid))


@pytest.mark.fault(70)
@pytest.mark.parametrize("holdfasts", [signal.SIGKILL, signal.SIGSTOP], ids=["both killed", "holdfast stopped"])
def test_a_guardian_killed_where_holdfast_can_do_nothing_takes_the_command_with_it(
    hf: Holdfast, name: str, holdfasts: signal.Signals
) -> None:
    process = hf.start(name, *shell("echo $$; exec sleep 60"))
    pid = int(line(process))
    [guardian] = children(process.pid)
    for number in (process.pid, guardian):
        os.kill(number, signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    os.kill(process.pid, holdfasts)
    wait_until(lambda: not running(pid))


@pytest.mark.fault(69)
@pytest.mark.parametrize("ended", [True, False], ids=["the command has ended", "it runs"])
def test_a_guardian_that_is_stopped(hf: Holdfast, name: str, ended: bool) -> None:
    """The lease is not renewed on its behalf: when it is over, all are killed, and the lock is given back."""
    script = "(setsid sh -c 'echo $$; exec sleep 60' &) ; read line"
    process = hf.start("--ttl", "2", name, *shell(script))
    pid = int(line(process))
    [guardian] = children(process.pid)
    os.kill(guardian, signal.SIGSTOP)
    wait_until(lambda: state(guardian) == "T")
    if ended:
        assert process.stdin is not None
        process.stdin.close()
    assert error_line(process) == f"holdfast: {name}: the guardian process does not answer: the command was killed"
    assert process.wait(20) == 76
    assert not running(pid)
    assert not running(guardian)
    assert hf("-n", name, "--", "true").returncode == 0


def test_a_guardian_that_is_stopped_before_the_command_starts(hf: Holdfast, name: str, client: redis.Redis) -> None:
    client.set(f"hf:{{{name}}}", "somebody", px=60_000)
    process = hf.start("--ttl", "2", name, "--", "echo", "started")
    wait_until(lambda: children(process.pid))
    [guardian] = children(process.pid)
    os.kill(guardian, signal.SIGSTOP)
    wait_until(lambda: state(guardian) == "T")
    client.delete(f"hf:{{{name}}}")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (76, "")
    assert err == f"holdfast: {name}: the guardian process does not answer: the command was not started\n"
    assert hf("-n", name, "--", "true").returncode == 0


@pytest.mark.turns
@pytest.mark.parametrize("nested", [False, True], ids=["timeout", "nested"])
@pytest.mark.parametrize("end", ["signal", "max-runtime"])
def test_term_comes_once(hf: Holdfast, name: str, tmp_path: Path, end: str, nested: bool) -> None:
    """Many programs take a second one for an order to quit at once. timeout(1) sends each twice: to its child and the group."""
    command = child(tmp_path, "linger").split(" ")
    if nested:
        command = [*PROGRAM, "run", f"{name}-inner", "--", *command]
    options = ["--max-runtime", "4"] if end == "max-runtime" else []
    run = [*PROGRAM, "run", "--kill-after", "2", "--ttl", "6", *options, name, "--", *command]
    process = hf.popen(["timeout", "60", *run])
    line(process)
    if end == "signal":
        process.terminate()
    process.wait(30)
    assert terms(tmp_path) == 1


def test_a_second_term_under_timeout_is_its_own(hf: Holdfast, name: str) -> None:
    """timeout(1) in a shell has a group of its own: it gets the one TERM, and sends its child what that gets."""
    noting = """
import os
import resource
import shutil
from signal import *
pthread_sigmask(SIG_BLOCK, [SIGTERM])
print(os.getppid(), flush=True)
said = sigtimedwait([SIGTERM], 60)
while said:
    print(said.si_pid, flush=True)
    said = sigtimedwait([SIGTERM], 0.3)
"""
    process = hf.start(name, *shell(f"timeout 60 {sys.executable} -S -c '{noting}'; echo over"))
    timeout = line(process)
    process.terminate()
    senders = process.communicate(timeout=60)[0].split()
    assert set(senders) == {timeout}


@pytest.mark.parametrize("asleep", [":", "kill -STOP \\$\\$"], ids=["running", "stopped"])
def test_a_child_whose_parent_does_not_end_gets_term_at_half_of_the_time(hf: Holdfast, name: str, asleep: str) -> None:
    """Until then it is the parent's to pass on."""
    inner = f"trap 'echo term' TERM; echo up; {asleep}; while :; do sleep 0.05; done"
    script = f'trap : TERM; setsid -w bash -c "{inner}"; echo over'
    done = hf("--ttl", "6", "--kill-after", "2", "--max-runtime", "1", name, "--", "bash", "-c", script)
    assert (done.returncode, done.stdout) == (124, "up\nterm\n")


def test_what_another_guardian_looks_after_gets_term_once(hf: Holdfast, name: str, tmp_path: Path) -> None:
    """It passes the TERM on to its own command, which may take longer to end than half of the time."""
    lingering = child(tmp_path, "stay")
    inner = " ".join([*PROGRAM, "run", "--kill-after", "4", f"{name}-inner", "--", lingering])
    options = ["--ttl", "8", "--kill-after", "2", "--max-runtime", "4"]
    done = hf(*options, name, "--", "bash", "-c", f"trap : TERM; {inner}; sleep 60")
    assert done.returncode == 124
    assert terms(tmp_path) == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_daemons_of_a_command_that_is_interrupted_are_not_kept(hf: Holdfast, name: str, signum: int) -> None:
    script = "trap 'exit 0' TERM HUP INT; (setsid sh -c 'echo $$; exec sleep 60' &); while :; do sleep 0.01; done"
    process = hf.start("--keep-daemons", name, *shell(script))
    pid = int(line(process))
    process.send_signal(signum)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert not running(pid)
    assert "--keep-daemons" not in said, "it was given, and does not help here"


def test_a_command_that_ignores_hup_may_keep_its_daemons(hf: Holdfast, name: str) -> None:
    """HUP tells many to read their configuration anew."""
    script = "trap 'echo reloaded' HUP; (setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' &); read line; sleep 0.2"
    process = hf.start("--keep-daemons", "--kill-after", "100ms", name, *shell(script))
    pid = int(line(process))
    process.send_signal(signal.SIGHUP)
    assert line(process) == "reloaded"
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0
    assert running(pid)
    os.kill(pid, signal.SIGKILL)


OTHERS = ["setpriv", "--reuid=54322"]
MAY_SETUID = [
    "setpriv", "--reuid=54323", "--clear-groups",
    "--inh-caps=-all,+dac_override,+setuid", "--ambient-caps=-all,+dac_override,+setuid",
]  # fmt: skip
"""As a user who may become another one, as with sudo, and may not signal another one."""

FOREIGN = "setpriv --reuid=54322 sh -c 'echo $$; exec sleep 60 >&- 2>&-' & read line; "
"""Says the pid of a process of another user, in the command's group, and goes on when it is told to."""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root can start processes of several users")
class TestAnotherUsersProcess:
    @pytest.mark.turns
    @pytest.mark.parametrize("where", ["", "setsid "], ids=["in the group", "in a session of its own"])
    @pytest.mark.parametrize("others", ["", "sleep 60 >&- 2>&- & "], ids=["alone", "with others"])
    def test_left_behind(self, hf: Holdfast, name: str, where: str, others: str) -> None:
        script = others + where + FOREIGN
        process = hf.popen([*MAY_SETUID, *PROGRAM, "run", "--kill-after", "300ms", name, *shell(script)])
        pid = int(line(process))
        assert process.stdin is not None
        process.stdin.close()
        said = error_line(process)
        assert (
            said == f"holdfast: {name}: process {pid} (sleep) was not signalled, because it belongs to another user; "
            "waiting for it to end"
        )
        if others:
            assert error_line(process) == f"holdfast: {name}: the command left other processes behind; they were sent TERM"
        assert hf("-n", name, "--", "true").returncode == 75
        os.kill(pid, signal.SIGKILL)
        process.stdin = None
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 1

    @pytest.mark.parametrize("on_lost", ["term", "kill"])
    @pytest.mark.parametrize("leader", [True, False], ids=["the command", "its child"])
    def test_when_the_lock_is_lost(self, hf: Holdfast, name: str, client: redis.Redis, leader: bool, on_lost: str) -> None:
        options = ["--ttl", "2", "--kill-after", "300ms", "--on-lost", on_lost]
        command = ["--", *OTHERS, "sh", "-c", "echo $$; exec sleep 60"] if leader else shell(FOREIGN)
        process = hf.popen([*MAY_SETUID, *PROGRAM, "run", *options, name, *command])
        pid = int(line(process))
        client.delete(f"hf:{{{name}}}")
        assert error_line(process).endswith(f"the command was sent {on_lost.upper()}")
        said = error_line(process)
        assert (
            said == f"holdfast: {name}: process {pid} (sleep) was not signalled, because it belongs to another user; "
            "waiting for it to end"
        )
        os.kill(pid, signal.SIGKILL)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 76


@pytest.mark.turns
@pytest.mark.parametrize("who", ["holdfast", "guardian"])
def test_without_a_descriptor_left_all_are_ended(hf: Holdfast, name: str, client: redis.Redis, who: str) -> None:
    """Lists of processes cannot be read then: the kernel is asked about each number."""
    script = "trap '' TERM; setsid sh -c 'echo $$ $PPID; exec sleep 60 >&- 2>&-'; sleep 60"
    process = hf.start("--ttl", "2", "--kill-after", "300ms", name, *shell(script))
    pid, parent = pids(process)
    [guardian] = children(process.pid)
    resource.prlimit(process.pid if who == "holdfast" else guardian, resource.RLIMIT_NOFILE, (3, 3))
    if who == "holdfast":
        os.kill(guardian, signal.SIGKILL)
    else:
        client.delete(f"hf:{{{name}}}")
    process.communicate(timeout=30)
    assert process.returncode == (137 if who == "holdfast" else 76)
    assert not running(pid)
    assert not running(parent)
