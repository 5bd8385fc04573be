"""Taking a lock that all of this process share: in its own line first (`local_queue`), and at the server for who leads it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from holdfast._core.lock.acquire import RECALL, ask, take
from holdfast._core.lock.local_queue import Gate
from holdfast._core.lock.records import Attempt, Failed, Given, Grant, Lead, Tenure, Waiter
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import Busy, Held
from holdfast._core.requests import Answer, Delist, Draw, Now, Park, TooFew, WireError


class Ways(NamedTuple):
    """How a lock is had and given up at the server, or the servers."""

    take: Callable[[Attempt, bool, float, Waiter | None], Coroutine[Any, Any, Grant | Busy]]
    """As `_core.lock.acquire.take`."""
    again: Callable[[Attempt, Tenure, int], Coroutine[Any, Any, Answer[Held] | None]]
    """Ask for more time, and so many more fences, for a lease that is held. None: it is lost."""
    give_up: Callable[[Attempt], Coroutine[Any, Any, None]]
    """Leave nothing of an attempt behind."""


async def again(attempt: Attempt, tenure: Tenure, more: int) -> Answer[Held] | None:
    """As `Ways.again`, on one server."""
    asking = Attempt(attempt.spec, tenure.token, doubt=tenure.doubt, until=attempt.until)
    try:
        answer = await ask(asking, await Now(), patient=attempt.waited, more=more)
    finally:
        tenure.doubt = asking.doubt
    if isinstance(answer.value, Held) and not tenure.lost:
        return Answer(answer.value, answer.sent, answer.came)
    await give_up(asking)  # lost, as the keeper may have found meanwhile; and a late copy shall not take it again
    return None


ON_ONE_SERVER = Ways(take, again, give_up)


async def acquire(attempt: Attempt, wait: float | None, ways: Ways = ON_ONE_SERVER) -> Grant | Busy:
    """As `_core.lock.acquire.acquire`, for an attempt that has a gate."""
    now = 0.0
    if wait is not None:
        now = await Now()
        attempt.until = now + wait
    try:
        given = _enter(attempt, wait == 0, now)
        if given is None:
            if wait != 0:
                attempt.waits()
            while attempt.given is None and (attempt.until is None or now < attempt.until):
                await Park(attempt)
                now = await Now()
            given = _look(attempt)
        while isinstance(given, Grant):
            tenure = given.tenure
            assert tenure is not None
            if tenure.lost:
                given = gate_of(attempt).lost()
            elif given.fence and now < tenure.deadline:
                return given
            else:  # or it took us so long to wake up that it is over, and the keeper has not noticed yet
                given = await _freshen(attempt, tenure, ways)
        if isinstance(given, Failed):
            raise given.error
        return await _lead(attempt, given, wait == 0, now, ways) if isinstance(given, Lead) else given
    except BaseException:
        await abandon(attempt, ways)
        raise


async def abandon(attempt: Attempt, ways: Ways = ON_ONE_SERVER) -> None:
    """Leave nothing of an attempt behind, here or at the server, whatever it has got."""
    gate = attempt.gate
    if gate is None:
        return await ways.give_up(attempt)
    try:
        place = attempt.given.place if isinstance(attempt.given, Lead) else None
        # The next one here inherits the place before it is given up with all else; or nobody shall, who comes meanwhile.
        if place is not None and place.attempt is attempt and not gate.bequeath(attempt, place):
            await Delist(place)
        if not gate.has_lease(attempt):
            await ways.give_up(attempt)
    finally:
        gate.withdraw(attempt)  # even if nothing can be awaited any more: others wait for that


def gate_of(attempt: Attempt) -> Gate:
    """The gate of an attempt that has one."""
    gate = attempt.gate
    assert isinstance(gate, Gate)
    return gate


def _enter(attempt: Attempt, at_once: bool, now: float) -> Given | Busy | None:
    gate = gate_of(attempt)
    if gate.in_change():
        # A signal handler has interrupted this thread in the middle of a change: it asks for itself.
        attempt.gate, attempt.hasty = None, at_once
        return Lead()
    if not at_once:
        return gate.enter(attempt)
    attempt.until = now + RECALL  # in case that the keeper is just giving it back, or asks whether the lease is lost
    busy = gate.busy(attempt)
    if busy is not None and not gate.questions(attempt, now):
        attempt.until = now
        return busy
    if busy is None and gate.leads():
        attempt.gate, attempt.until = None, now  # one who waits is asking already, and may wait for long: ask beside it
        return Lead()
    return gate.enter(attempt)


def _look(attempt: Attempt) -> Given | Busy:
    """Return what a waiter in the queue was given; or the answer for it when its time is up."""
    gate = gate_of(attempt)
    attempt.waited = True
    with gate.mutex:
        leader = gate.node.waiting.get(gate.who.token) if isinstance(gate.who, Attempt) else None
        given = gate.received(attempt) or gate.busy(attempt)
    if given is not None:
        return given
    trouble = gate.trouble if leader is None else leader.down
    if trouble is not None:
        raise trouble  # who asks for all gets no answer
    return gate.last_reply if leader is None else leader.busy


async def _freshen(attempt: Attempt, tenure: Tenure, ways: Ways) -> Given:
    """There are no fences left, or hardly any time: ask the server for more of both, under the token that has the lock."""
    gate = gate_of(attempt)
    answer = await ways.again(attempt, tenure, gate.wanted())
    if answer is not None and not tenure.lost:
        return gate.freshened(attempt, tenure, answer.value, answer.sent)
    tenure.lose("its key is gone or somebody else's")
    return gate.lost()


async def _lead(attempt: Attempt, lead: Lead, at_once: bool, now: float, ways: Ways) -> Grant | Busy:
    """Ask the server, for all of this process who want the lock."""
    if attempt.gate is None:
        return await acknowledged(await ways.take(attempt, at_once, now, None))
    gate, place = gate_of(attempt), lead.place
    # Not where the inbox is still to be opened: with the server away one would wait for that, instead of being told at once.
    if place is None and gate.crowded and gate.reachable and not (at_once or attempt.doubt):
        attempt.token = attempt.spec.token(await Draw())
        place = Waiter(attempt, gate.last_reply)  # asking first whether it is free would most likely be a trip for nothing
    try:
        result = await ways.take(attempt, at_once, now, place)
    except (WireError, TooFew) as error:
        gate.failed(attempt, error)
        raise
    result = await acknowledged(result)
    if isinstance(result, Grant):
        gate.took(attempt, result)
    else:
        gate.last_reply, gate.trouble = result, None
        gate.left(attempt)
    return result
