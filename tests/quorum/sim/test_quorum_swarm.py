"""A lock on several servers: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from holdfast_lab.explore import Report, explore
from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.quorum import QUORUM_SCENARIOS, UNGUARDED
from holdfast_lab.swarms import quorum as quorum_swarm

HISTORIES = 300
MANY = 20_000


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories, {tally.calls} script calls, {tally.coverage.taken} times taken")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay quorum:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("quorum") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "quorum")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="quorum")
    assert tally.histories == MANY
    judge(tally, capsys)


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(15):
        shown = quorum_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert quorum_swarm.simulate(seed).history == unseen


def test_without_the_guard_there_are_two_holders() -> None:
    """A server that has forgotten its vote is declared new at once, and votes for another one."""
    (found,) = UNGUARDED.explore(most=3000).found
    assert [violation.rule for violation in found.violations] == ["R1"]
    history, violations = UNGUARDED.replay(found.choices)
    assert history == found.history
    assert violations == found.violations
    assert any(event.note == "amnesia" for event in history)


def test_with_the_guard_there_are_not() -> None:
    """In as many schedules as show it without. All of them are searched in the soak."""
    report = QUORUM_SCENARIOS["quorum-amnesia"].explore(most=600)
    assert report.found == []
    assert report.ended > 50


def search(name: str) -> tuple[str, Report]:
    scenario = QUORUM_SCENARIOS[name]
    return name, explore(scenario.build, scenario.settle, scenario.limits)


@pytest.mark.soak
def test_every_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        reports = dict(pool.map(search, (name for name in QUORUM_SCENARIOS if name != "quorum-wait")))
    for name, report in reports.items():
        with capsys.disabled():
            print(f"\n  {name:20} {report.states} states, {report.schedules} schedules", end="")
        choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
        assert report.found == [], f"python -m holdfast_lab replay {name}:{choices}"
        assert report.covered
        assert report.ended > 1
