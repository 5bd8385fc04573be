"""``holdfast demo``: its lines, its JSON, and that the verdict is computed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from cli.commands import PROGRAM, Holdfast, wait_until
from holdfast.cli import main
from holdfast.cli.demo import scenes, screen, stage
from support.servers import PrivateServer


@pytest.fixture
def demo(server: PrivateServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a shortened ``holdfast demo --json`` on the common server: exit code, facts, errors."""
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setattr(scenes, "EACH", 50)
    monkeypatch.setattr(scenes, "ROUNDS", 3)
    # Three rounds are few: by chance a lock that polls may have been asked just after each release. Here it is halfway.
    monkeypatch.setattr(scenes, "random", SimpleNamespace(uniform=lambda _, high: 0.3 * high))

    def run(*only: Any) -> tuple[int, dict[str, Any], str]:
        if only:
            monkeypatch.setattr(scenes, "SCENES", list(only))
        code = main(["demo", "--json"])
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else {}, err

    return run


def held(facts: dict[str, Any], words: str) -> bool:
    """Return the result of the check with these words."""
    (found,) = [check["held"] for check in facts["checks"] if words in check["name"]]
    return bool(found)


@pytest.mark.turns("demo")
def test_the_demo_shows_what_happened_and_exits_0(hf: Holdfast) -> None:
    process = hf.popen([*PROGRAM, "demo"], env={"HOLDFAST_URL": ""})
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert re.search(r"without a lock +\d+ of 1000 arrived", out)
    assert re.search(r"with a lock +1000 of 1000 arrived, +0 lost", out)
    assert re.findall(r"^  (ok|FAILED) +", out, re.MULTILINE) == ["ok"] * 9
    assert re.search(r"^Verdict: all 9 checks held, \d+\.\d s\.$", out, re.MULTILINE)


@pytest.mark.turns("demo")
def test_json_tells_the_facts_and_nothing_is_left(demo: Callable[..., Any], server: PrivateServer) -> None:
    code, facts, err = demo()
    assert (code, err, facts["held"]) == (0, "", True)
    assert all(check["held"] for check in facts["checks"])
    counter, end = facts["counter"], facts["end_of_holder"]
    assert counter["expected"] == 200 == counter["locked"]["counted"]
    assert counter["unlocked"]["lost"] == 200 - counter["unlocked"]["counted"] > 0
    assert end["fences"] == sorted(set(end["fences"]))
    assert 0 < end["after_kill"] <= scenes.TTL + scenes.SLACK
    assert end["told_lost"] is True
    assert end["late_write_accepted"] is False
    assert (end["guarded_value"], end["plain_value"]) == ("third", "second-too-late")
    assert 0 < facts["hand_over"]["holdfast_ms"]["median"] < facts["hand_over"]["redis_py_ms"]["median"]
    with redis.Redis.from_url(server.url) as client:
        assert [*client.scan_iter("*demo*:count-*"), *client.scan_iter("*demo*:fenced*")] == []
        assert all(client.pttl(key) > 0 for key in client.scan_iter("*demo*"))


@pytest.mark.turns("demo")
def test_the_verdict_is_computed_a_lock_that_does_not_lock(demo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tell = stage.Actor.tell

    def without_lock(actor: stage.Actor, *words: str) -> None:
        tell(actor, *("unlocked" if word == "locked" else word for word in words))

    monkeypatch.setattr(stage.Actor, "tell", without_lock)
    monkeypatch.setattr(scenes, "EACH", 150)
    code, facts, _ = demo((scenes.counter, scenes.judge_counter))
    assert (code, facts["held"], held(facts, "with the lock, none is")) == (1, False, False)
    assert held(facts, "without a lock")


GOOD = {
    "ttl": 2.0,
    "fences": [1, 2, 3],
    "after_kill": 2.05,
    "after_stop": 2.05,
    "told_lost": True,
    "timely_writes_accepted": True,
    "late_write_accepted": False,
    "guarded_value": "third",
}


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ({}, ""),
        ({"after_kill": 2.6}, "killed holder is replaced"),
        ({"after_stop": 2.6}, "stopped holder is replaced"),
        ({"fences": [1, 3, 3]}, "higher fence"),
        ({"told_lost": False}, "finds its lease lost"),
        ({"timely_writes_accepted": False}, "accepts the writes of holders"),
        ({"late_write_accepted": True}, "of a former holder"),
        ({"guarded_value": "second-too-late"}, "of a former holder"),
    ],
)
def test_each_check_follows_its_fact(fact: dict[str, Any], words: str) -> None:
    failed = [check.name for check in scenes.judge_end_of_holder(GOOD | fact) if not check.held]
    assert len(failed) == len(fact)
    assert all(words in name for name in failed)


def test_a_slower_hand_over_is_no_success() -> None:
    (check,) = scenes.judge_hand_over({"holdfast_ms": {"median": 60.0}, "redis_py_ms": {"median": 50.0}})
    assert not check.held


@pytest.mark.turns("demo")
def test_a_process_that_fails_is_no_success(demo: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[stage.Actor] = []

    def doomed(self: stage.Stage, role: str, *arguments: str) -> stage.Actor:
        started.append(actor := stage.Actor(self.url, role, "too", "many", "arguments", "for", "any", *arguments))
        return actor

    monkeypatch.setattr(stage.Stage, "start", doomed)
    code, facts, err = demo((scenes.counter, scenes.judge_counter))
    assert (code, facts) == (1, {})
    assert "ended before it answered" in err
    for actor in started:
        actor.dismiss()


@pytest.mark.turns("demo")
def test_nobody_is_left_when_the_demo_is_killed(hf: Holdfast, server: PrivateServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        before = {each["id"] for each in client.client_list()}

        def strangers() -> int:
            return sum(each["id"] not in before for each in client.client_list())

        process = hf.popen([*PROGRAM, "demo"])
        wait_until(lambda: strangers() >= 5)
        process.kill()
        wait_until(lambda: strangers() == 0)


@pytest.mark.turns("demo")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux kills the processes")
def test_a_stopped_process_is_not_left_when_the_demo_is_killed(hf: Holdfast, server: PrivateServer) -> None:
    only = "scenes.SCENES = [scene for scene in scenes.SCENES if scene[0] is scenes.end_of_holder]"
    program = f"from holdfast.cli import main; from holdfast.cli.demo import scenes; {only}; main(['demo'])"
    demo = hf.popen([sys.executable, "-c", program])
    assert demo.stdout is not None
    found = next(filter(None, (re.search(r"process (\d+) writes, and is stopped", line) for line in demo.stdout)))
    actor = Path("/proc", found[1], "stat")
    assert actor.exists()
    demo.kill()
    wait_until(lambda: not actor.exists() or actor.read_text().split()[2] == "Z")


@pytest.mark.parametrize(
    ("url", "code"),
    [("redis://:s3cret@127.0.0.1:1", 69), ("http://127.0.0.1", 64)],
)
def test_without_a_server_it_says_so(
    url: str, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", url)
    assert main(["demo"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "s3cret" not in err


def test_colour_is_for_terminals_and_not_for_no_color(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def painted() -> bool:
        screen.Screen().check(screen.Check("it", held=True))
        return "\x1b[" in capsys.readouterr().out

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not painted()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert painted()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not painted()


def test_the_verdict_repeats_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    screen.Screen().verdict([screen.Check("this", held=True), screen.Check("that", held=False)], 1.25)
    assert capsys.readouterr().out.splitlines() == ["", "  FAILED that", "Verdict: 1 of 2 checks did not hold, 1.2 s."]
