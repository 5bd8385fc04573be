"""Locks that are taken away from their holders: seeds, each with its own faults."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.swarms import break_lock as break_lock_swarm

HISTORIES = 250
MANY = 50_000


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories, {tally.counts['break done']} locks taken away")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay break_lock:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("break_lock") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "break_lock")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_histories(capsys: pytest.CaptureFixture[str]) -> None:
    judge(run_seeds(first=1_000_000, histories=MANY, of="break_lock"), capsys)


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(10):
        shown = break_lock_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert break_lock_swarm.simulate(seed).history == unseen
