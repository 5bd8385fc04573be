"""``holdfast demo schedule``: its lines, its JSON, and that the verdict is computed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from cli.commands import PROGRAM, Holdfast
from holdfast.cli import main
from holdfast_lab.demo import schedule


@pytest.mark.soak
def test_json_tells_what_happened(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """For a moment: as long as the ticks of one second take."""
    monkeypatch.setattr(schedule, "WATCHED", 1.0)
    monkeypatch.setattr(schedule, "SCENES", schedule.SCENES[:1])
    assert main(["demo", "schedule", "--json"]) == 0
    out, err = capfd.readouterr()
    facts = json.loads(out)
    assert (err, facts["held"], len(facts["checks"])) == ("", True, 4)
    assert facts["ticks"]["jobs"] == {
        "second": {"due": 1, "run": 1, "exactly_once": True},
        "half": {"due": 2, "run": 2, "exactly_once": True},
    }
    assert len(facts["ticks"]["late_ms"]) == sum(facts["ticks"]["processes"]) == 3
    assert facts["ticks"]["with_a_lock"]["run"] >= 3


@pytest.mark.soak
def test_the_whole_show_and_exits_0(hf: Holdfast) -> None:
    process = hf.popen([*PROGRAM, "demo", "schedule"])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    assert re.findall(r"^  (ok|FAILED) +", out, re.MULTILINE) == ["ok"] * 6
    seconds = re.search(r"^Verdict: all 6 checks held, (\d+\.\d) s\.$", out, re.MULTILINE)
    assert seconds is not None
    assert float(seconds[1]) < 20


TICKS: dict[str, Any] = {
    "seconds": 4.0,
    "jobs": {"second": {"due": 4, "run": 4, "exactly_once": True}, "half": {"due": 8, "run": 8, "exactly_once": True}},
    "late_ms": [1.0, 3.0],
    "with_a_lock": {"due": 4, "run": 12},
}
CRASH: dict[str, Any] = {
    "first": {"tick": 7.0, "attempt": 1, "fence": 5},
    "second": {"tick": 7.0, "attempt": 2, "fence": 6},
    "elsewhere": True,
    "after": 2.0,
    "runs": 2,
}


def failing(checks: list[Any]) -> list[int]:
    return [number for number, check in enumerate(checks) if not check.held]


@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        ({}, []),
        ({"jobs": {"second": {"due": 4, "run": 4, "exactly_once": False}}}, [0]),
        ({"jobs": {"second": {"due": 0, "run": 0, "exactly_once": True}}}, [0]),
        ({"late_ms": [1.0, -0.5]}, [2]),
        ({"late_ms": []}, [2]),
        ({"with_a_lock": {"due": 4, "run": 4}}, [3]),
    ],
)
def test_ticks_that_are_not_as_they_should_be_are_no_success(wrong: dict[str, Any], which: list[int]) -> None:
    jobs = {**TICKS["jobs"], **wrong.get("jobs", {})}
    assert failing(schedule.judge_ticks({**TICKS, **wrong, "jobs": jobs})) == which


@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        ({}, []),
        ({"elsewhere": False}, [0]),
        ({"runs": 3}, [0]),
        ({"second": {"tick": 8.0, "attempt": 2, "fence": 6}}, [0]),
        ({"second": {"tick": 7.0, "attempt": 1, "fence": 5}}, [0, 1]),
    ],
)
def test_a_crash_that_is_not_made_up_for_is_no_success(wrong: dict[str, Any], which: list[int]) -> None:
    assert failing(schedule.judge_crash({**CRASH, **wrong})) == which
