"""The rule that counts ticks in the log, on histories written by hand."""

from __future__ import annotations

import pytest

from holdfast._core.schedule.commands import Entry, JobFacts
from holdfast._core.schedule.job import Options
from holdfast_lab.judge.schedule_rules import ServedSchedule, s4_counted

S = 1_000_000


def entry(status: str, first: int, last: int, ticks: int, fence: int = 0) -> Entry:
    return Entry(status, first * S, ticks, last * S, 0, 0, 1, fence, "", "")


@pytest.mark.parametrize(("ticks", "waiting", "found"), [(4, 0, 0), (3, 0, 1), (5, 0, 1), (3, 1, 0)])
def test_an_entry_has_the_number_of_its_ticks(ticks: int, waiting: int, found: int) -> None:
    entries = (entry("missed", 1, 4, ticks), entry("ok", 5, 5, 1, fence=1))
    facts = JobFacts("a", b"", 5 * S, False, waiting, (), entries)
    case = ServedSchedule(
        [], [facts], {"a": (1.0, Options())}, 0.0, float, steady=True, calm=True, roomy=True, slack=0.0, prompt=0.0
    )
    assert len(list(s4_counted(case))) == found


def test_a_tick_that_was_run_in_between_is_not_counted() -> None:
    entries = (entry("skipped", 1, 4, 3), entry("ok", 3, 3, 1, fence=1))
    facts = JobFacts("a", b"", 4 * S, False, 0, (), entries)
    case = ServedSchedule(
        [], [facts], {"a": (1.0, Options())}, 0.0, float, steady=True, calm=True, roomy=True, slack=0.0, prompt=0.0
    )
    assert list(s4_counted(case)) == []
