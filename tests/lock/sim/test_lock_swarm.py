"""Many seeds, each with its own faults: nothing is violated, and enough has happened for that to mean something."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import SWARMS, RunnerTotals, batch, run_seeds

HISTORIES = 1200
MANY = 500_000


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\n  {tally.histories} histories, {tally.calls} script calls; each core "
            f"{tally.histories / tally.seconds:.0f} histories and {tally.calls / tally.seconds:.0f} calls a second"
        )
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay {seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing() == [], "too little has happened (R11)"


def test_thousands_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES)
    assert tally.histories == HISTORIES
    judge(tally, capsys)
    assert [rule for rule in SWARMS["lock"].rules if not tally.coverage.docket.judged[rule]] == [], "it has judged nothing"


@pytest.mark.parametrize(("seed", "at"), [(3845282088, 1.041), (506376, 2.027)])
def test_a_waiter_whose_inbox_is_slow_to_reconnect_may_be_passed_over(seed: int, at: float) -> None:
    run = SWARMS["lock"].simulate(seed)
    assert run.violations == []
    history = run.world.history
    deaf = [round(event.at - history[0].at, 3) for event in history if event.kind == "granted" and event.note == "deaf c1"]
    assert at in deaf


@pytest.mark.soak
def test_half_a_million_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY)
    assert tally.histories == MANY
    judge(tally, capsys)
