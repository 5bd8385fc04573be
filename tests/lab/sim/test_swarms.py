"""Every swarm: many seeds, each with its own faults. Nothing is violated, and enough happens for that to mean something."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast_lab.runner import SWARMS, RunnerTotals, batch, run_seeds


class Campaign(NamedTuple):
    """How many histories of a swarm are simulated. The numbers are the same on each machine: in the time of a quick one, a busy
    machine might simulate too few, for example none in which somebody dies while it holds a lock."""

    histories: int
    """In each run of the tests."""
    many: int
    """In the soak."""
    repeated: int
    """Simulated twice, and compared."""


CAMPAIGNS = {
    "lock": Campaign(600, 500_000, 10),
    "multilock": Campaign(120, 20_000, 20),
    "quorum": Campaign(140, 20_000, 10),
    "single_flight": Campaign(150, 50_000, 10),
    "schedule": Campaign(150, 20_000, 3),
    "election": Campaign(100, 20_000, 3),
    "rendezvous": Campaign(200, 20_000, 4),
    "permit": Campaign(120, 50_000, 10),
    "ticket": Campaign(320, 50_000, 10),
    "break_lock": Campaign(120, 50_000, 10),
}

ALL_RULES = 1_000
"""Number of histories after which every rule must have judged something."""


def judge(of: str, tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\n  {of}: {tally.histories} histories, {tally.calls} script calls; each core "
            f"{tally.histories / tally.seconds:.0f} histories and {tally.calls / tally.seconds:.0f} calls a second"
        )
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay {of}:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing(of) == [], "too little has happened (R11)"


def test_every_swarm_has_a_campaign() -> None:
    assert CAMPAIGNS.keys() == SWARMS.keys() - {"wired"}, "`test_wired` has that of the real drivers"


@pytest.mark.parametrize("of", CAMPAIGNS)
def test_hundreds_of_histories(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, CAMPAIGNS[of].histories, of)
    assert tally.histories == CAMPAIGNS[of].histories
    judge(of, tally, capsys)
    if tally.histories >= ALL_RULES:
        assert [rule for rule in SWARMS[of].rules if not tally.coverage.docket.judged[rule]] == [], "it has judged nothing"


@pytest.mark.soak
@pytest.mark.parametrize("of", CAMPAIGNS)
def test_many_histories(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=CAMPAIGNS[of].many, of=of)
    assert tally.histories == CAMPAIGNS[of].many
    judge(of, tally, capsys)


@pytest.mark.turns
@pytest.mark.parametrize("of", CAMPAIGNS)
def test_two_runs_of_a_seed_are_the_same_to_the_last_event(of: str) -> None:
    """One of them also shows each request."""
    for seed in range(CAMPAIGNS[of].repeated):
        shown = SWARMS[of].simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert SWARMS[of].simulate(seed).history == unseen
