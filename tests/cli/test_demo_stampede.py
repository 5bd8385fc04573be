"""``holdfast demo stampede``: its lines, its JSON, and that the verdict is computed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from cli.commands import PROGRAM, Holdfast
from holdfast.cli import main
from holdfast.cli.demo.screen import Check
from holdfast_lab.demo import stampede


def test_json_tells_what_happened(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The scenes that are over in a moment."""
    monkeypatch.setattr(stampede, "PROCESSES", 2)
    monkeypatch.setattr(stampede, "SCENES", [stampede.SCENES[0], stampede.SCENES[1]])
    code = main(["demo", "stampede", "--json"])
    out, err = capfd.readouterr()
    facts = json.loads(out)
    assert (err, code, facts["held"], len(facts["checks"])) == ("", 0, True, 3)
    assert facts["without"]["answers"] == facts["together"]["answers"] == 50
    assert facts["without"]["queries"] > 10
    assert facts["together"]["queries"] == 1


@pytest.mark.soak
def test_the_whole_show_and_exits_0(hf: Holdfast) -> None:
    process = hf.popen([*PROGRAM, "demo", "stampede"])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert re.findall(r"^(\d)\. ", out, re.MULTILINE) == list("12345")
    assert re.findall(r"^  (ok|FAILED) +", out, re.MULTILINE) == ["ok"] * 10
    seconds = re.search(r"^Verdict: all 10 checks held, (\d+\.\d) s\.$", out, re.MULTILINE)
    assert seconds is not None
    assert float(seconds[1]) < 20


CROWD = {"queries": 1, "answers": 100, "median": 0.5, "longest": 0.6}
KILLED = {"queries": 2, "answers": 100, "lease": 2.0, "seconds": 2.5}
CHANGED = {"kept": {"naive": 100, "cache": None}, "then": 200}


@pytest.mark.parametrize(
    ("judge", "good", "bad"),
    [
        (stampede.judge_without, {**CROWD, "queries": 100}, {"queries": 1}),
        (stampede.judge_together, CROWD, {"queries": 2}),
        (stampede.judge_together, CROWD, {"answers": 99}),
        (stampede.judge_stale, {**CROWD, "median": 0.01}, {"queries": 0}),
        (stampede.judge_stale, {**CROWD, "median": 0.01}, {"median": 0.5}),
        (stampede.judge_killed, KILLED, {"queries": 3}),
        (stampede.judge_killed, KILLED, {"answers": 99}),
        (stampede.judge_killed, KILLED, {"seconds": 9.0}),
        (stampede.judge_changed, CHANGED, {"kept": {"naive": 100, "cache": 100}}),
        (stampede.judge_changed, CHANGED, {"kept": {"naive": None, "cache": None}}),
        (stampede.judge_changed, CHANGED, {"then": 100}),
    ],
)
def test_the_verdict_is_computed(judge: Callable[[dict[str, Any]], list[Check]], good: Any, bad: Any) -> None:
    assert all(check.held for check in judge(good))
    assert not all(check.held for check in judge({**good, **bad}))
