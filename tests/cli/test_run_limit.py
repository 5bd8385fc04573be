"""``holdfast run --limit``, ``--shared``, ``--exclusive``: what several commands may have at the same time."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest

from cli.commands import FAMILY, Holdfast, line, pids, running, wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import redis


def waiting(client: redis.Redis, name: str) -> int:
    """How many stand in line."""
    return int(client.zcard(f"hf:{{{name}}}:queue"))


def await_line(client: redis.Redis, name: str, number: int) -> None:
    wait_until(lambda: waiting(client, name) == number)


class Work:
    """Starts commands that note when they begin and end, and end when they are told to."""

    def __init__(self, hf: Holdfast, name: str, log: Path) -> None:
        self._hf, self._name, self._log = hf, name, log

    def start(self, *options: str) -> subprocess.Popen[str]:
        """One of them; it says its fence when it runs."""
        script = f"echo + >>{self._log}; echo $HOLDFAST_FENCE; read line; echo - >>{self._log}"
        return self._hf.start(*options, "-c", script, self._name)

    def most(self) -> int:
        """How many there have been at the same time."""
        return max(itertools.accumulate(1 if noted == "+" else -1 for noted in self._log.read_text().split()))


@pytest.fixture
def work(hf: Holdfast, name: str, tmp_path: Path) -> Work:
    return Work(hf, name, tmp_path / "log")


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)
    assert process.returncode == 0


class TestSlots:
    def test_five_commands_and_two_slots(self, work: Work, hf: Holdfast, name: str, client: redis.Redis) -> None:
        started = [work.start("--limit", "2") for _ in range(2)]
        for holder in started:
            assert int(line(holder)) > 0
        for number in range(1, 4):  # so that their order is known
            started.append(work.start("--limit", "2"))
            await_line(client, name, number)
        assert hf("-n", "--limit=2", name, "--", "echo", "ran").returncode == 75
        assert "semaphore" in hf("-v", "--limit=2", "--skip", name, "--", "echo", "ran").stderr
        for first, third in zip(started, started[2:], strict=False):
            assert waiting(client, name) == len(started) - started.index(third)
            end(first)
            assert int(line(third)) > 0
        for last in started[3:]:
            end(last)
        assert work.most() == 2
        assert not client.exists(f"hf:{{{name}}}")

    def test_its_holder_is_killed(self, hf: Holdfast, name: str) -> None:
        """The command is gone before the next one has the slot, which is when the lease ends."""
        before = time.monotonic()
        holder = hf.start("-q", "--limit=1", "--ttl=1", name, "--", *FAMILY)
        family = pids(holder)
        assert hf("-n", "--limit=1", name, "--", "true").returncode == 75
        holder.kill()
        states = "; ".join(f"cut -d' ' -f3 /proc/{pid}/stat 2>/dev/null" for pid in family)
        done = hf("--limit=1", "-c", f"{states}; true", name)
        assert done.returncode == 0
        assert set(done.stdout.split()) <= {"Z"}, "its command ran beside the next one"
        assert 1 < time.monotonic() - before < 25, "after its own lease, not one of the usual 30 s"

    def test_who_names_another_number_is_refused(self, hf: Holdfast, name: str) -> None:
        assert hf("--limit=3", name, "--", "true").returncode == 0
        done = hf("--limit=4", name, "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (64, "")
        refusal = f"semaphore '{name}' with limit=4 cannot be used: its other users have a limit of 3"
        assert done.stderr.startswith(f"holdfast: {refusal}")
        assert done.stderr.count("\n") == 1

    def test_the_lock_and_the_semaphore_of_a_name_are_not_the_same(self, hf: Holdfast, name: str) -> None:
        assert hf(name, "--", "true").returncode == 0
        for options in (["--limit=1"], ["--shared"], ["--exclusive"]):
            done = hf(*options, name, "--", "echo", "ran")
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)


class TestShared:
    def test_readers_together_and_a_writer_alone(self, work: Work, hf: Holdfast, name: str, client: redis.Redis) -> None:
        readers = [work.start("--shared") for _ in range(2)]
        fences = {int(line(reader)) for reader in readers}
        assert len(fences) == 2
        busy = hf("-n", "--exclusive", name, "--", "echo", "ran")
        assert (busy.returncode, busy.stdout) == (75, "")
        assert busy.stderr.startswith(f"holdfast: read-write lock '{name}' is busy: held by ")
        writer = work.start("--exclusive")
        await_line(client, name, 1)
        assert hf("-n", "--shared", name, "--", "echo", "ran").returncode == 75, "a reader has passed by a writer who waits"
        for reader in readers:
            assert writer.poll() is None
            end(reader)
        assert int(line(writer)) > max(fences)
        assert hf("-n", "--shared", name, "--", "echo", "ran").returncode == 75
        end(writer)
        assert hf("-n", "--shared", name, "--", "echo", "ran").stdout == "ran\n"
        assert work.most() == 2


@pytest.mark.parametrize("option", ["--limit=2", "--shared", "--exclusive"])
def test_the_command_is_ended_when_it_is_lost(hf: Holdfast, name: str, client: redis.Redis, option: str) -> None:
    process = hf.start("-q", option, "--ttl=1", name, "--", *FAMILY)
    family = pids(process)
    client.delete(f"hf:{{{name}}}")
    process.communicate(timeout=20)
    assert process.returncode == 76
    assert not any(running(pid) for pid in family)


@pytest.mark.parametrize("option", ["--limit=2", "--shared", "--exclusive"])
def test_several_servers_are_refused_with_the_reason(hf: Holdfast, name: str, option: str) -> None:
    urls = [f"--url=redis://127.0.0.1:{port}" for port in (1, 2, 3)]
    done = hf(option, *urls, name, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (64, "")
    assert "one server" in done.stderr
    assert "every waiter gets its turn" in done.stderr


@pytest.mark.parametrize(
    "options", [["--limit", "0"], ["--limit=two"], ["--limit=2000000"], ["--limit=2", "--shared"], ["--shared", "--exclusive"]]
)
def test_what_makes_no_sense_is_refused(hf: Holdfast, name: str, options: list[str]) -> None:
    done = hf(*options, name, "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
