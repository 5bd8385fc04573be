"""Single flight: seeds, each with its own faults, and every schedule of something small."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.runner import RunnerTotals, batch, run_seeds
from holdfast_lab.scenarios.single_flight import FLIGHT_SCENARIOS
from holdfast_lab.swarms import single_flight as single_flight_swarm
from holdfast_lab.swarms.single_flight import Case, Profile, s1_nothing_void_is_found, s2_one_loads
from support.searches import search

HISTORIES = 250
MANY = 50_000
LONG = {"flight-late", "flight-drop", "flight-tag"}


def judge(tally: RunnerTotals, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {tally.histories} histories, {tally.calls} script calls, {tally.counts['flight load']} loads")
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay single_flight:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing("single_flight") == [], "too little has happened (R11)"


def test_hundreds_of_stampedes(capsys: pytest.CaptureFixture[str]) -> None:
    tally = batch(0, HISTORIES, "single_flight")
    assert tally.histories == HISTORIES
    judge(tally, capsys)


@pytest.mark.soak
def test_many_stampedes(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_seeds(first=1_000_000, histories=MANY, of="single_flight")
    assert tally.histories == MANY
    judge(tally, capsys)


def judged(rule: Callable[[Case], Iterable[Violation]], *events: Event) -> list[str]:
    return [str(violation) for violation in rule(Case(list(events), Profile(1.0, 30.0, 0.0, 0.001, 0.0, 0.0)))]


def noted(at: float, kind: str, who: str, version: int = 0, *, lookup: str = "", fence: int = 0, note: str = "") -> Event:
    return Event(at, kind, who, "x", lookup, fence=fence, last=version, note=note)


@pytest.mark.parametrize(("ends", "found"), [("voided", 1), ("unsure", 1), ("", 0)])
def test_a_put_may_replace_a_newer_one_only_while_it_runs(ends: str, found: int) -> None:
    put = [noted(1, "void", "c1/1", 1, note="store"), *([noted(2, ends, "c1/1", 1, note="store")] if ends else [])]
    newer = [noted(3, "void", "c2/2", 2, note="store"), noted(4, "voided", "c2/2", 2, note="store")]
    seen = [noted(5, "want", "c3/3", lookup="l"), noted(6, "found", "c3/3", 1, lookup="l", fence=9)]
    assert len(judged(s1_nothing_void_is_found, *put, *newer, *seen)) == found
    crash = Event(2, "crashed", "c1")
    assert len(judged(s1_nothing_void_is_found, put[0], crash, *newer, *seen)) == 1


def test_two_loads_without_an_invalidation_are_seen_in_either_order() -> None:
    first = [noted(1, "want", "c1/1", lookup="a"), noted(2, "load", "c1/1", lookup="a", fence=1)]
    second = [noted(3, "want", "c2/2", lookup="b"), noted(4, "load", "c2/2", lookup="b", fence=2, note="a")]
    assert len(judged(s2_one_loads, *first, *second)) == 1
    late = [first[0], *second[:1], second[1]._replace(note=""), first[1]._replace(at=5, note="b")]
    assert len(judged(s2_one_loads, *late)) == 1
    dropped = [noted(2.1, "void", "c3/3", 1, note="drop"), noted(2.5, "voided", "c3/3", 1, note="drop")]
    assert judged(s2_one_loads, *late[:1], *dropped, *late[1:]) == []


def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(20):
        shown = single_flight_swarm.simulate(seed, trace=True).history
        unseen = [event for event in shown if event.kind not in {"sent", "served", "answered"}]
        assert single_flight_swarm.simulate(seed).history == unseen


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in FLIGHT_SCENARIOS])
def test_every_schedule(name: str) -> None:
    assert search(FLIGHT_SCENARIOS[name]).ended > 1


@pytest.mark.soak
@pytest.mark.parametrize("name", FLIGHT_SCENARIOS)
def test_every_schedule_in_full(name: str) -> None:
    assert search(FLIGHT_SCENARIOS[name], whole=True).ended > 1


def test_a_schedule_can_be_replayed() -> None:
    history, violations = FLIGHT_SCENARIOS["flight-drop"].replay([0] * 20)
    assert violations == []
    assert {"want", "load", "void", "voided"} <= {event.kind for event in history}
