"""``python -m holdfast_lab``: what it says, and its exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.history import Event, write
from holdfast_lab import __main__ as command
from holdfast_lab import explore, runner
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.scenarios.scenario import Scenario
from holdfast_lab.scenarios.table import ALL


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["holdfast_lab", *args])
    code = command.main()
    return code, capsys.readouterr().out


def test_it_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast_lab", "swarm", "--wired", "--histories", "30", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("30 histories (")
    assert "0 with violations" in done.stdout
    assert re.search(r"^judged \(excused\): T1 [1-9]\d+ \(\d+\), T2 ", done.stdout, re.MULTILINE)


def test_too_little_is_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(runner, "enough", lambda _of: {"contended": 10**6})
    code, said = run(monkeypatch, capsys, "swarm", "--histories", "20", "--jobs", "1")
    assert code == 2
    assert "INVALID, too little happened: contended" in said


def test_what_fails_says_how_to_see_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tally = runner.RunnerTotals(histories=1000, seconds=1.0, failed=[(17, "R1 two holders")])
    monkeypatch.setattr(runner, "run_seeds", lambda **_: tally)
    code, said = run(monkeypatch, capsys, "swarm")
    assert code == 1
    assert "seed 17: R1 two holders\n  python -m holdfast_lab replay 17" in said


def test_scenarios_are_listed_and_explored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(monkeypatch, capsys, "explore")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == list(ALL)
    code, said = run(monkeypatch, capsys, "explore", "two")
    assert code == 0
    assert "all covered" in said
    code, said = run(monkeypatch, capsys, "explore", "two", "--most", "10")
    assert code == 2
    assert "NOT all covered" in said
    assert run(monkeypatch, capsys, "explore", "none")[0] == 2


def test_a_schedule_that_fails_says_how_to_see_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = explore.Counterexample([0, 1, 2], [Violation("R1", "two holders")], [])
    monkeypatch.setattr(Scenario, "explore", lambda *_, **__: explore.SearchReport(covered=True, found=[found]))
    code, said = run(monkeypatch, capsys, "explore", "two-crash")
    assert code == 1
    assert "python -m holdfast_lab replay two-crash:0.1.2" in said


def test_replays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(monkeypatch, capsys, "replay", "3")
    assert code == 0
    assert said.startswith(f"seed 3: {runner.SWARMS['lock'].simulate(3).profile}")
    assert "HOLDS" in said
    code, shown = run(monkeypatch, capsys, "replay", "3", "--requests")
    assert code == 0
    assert "> lock/acquire" in shown
    code, said = run(monkeypatch, capsys, "replay", "two-crash:0.0.0.1")
    assert code == 0
    assert "c1/1" in said


def test_a_seed_is_replayed_though_a_scenario_has_the_name_of_its_swarm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(ALL, "permit", ALL["permits"])
    code, said = run(monkeypatch, capsys, "replay", "permit:3")
    assert code == 0
    assert said.startswith("seed 3: ")
    code, said = run(monkeypatch, capsys, "replay", "permit:0.0")
    assert code == 0
    assert not said.startswith("seed")


def test_recordings_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    with file.open("w") as out:
        write([Event(1.0, "ask", "a/1", "x", "a", until=9.0), Event(1.1, "taken", "a/1", "x", "a", 1, until=30.0)], out)
    code, said = run(monkeypatch, capsys, "check", str(file))
    assert code == 2
    assert "INVALID" in said


@pytest.mark.parametrize("which", ["abc", "nonsense:0.1", "two-crash", "two-crash:0.x"])
def test_what_is_no_seed_and_no_schedule_is_refused(
    which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast_lab", "replay", which])
    assert command.main() == 2
    assert "neither a seed (17, quorum:17, ...) nor a scenario" in capsys.readouterr().err


def test_hardly_any_histories_prove_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(monkeypatch, capsys, "swarm", "--histories", "5", "--jobs", "1")
    assert code == 2
    assert "INVALID, too little happened" in said
