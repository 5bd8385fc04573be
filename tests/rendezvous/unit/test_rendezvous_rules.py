"""The judge of events judged: histories that break a rule, and near misses."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.testing.history import Event
from holdfast_lab.judge.rendezvous_rules import RendezvousHistory, event


def e(at: float, kind: str, attempt: str = "", **facts: Any) -> Event:
    return Event(at, kind, "p1/t1", "m", attempt, **facts)


SET = [e(1, "count", "s1", last=1), e(1.1, "opened"), e(1.2, "counted", "s1")]
CLEARED = e(2, "closed")
AGAIN = e(3, "opened")

CASES: dict[str, tuple[list[Event], list[str]]] = {
    "set once": (SET, []),
    "L4 set again by nobody": ([*SET, CLEARED, AGAIN], ["L4"]),
    "set again by another call": ([*SET, CLEARED, e(2.9, "count", "s2", last=1), AGAIN], []),
    "L4 set before the call": ([*SET, CLEARED, AGAIN, e(3.1, "count", "s2", last=1)], ["L4"]),
    "set again by a call that went on when it was cleared": (
        [*SET, e(1.9, "count", "s2", last=1), CLEARED, AGAIN, e(3.1, "counted", "s2")],
        [],
    ),
    "set again by a call of which nobody knows": (
        [*SET, e(1.3, "count", "s2", last=1), e(1.4, "uncounted", "s2"), CLEARED, AGAIN],
        [],
    ),
    "L2 released, and it was not open": ([e(0, "await", "w1"), e(0.5, "released", "w1"), *SET], ["L2"]),
    "released, and it was open": ([e(0, "await", "w1"), *SET, e(1.3, "released", "w1")], []),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_of_events(name: str) -> None:
    history, expected = CASES[name]
    assert [violation.rule for violation in event(RendezvousHistory(history, 1))] == expected
