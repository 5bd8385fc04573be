"""Locks that are handed over by tickets: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

import pytest

from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.ticket import TICKET_SCENARIOS
from holdfast_lab.swarms import ticket as ticket_swarm
from support.searches import search

HISTORIES = 400
MANY = 50_000
LONG = {"relay-slow", "relay-pause", "relay-duplicate"}


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\n  {tally.histories} histories, {tally.calls} script calls, {tally.counts['ticket redeemed']} tickets redeemed"
        )
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay ticket:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("ticket") == [], "too little has happened (R11)"


def test_hundreds_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    """So many on any machine: of those that a busy one does in some seconds, nobody might die while it holds a lock."""
    tally = batch(0, HISTORIES, "ticket")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_histories(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="ticket")
    assert tally.histories == MANY
    judge(tally, capsys)


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(10):
        shown = ticket_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert ticket_swarm.simulate(seed).history == unseen


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in TICKET_SCENARIOS])
def test_every_schedule(name: str) -> None:
    assert search(TICKET_SCENARIOS[name]).ended > 1


@pytest.mark.soak
@pytest.mark.parametrize("name", TICKET_SCENARIOS)
def test_every_schedule_in_full(name: str) -> None:
    assert search(TICKET_SCENARIOS[name], whole=True).ended > 1


def test_a_schedule_can_be_replayed() -> None:
    history, violations = TICKET_SCENARIOS["relay"].replay([0] * 20)
    assert violations == []
    assert {"taken", "ticket"} <= {event.kind for event in history}
