"""Barriers, latches and events, in many histories, and in every schedule of small scenarios."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.rendezvous import RENDEZVOUS_SCENARIOS
from holdfast_lab.swarms import rendezvous as rendezvous_swarm
from support.searches import search

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


@pytest.mark.parametrize("name", sorted(RENDEZVOUS_SCENARIOS.keys() - LONG))
def test_every_schedule_of_small_scenarios(name: str) -> None:
    assert search(RENDEZVOUS_SCENARIOS[name]).ended > 1


@pytest.mark.soak
@pytest.mark.parametrize("name", RENDEZVOUS_SCENARIOS)
def test_every_schedule_in_full(name: str) -> None:
    assert search(RENDEZVOUS_SCENARIOS[name], whole=True).ended > 1


def test_a_seed_is_one_history() -> None:
    assert rendezvous_swarm.simulate(3).history == rendezvous_swarm.simulate(3).history
