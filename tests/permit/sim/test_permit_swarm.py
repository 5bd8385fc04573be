"""Semaphores and read-write locks: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.swarms import permit as permit_swarm

HISTORIES = 250
MANY = 50_000


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories, {tally.calls} script calls, {tally.counts['permits shared']} shared")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay permit:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("permit") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "permit")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="permit")
    assert tally.histories == MANY
    judge(tally, capsys)


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(10):
        shown = permit_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert permit_swarm.simulate(seed).history == unseen
