"""``holdfast elect``: a command that runs while it leads, what is printed, and who sees it."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cli.commands import PROGRAM, Holdfast, error_line, line, running
from holdfast import Election, LeaseLost
from holdfast.cli import contact, main
from holdfast.cli import elect as elect_command
from holdfast.cli.supervise import Interrupted

if TYPE_CHECKING:
    import redis

    from support.servers import PrivateServer


def elect(hf: Holdfast, *arguments: str) -> subprocess.Popen[str]:
    return hf.popen([*PROGRAM, "elect", *arguments])


def end(process: subprocess.Popen[str], signum: int = signal.SIGTERM) -> int:
    process.send_signal(signum)
    return process.wait(20)


def seen(process: subprocess.Popen[str]) -> Any:
    return json.loads(line(process))["leader"]


SAY = ["sh", "-c", "echo $HOLDFAST_NAME $HOLDFAST_TERM $HOLDFAST_FENCE $$; exec sleep 60"]


def test_a_command_runs_while_it_leads_and_the_next_one_follows_at_once(hf: Holdfast, name: str) -> None:
    observer = elect(hf, name, "--observe", "--json")
    assert seen(observer) is None
    one = elect(hf, name, "--as", "one", "--value", "http://one", "--", *SAY)
    of, term, fence, pid = line(one).split()
    assert (of, term) == (name, fence)
    assert seen(observer) == {"name": "one", "term": int(term), "value": "http://one"}
    two = elect(hf, name, "--as", "two", "--", *SAY)
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait(20) == 128 + 15
    assert not running(int(pid))
    following = int(line(two).split()[1])
    assert following > int(term)
    led = seen(observer)
    assert (led or seen(observer)) == {"name": "two", "term": following, "value": ""}, "perhaps nobody for a moment"
    assert end(two) == 128 + 15
    assert seen(observer) is None
    assert end(observer) == 128 + 15
    assert [process.communicate()[1] for process in (one, two, observer)] == ["", "", ""]


def test_the_command_ends_by_itself(hf: Holdfast, name: str, client: redis.Redis) -> None:
    done = elect(hf, name, "--json", "--", "sh", "-c", "exit 3")
    _, err = done.communicate(timeout=20)
    summary = json.loads(err)
    assert (done.returncode, summary["outcome"], summary["name"]) == (3, "finished", name)
    assert not client.exists(f"hf:{{{name}}}")


def test_a_lost_term_ends_the_command(hf: Holdfast, name: str, client: redis.Redis) -> None:
    process = elect(hf, name, "--ttl", "2", "--", *SAY)
    pid = int(line(process).split()[3])
    client.set(f"hf:{{{name}}}", "somebody", px=3000)
    assert process.wait(20) == 76
    assert not running(pid)
    assert "was lost" in error_line(process)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_what_has_left_the_group_of_the_command_is_dead_before_another_leads(hf: Holdfast, name: str, signum: int) -> None:
    script = "setsid -w sh -c 'echo $$; exec sleep 60'; echo went on"
    one = elect(hf, name, "--ttl", "2", "--", "sh", "-c", script)
    pid = int(line(one))
    two = elect(hf, name, "--ttl", "2", "--", "sh", "-c", f"kill -0 {pid} && echo runs || echo is gone")
    one.send_signal(signum)
    assert line(two) == "is gone"
    assert two.wait(20) == 0


def test_killed_with_9_the_command_dies_and_the_next_one_leads_when_the_lease_is_over(hf: Holdfast, name: str) -> None:
    one = elect(hf, name, "--ttl", "2", "--as", "one", "--", *SAY)
    pid = int(line(one).split()[3])
    two = elect(hf, name, "--ttl", "2", "--as", "two", "--", *SAY)
    one.kill()
    assert line(two).startswith(name)
    assert not running(pid)
    end(two)


def test_without_a_command_it_tells_its_own_role(hf: Holdfast, name: str, client: redis.Redis) -> None:
    process = elect(hf, name, "--as", "one", "--ttl", "2")
    assert line(process) == "one campaigns"
    said = line(process)
    assert said.startswith("one leads, term ")
    client.delete(f"hf:{{{name}}}")
    assert line(process) == "one no longer leads: its key is gone: expired, deleted or flushed; it campaigns again"
    assert line(process) > said, "a higher term"
    assert end(process, signal.SIGINT) == 130
    assert not client.exists(f"hf:{{{name}}}"), "it has resigned"
    assert process.communicate() == ("one no longer leads: SIGINT\n", "")


def test_a_signal_ends_a_campaign(hf: Holdfast, name: str, server: PrivateServer) -> None:
    with Election(server.url, name, candidate="other"):
        process = elect(hf, name, "--as", "one", "--json")
        assert json.loads(line(process)) == {"role": "candidate", "name": "one"}
        assert end(process) == 143
    assert json.loads(process.communicate()[0]) == {"role": None, "name": "one", "reason": "SIGTERM"}


def test_each_campaign_may_take_as_long_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it has led in between."""
    now, waits = 1000.0, list[float | None]()

    class Candidate:
        """It is elected after a second, leads for an hour, and loses that."""

        candidate = "one"
        lease = None

        def __enter__(self) -> Any:
            nonlocal now
            now += 3601.0
            lost = threading.Event()
            lost.set()
            return SimpleNamespace(fence=1, lost=lost)

        def __exit__(self, *_error: object) -> None:
            raise LeaseLost("", name="x", key="x", fence=1, reason="its key is gone")

    def leader(_args: object, _urls: object, wait: float | None) -> Candidate:
        waits.append(wait)
        if len(waits) > 3:  # the first only says what it is called
            raise Interrupted(signal.SIGTERM)
        return Candidate()

    monkeypatch.setattr(contact, "clock", lambda: now)
    monkeypatch.setattr(elect_command, "leader", leader)
    with pytest.raises(Interrupted):
        elect_command._campaign(argparse.Namespace(name="x", wait=10.0, json=False), [])
    assert waits == [10.0] * 4


def test_a_signal_that_does_not_wake_who_waits(hf: Holdfast, name: str) -> None:
    process = elect(hf, name, "--as", "one")
    assert [line(process).split()[1] for _ in range(2)] == ["campaigns", "leads,"]
    other = max(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir())
    assert other != process.pid
    # As one that comes just before the wait begins: it is known, and the wait goes on.
    assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0
    assert process.wait(20) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["-w", "5"], "--wait"),
        (["--as", "one"], "--as"),
        (["--value", "http://one"], "--value"),
        (["--", "true"], "a command"),
    ],
)
def test_an_observer_is_no_candidate(given: list[str], named: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["elect", "--observe", "x", *given])
    assert ended.value.code == 64
    assert f"holdfast: --observe does not campaign, so it does not take {named} (" in capfd.readouterr().err


def test_observed_in_words(hf: Holdfast, name: str, server: PrivateServer) -> None:
    observer = elect(hf, name, "--observe")
    assert line(observer) == "nobody leads"
    leader = Election(server.url, name, candidate="o\u00f1e", value="\x1b[2J")
    term = leader.campaign().fence
    assert line(observer) == f"o\u00f1e leads, term {term}, \\x1b[2J"
    leader.resign()
    assert line(observer) == "nobody leads"
    end(observer)


def test_not_elected_in_time(hf: Holdfast, name: str, server: PrivateServer) -> None:
    with Election(server.url, name, candidate="other"):
        for command in ([], ["--", "true"]):
            process = elect(hf, name, "--wait", "100ms", "--as", "late", *command)
            assert process.wait(20) == 75
            said = rf"holdfast: 'late' was not elected to '{name}' within \d+\.\d s: other leads"  # for so long it has waited
            assert re.match(said, error_line(process))
        both = elect(hf, name, "--observe", "--", "true")
        assert both.wait(20) == 64


def test_nobody_is_there_to_be_asked(hf: Holdfast, name: str) -> None:
    for options in (["--observe"], [], ["--", "true"]):
        process = elect(hf, name, "--url", "redis://127.0.0.1:1", *options)
        assert process.wait(20) == 69
        assert "no server at 127.0.0.1:1" in error_line(process)
