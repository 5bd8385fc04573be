"""Several locks at once: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.multilock import MULTILOCK_SCENARIOS
from holdfast_lab.swarms import multilock as multilock_swarm
from support.searches import search

HISTORIES, MANY = 120, 20_000
LONG = {"crossed-cancel"}


def judge(tally: RunnerTotals) -> None:
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay multilock:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("multilock") == [], "too little has happened (R11)"


def test_some_histories() -> None:
    judge(batch(0, HISTORIES, "multilock"))


@pytest.mark.soak
def test_many_histories() -> None:
    judge(run_seeds(first=1_000_000, histories=MANY, of="multilock"))


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(20):
        shown = multilock_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert multilock_swarm.simulate(seed).history == unseen


def test_a_place_in_the_queue_outlives_a_wait_that_is_ended() -> None:
    """One of the locks is lost while the next one is waited for, and another thread of the process wants that one, too."""
    assert multilock_swarm.simulate(24_577).violations == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in MULTILOCK_SCENARIOS]
)
def test_every_schedule(name: str) -> None:
    search(MULTILOCK_SCENARIOS[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", MULTILOCK_SCENARIOS)
def test_every_schedule_in_full(name: str) -> None:
    search(MULTILOCK_SCENARIOS[name], whole=True)
