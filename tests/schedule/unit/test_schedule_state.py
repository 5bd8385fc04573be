"""The state of a process that serves a schedule, as far as no server is needed to see it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.requests import Answer, NewToken, Now, Unknown
from holdfast._core.schedule import loop
from holdfast._core.schedule.job import (
    REGISTER,
    SERVE,
    Answered,
    DefinitionChanged,
    Late,
    Options,
    Registered,
    ScheduleKeys,
    Served,
)
from holdfast._core.schedule.records import ActiveRun, ForgetRun, Log, Redefine, ServedJob, Start
from holdfast._core.schedule.state import HERE, LOOK_AGAIN_S, ScheduleState
from holdfast._lua.codes import NO_JOB, REDEFINED
from holdfast.schedule import Every
from support.driver import spec

KEYS = ScheduleKeys.of("s")


@pytest.fixture
def state() -> ScheduleState:
    job = ServedJob("job", KEYS.job("job"), Every(1), Options(), b"d", b"w")
    made = ScheduleState(KEYS, [job], host="here", timeout=1.0, limit=1)
    made.learn(0, 0.0)
    made.registered([job], [Registered(1, 0, b"")])
    return made


def test_once_a_day_all_jobs_are_registered_again(state: ScheduleState) -> None:
    state.tick(LOOK_AGAIN_S - 1)
    assert not state.unregistered()
    state.tick(LOOK_AGAIN_S)
    assert [job.name for job in state.unregistered()] == ["job"], "or the server forgets the list of them in a hundred days"


def test_who_is_told_that_it_was_too_late_asks_again_after_that(state: ScheduleState) -> None:
    state.answered(Answer(Late(6_000_000), 1.0, 6.0))
    assert state.retry_at > 6.0


def test_a_schedule_that_cannot_be_served_is_told_for_each_of_its_jobs() -> None:
    """The server answers once for all of them, where what stands for the schedule itself is of another release."""
    seats = [ServedJob(name, KEYS.job(name), Every(1), Options(), b"d", b"w") for name in "ab"]
    state = ScheduleState(KEYS, list(seats), host="here", timeout=1.0, limit=1)
    _, refused = REGISTER.parse([0, [-3, b"2"]])
    state.registered(seats, refused)
    assert state.jobs == {}
    said = [todo.what for todo in state.todo if isinstance(todo, Log)]
    assert [text.split(":")[0] for text in said] == ["job 'a' cannot be served", "job 'b' cannot be served"]
    assert all("format '2', this release knows format 1" in text for text in said)


class Hints(set[Any]):
    """One more comes as soon as somebody looks."""

    late = ["from the server"]  # noqa: RUF012

    def __sub__(self, other: Any) -> Any:
        found = set(self) - other
        self.update(self.late)
        return found

    def pop(self) -> Any:
        found = super().pop()
        while self.late:
            self.add(self.late.pop())
        return found


def test_a_hint_that_comes_while_they_are_read_is_not_lost(state: ScheduleState) -> None:
    state.listener.hints = Hints([HERE])
    state.beat_at = 99.0
    with pytest.raises(StopIteration):
        loop._wait(state).send(None)
    assert state.beat_at == 0.0, "asks the server what it was about"


def test_a_job_of_which_the_server_knows_nothing_has_no_tick() -> None:
    job = ServedJob("job", KEYS.job("job"), Every(1), Options(), b"d", b"w")
    assert (job.last, job.next, job.revision) == (0, None, 0)


def test_each_request_names_what_may_fall_due_on_its_way(state: ScheduleState) -> None:
    """Something that waits is not to be begun in the place of a later tick, so the server has to know which ticks there are."""
    asked = loop.ask(state, 0.5)
    asked.send(None)  # draws a token
    call = asked.send("token")
    job = state.jobs["job"]
    assert [item.due.ticks for item in state.next_request(0.5) or () if item.due] == [[1_000_000]]
    assert call.args[-5:] == (job.last, "", "1000000", 2_000_000, "token")
    asked.close()


def test_a_run_that_is_granted_begins_at_once(state: ScheduleState) -> None:
    """The instructions of the answer are carried out before anything is waited for: the next tick may be hours away."""
    turn = loop.turn(state)
    turn.send(None)  # asks for the time
    turn.send(0.5)
    turn.send("token")
    granted = Answered(1_000_000, 0, 1, "", False, slot=0, fence=7, scheduled=1_000_000)
    assert isinstance(turn.send(Answer(Served(1_500_000, 1, [granted]), 0.5, 0.6)), Now)
    with pytest.raises(StopIteration) as ended:
        turn.send(0.6)
    assert [todo.run.fence for todo in ended.value.value if isinstance(todo, Start)] == [7]
    assert not state.next_request(0.6), "another run is queued, and waits for the end of this one"


def test_each_end_is_reported_where_two_runs_of_a_job_end_at_once(state: ScheduleState) -> None:
    """A request has one part for each job, so the second end is part of the next one."""
    job = state.jobs["job"]
    grant = Grant(Attempt(spec(), "token"), fence=7, taken=0.0, deadline=30.0)
    runs = [ActiveRun(job, slot, f"t{slot}", 7 + slot, 0, 1, by_hand=False, grant=grant, began=0.0) for slot in range(2)]
    for run in runs:
        state.runs[run.token] = run
        job.runs += 1
        state.end(run, "ok", "")
    reported = list[str]()
    for now in (0.5, 0.6):
        items = state.next_request(now) or []
        reported += [item.end.run.token for item in items if item.end]
        state.answered(Answer(Served(500_000, 1, [Answered(0, -1, 0, "", taken_down=True) for _ in items]), now, now))
    assert reported == ["t0", "t1"]
    assert [todo.run for todo in state.todo if isinstance(todo, ForgetRun)] == runs
    assert not state.runs
    assert job.runs == 0


def test_a_job_that_was_registered_anew_is_asked_about_at_once(state: ScheduleState) -> None:
    state.jobs["job"].revision = 0
    turn = loop.turn(state)
    turn.send(None)
    assert turn.send(0.5).script is REGISTER
    assert isinstance(turn.send(Answer((1_000_000, [Registered(1, 0, b"")]), 0.5, 0.6)), Now)
    turn.send(0.6)
    assert turn.send("token").script is SERVE
    turn.close()


def test_a_registration_is_sent_again_under_the_same_number() -> None:
    """The server may have carried it out, and another process may have declared the job anew since: that one counts."""
    job = ServedJob("job", KEYS.job("job"), Every(1), Options(), b"d", b"w", "app:job")
    state = ScheduleState(KEYS, [job], host="here", timeout=1.0, limit=1)
    numbers = list[Any]()
    for _ in range(2):
        asked = loop.register(state)
        numbers.append(asked.send(None).args[1])
        with pytest.raises(Unknown):
            asked.throw(Unknown("no reply"))
    asked = loop.register(state)
    numbers.append(asked.send(None).args[1])
    _, declared = REGISTER.parse([0, [REDEFINED, 7, b"other", 5, b"app:other"]])
    with pytest.raises(StopIteration):
        asked.send(Answer((0, declared), 0.0, 0.1))
    assert numbers == [1, 1, 1]
    assert state.todo == [Redefine(job, DefinitionChanged(7, b"other", 5, "app:other"))]
    job.revision = 0
    assert state.registration() == ([job], 2)


def test_a_job_that_was_removed_after_its_registration_is_registered_anew() -> None:
    job = ServedJob("job", KEYS.job("job"), Every(1), Options(), b"d", b"w")
    state = ScheduleState(KEYS, [job], host="here", timeout=1.0, limit=1)
    asked = loop.register(state)
    first = asked.send(None)
    again = asked.send(Answer(REGISTER.parse([0, [NO_JOB]]), 0.0, 0.1))
    assert (first.args[1], again.args[1]) == (1, 2)
    asked.close()


def test_all_jobs_are_asked_about_when_somebody_has_changed_one(state: ScheduleState) -> None:
    """Not after the first reply, which only says how often that has happened so far."""
    for changes, jobs in ((5, 1), (5, 0), (6, 0), (6, 1), (6, 0)):
        items = state.next_request(0.5) or []
        assert len(items) == jobs
        state.answered(Answer(Served(500_000, changes, [Answered(0, -1, 0, "", taken_down=False) for _ in items]), 0.5, 0.5))


def test_a_request_that_is_sent_again_wants_no_more_runs_than_there_is_room_for() -> None:
    """Its tokens are kept, since the server may have granted them a run: they take up room like the runs themselves."""
    jobs = [ServedJob(name, KEYS.job(name), Every(1), Options(), b"d", b"w") for name in "abc"]
    state = ScheduleState(KEYS, jobs, host="here", timeout=1.0, limit=1)
    state.learn(0, 0.0)
    state.registered(jobs, [Registered(1, 0, b"")] * 3)
    wanted = list[list[str]]()
    for now, token in ((1.5, "t1"), (2.5, "t2")):
        asked = loop.ask(state, now)
        request = asked.send(None)
        if request == NewToken():
            request = asked.send(token)
        wanted.append([request.args[at] for at in range(16, len(request.args), 12)])
        with pytest.raises(Unknown):
            asked.throw(Unknown("no reply"))
        state.failed(Unknown("no reply"), now)
    assert wanted == [["t1", "", ""]] * 2
