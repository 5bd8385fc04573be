"""``holdfast run`` when the lease ends before the command does: the command must be dead before somebody else starts."""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

from cli.commands import (
    FAMILY,
    STUBBORN,
    Holdfast,
    children,
    error_line,
    line,
    pids,
    running,
    state,
    wait_until,
)
from holdfast._local.guardian import program
from holdfast.cli import supervise
from holdfast.cli.output import EX_LOST
from holdfast.cli.supervise import CommandOptions, Supervisor

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from conftest import NewServer


def key(name: str) -> str:
    return f"hf:{{{name}}}"


def lease_end(client: redis.Redis, name: str) -> float:
    """When the lease ends at the server, on `program.clock`; asked just after a renewal, so that none comes soon."""
    last = ends(client, name)
    while (found := ends(client, name)) < last + 0.1:
        time.sleep(0.002)
    return found


def last_end(client: redis.Redis, name: str) -> float:
    """The same, after a renewal that is the last: the server carries out no other."""
    lease_end(client, name)
    client.client_pause(60_000, all=False)
    return ends(client, name)


def ends(client: redis.Redis, name: str) -> float:
    """When the lease would end now: a little earlier than it does, never later."""
    while True:
        before = program.clock()
        left = client.pttl(key(name))
        assert isinstance(left, int)
        assert left > 0
        if program.clock() < before + 0.01:
            return before + left / 1000


WITH_MARGIN = """
import sys
from holdfast.cli import main, supervise
supervise.CommandOptions.margin = float(sys.argv.pop(1))
sys.exit(main(sys.argv[1:]))
"""


def start(hf: Holdfast, margin: float, *arguments: str) -> subprocess.Popen[str]:
    """``holdfast run`` that has its command killed so many seconds before the end of the lease; half as many, if it has to do
    so itself. By the rule it is a tenth of a second at most, and a busy machine may well hold up a process for longer."""
    return hf.popen([sys.executable, "-c", WITH_MARGIN, str(margin), "run", *arguments])


def said(process: subprocess.Popen[str]) -> tuple[list[float], list[float]]:
    """When the stubborn command got TERM, and when it said that it is alive."""
    out, _ = process.communicate()
    words = [text.split() for text in out.splitlines()]
    return [float(at) for word, at in words if word == "term"], [float(at) for word, at in words if word == "alive"]


class Paused:
    """A lease whose owner is stopped for a moment as soon as it has been told how long that lasts."""

    fence = 1

    def __init__(self, seconds: float) -> None:
        self.end, self.lost = program.clock() + seconds, threading.Event()

    def remaining(self) -> float:
        left = self.end - program.clock()
        time.sleep(0.05)
        return left

    def check(self) -> None:
        """It is held."""

    def renew(self) -> None:
        """It is."""


class Told:
    """A guardian that notes what it is told."""

    asked = math.inf

    def __init__(self) -> None:
        self.deadlines: list[tuple[float, float]] = []

    def deadline(self, term_at: float, kill_at: float) -> None:
        self.deadlines.append((term_at, kill_at))


def test_a_pause_while_the_lease_is_looked_at_makes_the_deadline_early_and_never_late() -> None:
    guardian: Any = Told()
    unused: Any = None
    lease, terms = Paused(10.0), CommandOptions(ttl=10.0, kill_after=1.0, on_lost="term", max_runtime=math.inf)
    Supervisor(
        guardian=guardian, signals=unused, terminal=unused, lease=lease, terms=terms, error=unused, notice=unused
    )._look_at_lease()
    [(term_at, kill_at)] = guardian.deadlines
    assert term_at <= lease.end - terms.kill_after
    assert kill_at <= lease.end - terms.margin


class Poll:
    """A poll that notes what it waits for, and for how long, and ends the watch."""

    def __init__(self, watch: SimpleNamespace) -> None:
        self.watch = watch
        self.registered = list[object]()
        self.timeouts = list[float]()

    def register(self, what: object, _events: int) -> None:
        self.registered.append(what)

    def poll(self, timeout: float) -> list[object]:
        self.timeouts.append(timeout)
        self.watch.over = True
        return []


@pytest.mark.parametrize(("left", "timeout"), [(60.0, 251.0), (0.1, 101.0), (0.0, 11.0), (-5.0, 251.0)])
def test_the_guardian_is_listened_to_until_this_process_would_have_to_kill(
    monkeypatch: pytest.MonkeyPatch, left: float, timeout: float
) -> None:
    guardian = SimpleNamespace(reports=list, dead=False)
    watch: Any = SimpleNamespace(
        signals=SimpleNamespace(wake=5, take=lambda: b""),
        guardian=guardian,
        terms=SimpleNamespace(ttl=10.0),
        over=False,
        _second_line=lambda: program.clock() + left,
        _forward=lambda _signals: None,
    )
    poll = Poll(watch)
    monkeypatch.setattr(select, "poll", lambda: poll)
    monkeypatch.setattr(program, "empty_hands", lambda *_: None)
    Supervisor._watch(watch)
    assert poll.registered == [5, guardian]
    assert poll.timeouts == [pytest.approx(timeout, abs=5.0)]


def test_what_cannot_be_ended_is_tried_again_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, pauses = [OSError("no memory"), None], list[float]()

    def take_over(_told: object) -> None:
        if (error := tries.pop(0)) is not None:
            raise error

    supervisor: Any = SimpleNamespace(
        guardian=SimpleNamespace(take_over=take_over),
        lease=SimpleNamespace(lost=threading.Event()),
        result=SimpleNamespace(lost=False),
        over=False,
        error=lambda _why: None,
        _end=lambda *_: None,
        _told_of=None,
    )
    monkeypatch.setattr(time, "sleep", pauses.append)
    Supervisor._unguarded(supervisor)
    assert (pauses, supervisor.over) == ([1], True)


@pytest.mark.parametrize("lent_to", [7, 0])
def test_a_command_that_goes_on_after_ctrl_z_has_the_terminal_again_if_it_had_it(
    monkeypatch: pytest.MonkeyPatch, lent_to: int
) -> None:
    lent, sent = list[int](), list[int]()
    supervisor: Any = SimpleNamespace(
        terminal=SimpleNamespace(lent_to=lent_to, take_back=lambda: None, lend=lent.append),
        signals=SimpleNamespace(take_continued=lambda: bytes([signal.SIGCONT])),
        guardian=SimpleNamespace(signal=sent.append),
        pid=7,
        _forward=sent.extend,
    )
    monkeypatch.setattr(supervise, "stop_job", lambda _signum: None)
    Supervisor._heard_stopped(supervisor, signal.SIGTSTP)
    assert (lent, sent) == ([7] if lent_to else [], [signal.SIGCONT])


class TestServerGone:
    def test_term_comes_at_the_documented_time_and_the_end_before_that_of_the_lease(
        self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str
    ) -> None:
        server = new_server()
        hf = hf_on(server.url)
        process = start(hf, 0.5, "--ttl", "3", "--kill-after", "1", name, "--", *STUBBORN)
        line(process)
        with redis.Redis.from_url(server.url) as client:
            end = last_end(client, name)
            server.kill()
        [term], alive = said(process)
        assert process.returncode == 76
        # From below: the drift allowance, and what passed before the server had the renewal.
        assert end - 1 - 0.8 < term < end - 0.5
        assert term + 0.1 < alive[-1] < end

    def test_a_command_that_minds_term_is_given_the_time_to(
        self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str
    ) -> None:
        server = new_server()
        hf = hf_on(server.url)
        script = "trap 'sleep 0.1; echo done; exit 9' TERM; echo ready; sleep 60 & wait"
        process = hf.start("--json", "--ttl", "2", "--kill-after", "1", name, "--", "sh", "-c", script)
        line(process)
        server.kill()
        out, err = process.communicate()
        assert (process.returncode, out) == (76, "done\n")
        assert f"{name}: the lease could not be renewed in time" in err
        assert "Traceback" not in err
        summary = json.loads(err.splitlines()[-1])
        assert (summary["outcome"], summary["command_exit_code"]) == ("lost", 9)

    def test_a_server_that_hangs(self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
        server = new_server()
        hf = hf_on(server.url)
        process = start(hf, 0.5, "--ttl", "2", "--kill-after", "1", name, "--", *STUBBORN)
        line(process)
        with redis.Redis.from_url(server.url) as client:
            end = last_end(client, name)
        server.pause()
        [_], alive = said(process)
        server.resume()
        assert process.returncode == 76
        assert alive[-1] < end

    def test_a_server_that_comes_back_in_time_is_not_noticed(
        self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str
    ) -> None:
        server = new_server(appendonly=True)
        hf = hf_on(server.url)
        process = hf.start("-q", "--ttl", "2", "--kill-after", "0.2", name, "--", "sh", "-c", "echo; read line")
        line(process)
        with redis.Redis.from_url(server.url) as client:
            end = lease_end(client, name)
            server.pause()
            wait_until(lambda: program.clock() > end - 1)
            server.resume()
            wait_until(lambda: program.clock() > end)
        _, err = process.communicate("\n")
        assert (process.returncode, err) == (0, "")

    def test_on_lost_kill_sends_no_term(self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
        server = new_server()
        hf = hf_on(server.url)
        process = start(hf, 0.5, "--ttl", "2", "--on-lost", "kill", name, "--", *STUBBORN)
        line(process)
        with redis.Redis.from_url(server.url) as client:
            end = last_end(client, name)
        server.kill()
        term, alive = said(process)
        assert process.returncode == 76
        assert not term
        assert alive[-1] < end


class TestKeyGone:
    def test_deleted_by_hand(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        script = "trap 'echo term; exit' TERM; echo; sleep 60 & wait"
        process = hf.start("--ttl", "2", "--kill-after", "0.5", name, "--", "sh", "-c", script)
        line(process)
        client.delete(key(name))
        out, err = process.communicate()
        assert (process.returncode, out) == (76, "term\n")
        assert f"{name}: lease of '{name}' " in err
        assert "was lost" in err
        assert err.rstrip().endswith("the command was sent TERM")

    def test_taken_by_somebody_else(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        """A command that ignores TERM is killed, and what the other one wrote stays."""
        process = hf.start("--ttl", "2", "--kill-after", "0.5", name, "--", *STUBBORN)
        line(process)
        client.set(key(name), "somebody else", px=60_000)
        [term], alive = said(process)
        assert process.returncode == 76
        assert alive[-1] < term + 5
        assert client.get(key(name)) == b"somebody else"

    def test_on_lost_kill(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        process = hf.start("--ttl", "1", "--on-lost", "kill", name, "--", *STUBBORN)
        line(process)
        client.delete(key(name))
        term, _ = said(process)
        assert not term
        assert process.returncode == 76

    def test_on_lost_warn_leaves_the_command_alone(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        script = "trap 'echo term' TERM; echo ready; read line; exit 5"
        process = hf.start("--ttl", "1", "--on-lost", "warn", name, "--", "sh", "-c", script)
        line(process)
        client.delete(key(name))
        while "the command goes on without the lock" not in error_line(process):
            assert process.poll() is None
        out, _ = process.communicate("\n")
        assert (process.returncode, out) == (5, "")

    def test_noticed_only_at_the_end(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        """The command succeeded, but nobody can say whether it was alone."""
        process = hf.start("--json", name, "--", "sh", "-c", "echo; read line")
        line(process)
        client.delete(key(name))
        _, err = process.communicate("\n")
        assert process.returncode == 76
        message, summary = err.splitlines()
        assert message.endswith("this was noticed after the command had ended")
        assert json.loads(summary)["command_exit_code"] == 0
        assert json.loads(summary)["lost"] is True


class TestStopped:
    @pytest.mark.parametrize("on_lost", ["term", "kill"])
    def test_holdfast_stopped_beyond_its_lease(self, hf: Holdfast, name: str, on_lost: str, tmp_path: Path) -> None:
        """The next holder looks whether the command still runs when it starts: it must not."""
        options = ["--ttl", "2", "--kill-after", "1", "--on-lost", on_lost]
        process = start(hf, 0.5, *options, name, "--", *STUBBORN[:-1], FORKING, str(tmp_path / "pids"))
        line(process)
        family = " ".join((tmp_path / "pids").read_text().split())
        look = f"for pid in {family}; do grep State: /proc/$pid/status | grep -v Z; done 2>/dev/null; echo looked"
        process.send_signal(signal.SIGSTOP)
        done = hf(name, "--", "sh", "-c", look)
        assert done.stdout == "looked\n"
        assert process.poll() is None
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate()
        assert process.returncode == 76
        assert ("term" in out) == (on_lost == "term")
        assert "Traceback" not in err

    def test_stopped_just_before_the_start(self, hf: Holdfast, name: str) -> None:
        """Stopped while it waits and continued much later: what it was granted meanwhile is not used."""
        holder = hf.start(name, "--", "sh", "-c", "echo; read line")
        line(holder)
        waiter = hf.start("-v", "--ttl", "1", name, "--", "sh", "-c", "echo $HOLDFAST_FENCE")
        while "waiting" not in error_line(waiter):
            pass
        waiter.send_signal(signal.SIGSTOP)
        holder.communicate("\n")
        fence = int(hf(name, "--", "sh", "-c", "echo $HOLDFAST_FENCE").stdout)
        waiter.send_signal(signal.SIGCONT)
        out, _ = waiter.communicate()
        assert waiter.returncode == 76 or int(out) > fence


FORKING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("term"))
child = os.fork()
if child:
    open(sys.argv[1], "w").write(f"{os.getpid()} {child}")
    print("ready")
while True:
    time.sleep(0.01)  # short: a signal that comes just before it does not end it
"""


class TestGuardian:
    def test_killed(self, hf: Holdfast, name: str) -> None:
        """Then nobody would end the command if holdfast were killed, too: so it is ended, and the lock given back."""
        process = hf.start(name, "--", *FAMILY)
        family = pids(process)
        [guardian] = children(process.pid)
        assert family[0] in children(guardian)
        os.kill(guardian, signal.SIGKILL)
        _, err = process.communicate()
        assert process.returncode == 128 + signal.SIGKILL
        assert err == f"holdfast: {name}: the guardian process has died: the command was killed\n"
        assert not any(running(pid) for pid in family)
        assert hf("-n", name, "--", "true").returncode == 0

    def test_killed_and_the_lease_lost_before_all_have_ended(self, hf: Holdfast, client: redis.Redis, name: str) -> None:
        """A process that is traced stays a zombie until its tracer lets go of it."""
        process = hf.start("--ttl", "2", name, "--", "/bin/sh", "-c", "echo $$; read line")
        pid = int(line(process))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ptrace(0x4206, pid, None, None) == 0, os.strerror(ctypes.get_errno())  # PTRACE_SEIZE
        [guardian] = children(process.pid)
        os.kill(guardian, signal.SIGKILL)
        assert error_line(process) == f"holdfast: {name}: the guardian process has died: the command was killed"
        assert "has not ended after KILL" in error_line(process)
        client.delete(key(name))
        time.sleep(2)  # then it is lost, whoever has noticed what
        os.waitpid(pid, 0)
        _, err = process.communicate()
        assert process.returncode == EX_LOST
        assert err.endswith("; this was before all processes of the command had ended\n")

    def test_stopped(self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
        """It cannot act when the lease ends: holdfast does."""
        server = new_server()
        hf = hf_on(server.url)
        process = start(hf, 1.0, "--ttl", "2", name, "--", *STUBBORN)
        line(process)
        [guardian] = children(process.pid)
        os.kill(guardian, signal.SIGSTOP)
        wait_until(lambda: state(guardian) == "T")
        with redis.Redis.from_url(server.url) as client:
            end = last_end(client, name)
        server.kill()
        term, alive = said(process)
        assert process.returncode == 76
        assert not term
        assert alive[-1] < end
        assert not running(guardian)

    def test_late_although_it_answers(self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
        """Only on a machine that is busy enough.

        An action that holdfast then takes in place of the guardian is reported, and counts as the guardian's.
        """
        server = new_server()
        script = (
            "import math, sys; from holdfast._local.guardian import guardian as _guard; from holdfast.cli import main\n"
            "act = _guard._Guardian._act\n"
            "def late(self, now):\n"
            "    self.term_at = self.kill_at = math.inf\n"
            "    act(self, now)\n"
            "_guard._Guardian._act = late\n"
            "sys.exit(main(sys.argv[1:]))"
        )
        # `holdfast` acts a tenth of the lease before its end: on a busy machine 0.2 s were not always enough.
        run = ["run", "--json", "--ttl", "5", name, "--", "sh", "-c", "echo; exec sleep 60"]
        process = hf_on(server.url).popen([sys.executable, "-c", script, *run])
        line(process)
        server.kill()
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (76, "")
        assert f"{name}: the lease could not be renewed in time" in err
        assert json.loads(err.splitlines()[-1])["outcome"] == "lost"
