"""Acquire a lock. This one operation is for locks, permits, elections and locks on several servers.

An attempt first gets the turn in the queue inside its process (`_core.lock.local_queue`). Attempts for a `FairLock` or for
permits have no such queue. Then the functions of a `Strategy` ask the server or servers. Those for one server are in this
module, those of candidates in `_core.election`, and those for several servers in `_core.quorum.acquire`.

On one server, the first request acquires a free lock in one round trip. If the lock is busy, the inbox of the process (the
channel for messages to it) is subscribed next, so that no hand-over message can be missed. Then a second request puts the
attempt into the server's queue. From then on, the keeper (background thread) asks once a second, for all waiters of the
process, whether they have got their locks (`_core.lock.server_queue`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from holdfast._core.lock.local_queue import RECALL_WITHIN_S, LocalQueue
from holdfast._core.lock.name_conflict import explained
from holdfast._core.lock.records import AskServer, Attempt, Extend, Grant, HeldLease, Waiter
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import BLOCK, GRACE_S, NO_ANSWER, Busy, Held, Reply, Revoked
from holdfast._core.lock.spec import Spec, margin, scripts
from holdfast._core.requests import (
    Answer,
    Conflict,
    Down,
    Gone,
    Granted,
    NewToken,
    NotSent,
    Now,
    Refused,
    RegisterWaiter,
    RunScript,
    Sleep,
    TimedOut,
    TooFew,
    Unknown,
    UnregisterWaiter,
    Wait,
    WaitLocally,
    WireError,
)
from holdfast._core.retry import retry_idempotent
from holdfast._core.struct import NamedTuple

_AGAIN: Answer[Reply] = Answer(Revoked(), 0.0, 0.0)
"""The result of a wait if the attempt has lost its position in the server's queue. The attempt starts over with a new token."""


class KeyConflict(Exception):
    """Raised if a key of the lock holds data that is not a lock of holdfast."""


async def key_conflict(found: Conflict, spec: Spec) -> KeyConflict:
    """Return the error for a lock whose key holds data of another kind of object; the message names the kind if it is known."""
    return KeyConflict(await explained(found, *spec.keys[:2], spec.timeout))


class Strategy(NamedTuple):
    """The three functions with which an attempt that has the turn acquires the lock."""

    take: Callable[[Attempt, bool, float, Waiter | None], Coroutine[Any, Any, Grant | Busy]]
    """Function that asks the server or servers for the lock and waits; its parameters are those of `take` below."""
    again: Callable[[Attempt, HeldLease, int], Coroutine[Any, Any, Answer[Held] | None]]
    """Function that extends a held lease and reserves the given number of fences for its process.

    It returns None if the lease is lost.
    """
    give_up: Callable[[Attempt], Coroutine[Any, Any, None]]
    """Function that removes everything that an attempt left on the server or servers."""


async def acquire(attempt: Attempt, wait: float | None, strategy: Strategy) -> Grant | Busy:
    """Acquire the lock within ``wait`` seconds. Return Busy if the lock was not free in this time.

    ``wait``: None (without limit), 0 (try once, see `RECALL_WITHIN_S`) or more. Raises WireError, KeyConflict, or a further
    error of the ``strategy``. The lease of the returned Grant is registered, so the keeper renews it. If no Grant is returned,
    everything that the attempt left in this process and on the server is removed, even after a cancellation.
    """
    try:
        if attempt.led:  # `_core.lock.uncontended` has given it the turn, and has usually asked the server
            return await _ask_server(attempt, AskServer(), wait == 0, attempt.began, strategy)
        now = await Now()
        if not attempt.entered:
            attempt.until = None if wait is None else now + wait
        if attempt.local_queue is None:
            return await _ask_server(attempt, AskServer(), wait == 0, now, strategy)
        local_queue = local_queue_of(attempt)
        turn = None if attempt.entered else local_queue.enter(attempt, now, at_once=wait == 0)
        if turn is None:
            if wait != 0:
                attempt.waits(now)
            while attempt.turn is None and (attempt.until is None or now < attempt.until):
                await WaitLocally(attempt)
                now = await Now()
            turn = local_queue.received(attempt, now)
        while isinstance(turn, Extend):
            answer = await strategy.again(attempt, turn.held_lease, turn.fences)
            turn = local_queue.extended(attempt, turn.held_lease, answer)
        if isinstance(turn, Exception):
            raise turn
        return await _ask_server(attempt, turn, wait == 0, now, strategy) if isinstance(turn, AskServer) else turn
    except BaseException:
        await abandon(attempt, strategy)
        raise


async def abandon(attempt: Attempt, strategy: Strategy) -> None:
    """Remove everything that an attempt left in the queue of its process and on the server.

    Release the lock if it was acquired.
    """
    _unregister(attempt)
    if attempt.local_queue is None:
        return await strategy.give_up(attempt)
    local_queue = local_queue_of(attempt)
    try:
        place = attempt.turn.place if isinstance(attempt.turn, AskServer) else None
        if place is not None:  # offered to the next waiter, and otherwise given up, so that no later waiter inherits it
            await _leave(attempt, place)
        if not local_queue.has_lease(attempt):
            await strategy.give_up(attempt)
    finally:
        local_queue.settle(attempt, None)  # even if nothing can be awaited any more, because the next waiter depends on it


def register_lease(attempt: Attempt, grant: Grant) -> Grant:
    """Create the lease of a grant, have the keeper (background thread) renew it, and note it in the local queue.

    `_core.lock.uncontended.took` does the same for its grants. After an exception, `abandon` undoes what was done. Raises
    NotSent, with nothing registered, if the keeper was told to stop meanwhile.
    """
    node = attempt.node
    assert node is not None
    if node.keeper.closing:
        raise NotSent("holdfast was closed")
    # An interrupt may come between any two of these steps. `abandon` then finds the lease in the attempt, whatever was done.
    attempt.held_lease = grant.held_lease = held_lease = grant.held_lease or HeldLease(grant)
    with node.mutex:
        # If max_hold or progress_within ends the lease before its deadline, the keeper must wake up in time for that.
        hurry = not grant.in_claim_window or held_lease.good_until < held_lease.deadline
        outdated = node.register(held_lease, grant.taken, hurry=hurry)
        if attempt.local_queue is not None:
            local_queue_of(attempt).settle(attempt, grant)
    for lost in outdated:
        node.keeper.safely(node.keeper.report, lost)
    return grant


def _unregister(attempt: Attempt) -> None:
    """Stop renewing the lease that was registered for this attempt, unless the local queue knows the lease already."""
    held_lease, node = attempt.held_lease, attempt.node
    if held_lease is not None and (attempt.local_queue is None or not attempt.local_queue.has_lease(attempt)):
        assert node is not None
        held_lease.end()
        node.forget(held_lease)


def local_queue_of(attempt: Attempt) -> LocalQueue:
    local_queue = attempt.local_queue
    assert isinstance(local_queue, LocalQueue)
    return local_queue


async def _ask_server(attempt: Attempt, turn: AskServer, at_once: bool, now: float, strategy: Strategy) -> Grant | Busy:
    """Ask the server for the lock, while other attempts of this process wait. Return Busy if the lock stays busy.

    ``turn``: permission to ask, with the server-queue position that the attempt has inherited, if any. ``at_once``: True to ask
    once, without waiting.
    """
    if attempt.local_queue is None:
        result = await acknowledged(await strategy.take(attempt, at_once, now, None))
        return register_lease(attempt, result) if isinstance(result, Grant) else result
    local_queue, place = local_queue_of(attempt), turn.place
    if turn.crowded is not None and not (at_once or attempt.maybe_in_flight):
        attempt.token = attempt.spec.token(await NewToken())
        # Others waited at the last grant, so asking first whether the lock is free would most likely waste a round trip.
        place = Waiter(attempt, turn.crowded)
    try:
        result = await strategy.take(attempt, at_once, now, place)
    except (WireError, TooFew) as error:
        local_queue.settle(attempt, error)
        raise
    result = await acknowledged(result)
    if isinstance(result, Grant):
        return register_lease(attempt, result)
    local_queue.settle(attempt, result)
    return result


# Asking one server


async def take(attempt: Attempt, at_once: bool, now: float, place: Waiter | None = None) -> Grant | Busy:
    """Acquire the lock before monotonic time `Attempt.until`. Return Busy if that time has passed.

    ``at_once``: True to try once, without waiting. ``now``: monotonic time in seconds. ``place``: place in the server's queue
    that the attempt inherits from another attempt of this process, or a new place, with which it joins the queue. None: ask
    first whether the lock is free.
    """
    busy = NO_ANSWER
    if place is None:
        attempt.token = attempt.token or attempt.spec.token(await NewToken())
        result: Answer[Reply] | Grant | Busy = await ask(attempt, now, at_once=at_once, patient=attempt.waited)
    else:
        result = await _stand_in_line(attempt, place, patient=attempt.waited)
    while isinstance(result, Answer):
        held = result.value
        if type(held) is Held:  # the usual case first, because a pattern match costs as much as all the rest
            deadline = result.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
            if result.came < deadline:
                # A join without a reply may have queued the attempt. Waiters behind it notified only the earlier holder, so
                # the new holder must assume that others wait.
                queued = place is not None and (place.told is not None or attempt.maybe_in_flight)
                return Grant(attempt, held.fence, result.came, deadline, queued=queued, last=held.last)
            await give_up(attempt)  # the reply took so long that the lease may be over
        match result.value:
            case Conflict():
                raise await key_conflict(result.value, attempt.spec)
            case Busy():
                busy = result.value
                # Not queued yet, so the server stores nothing of this attempt, unless an earlier copy of the request arrives.
                attempt.may_be_on_server = attempt.maybe_in_flight
        if at_once and busy.lingers and not attempt.hasty:
            # If the lock lingers, its holder releases it when asked. A waiter asks by joining the server's queue.
            at_once, attempt.until = False, await Now() + RECALL_WITHIN_S
        if attempt.until is not None and (at_once or await Now() >= attempt.until):
            await give_up(attempt)
            return busy
        if not isinstance(result.value, Busy):
            await start_over(attempt)
        place = Waiter(attempt, busy)
        result = await _stand_in_line(attempt, place)
    return result


async def start_over(attempt: Attempt) -> None:
    """Give the attempt a new token, and have the server refuse late requests under the old one."""
    if attempt.maybe_in_flight:
        await give_up(attempt)
    attempt.token = attempt.spec.token(await NewToken())
    attempt.may_be_on_server = attempt.maybe_in_flight = False


async def ask(
    attempt: Attempt, now: float, *, join: bool = False, at_once: bool = False, patient: bool = False, more: int = 0
) -> Answer[Reply]:
    """Send the acquire request until the server replies.

    If the server replies with a transient error, the request is repeated until `Attempt.until`. ``join``: True to join the
    queue if the lock is busy. ``at_once``: True to give up at monotonic time ``now`` plus `GRACE_S`. ``more``: number of
    further fences to reserve for this process. ``patient``: True to repeat the request during an outage, too, because the
    server has replied before. False to raise at once if the connection fails, or when three requests have got no reply.
    """
    spec = attempt.spec
    give_up_at = attempt.until
    silent_until = float("inf") if give_up_at is None else (now if at_once else give_up_at) + GRACE_S
    extra = (more, *spec.quarantine_args) if more or spec.quarantine else spec.terms
    script = scripts(spec).acquire
    pause = 0.02
    failures = 0
    first, attempt.first = attempt.first, None
    while True:
        # The outcome is unknown while a request is under way, and afterwards if it gets no reply.
        doubt, attempt.maybe_in_flight, attempt.may_be_on_server = attempt.maybe_in_flight and first is None, True, True
        timeout = max(0.05, min(spec.timeout, silent_until - now))
        try:
            if isinstance(first, WireError):  # `_core.lock.uncontended` has sent the first request
                raise first
            if first is None:
                first = await RunScript(script, spec.granting, (attempt.token, spec.first_ms, int(join), *extra), timeout)
        except WireError as error:
            attempt.maybe_in_flight = doubt or isinstance(error, Unknown)
            first, failures = None, failures + 1
            if attempt.local_queue is not None:
                attempt.local_queue.trouble = error
            now = await Now()
            if give_up_at is None:
                give_up_at = now + attempt.outage_budget
            if patient or isinstance(error, Refused):
                over = now >= give_up_at or (isinstance(error, Refused) and not error.transient)
            else:
                over = isinstance(error, NotSent) or failures == 3 or now >= silent_until
            if over:
                raise
            await Sleep(min(pause, max(give_up_at - now, 0.0)))
            pause = min(2 * pause, 0.25)
            now = await Now()
        else:
            attempt.maybe_in_flight = doubt
            return first


async def _introduce(attempt: Attempt) -> None:
    """Send the candidate's name to the server, if the queued attempt belongs to an election. Errors are ignored."""
    call = attempt.introduction
    if call is not None:
        try:
            await retry_idempotent(call)
        except WireError:
            pass


async def _leave(attempt: Attempt, place: Waiter) -> None:
    """Leave the queue of the server, unless the next waiter of this process inherits the position."""
    inherited = attempt.local_queue is not None and local_queue_of(attempt).pass_place_on(attempt, place)
    if not inherited and place.attempt is attempt:
        await UnregisterWaiter(place)


async def _stand_in_line(attempt: Attempt, waiter: Waiter, *, patient: bool = True) -> Grant | Busy | Answer[Reply]:
    """Join the server's queue, unless the attempt has inherited a position in it, and wait for the hand-over.

    Return a Grant if the lock was handed over, and Busy if the attempt's time is up. Return an Answer if the server's reply to
    a request ended the wait. The caller evaluates the Answer, which does not contain Busy. ``patient``: as in `ask`, for the
    first request.
    """
    until = attempt.until
    attempt.waits(await Now())
    try:
        outcome = await (RegisterWaiter(waiter, until) if waiter.told is None else Wait(waiter, None, until))
        while outcome is None:
            answer = await ask(attempt, await Now(), join=True, patient=patient or waiter.told is not None)
            if not isinstance(answer.value, Busy):
                return answer
            await _introduce(attempt)
            outcome = await Wait(waiter, answer, until)
    finally:
        await _leave(attempt, waiter)
    match outcome:
        case Granted(fence, deadline, claim):
            now = await Now()
            if now >= deadline or (claim and not attempt.spec.renew):
                # The message was read too late, or nobody will renew the short lease of a hand-over. Ask for the full lease.
                # The token keeps its fence. If another client has the lock since the short lease ended, start over.
                answer = await ask(attempt, now, patient=True)
                return answer if isinstance(answer.value, Held) else _AGAIN
            return Grant(attempt, fence, now, deadline, in_claim_window=claim, queued=True, last=fence + BLOCK - 1)
        case Down(error):
            raise error
        case TimedOut():
            await give_up(attempt)
            if waiter.down:
                raise waiter.down
            return waiter.busy
        case Gone():
            return _AGAIN
        case _:
            raise await key_conflict(outcome, attempt.spec)


async def again(attempt: Attempt, held_lease: HeldLease, more: int) -> Answer[Held] | None:
    """Extend a held lease on one server, and reserve ``more`` further fences for this process. Return None if the lease is
    lost."""
    asking = Attempt(attempt.spec, held_lease.token, maybe_in_flight=held_lease.maybe_in_flight, until=attempt.until)
    try:
        answer = await ask(asking, await Now(), patient=attempt.waited, more=more)
    finally:
        held_lease.maybe_in_flight = asking.maybe_in_flight
        held_lease.may_extend(local_queue_of(attempt).clock(), asking.spec.first_ttl)  # from the last request on
    if isinstance(answer.value, Held) and not held_lease.lost:
        return Answer(answer.value, answer.sent, answer.came)
    await give_up(asking)  # the lease is lost; a late copy of the request must not acquire the lock again
    return None


ON_ONE_SERVER = Strategy(take, again, give_up)
