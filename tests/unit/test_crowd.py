"""Those of one process who wait for the same key: one leads, and says what it has found to who was there before it looked."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from holdfast._core.requests import NotSent
from holdfast._core.single_flight.coalesce import Crowd, Failed, Member
from holdfast._core.single_flight.entry import Found, Record

FOUND = Found(Record("v", b"data", 1, 1.0), stale=False)


def crowd_of(count: int) -> tuple[Crowd, list[Member]]:
    crowd = Crowd(nullcontext())
    members = [Member() for _ in range(count)]
    for member in members:
        crowd.join(member)
    return crowd, members


def test_the_first_leads() -> None:
    crowd, (first, *others) = crowd_of(3)
    assert [first.leads, *(other.leads for other in others)] == [True, False, False]
    assert crowd.members == tuple(others)
    crowd.join(others[0])
    assert crowd.members == tuple(others), "nobody is there twice"


def test_who_comes_after_a_look_is_not_told_what_it_has_found() -> None:
    crowd, (_, early) = crowd_of(2)
    before = crowd.members
    late = Member()
    crowd.join(late)
    crowd.tell(before, FOUND)
    assert (early.found, late.found) == (FOUND, None)
    assert (bool(early.hints), bool(late.hints)) == (True, False)
    assert crowd.members == (late,)


def test_who_has_left_is_told_nothing() -> None:
    crowd, (_, gone, other) = crowd_of(3)
    before = crowd.members
    crowd.leave(gone)
    crowd.tell(before, NotSent("no server"))
    assert gone.found is None
    assert isinstance(other.found, NotSent)


@pytest.mark.parametrize("how", ["told", "settled"])
def test_all_are_told_though_some_leave_meanwhile(how: str) -> None:
    """A finaliser may run in the middle of it, in the same thread."""
    crowd = Crowd(nullcontext())
    gone, late = Member(), Member()

    class Waking(Member):
        def wake(self) -> None:
            super().wake()
            crowd.leave(gone)
            crowd.join(late)

    members = [Member(), gone, Waking(), Member(), Member()]
    for member in members:
        crowd.join(member)
    if how == "told":
        crowd.tell(crowd.members, FOUND)
    else:
        held: list[Member] = []
        crowd.hold(held)
        crowd.settle(held, Failed(ValueError("x")))
    assert all(member.found is not None and member.hints for member in members[2:])
    assert crowd.members == (late,)


def test_when_the_leader_leaves_the_next_one_leads() -> None:
    crowd, (first, second, third) = crowd_of(3)
    crowd.leave(first)
    assert (second.leads, bool(second.hints), third.leads) == (True, True, False)
    assert crowd.members == (third,)
    crowd.leave(third)
    crowd.leave(second)
    after = Member()
    crowd.join(after)
    assert after.leads


class Closed:
    """The slot of one whose event loop was closed."""

    def put(self, _outcome: object, /) -> bool:
        return False

    def gone(self) -> bool:
        return True


def test_a_leader_whose_loop_was_closed_is_no_leader() -> None:
    crowd, (first, second, third) = crowd_of(3)
    first.slot = Closed()
    crowd.join(third)
    assert third.leads
    assert crowd.members == (second,)


def test_who_is_held_gets_the_failure_and_who_comes_later_does_not() -> None:
    crowd, (first, second) = crowd_of(2)
    held: list[Member] = []
    crowd.hold(held)
    late = Member()
    crowd.join(late)
    crowd.leave(second)
    failed = Failed(ValueError("x"))
    crowd.settle(held, failed)
    assert (first.found, second.found, late.found) == (failed, None, None)
    assert not any(member.held for member in (first, second, late))
    crowd.leave(first)
    assert late.leads


def test_without_a_failure_only_those_look_whose_time_has_come() -> None:
    crowd, (first, second, third) = crowd_of(3)
    held: list[Member] = []
    crowd.hold(held)
    second.overdue = True
    crowd.settle(held, None)
    assert [bool(member.hints) for member in (first, second, third)] == [True, True, False]
    assert crowd.members == (second, third)
