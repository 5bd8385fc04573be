"""Exhaustive searches in the tests: of the slow scenarios, each run searches a third in full, and the soak all of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.testing.explore import Report
from sources import turn

TURNS = 3
"""Number of changes of the sources, on average, after which a slow scenario is searched in full again."""

FIRST = 100
"""Number of schedules of a slow scenario that are run when it is not its turn: those that differ early come first, so
each fault hits each of the first steps."""


def in_full(name: str, slow: Collection[str]) -> bool:
    """Return True if a scenario is searched in full: it is not slow, or the digest of the sources says that it is its turn."""
    return name not in slow or turn(f"search {name}") % TURNS == 0


def search(scenario: Any, slow: Collection[str] = ()) -> Report:
    """Search a scenario, in full or in part, and check that no schedule violates a rule."""
    whole = in_full(scenario.name, slow)
    report: Report = scenario.explore() if whole else scenario.explore(most=FIRST, broad=True)
    choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
    what = [str(violation) for found in report.found for violation in found.violations]
    assert what == [], f"python -m holdfast.testing replay {scenario.name}:{choices}"
    assert report.covered if whole else report.schedules == FIRST
    assert report.ended, "no schedule came to its end"
    return report
