"""``holdfast demo ladder``: its lines, its JSON, and that the verdict is computed."""

from __future__ import annotations

import json
import re

import pytest

from holdfast.cli import main
from holdfast_lab import ladder
from holdfast_lab.explore import SearchReport
from holdfast_lab.ladder import rungs


@pytest.fixture(autouse=True)
def cured(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the cures survive is searched by the tests of the ladder itself, for seconds. Here is what is said of it."""
    monkeypatch.setattr(rungs, "survives", lambda _rung, _scenario: SearchReport(states=5, schedules=7, covered=True))


@pytest.mark.turns("demo")
def test_it_shows_how_each_rung_breaks_and_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "ladder"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    falling = [rung for rung in ladder.RUNGS if rung.fall]
    assert re.findall(r"^\d+\. (.+)$", out, re.MULTILINE) == [rung.title for rung in falling]
    assert re.findall(r"^  (ok|FAILED) +", out, re.MULTILINE) == ["ok"] * 2 * len(falling)
    assert len(re.findall(r"^  ! R[147] does not hold: ", out, re.MULTILINE)) == len(falling)
    assert len(re.findall(r"survives the same: 7 schedules, 5 states, all that exist$", out, re.MULTILINE)) == len(falling)
    assert re.search(r"^Verdict: all 22 checks held, \d+\.\d s\.$", out, re.MULTILINE)


def test_json_tells_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "ladder", "--json"]) == 0
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert (err, facts["held"], len(facts["rungs"])) == ("", True, 11)
    assert facts["seconds"] < 20
    for rung in facts["rungs"]:
        assert rung["held"] is True
        assert 0 < rung["found"]["schedules"] <= rung["within"]
        assert rung["survived"]["covered"] is True
        assert rung["timeline"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_cure_that_does_not_survive_is_no_success(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(ladder.climb())
    not_covered = first._replace(survived=SearchReport(schedules=5))
    monkeypatch.setattr(ladder, "climb", lambda: iter([not_covered]))
    assert main(["demo", "ladder", *["--json"] * as_json]) == 1
    out = capsys.readouterr().out
    assert json.loads(out)["held"] is False if as_json else "FAILED setnx (rung 2) survives the same" in out


def test_a_rung_that_does_not_break_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first = next(ladder.climb())
    monkeypatch.setattr(ladder, "climb", lambda: iter([first._replace(found=None)]))
    assert main(["demo", "ladder"]) == 1
    out = capsys.readouterr().out
    assert "FAILED flag breaks (R1): not within 10 schedules" in out
    assert out.endswith(" s.\n")
