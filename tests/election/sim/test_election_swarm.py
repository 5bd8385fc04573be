"""Elections: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.election import ELECTION_SCENARIOS
from holdfast_lab.swarms import election as election_swarm
from support.searches import search

HISTORIES = 120
MANY = 20_000
LONG = {name for name in ELECTION_SCENARIOS if name.startswith(("elect-two-", "elect-gift-"))} - {
    "elect-gift-crash",
    "elect-gift-pause",
}


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        terms, seen = tally.counts["election elected"], tally.counts["election seen"]
        print(f"\n  {tally.histories} histories, {terms} terms, {seen} times seen")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay election:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("election") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "election")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="election")
    assert tally.histories == MANY
    judge(tally, capsys)


def test_a_seed_is_one_history() -> None:
    for seed in range(3):
        assert election_swarm.simulate(seed).history == election_swarm.simulate(seed).history


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in ELECTION_SCENARIOS])
def test_every_schedule(name: str) -> None:
    assert search(ELECTION_SCENARIOS[name]).ended > 1


@pytest.mark.soak
@pytest.mark.parametrize("name", ELECTION_SCENARIOS)
def test_every_schedule_in_full(name: str) -> None:
    assert search(ELECTION_SCENARIOS[name], whole=True).ended > 1
