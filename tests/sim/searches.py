"""Tests that take turns: of the slow scenarios, and of some cases, each run does a third, and the soak the others, too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

import pytest

from holdfast_lab.explore import Report
from sources import turn

Case = TypeVar("Case")

TURNS = 3
"""Number of changes of the sources, on average, after which it is the turn of the same scenario or case again."""

FIRST = 100
"""Number of schedules of a slow scenario that are run when it is not its turn: those that differ early come first, so
each fault hits each of the first steps."""


def by_turns(cases: Iterable[Case], name: Callable[[Case], str] = str) -> list[Any]:
    """Return cases as parameters of a test. The digest of the sources chooses the third that `make test` runs; the others run
    in the soak."""
    known = list(cases)
    chosen = sorted(map(name, known), key=lambda each: turn(f"case {each}"))[: -(-len(known) // TURNS)]
    marks = [() if name(case) in chosen else pytest.mark.soak for case in known]
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case, mark in zip(known, marks, strict=True)
    ]


def in_full(name: str, slow: Collection[str]) -> bool:
    """Return True if a scenario is searched in full: it is not slow, or the digest of the sources says that it is its turn."""
    return name not in slow or turn(f"search {name}") % TURNS == 0


def search(scenario: Any, slow: Collection[str] = ()) -> Report:
    """Search a scenario, in full or in part, and check that no schedule violates a rule."""
    whole = in_full(scenario.name, slow)
    report: Report = scenario.explore() if whole else scenario.explore(most=FIRST, broad=True)
    choices = ".".join(map(str, report.found[0].choices)) if report.found else ""
    what = [str(violation) for found in report.found for violation in found.violations]
    assert what == [], f"python -m holdfast_lab replay {scenario.name}:{choices}"
    assert report.covered if whole else report.schedules == FIRST
    assert report.ended, "no schedule came to its end"
    return report
