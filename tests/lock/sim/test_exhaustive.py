"""Every schedule of the small scenarios: nothing is violated, and all was covered."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

import pytest

from holdfast_lab.explore import SearchReport
from holdfast_lab.scenarios.lock import LONG, PERMITS, QUICK, SCENARIOS
from support.searches import search

SMALL = {
    *("two", "two-limited", "two-held", "two-by-hand", "two-together", "two-slow", "two-duplicate", "two-deaf"),
    *("pairs", "pairs-pause", "pairs-bound", "pairs-crash", "pairs-deaf"),
    *("kept", "pairs-kept", "pairs-kept-pause", "pairs-kept-crash"),
    *(name for name in QUICK if name.startswith(("pairs-limited-", "pair-"))),
}
"""Of the quick ones, those that take a fifth of the time of all, with each kind of fault among them."""


LEAST = 1_300
"""Schedules that are run each time, whichever scenarios are searched in full."""


def explored(name: str) -> tuple[str, SearchReport]:
    """Search all of one scenario, in a process of its own."""
    return name, SCENARIOS[name].explore()


def on_two_cores(names: Iterable[str]) -> dict[str, SearchReport]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(pool.map(explored, names))


def judge(reports: dict[str, SearchReport], capsys: pytest.CaptureFixture[str], *, whole: bool = True) -> list[SearchReport]:
    """The output shows what was covered."""
    with capsys.disabled():
        print()
        for name, report in reports.items():
            covered = "all covered" if report.covered else "NOT covered" if whole else "in part: not its turn"
            print(f"  {name:26} {report.states:>7} states {report.schedules:>7} schedules, {covered}")
        total = [sum(r.states for r in reports.values()), sum(r.schedules for r in reports.values())]
        print(f"  {'together':26} {total[0]:>7} states {total[1]:>7} schedules")
    for name, report in reports.items():
        choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
        what = [str(violation) for found in report.found for violation in found.violations]
        assert what == [], f"python -m holdfast_lab replay {name}:{choices}"
        assert report.covered or not whole
        assert report.ended > 1, "hardly any schedule came to its end"
    return list(reports.values())


@pytest.mark.turns("exhaustive")
def test_every_schedule_of_two_clients_with_one_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert {scenario.faults for scenario in QUICK.values()} == {QUICK[name].faults for name in SMALL}
    reports = judge({name: search(SCENARIOS[name]) for name in sorted(SMALL)}, capsys, whole=False)
    assert sum(report.schedules for report in reports) > LEAST


@pytest.mark.soak
def test_every_schedule_of_the_quick_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    reports = judge(on_two_cores(QUICK), capsys)
    assert sum(report.schedules for report in reports) > 46_000


@pytest.mark.turns("exhaustive")
def test_every_schedule_of_permits_with_one_fault(capsys: pytest.CaptureFixture[str]) -> None:
    judge({name: search(PERMITS[name]) for name in PERMITS}, capsys, whole=False)


@pytest.mark.soak
def test_every_schedule_of_permits_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    judge({name: search(PERMITS[name], whole=True) for name in PERMITS}, capsys)


@pytest.mark.soak
def test_every_schedule_of_three_clients_and_of_longer_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    judge(on_two_cores(LONG), capsys)
