"""``holdfast demo quorum``: its lines, its JSON, and that the verdict is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from cli.commands import PROGRAM, Holdfast
from holdfast.cli import main
from holdfast.cli.demo import stage
from holdfast.cli.demo.screen import Check
from holdfast_lab.demo import quorum

Scene = tuple[Callable[..., Any], Callable[[dict[str, Any]], list[Check]]]


def played(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *scenes: Scene) -> tuple[int, dict[str, Any]]:
    """Exit code and facts of a show of these scenes."""
    monkeypatch.setattr(quorum, "SCENES", list(scenes))
    code = main(["demo", "quorum", "--json"])
    out, err = capfd.readouterr()
    assert err == ""
    return code, json.loads(out)


@pytest.mark.turns("demo")
def test_json_tells_what_happened(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The scenes that are over in a moment; the others wait for leases."""
    scenes = (quorum.all_up, quorum.judge_work), (quorum.minority_away, quorum.judge_work)
    code, facts = played(monkeypatch, capfd, *scenes, (quorum.replica_promoted, quorum.judge_replica_promoted))
    assert (code, facts["held"], len(facts["checks"])) == (0, True, 7)
    for work in (facts["all_up"], facts["minority_away"]):
        assert (work["takes"], work["overlaps"], work["rising"]) == (15, 0, True)
    assert facts["replica_promoted"]["given"] == [True, True]
    assert 0 < facts["replica_promoted"]["both_for"] < 2 * facts["ttl"]


@pytest.mark.soak
def test_the_whole_show_and_exits_0(hf: Holdfast) -> None:
    process = hf.popen([*PROGRAM, "demo", "quorum"])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert re.findall(r"^(\d)\. ", out, re.MULTILINE) == list("1234567")
    assert re.findall(r"^  (ok|FAILED) +", out, re.MULTILINE) == ["ok"] * 19
    assert re.findall(r"(server \d): no answer in time", out) == ["server 3", "server 4", "server 5"]
    seconds = re.search(r"^Verdict: all 19 checks held, (\d+\.\d) s\.$", out, re.MULTILINE)
    assert seconds is not None
    assert float(seconds[1]) < 20


@pytest.mark.soak
def test_a_replica_that_is_not_behind_does_not_give_it_away(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Then the comparison compares nothing, and the show says so."""
    tell, hear = stage.Actor.tell, stage.Actor.hear
    unbroken: set[stage.Actor] = set()

    def tell_others(actor: stage.Actor, *words: str) -> None:
        unbroken.add(actor) if words == ("break",) else tell(actor, *words)

    monkeypatch.setattr(stage.Actor, "tell", tell_others)
    monkeypatch.setattr(stage.Actor, "hear", lambda actor, *timeout: {} if actor in unbroken else hear(actor, *timeout))
    code, facts = played(monkeypatch, capfd, (quorum.replica_promoted, quorum.judge_replica_promoted))
    assert (code, facts["held"]) == (1, False)
    assert facts["replica_promoted"]["given"] == [True, False]
    assert [check["held"] for check in facts["checks"]] == [False, False, False]


WORK = {"wanted": 15, "takes": 15, "writes_accepted": 15, "overlaps": 0, "rising": True}
ONE = {"voted": True, "quiet": 2.1, "takes_without": 9, "left": 1.5}
MANY = {"plain": [[1, 2, 3, 4, 5], [1, 2, 3]], "later": 0.02, "told_lost": True, "fences": [7, 8]}
AWAY = {"error": "QuorumError", "seconds": 0.21, "told_lost": True, "good_for": 1.98, "left": []}
BACK = {"work": WORK, "late_write_accepted": False, "value_changed": False}
PROMOTED = {"replicas_1": "ServerError", "given": [True, True], "both_for": 3.9, "fences": [7, 8]}


@pytest.mark.parametrize(
    ("judge", "good", "fact", "words"),
    [
        (quorum.judge_work, WORK, {"takes": 14}, "each time"),
        (quorum.judge_work, WORK, {"writes_accepted": 14}, "its writes are accepted"),
        (quorum.judge_work, WORK, {"overlaps": 1}, "one holder at a time"),
        (quorum.judge_work, WORK, {"rising": False}, "each fence higher"),
        (quorum.judge_one_forgets, ONE, {"voted": False}, "votes again"),
        (quorum.judge_one_forgets, ONE, {"quiet": 1.99}, "after the longest lease"),
        (quorum.judge_one_forgets, ONE, {"takes_without": 0}, "without server 1"),
        (quorum.judge_one_forgets, ONE, {"left": 0.0}, "not lost it"),
        (quorum.judge_majority_forgets, MANY, {"plain": [[1, 2, 3, 4, 5], [1, 2]]}, "plain key"),
        (quorum.judge_majority_forgets, MANY, {"later": -0.01}, "to nobody"),
        (quorum.judge_majority_forgets, MANY, {"told_lost": False}, "learns of the loss"),
        (quorum.judge_majority_forgets, MANY, {"fences": [8, 8]}, "next fence is higher"),
        (quorum.judge_majority_away, AWAY, {"error": ""}, "QuorumError"),
        (quorum.judge_majority_away, AWAY, {"seconds": 1.3}, "within 0.2 s"),
        (quorum.judge_majority_away, AWAY, {"told_lost": False}, "learns of the loss"),
        (quorum.judge_majority_away, AWAY, {"good_for": 2.01}, "within its lease"),
        (quorum.judge_majority_away, AWAY, {"left": [4]}, "no vote is left"),
        (quorum.judge_all_back, BACK, {"work": WORK | {"takes": 9}}, "each time"),
        (quorum.judge_all_back, BACK, {"late_write_accepted": True}, "refuses"),
        (quorum.judge_all_back, BACK, {"value_changed": True}, "refuses"),
        (quorum.judge_replica_promoted, PROMOTED, {"given": [True, False]}, "a second time"),
        (quorum.judge_replica_promoted, PROMOTED, {"both_for": 0.0}, "a second time"),
        (quorum.judge_replica_promoted, PROMOTED, {"fences": [8, 8]}, "second fence"),
        (quorum.judge_replica_promoted, PROMOTED, {"replicas_1": ""}, "replicas=1"),
    ],
)
def test_each_check_follows_its_fact(
    judge: Callable[[dict[str, Any]], list[Check]], good: dict[str, Any], fact: dict[str, Any], words: str
) -> None:
    assert all(check.held for check in judge(good))
    (failed,) = [check.name for check in judge(good | fact) if not check.held]
    assert words in failed
