"""Those of one process who wait for the same key: one leads, and says what it has found to who was there before it looked."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from holdfast._core.rendezvous.latch import LatchSpec, LatchState, LatchWaiter, _look_for_all
from holdfast._core.requests import Answer, NotSent, RunScript
from holdfast._core.single_flight.coalesce import CoalescedWaiter, Coalescer, Failed
from holdfast._core.single_flight.entry import FoundValue, StoredValue

FOUND = FoundValue(StoredValue("v", b"data", 1, 1.0), stale=False)


def crowd_of(count: int) -> tuple[Coalescer, list[CoalescedWaiter]]:
    coalescer = Coalescer(nullcontext())
    members = [CoalescedWaiter() for _ in range(count)]
    for member in members:
        coalescer.join(member)
    return coalescer, members


def test_the_first_leads() -> None:
    coalescer, (first, *others) = crowd_of(3)
    assert [first.leads, *(other.leads for other in others)] == [True, False, False]
    assert coalescer.members == tuple(others)
    coalescer.join(others[0])
    assert coalescer.members == tuple(others), "nobody is there twice"


def test_who_comes_after_a_look_is_not_told_what_it_has_found() -> None:
    coalescer, (_, early) = crowd_of(2)
    before = coalescer.members
    late = CoalescedWaiter()
    coalescer.join(late)
    coalescer.tell(before, FOUND)
    assert (early.found, late.found) == (FOUND, None)
    assert (bool(early.hints), bool(late.hints)) == (True, False)
    assert coalescer.members == (late,)


def test_who_begins_to_wait_for_a_latch_during_a_look_is_not_told_what_that_has_found() -> None:
    """The latch may have been closed again when it began."""
    coalescer = Coalescer(nullcontext())
    leader, before, during = (LatchWaiter(b"hf:", LatchState(1, 0, 7)) for _ in range(3))
    leader.listener_id = "me"
    for waiter in (leader, before):
        waiter.coalescer = coalescer
        coalescer.join(waiter)
    looking = _look_for_all(LatchSpec((b"x", b"y", b"z"), "event 1", 1, 60_000, 1.0), leader, float("inf"))
    request = looking.send(None)
    while not isinstance(request, RunScript):
        request = looking.send(0.0)
    coalescer.join(during)
    with pytest.raises(StopIteration) as ended:
        looking.send(Answer(LatchState(0, 5, 7), 0.0, 0.1))
    assert ended.value.value == (True, 0.1)
    assert (before.found, during.found) == (LatchState(0, 5, 7), None)


def test_who_has_left_is_told_nothing() -> None:
    coalescer, (_, gone, other) = crowd_of(3)
    before = coalescer.members
    coalescer.leave(gone)
    coalescer.tell(before, NotSent("no server"))
    assert gone.found is None
    assert isinstance(other.found, NotSent)


@pytest.mark.parametrize("how", ["told", "settled"])
def test_all_are_told_though_some_leave_meanwhile(how: str) -> None:
    """A finaliser may run in the middle of it, in the same thread."""
    coalescer = Coalescer(nullcontext())
    gone, late = CoalescedWaiter(), CoalescedWaiter()

    class Waking(CoalescedWaiter):
        def wake(self) -> None:
            super().wake()
            coalescer.leave(gone)
            coalescer.join(late)

    members = [CoalescedWaiter(), gone, Waking(), CoalescedWaiter(), CoalescedWaiter()]
    for member in members:
        coalescer.join(member)
    if how == "told":
        coalescer.tell(coalescer.members, FOUND)
    else:
        held: list[CoalescedWaiter] = []
        coalescer.hold_back(held)
        coalescer.settle(held, Failed(ValueError("x")))
    assert all(member.found is not None and member.hints for member in members[2:])
    assert coalescer.members == (late,)


def test_when_the_leader_leaves_the_next_one_leads() -> None:
    coalescer, (first, second, third) = crowd_of(3)
    coalescer.leave(first)
    assert (second.leads, bool(second.hints), third.leads) == (True, True, False)
    assert coalescer.members == (third,)
    coalescer.leave(third)
    coalescer.leave(second)
    after = CoalescedWaiter()
    coalescer.join(after)
    assert after.leads


class Closed:
    """The slot of one whose event loop was closed."""

    def put(self, _outcome: object, /) -> bool:
        return False

    def gone(self) -> bool:
        return True


def test_a_leader_whose_loop_was_closed_is_no_leader() -> None:
    coalescer, (first, second, third) = crowd_of(3)
    first.slot = Closed()
    coalescer.join(third)
    assert third.leads
    assert coalescer.members == (second,)


def test_who_is_held_gets_the_failure_and_who_comes_later_does_not() -> None:
    coalescer, (first, second) = crowd_of(2)
    held: list[CoalescedWaiter] = []
    coalescer.hold_back(held)
    late = CoalescedWaiter()
    coalescer.join(late)
    coalescer.leave(second)
    failed = Failed(ValueError("x"))
    coalescer.settle(held, failed)
    assert (first.found, second.found, late.found) == (failed, None, None)
    assert not any(member.held for member in (first, second, late))
    coalescer.leave(first)
    assert late.leads


def test_without_a_failure_only_those_look_whose_time_has_come() -> None:
    coalescer, (first, second, third) = crowd_of(3)
    held: list[CoalescedWaiter] = []
    coalescer.hold_back(held)
    second.overdue = True
    coalescer.settle(held, None)
    assert [bool(member.hints) for member in (first, second, third)] == [True, True, False]
    assert coalescer.members == (second, third)
