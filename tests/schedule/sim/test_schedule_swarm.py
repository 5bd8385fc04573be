"""Many seeds of a schedule, each with its own faults: every tick once, none forgotten; and enough has happened."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.swarms import schedule as schedule_swarm

HISTORIES = 250
MANY = 20_000


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        ticks = sum(count for what, count in tally.counts.items() if what.startswith("tick "))
        print(f"\n  {tally.histories} histories, {ticks} ticks; each core {tally.histories / tally.seconds:.0f} a second")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay schedule:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("schedule") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "schedule")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_twenty_thousand_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="schedule")
    assert tally.histories == MANY
    judge(tally, capsys)


@pytest.mark.parametrize("seed", [1, 4, 11])
def test_a_seed_is_one_history(seed: int) -> None:
    assert schedule_swarm.simulate(seed).history == schedule_swarm.simulate(seed).history
