"""The rules of single flight, on histories written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from holdfast.testing.history import Event
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.swarms.single_flight import Case, Profile, s1_nothing_void_is_found, s2_one_loads


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
