"""The status of a job that users get: in seconds, although the server counts in microseconds."""

from __future__ import annotations

from holdfast._core.schedule.commands import Entry, JobFacts, RunFacts
from holdfast._core.schedule.job import Options
from holdfast.schedule.definition import write
from holdfast.schedule.schedule import Record, Running, record, status
from holdfast.schedule.timetable import Every

DAY = 86_400
NOON = 20_000 * DAY + DAY // 2
US = 10**6
RAN = Entry("ok", NOON * US, 1, NOON * US, (NOON + 1) * US, (NOON + 3) * US, 0, 7, "host:1", "done")
LATE = Entry("timed-out", NOON * US, 2, (NOON + 60) * US, (NOON + 1) * US, (NOON + 3) * US, 2, 8, "host:1", "too slow")


def test_a_record_has_seconds() -> None:
    assert record(RAN) == Record("ok", NOON, 1, NOON, NOON + 1, NOON + 3, "host:1", 1, 7, "done", "")
    assert record(LATE) == Record("timed out", NOON, 2, NOON + 60, NOON + 1, NOON + 3, "host:1", 2, 8, "", "too slow")


def test_a_status_has_seconds_and_the_tick_after_the_last() -> None:
    run = RunFacts(NOON * US, 1, (NOON + 1) * US, 9, False, "host:2", 1500)
    facts = JobFacts("job", write(Every(60), Options()), NOON * US, False, 3, (run,), (LATE, RAN))
    found = status(facts)
    assert found.next is not None
    assert NOON < found.next <= NOON + 60
    assert found.running == (Running(NOON, NOON + 1, "host:2", 1, 9, 1.5),)
    assert found.last == record(LATE), "the newest is the first"
    assert (found.name, found.queued, found.paused) == ("job", 3, False)


def test_of_what_is_no_definition_the_text_is_shown() -> None:
    found = status(JobFacts("job", b"?", NOON * US, True, 0, (), ()))
    assert (found.when, found.next, found.last, found.paused) == ("?", None, None, True)
