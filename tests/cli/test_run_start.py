"""``holdfast run`` when the command cannot be started: a lease that ran out before, no such program, no process to be had."""

from __future__ import annotations

import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cli.commands import PROGRAM, Holdfast, children, line, wait_until
from holdfast.cli import COMMANDS, run
from holdfast.cli.supervise import Supervisor

if TYPE_CHECKING:
    import redis

LIMITED = ["setpriv", "--reuid=54321", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "prlimit"]
"""As a user that has no other process, since root is not limited; but one who may read our files."""


def queue(client: redis.Redis, name: str) -> int:
    """How many wait."""
    return int(str(client.zcard(f"hf:{{{name}}}:queue")))


@pytest.mark.parametrize(("left", "renewals"), [(1.9, 1), (8.9, 1), (9.1, 0)])
def test_a_lease_that_was_handed_over_is_renewed_before_the_command_starts(left: float, renewals: int) -> None:
    renewed = list[float]()
    supervisor: Any = object.__new__(Supervisor)
    supervisor.lease = SimpleNamespace(remaining=lambda: left, renew=lambda: renewed.append(left))
    supervisor.terms, supervisor.result = SimpleNamespace(ttl=10.0), SimpleNamespace(lost=True)
    supervisor._look_at_lease = supervisor._heard_late = lambda: None  # lost all the same: nothing is started
    supervisor._start()
    assert len(renewed) == renewals


class TestTheLeaseRanOutBefore:
    """On a busy machine, between the grant and the start. Nothing has run, so the lock is asked for again, within --wait."""

    @pytest.mark.turns
    @pytest.mark.parametrize("options", [[], ["-v"], ["--on-lost", "kill"], ["--on-lost", "warn"], ["--limit", "1"]])
    @pytest.mark.parametrize("who", ["holdfast", "guardian"])
    def test_it_is_asked_for_again(self, hf: Holdfast, name: str, client: redis.Redis, who: str, options: list[str]) -> None:
        kind = [option for option in options if option in {"--limit", "1"}]
        holder = hf.start(*kind, name, "--", "sh", "-c", "echo; read line")
        line(holder)
        waiter = hf.start("--ttl", "2", *options, name, "--", "sh", "-c", "echo ran")
        wait_until(lambda: queue(client, name))
        [guardian] = children(waiter.pid)
        stopped = waiter.pid if who == "holdfast" else guardian
        os.kill(stopped, signal.SIGSTOP)
        holder.communicate("\n")
        if who == "holdfast":  # the grant is for nobody to renew
            wait_until(lambda: not client.exists(f"hf:{{{name}}}"))
        else:  # what the guardian knows of the lease is old when it is told to start
            time.sleep(2.2)
        os.kill(stopped, signal.SIGCONT)
        out, err = waiter.communicate(timeout=20)
        assert (out, waiter.returncode) == ("ran\n", 0), err
        assert "-v" in options or err == ""

    def test_not_for_longer_than_the_wait(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        """It has passed by then: the last attempt finds the lock busy."""
        holder = hf.start(name, "--", "sh", "-c", "echo; read line")
        line(holder)
        waiter = hf.start("--ttl", "2", "-w", "1s", name, "--", "echo", "ran")
        wait_until(lambda: queue(client, name))
        os.kill(waiter.pid, signal.SIGSTOP)
        holder.communicate("\n")
        time.sleep(2.2)
        other = hf.start(name, "--", "sh", "-c", "echo; read line")
        line(other)
        os.kill(waiter.pid, signal.SIGCONT)
        out, err = waiter.communicate(timeout=20)
        assert (out, waiter.returncode, err.count("\n")) == ("", 75, 1)


@pytest.mark.soak
def test_three_hundred_at_once(hf: Holdfast, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """More than the machine can run at a time. Each of them is told to wait for ever, so each of them runs."""
    log = tmp_path_factory.mktemp("many") / "log"
    runs = [hf.start(name, "--", "sh", "-c", f"echo in >>{log}; echo out >>{log}") for _ in range(300)]
    with ThreadPoolExecutor(len(runs)) as pool:
        said = list(pool.map(lambda run: run.communicate(timeout=600)[1], runs))
    assert [(run.returncode, err) for run, err in zip(runs, said, strict=True) if run.returncode] == []
    assert log.read_text() == "in\nout\n" * 300


class TestNoSuchThing:
    @pytest.mark.parametrize("program", ["", "no-such-program"])
    def test_the_error_names_the_program(self, hf: Holdfast, name: str, program: str) -> None:
        done = hf(name, "--", program)
        said = f"holdfast: {name}: cannot run the command {program!r}: No such file or directory\n"
        assert (done.returncode, done.stderr) == (127, said)

    def test_the_error_says_how_to_pass_several_words(self, hf: Holdfast, name: str) -> None:
        done = hf(name, "--", "echo a b")
        said = "No such file or directory; pass its words separately, or the whole command with -c\n"
        assert (done.returncode, done.stderr) == (127, f"holdfast: {name}: cannot run the command 'echo a b': {said}")

    @pytest.mark.parametrize("processes", [1, 2, 3] if os.geteuid() == 0 and shutil.which("setpriv") else [1])
    def test_no_more_processes(self, hf: Holdfast, name: str, client: redis.Redis, processes: int) -> None:
        """One is holdfast, two the guardian or a thread, three the command."""
        argv = LIMITED if os.geteuid() == 0 else ["prlimit"]
        run = hf.popen([*argv, f"--nproc={processes}", *PROGRAM, "run", name, "--", "echo", "ran"])
        out, err = run.communicate(timeout=20)
        assert (out, run.returncode, err.count("\n")) == ("", 71, 1), err
        assert "internal error" not in err
        assert not client.exists(f"hf:{{{name}}}")

    @pytest.mark.turns
    @pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit")
    @pytest.mark.parametrize("files", range(5, 18))
    def test_no_more_descriptors(self, hf: Holdfast, name: str, client: redis.Redis, files: int) -> None:
        """Either there are enough for all of the run, or the command is not run."""
        run = hf.popen(["prlimit", f"--nofile={files}", *PROGRAM, "run", name, "--", "echo", "ran"])
        out, err = run.communicate(timeout=20)
        assert (out, run.returncode, err.count("\n")) in {("", 71, 1), ("ran\n", 0, 0)}, err
        assert "internal error" not in err
        assert not client.exists(f"hf:{{{name}}}")

    @pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit")
    def test_several_servers_need_more_descriptors(self, hf: Holdfast, name: str) -> None:
        needed = run.DESCRIPTORS + 3 * run.DESCRIPTORS_OF_SERVER
        urls = " ".join(f"redis://127.0.0.1:{port}" for port in (1, 2, 3))
        argv = ["prlimit", f"--nofile={needed}", *PROGRAM, "run", name, "--", "echo", "ran"]
        out, err = hf.popen(argv, env={"HOLDFAST_URL": urls}).communicate(timeout=20)
        assert (out, f"fewer than {needed} file descriptors are free" in err) == ("", True), err


HELP = [["--help"], *([command, "--help"] for command in COMMANDS)]
PRINTS = ["--version", "acl", "show x", "doctor", "bench --list", "elect x", "server status"]


@pytest.mark.turns
@pytest.mark.parametrize("arguments", [*HELP, *map(str.split, PRINTS)], ids=" ".join)
def test_a_full_disk_for_the_output(hf: Holdfast, arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = hf.popen([*PROGRAM, *arguments], stdout=full)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (71, "holdfast: cannot write the output: No space left on device\n")


@pytest.mark.turns
@pytest.mark.parametrize("how", ["run", "elect"])
@pytest.mark.parametrize("command", ["true", "false", "/nonexistent"])
def test_a_full_disk_for_the_summary(hf: Holdfast, name: str, client: redis.Redis, how: str, command: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = hf.popen([*PROGRAM, how, "--json", name, "--", command], stderr=full)
        process.communicate(timeout=20)
    assert process.returncode == 71
    assert not client.exists(f"hf:{{{name}}}"), "the lock was given back"
    assert hf("-n", name, "--", "true").returncode == 0
