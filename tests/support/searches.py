"""Searches that take turns: each run does some of the large scenarios in full, and the soak all of them."""

from __future__ import annotations

from typing import Any

from holdfast_lab.explore import SearchReport
from support.sources import turn

SEARCHES = 8
"""Number of changes of the sources, on average, after which it is the turn of the same scenario, or slow defect, again."""

FIRST = 60
"""Number of schedules of a scenario that are run when it is not its turn: those that differ early come first, so each fault
hits each of the first steps. A quarter of the scenarios have fewer, and are searched in full each time."""


def in_turn(name: str) -> bool:
    """Return True if the digest of the sources says that it is the turn of a scenario or a slow defect."""
    return turn(f"search {name}") % SEARCHES == 0


def search(scenario: Any, *, whole: bool = False) -> SearchReport:
    """Search a scenario, and check that no schedule violates a rule. If ``whole`` is False and it is not the turn of the
    scenario, at most `FIRST` schedules are run."""
    whole = whole or in_turn(scenario.name)
    report: SearchReport = scenario.explore() if whole else scenario.explore(most=FIRST, broad=True)
    choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
    what = [str(violation) for found in report.found for violation in found.violations]
    assert what == [], f"python -m holdfast_lab replay {scenario.name}:{choices}"
    assert report.covered or (not whole and report.schedules == FIRST)
    assert report.ended, "no schedule came to its end"
    return report
