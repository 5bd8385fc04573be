"""Single flight: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import pytest

from holdfast.testing.runner import RunnerTotals, batch, run_seeds
from holdfast.testing.scenarios.single_flight import FLIGHT_SCENARIOS
from holdfast.testing.swarms import single_flight as single_flight_swarm
from sim.searches import search

HISTORIES = 400
MANY = 50_000
LONG = {"flight-late", "flight-drop", "flight-tag"}


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories, {tally.calls} script calls, {tally.counts['flight load']} loads")
    seeds = "; ".join(f"{what}: python -m holdfast.testing replay single_flight:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("single_flight") == [], "too little has happened (R11)"


def test_hundreds_of_stampedes(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "single_flight")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_stampedes(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="single_flight")
    assert tally.histories == MANY
    judge(tally, capsys)


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(20):
        shown = single_flight_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert single_flight_swarm.simulate(seed).history == unseen


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in FLIGHT_SCENARIOS])
def test_every_schedule(name: str) -> None:
    assert search(FLIGHT_SCENARIOS[name]).ended > 1


def test_a_schedule_can_be_replayed() -> None:
    history, violations = FLIGHT_SCENARIOS["flight-drop"].replay([0] * 20)
    assert violations == []
    assert {"want", "load", "void", "voided"} <= {event.kind for event in history}
