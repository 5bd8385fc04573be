"""Every schedule of the small scenarios, but those of locks, semaphores and read-write locks (`test_exhaustive`)."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from holdfast_lab.explore import SearchReport
from holdfast_lab.scenarios.election import ELECTION_SCENARIOS
from holdfast_lab.scenarios.multilock import MULTILOCK_SCENARIOS
from holdfast_lab.scenarios.quorum import QUORUM_SCENARIOS, WITHOUT_QUARANTINE
from holdfast_lab.scenarios.rendezvous import RENDEZVOUS_SCENARIOS
from holdfast_lab.scenarios.single_flight import FLIGHT_SCENARIOS
from holdfast_lab.scenarios.table import ALL
from holdfast_lab.scenarios.ticket import TICKET_SCENARIOS
from support.searches import search

NAMES = [*MULTILOCK_SCENARIOS, *FLIGHT_SCENARIOS, *RENDEZVOUS_SCENARIOS, *ELECTION_SCENARIOS, *TICKET_SCENARIOS]

LONG = {
    *("crossed-cancel", "flight-late", "flight-drop", "flight-tag", "meet-late", "event"),
    *("relay-slow", "relay-pause", "relay-duplicate"),
    *(name for name in ELECTION_SCENARIOS if name.startswith(("elect-two-", "elect-gift-"))),
} - {"elect-gift-crash", "elect-gift-pause"}
"""Searched in the soak only."""


LEAST = dict.fromkeys(NAMES, 2) | {"crossed-tasks": 1}
"""Number of schedules that come to their end, at least."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONG)) for name in NAMES])
def test_every_schedule(name: str) -> None:
    assert search(ALL[name]).ended >= LEAST[name]


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_schedule_in_full(name: str) -> None:
    assert search(ALL[name], whole=True).ended >= LEAST[name]


@pytest.mark.parametrize(
    ("name", "kinds"), [("relay", {"taken", "ticket"}), ("flight-drop", {"want", "load", "void", "voided"})]
)
def test_a_schedule_can_be_replayed(name: str, kinds: set[str]) -> None:
    history, violations = ALL[name].replay([0] * 20)
    assert violations == []
    assert kinds <= {event.kind for event in history}


# Several servers that vote


@pytest.mark.turns("lab")
def test_without_quarantine_there_are_two_holders() -> None:
    """A server that has forgotten its vote is declared new at once, and votes for another one."""
    (found,) = WITHOUT_QUARANTINE.explore(most=3000).found
    assert [violation.rule for violation in found.violations] == ["R1"]
    history, violations = WITHOUT_QUARANTINE.replay(found.choices)
    assert history == found.history
    assert violations == found.violations
    assert any(event.note == "amnesia" for event in history)


@pytest.mark.turns("lab")
def test_with_quarantine_there_are_not() -> None:
    """In as many schedules as show it without. All of them are searched in the soak."""
    report = QUORUM_SCENARIOS["quorum-amnesia"].explore(most=600)
    assert report.found == []
    assert report.ended > 50


def depth_first(name: str) -> tuple[str, SearchReport]:
    return name, QUORUM_SCENARIOS[name].explore(broad=False)


@pytest.mark.soak
def test_every_schedule_on_several_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        reports = dict(pool.map(depth_first, (name for name in QUORUM_SCENARIOS if name != "quorum-wait")))
    for name, report in reports.items():
        with capsys.disabled():
            print(f"\n  {name:20} {report.states} states, {report.schedules} schedules", end="")
        choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
        assert report.found == [], f"python -m holdfast_lab replay {name}:{choices}"
        assert report.covered
        assert report.ended > 1
