"""``holdfast run`` and signals: passed on to the command, or an end to the waiting."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cli.commands import FAMILY, PROGRAM, Holdfast, error_line, line, pids, running, state, wait_until
from holdfast.cli.supervise import TWICE

if TYPE_CHECKING:
    import redis

ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]

# Says what it gets, for ever.
LISTENER = [
    sys.executable,
    "-S",
    "-u",
    "-c",
    """
import signal, sys
signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # with handlers, one that comes just before `pause` would be missed
print("ready")
while True:
    print(int(signal.sigwait(signals)))
""",
]


def queue_and_lock(client: redis.Redis, name: str) -> list[str]:
    """The keys that mean somebody holds the lock or waits for it."""
    return [key for key in (f"hf:{{{name}}}", f"hf:{{{name}}}:queue") if client.exists(key)]


class TestWhileItRuns:
    def test_all_are_passed_on(self, hf: Holdfast, name: str) -> None:
        process = hf.start(name, "--", *LISTENER)
        line(process)
        for _ in range(2):
            for signum in ALL:
                process.send_signal(signum)
                assert line(process) == str(signum.value)
            time.sleep(TWICE)
        assert process.poll() is None
        process.kill()

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
    def test_the_whole_group_gets_it(self, hf: Holdfast, name: str, client: redis.Redis, signum: signal.Signals) -> None:
        process = hf.start("--json", name, "--", *FAMILY)
        family = pids(process)
        process.send_signal(signum)
        _, err = process.communicate()
        assert process.returncode == 128 + signum
        assert json.loads(err.splitlines()[-1])["command_signal"] == signum
        # The shell's child, in the background, ignores INT: it is ended with what else was left behind.
        assert not any(running(pid) for pid in family)
        assert not queue_and_lock(client, name)

    def test_what_nohup_ignores_stays_ignored(self, hf: Holdfast, name: str) -> None:
        run = [*PROGRAM, "run", name, "--", "sh", "-c", "echo $$; sleep 60 & wait"]
        process = hf.popen(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *run])
        [pid] = pids(process)
        process.send_signal(signal.SIGHUP)
        os.kill(pid, signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        assert process.wait() == 128 + signal.SIGUSR1

    def test_stop_and_continue_without_a_shell_that_could(self, hf: Holdfast, name: str) -> None:
        """Nobody would continue us, so nothing is stopped, as the kernel has it; SIGSTOP to the command is its sender's."""
        process = hf.start(name, "--", "sh", "-c", "echo $$; read line; echo $line", start_new_session=True)
        [pid] = pids(process)
        process.send_signal(signal.SIGTSTP)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state(pid) == "T")
        assert state(process.pid) != "T"
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("line\n")
        assert (process.returncode, out) == (0, "line\n")


class TestWhileItWaits:
    @pytest.mark.turns
    @pytest.mark.parametrize("signum", ALL)
    def test_no_orphan_key_no_orphan_waiter(self, hf: Holdfast, name: str, client: redis.Redis, signum: signal.Signals) -> None:
        holder = hf.start(name, "--", "sh", "-c", "echo; read line")
        line(holder)
        waiter = hf.start("-v", "--json", name, "--", "echo", "ran")
        assert "waiting, held by" in error_line(waiter)
        wait_until(lambda: client.exists(f"hf:{{{name}}}:queue"))
        waiter.send_signal(signum)
        out, err = waiter.communicate()
        assert (waiter.returncode, out) == (128 + signum, "")
        message, summary = err.splitlines()
        assert message == f"holdfast: {name}: interrupted while waiting"
        assert json.loads(summary)["outcome"] == "interrupted"
        assert queue_and_lock(client, name) == [f"hf:{{{name}}}"]
        holder.communicate("\n")
        assert not queue_and_lock(client, name)

    @pytest.mark.turns
    @pytest.mark.parametrize("delay", [step * 0.02 for step in range(15)])
    def test_at_any_moment(self, hf: Holdfast, name: str, client: redis.Redis, delay: float) -> None:
        """From the first instruction on: no orphan, no traceback. Before there is a handler, the default does it."""
        process = hf.start(name, "--", "sleep", "60")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        process.terminate()
        _, err = process.communicate()  # to the end of the guardian, and of the command
        assert process.returncode in {128 + signal.SIGTERM, -signal.SIGTERM}
        assert err == ""
        assert not queue_and_lock(client, name)
