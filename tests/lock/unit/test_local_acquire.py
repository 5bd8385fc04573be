"""Tasks of one process that take the same lock, each step of each in the hands of the test: `_core/lock/acquire.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast._core.deadlock.abort_wait import abort_wait
from holdfast._core.lock.acquire import ON_ONE_SERVER, acquire
from holdfast._core.lock.local_queue import MORE_FENCES, RECALL_WITHIN_S, USEFUL_LEFT_S, LocalQueue
from holdfast._core.lock.multilock import PartLost
from holdfast._core.lock.records import Attempt, Grant, HeldLease
from holdfast._core.lock.replies import ACQUIRE, BLOCK, RELEASE, Busy
from holdfast._core.requests import Answer, Gone, NotSent, Refused, Request, RunScript, TimedOut, Unknown, Wait, WaitLocally
from support.driver import ME, OTHER, Driver, Fault, Slot, always, kind_of, slot_of, spec
from support.memory_server import Server
from support.node import Node


class Process(Node):
    """A process on a server that others use, too."""

    def __init__(self) -> None:
        self.server = Server()
        self.driver = Driver(self.server)
        super().__init__(waiting=self.driver.waiting)
        self.waiting.on_listening(self.server.now, b"hf:")
        self.local_queue = LocalQueue(self, b"hf:")
        self.tasks: list[Task] = []

    def clock(self) -> float:
        return self.server.now

    def comes(self, wait: float | None = None, *, answers: bool = True, **options: Any) -> Task:
        self.tasks.append(Task(self, wait, answers=answers, **options))
        return self.tasks[-1]

    def keeper_is_done(self) -> None:
        """All locks that were to be released are released on the server."""
        for held_lease in self.given_back:
            self.server.release(held_lease.token, "bury" if held_lease.maybe_in_flight else "release")
        self.given_back.clear()
        self.local_queue.on_released()

    def other_releases(self) -> None:
        self.server.release(OTHER)
        self.driver.deliver()


class Task:
    """One that takes the lock. It goes on by itself until it waits for others, or for an answer that the test gives."""

    def __init__(self, process: Process, wait: float | None, *, answers: bool = True, **options: Any) -> None:
        self.process = process
        self.answers = answers
        """The server answers at once."""
        self.attempt = Attempt(spec()._replace(**options), slot=Slot(), local_queue=process.local_queue, node=process)
        self.operation = acquire(self.attempt, wait, ON_ONE_SERVER)
        self.sent: list[RunScript[Any]] = []
        self.result: object = None
        self.goes(None)

    def goes(self, reply: Any, error: BaseException | None = None) -> Task:
        while True:
            try:
                self.asked: Request[Any] = self.operation.send(reply) if error is None else self.operation.throw(error)
            except StopIteration as stop:
                self.result = stop.value
                return self
            except BaseException as ended:
                self.result = ended
                return self
            error = None
            if isinstance(self.asked, RunScript):
                self.sent.append(self.asked)
                assert len(self.sent) < 100, "it asks for ever"
                if not self.answers:
                    return self
            elif isinstance(self.asked, WaitLocally):
                if self.attempt.turn is None:
                    return self
            elif isinstance(self.asked, Wait):
                if self.asked.answer is not None:
                    self.process.waiting.joined(self.asked.waiter, self.asked.answer, self.process.clock())
                return self
            reply = self.process.driver._do(self.asked)

    def looks(self) -> Task:
        """It was woken, or is told what it was granted."""
        outcomes = [outcome for outcome in slot_of(self.attempt).outcomes if outcome is not None]
        assert isinstance(self.asked, WaitLocally) or outcomes, "it has nothing to look at"
        return self.goes(outcomes[0] if isinstance(self.asked, Wait) else None)

    def times_out(self) -> Task:
        assert self.attempt.until is not None
        self.process.server.now = max(self.process.server.now, self.attempt.until)
        return self.goes(None if isinstance(self.asked, WaitLocally) else TimedOut())

    def is_cancelled(self) -> Task:
        self.answers = True
        self.goes(None, asyncio.CancelledError())
        assert isinstance(self.result, asyncio.CancelledError)
        return self

    def arrives(self) -> Answer[Any]:
        """The request that is under way is carried out by the server."""
        assert isinstance(self.asked, RunScript)
        now = self.process.clock()
        return Answer(self.process.server.perform(self.asked), now, now)

    @property
    def grant(self) -> Grant:
        assert isinstance(self.result, Grant), repr(self.result)
        return self.result

    @property
    def busy(self) -> Busy:
        assert isinstance(self.result, Busy), repr(self.result)
        return self.result

    @property
    def commands(self) -> list[str]:
        return [kind_of(run) for run in self.sent]

    def has(self) -> HeldLease:
        """Its lease."""
        assert self.grant.held_lease is not None
        return self.grant.held_lease

    def is_done(self) -> bool:
        """As `Lease.release` does it: True if the lease stays in this process."""
        held_lease = self.has()
        kept = self.process.local_queue.pass_on(self.attempt, held_lease, self.process.clock())
        if not kept:
            held_lease.end()
            self.process.forget(held_lease)
            self.process.server.release(held_lease.token)
            self.process.driver.deliver()
            self.process.local_queue.on_released(self.attempt)
        return bool(kept)


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    for task in process.tasks:
        if task.result is None:
            task.is_cancelled()


@pytest.fixture
def elsewhere(process: Process) -> Process:
    """A process that wants what another one has."""
    process.server.take(OTHER, 20.0)
    return process


def test_one_asks_for_all(process: Process) -> None:
    tasks = [process.comes() for _ in range(5)]
    fences = []
    for task in tasks:
        if task is not tasks[0]:
            task.looks()
        fences.append(task.grant.fence)
        task.is_done()
    assert [task.commands for task in tasks] == [["acquire"], [], [], [], []]
    assert fences == list(range(fences[0], fences[0] + 5))
    assert process.server.present() == set()


def test_one_place_in_the_queue_for_all(elsewhere: Process) -> None:
    tasks = [elsewhere.comes() for _ in range(5)]
    assert elsewhere.server.queue == elsewhere.driver.tokens
    assert len(elsewhere.server.queue) == 1
    elsewhere.other_releases()
    fences = []
    for task in tasks:
        fences.append(task.looks().grant.fence)
        elsewhere.local_queue.asked = False  # nobody else waits outside
        task.is_done()
    assert fences == sorted(set(fences))
    # The claim window is passed on as it is: the keeper turns it into a lease if it is needed for longer.
    assert [task.commands for task in tasks] == [["acquire", "acquire"], [], [], [], []]
    assert elsewhere.server.present() == set()


@pytest.mark.parametrize(("since", "commands"), [(0.9, []), (1.1, ["acquire"])])
def test_a_claim_is_passed_on_as_it_is_while_a_second_is_left(elsewhere: Process, since: float, commands: list[str]) -> None:
    """It counts from when we were last told to wait: usually less than a second before."""
    leader, heir = elsewhere.comes(), elsewhere.comes()
    elsewhere.server.now += since
    elsewhere.other_releases()
    grant = leader.looks().grant
    assert grant.in_claim_window
    assert leader.is_done()
    assert heir.looks().grant.fence == grant.fence + 1
    assert heir.commands == commands


# With other waiters


def joins_and_more(task: Task) -> list[tuple[Any, Any]]:
    """Of each request for the lock: does it join the queue, and how many fences more does it want."""
    return [(run.args[2], run.args[3] if len(run.args) > 3 else 0) for run in task.sent if run.script is ACQUIRE]


def crowded(process: Process, how: str = "queued") -> Process:
    """The last lease of this process was got by standing in line, or somebody outside asked for it."""
    if how == "queued":
        process.server.take(OTHER, 20.0)
    else:
        process.asked_early.add(f"{ME}.{0:032x}")
    first = process.comes()
    if how == "queued":
        process.other_releases()
        first.looks()
    assert not first.is_done()
    process.asked_early.clear()
    return process


def test_a_holder_whose_join_got_no_answer_knows_that_others_may_stand_behind_it(elsewhere: Process) -> None:
    """They told the holder before. Without that knowledge the lock was passed on here for a second, whatever its bounds are."""
    leader, heir = elsewhere.comes(answers=False), elsewhere.comes()
    leader.goes(leader.arrives())
    leader.arrives()  # it stands in the queue, and the answer gets lost
    elsewhere.server.join("cccccccccccc.1")
    elsewhere.other_releases()
    leader.goes(None, Unknown("cut"))
    leader.goes(leader.arrives())
    assert leader.grant.queued
    elsewhere.server.now += leader.attempt.spec.max_pass_time
    assert not leader.is_done()
    assert elsewhere.server.current() == "cccccccccccc.1"
    assert heir.result is None


@pytest.mark.parametrize("how", ["queued", "asked"])
def test_where_others_wanted_it_the_first_request_joins_the_queue(process: Process, how: str) -> None:
    crowded(process, how).server.take(OTHER, 20.0)
    leader = process.comes()
    assert joins_and_more(leader) == [(1, 0)], "one trip, not two"
    assert process.server.queue == [leader.attempt.token]
    process.other_releases()
    assert leader.looks().grant.queued
    assert not leader.is_done()
    assert process.server.present() == set()


def test_where_nobody_else_wanted_it_one_asks_first_whether_it_is_free(elsewhere: Process) -> None:
    assert joins_and_more(elsewhere.comes()) == [(0, 0), (1, 0)]


def test_who_finds_it_free_where_it_was_crowded_does_not_stand_in_line(process: Process) -> None:
    first = crowded(process).comes()
    assert joins_and_more(first) == [(1, 0)]
    assert not first.grant.queued
    assert not first.is_done()
    second = process.comes()
    assert joins_and_more(second) == [(0, 0)], "it is crowded no more"
    assert not second.is_done()
    assert process.server.present() == set()


def test_who_does_not_wait_never_joins_however_crowded_it_is(process: Process) -> None:
    crowded(process).server.take(OTHER, 20.0)
    him = process.comes(0.0)
    assert isinstance(him.result, Busy)
    assert joins_and_more(him) == [(0, 0)]
    assert process.server.present() == {OTHER}


@pytest.mark.parametrize("how", ["times out", "cancelled"])
def test_who_joined_at_once_leaves_his_place_to_the_next_or_nothing(process: Process, how: str) -> None:
    crowded(process).server.take(OTHER, 20.0)
    leader, heir = process.comes(1.0), process.comes(2.0)
    places = process.server.queue
    assert places == [leader.attempt.token]
    leader.times_out() if how == "times out" else leader.is_cancelled()
    assert process.server.queue == places
    heir.looks()
    heir.times_out() if how == "times out" else heir.is_cancelled()
    assert heir.commands == ["release"], "it has the place already"
    assert process.server.present() == {OTHER}
    assert process.local_queue.turn_of is None


@pytest.mark.parametrize("applied", [False, True])
def test_who_is_cancelled_while_he_joins_at_once_leaves_nothing(process: Process, applied: bool) -> None:
    crowded(process).server.take(OTHER, 20.0)
    leader = process.comes(answers=False)
    assert joins_and_more(leader) == [(1, 0)]
    if applied:
        leader.arrives()
    leader.is_cancelled()
    process.server.perform(leader.sent[0])  # a late copy
    assert process.server.present() == {OTHER}
    assert len(process.waiting) == 0
    assert process.local_queue.turn_of is None


@pytest.mark.parametrize("where", ["crowded", "not crowded"])
def test_a_server_that_is_away_at_the_first_contact_is_an_error_at_once(process: Process, where: str) -> None:
    if where == "crowded":
        crowded(process)
    leader, away = process.comes(answers=False), NotSent("away")
    leader.answers = True  # had it asked once more, it would have the lock
    assert leader.goes(None, away).result is away
    assert process.local_queue.turn_of is None


@pytest.mark.parametrize("wait", [0, 0.1])
def test_of_a_server_that_says_nothing_one_is_told_within_a_second_after_the_wait(process: Process, wait: float) -> None:
    """Asking, and taking that back, together."""
    began = process.server.now
    process.driver.failing = always(Fault(Unknown("no answer in time")), "acquire", "release")
    attempt = Attempt(spec(ttl=1.0), slot=Slot(), local_queue=process.local_queue, node=process)
    with pytest.raises(Unknown):
        process.driver.run(acquire(attempt, wait, ON_ONE_SERVER))
    assert process.server.now - began - wait < 0.9, "in a Cluster it takes a little longer to find out who is to be asked"


def test_who_stands_in_line_there_already_rides_out_an_absence(process: Process) -> None:
    crowded(process).server.take(OTHER, 20.0)
    leader = process.comes()
    assert isinstance(leader.asked, Wait)
    leader.answers = False
    process.server.run(RELEASE, leader.attempt.token, "leave")
    leader.goes(Gone())  # its place is gone: it asks for another one
    assert joins_and_more(leader) == [(1, 0), (1, 0)]
    leader.answers = True
    leader.goes(None, NotSent("away"))
    assert isinstance(leader.asked, Wait)
    assert process.server.queue == [leader.attempt.token]


def test_who_would_have_to_wait_for_the_inbox_asks_first_however_crowded_it_is(process: Process) -> None:
    """With the server away it is not opened either, and that would be waited for."""
    crowded(process).listens = False
    assert joins_and_more(process.comes()) == [(0, 0)]


# State for the next one


@pytest.mark.parametrize("how", ["times out", "cancelled", "wait is ended"])
def test_the_place_is_inherited(elsewhere: Process, how: str) -> None:
    elsewhere.server.join("cccccccccccc.1")
    leader, heir = elsewhere.comes(1.0), elsewhere.comes()
    elsewhere.server.join("dddddddddddd.1")
    places = elsewhere.server.queue
    if how == "times out":
        leader.times_out()
    elif how == "cancelled":
        leader.is_cancelled()
    else:  # as that of a lock of several, when another one of these was lost
        assert abort_wait(elsewhere.waiting, leader.attempt, PartLost())
        assert isinstance(leader.looks().result, PartLost)
    assert elsewhere.server.queue == places, "it is where it was"
    assert "release" not in leader.commands
    heir.looks()
    assert heir.commands == []
    elsewhere.other_releases()
    elsewhere.server.release("cccccccccccc.1")
    elsewhere.driver.deliver()
    assert heir.looks().grant.queued
    assert elsewhere.server.current() == heir.attempt.token
    assert leader.attempt.token == ""


def test_the_place_is_inherited_from_who_was_cancelled_before_he_knew_of_it(elsewhere: Process) -> None:
    leader, him, heir = elsewhere.comes(1.0), elsewhere.comes(), elsewhere.comes()
    places = elsewhere.server.queue
    leader.times_out()
    him.is_cancelled()
    assert elsewhere.server.queue == places
    elsewhere.other_releases()
    assert heir.looks().result is None
    assert heir.looks().grant.attempt.token == places[0]
    assert him.commands == heir.commands == []


def test_the_last_one_gives_the_place_up(elsewhere: Process) -> None:
    leader, heir = elsewhere.comes(1.0), elsewhere.comes(2.0)
    leader.times_out()
    heir.looks().times_out()
    assert isinstance(heir.busy, Busy)
    assert elsewhere.server.present() == {OTHER}
    assert len(elsewhere.waiting) == 0
    assert elsewhere.local_queue.turn_of is None


def test_a_place_that_nobody_inherits_is_given_up_before_others_come(elsewhere: Process) -> None:
    leader, him = elsewhere.comes(1.0), elsewhere.comes()
    leader.times_out()
    him.answers = False
    him.goes(None, asyncio.CancelledError())
    late = elsewhere.comes()
    him.goes(him.arrives())
    assert isinstance(him.result, asyncio.CancelledError)
    assert late.looks().commands == ["acquire", "acquire"], "it asks for a place of its own"
    assert elsewhere.server.queue == [late.attempt.token]


@pytest.mark.parametrize("applied", [False, True])
def test_a_leader_that_is_cancelled_while_he_asks_leaves_nothing(process: Process, applied: bool) -> None:
    leader = process.comes(answers=False)
    heir = process.comes()
    if applied:
        leader.arrives()
    leader.is_cancelled()
    assert heir.looks().grant
    process.server.perform(leader.sent[0])  # a late copy
    assert process.server.present() == {heir.attempt.token}


def test_a_leader_that_is_dropped_is_not_waited_for(process: Process) -> None:
    """A task that is pending when its event loop is closed: its coroutine is closed, and nothing can be awaited any more."""
    leader = process.comes(answers=False)
    heir = process.comes()
    leader.result = "dropped"
    with pytest.raises(RuntimeError):
        leader.operation.close()
    leader.operation.close()
    assert heir.looks().grant


# Attempts without a wait, and waits in vain


def test_told_who_has_it_outside(elsewhere: Process) -> None:
    elsewhere.comes()
    him = elsewhere.comes(1.0).times_out()
    assert him.busy.process == OTHER.split(".", maxsplit=1)[0]
    assert him.busy.remaining == pytest.approx(20, abs=1.1)


def test_told_who_has_it_here(process: Process) -> None:
    held_lease = process.comes().has()
    asking = process.comes(0.0)
    assert process.questioned == [held_lease]
    process.local_queue.answered(held_lease.token, process.clock(), known=True)
    for him in (asking.looks(), process.comes(0.0), process.comes(1.0).times_out()):
        assert him.busy.process == ME
        assert him.commands == []
    assert process.questioned == [held_lease]


def test_who_does_not_wait_is_told_even_if_the_question_stays_unanswered(process: Process) -> None:
    process.comes().has()
    asking = process.comes(0.0)
    assert asking.times_out().busy.process == ME
    assert asking.commands == []


def test_who_does_not_wait_takes_what_the_server_has_forgotten(process: Process) -> None:
    holder = process.comes()
    held_lease = holder.has()
    asking = process.comes(0.0)
    held_lease.lose("its key is gone")
    process.local_queue.on_released(holder.attempt)
    process.local_queue.answered(held_lease.token, process.clock(), known=False)
    assert asking.looks().commands == ["acquire"]


def test_who_does_not_wait_asks_for_himself_while_another_one_does(elsewhere: Process) -> None:
    leader = elsewhere.comes()
    him = elsewhere.comes(0.0)
    assert him.busy.process == OTHER.split(".", maxsplit=1)[0]
    assert him.commands == ["acquire"]
    assert elsewhere.server.queue == [leader.attempt.token]


def test_who_does_not_wait_may_be_quicker_than_who_leads(process: Process) -> None:
    leader = process.comes(answers=False)
    him = process.comes(0.0)
    assert him.grant.attempt.local_queue is None, "it is nobody's in line here"
    assert isinstance(leader.arrives().value, Busy)


def test_who_does_not_wait_takes_what_lingers(process: Process) -> None:
    first = process.comes(linger=5.0)
    held_lease = first.has()
    first.is_done()
    him = process.comes(0.0)
    assert him.has() is held_lease
    assert him.commands == []


@pytest.mark.parametrize("in_time", [True, False])
def test_who_does_not_wait_gives_the_keeper_a_moment(process: Process, in_time: bool) -> None:
    process.comes(linger=5.0).is_done()
    process.local_queue.on_asked()
    him = process.comes(0.0)
    assert him.attempt.until == process.clock() + RECALL_WITHIN_S
    if in_time:
        process.keeper_is_done()
        assert him.looks().grant
    else:
        assert isinstance(him.times_out().result, Busy)
        process.keeper_is_done()
        assert process.local_queue.turn_of is None


# The server is away


def test_those_who_would_wait_for_ever_are_told_that_the_server_is_away(process: Process) -> None:
    leader = process.comes(answers=False)
    patient, bounded = process.comes(), process.comes(60.0)
    away = NotSent("away")
    leader.answers = True
    assert leader.goes(None, away).result is away
    assert patient.looks().result is away
    bounded.answers = False
    bounded.looks()
    bounded.goes(None, NotSent("away"))
    assert bounded.result is None, "he rides it out"
    bounded.answers = True
    assert bounded.goes(bounded.arrives()).grant


# More fences, and more time


def nearly_over(process: Process) -> tuple[Task, Task, HeldLease]:
    """A lease is passed on that has to be renewed first."""
    holder, heir = process.comes(), process.comes()
    held_lease = holder.has()
    process.server.now += 0.9
    held_lease.deadline = process.clock() + USEFUL_LEFT_S - 0.1
    assert holder.is_done()
    heir.answers = False
    heir.looks()
    assert heir.commands == ["acquire"]
    return holder, heir, held_lease


def test_what_is_nearly_over_is_renewed_under_its_own_token(process: Process) -> None:
    holder, heir, held_lease = nearly_over(process)
    answer = heir.arrives()
    grant = heir.goes(answer).grant
    assert grant.held_lease is held_lease
    assert grant.fence == holder.grant.fence + 1
    assert joins_and_more(heir) == [(0, 0)], "there are fences enough"
    assert process.server.fence == holder.grant.fence
    assert process.clock() + 29 < held_lease.deadline <= process.server.expires


@pytest.mark.parametrize(("outside", "more"), [(False, MORE_FENCES), (True, BLOCK)])
def test_when_the_block_is_used_up_more_are_asked_for(process: Process, outside: bool, more: int) -> None:
    holder, heir = process.comes(), process.comes()
    held_lease = holder.has()
    held_lease.holder_fence = last = holder.grant.last
    process.local_queue.asked, held_lease.passes = outside, min(MORE_FENCES, 0 if outside else 5000)
    assert holder.is_done()
    grant = heir.looks().grant
    assert (grant.held_lease, grant.fence, held_lease.last_fence) == (held_lease, last + 1, last + more)
    assert joins_and_more(heir) == [(0, more)]


@pytest.mark.parametrize("applied", [False, True])
def test_who_is_cancelled_while_he_renews_it_passes_it_on(process: Process, applied: bool) -> None:
    _, heir, held_lease = nearly_over(process)
    last = process.comes()
    if applied:
        heir.arrives()
    heir.is_cancelled()
    assert heir.commands == ["acquire"], "it is not his alone to give up"
    assert last.looks().grant.held_lease is held_lease
    assert held_lease.maybe_in_flight, "a late copy of the request would take the lock again"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_request_for_more_may_have_extended_the_lease(process: Process, cancelled: bool) -> None:
    _, heir, held_lease = nearly_over(process)
    process.server.now += 10
    if cancelled:
        heir.is_cancelled()
    else:
        heir.goes(None, Refused("NOPERM"))
    assert held_lease.latest > process.clock() + held_lease.ttl


def test_a_late_copy_does_not_take_again_what_was_found_lost(process: Process) -> None:
    _, heir, held_lease = nearly_over(process)
    copy = heir.sent[0]
    heir.goes(None, Unknown("cut"))
    process.server.take(OTHER, 20.0)
    heir.answers = True
    heir.goes(heir.arrives())
    assert held_lease.lost
    assert isinstance(heir.asked, Wait), "he stands in line at the server"
    process.other_releases()
    assert heir.looks().has() is not held_lease
    heir.is_done()
    process.server.perform(copy)
    assert process.server.present() == set()


def test_who_has_waited_rides_out_an_absence(process: Process) -> None:
    _, heir, held_lease = nearly_over(process)
    heir.goes(None, NotSent("away"))
    assert heir.result is None
    assert heir.goes(heir.arrives()).grant.held_lease is held_lease


def test_what_the_keeper_has_lost_meanwhile_is_asked_for_anew(process: Process) -> None:
    _, heir, held_lease = nearly_over(process)
    answer = heir.arrives()
    held_lease.lose("its time ran out")
    heir.answers = True
    assert heir.goes(answer).has() is not held_lease
    assert process.server.current() == heir.attempt.token != held_lease.token
