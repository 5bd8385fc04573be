"""A load is granted, or fails, while those of its process wait for it: what each of them gets, at whatever request it ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar

import pytest

from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    GetCoalescer,
    KeepAlive,
    NewToken,
    NotSent,
    Now,
    Request,
    RunScript,
    SendUntilAnswered,
    StopKeepAlive,
    Unknown,
)
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.coalesce import CoalescedWaiter, Coalescer, Failed
from holdfast._core.single_flight.entry import CANCEL_LOAD, GET_OR_LEASE, LoadGranted
from holdfast._core.single_flight.flight import Load, Loading, LookupPolicy
from holdfast._lua import codes

T = TypeVar("T")

SITE = flight.entry_spec("hf:cache:", "g", "x", lease=2.0)


class Interrupted(BaseException):
    """Somebody ends the operation."""


class Keeper:
    """Carries out what an operation on `SITE` asks for. ``looks``: what the server answers, one look after the other."""

    def __init__(self, coalescer: Coalescer, *looks: Callable[[], object]) -> None:
        self.coalescer = coalescer
        self.looks = list(looks)
        self.trace: list[Request[Any]] = []
        self.fails: dict[type, BaseException] = {}
        """The fault of the first request of a kind."""

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        try:
            request = operation.send(None)
            while True:
                self.trace.append(request)
                error = self.fails.pop(type(request), None)
                request = operation.throw(error) if error is not None else operation.send(self._do(request))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _do(self, request: Request[Any]) -> Any:
        match request:
            case Now():
                return 1000.0
            case NewToken():
                return f"aaaaaaaaaaaa.{len(self.trace)}"
            case GetCoalescer():
                return self.coalescer
            case RunScript() if request.script is GET_OR_LEASE:
                return Answer(self.looks.pop(0)(), 1000.0, 1000.0)
            case RunScript():
                assert request.script is CANCEL_LOAD
                return Answer(codes.STILL_VALID, 1000.0, 1000.0)
        return None

    def asked(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.trace)


def granted() -> LoadGranted:
    return LoadGranted(7, None)


def loading() -> Loading:
    return Loading(1.0, 1.0, "bbbbbbbbbbbb")


def crowd_of(*members: CoalescedWaiter) -> Coalescer:
    coalescer = Coalescer(nullcontext())
    for member in members:
        coalescer.join(member)
    return coalescer


def a_load() -> Load:
    return Load(SITE, Grant(Attempt(SITE.spec, "aaaaaaaaaaaa.0"), 7, 1000.0, 1002.0), None)


def test_who_was_granted_the_load_has_it_whatever_another_one_was_told() -> None:
    """The leader finds no server, just when another one, whose own time to look has come, is granted the load."""
    coalescer = crowd_of(CoalescedWaiter())

    def granted_while_the_leader_fails() -> LoadGranted:
        coalescer.tell(coalescer.members, NotSent("no server"))
        return granted()

    keeper = Keeper(coalescer, loading, granted_while_the_leader_fails)
    assert isinstance(keeper.run(flight.get_or_lease(SITE, LookupPolicy(wait=10, fast_read=False))), Load)


@pytest.mark.parametrize("lost", [False, True])
def test_a_look_that_ends_is_revoked_if_a_copy_of_it_may_still_come(lost: bool) -> None:
    """The late copy would be granted a load that nobody carries out."""
    keeper = Keeper(crowd_of(), loading)
    if lost:
        keeper.fails[RunScript] = Unknown("no answer")
    assert isinstance(keeper.run(flight.get_or_lease(SITE, LookupPolicy(wait=0, fast_read=False))), Loading)
    sent = [request.call for request in keeper.trace if isinstance(request, SendUntilAnswered)]
    assert [(call.script, call.args[1]) for call in sent] == [(CANCEL_LOAD, "bury")] * lost


def test_a_load_that_is_not_taken_up_is_tended_no_more() -> None:
    """A caller that was granted the load is held back, and interrupted before it learns whether it gets the failure."""
    coalescer = crowd_of(CoalescedWaiter())

    def granted_while_it_is_held() -> LoadGranted:
        coalescer.hold_back([])
        keeper.fails[AwaitNotice] = Interrupted()
        return granted()

    keeper = Keeper(coalescer, loading, granted_while_it_is_held)
    with pytest.raises(Interrupted):
        keeper.run(flight.get_or_lease(SITE, LookupPolicy(wait=10, fast_read=False)))
    assert (keeper.asked(KeepAlive), keeper.asked(StopKeepAlive), keeper.asked(SendUntilAnswered)) == (1, 1, 1)


@pytest.mark.parametrize("at", [StopKeepAlive, GetCoalescer, RunScript, None])
def test_a_load_that_fails_leaves_neither_its_key_nor_those_who_wait(at: type | None) -> None:
    members = [CoalescedWaiter(), CoalescedWaiter()]
    keeper = Keeper(crowd_of(*members))
    keeper.fails = {} if at is None else {at: Interrupted()}
    try:
        keeper.run(flight.cancel_load(a_load(), ValueError("x")))
    except Interrupted:
        assert at is not None
        assert keeper.asked(SendUntilAnswered) == 1, "the keeper gives its key back"
    assert not any(member.held for member in members)
    assert all(isinstance(member.found, Failed) for member in members) == (at is None)


def test_a_load_whose_cancellation_was_not_answered_is_left_to_the_keeper() -> None:
    """Its lease may still be on the server, and every waiter would wait for the end of it."""
    keeper = Keeper(crowd_of())
    keeper.fails[RunScript] = Unknown("no answer")
    load = a_load()
    keeper.run(flight.cancel_load(load))
    sent = [request.call for request in keeper.trace if isinstance(request, SendUntilAnswered)]
    assert [(call.script, call.args[:2]) for call in sent] == [(CANCEL_LOAD, (load.held_lease.token, "bury"))]


class Interrupting(CoalescedWaiter):
    """Somebody interrupts just when this one is held."""

    __slots__ = ("_held",)

    @property
    def held(self) -> bool:
        return getattr(self, "_held", False)

    @held.setter
    def held(self, value: bool) -> None:
        self._held = value
        if value:
            raise Interrupted


def test_who_is_held_when_the_end_of_a_load_is_interrupted_goes_on() -> None:
    members = [CoalescedWaiter(), Interrupting(), CoalescedWaiter()]
    keeper = Keeper(crowd_of(*members))
    with pytest.raises(Interrupted):
        keeper.run(flight.cancel_load(a_load(), ValueError("x")))
    assert keeper.asked(SendUntilAnswered) == 1
    assert not any(member.held for member in members)
