"""Barriers, latches and events, in many histories, and in every schedule of small scenarios."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.rendezvous import RENDEZVOUS_SCENARIOS
from holdfast_lab.swarms import rendezvous as rendezvous_swarm

HISTORIES = 400
MANY = 20_000
LONG = {"meet-late", "event"}


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories; each core {tally.histories / tally.seconds:.0f} a second")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay rendezvous:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("rendezvous") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "rendezvous")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_twenty_thousand_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="rendezvous")
    assert tally.histories == MANY
    judge(tally, capsys)


def search(names: set[str]) -> None:
    states = 0
    for name in sorted(names):
        report = RENDEZVOUS_SCENARIOS[name].explore()
        assert [str(violation) for found in report.found for violation in found.violations] == [], name
        assert report.covered
        assert report.ended > 1
        states += report.states
    assert states > 5000


def test_every_schedule_of_small_scenarios() -> None:
    search(RENDEZVOUS_SCENARIOS.keys() - LONG)


@pytest.mark.soak
def test_every_schedule_of_longer_ones() -> None:
    search(LONG)


def test_a_seed_is_one_history() -> None:
    assert rendezvous_swarm.simulate(3).history == rendezvous_swarm.simulate(3).history
