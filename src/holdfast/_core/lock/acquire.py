"""Taking a lock: at once if it is free, else in the server's queue, until it is handed to us.

One round trip when the lock is free. A busy lock is joined only once the process's inbox listens on that server, so that
no hand-over can be missed; then nothing is sent but the refresh that `_core.lock.server_queue` does for all waiters together.
"""

from __future__ import annotations

from holdfast._core.lock.name_conflict import explained
from holdfast._core.lock.records import Attempt, Grant, Spec, Waiter, margin, scripts
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import BLOCK, GRACE_S, NO_ANSWER, Busy, Held, Reply, Revoked
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
    Run,
    Sleep,
    TimedOut,
    Unknown,
    UnregisterWaiter,
    Wait,
    WireError,
)
from holdfast._core.retry import retry_idempotent

RECALL_WITHIN_S = 0.25
"""Seconds for which one who does not wait gives a holder who may only linger the time to say so, by giving the lock back."""

_AGAIN: Answer[Reply] = Answer(Revoked(), 0.0, 0.0)
"""Our place is gone: start over under a new token."""


class KeyConflict(Exception):
    """Something that is no lock of ours is stored under one of the lock's keys."""


async def key_conflict(found: Conflict, spec: Spec) -> KeyConflict:
    """Return the error for a key that is used for something else, and say for what."""
    return KeyConflict(await explained(found, *spec.keys[:2], spec.timeout))


async def acquire(attempt: Attempt, wait: float | None) -> Grant | Busy:
    """Take the lock within ``wait`` seconds (None: for ever; 0: one try, never queued). Busy when time ran out.

    Raises WireError when the server cannot be had, KeyConflict when its data is in the way. Any end but a Grant, cancellation
    included, leaves nothing behind.
    """
    now = 0.0
    if wait is not None:
        now = await Now()
        attempt.until = now + wait
    try:
        return await acknowledged(await take(attempt, wait == 0, now))
    except BaseException:
        await give_up(attempt)
        raise


async def take(attempt: Attempt, at_once: bool, now: float, place: Waiter | None = None) -> Grant | Busy:
    """Take the lock until `Attempt.until`; ``at_once``: now or never. ``place``: join the queue without asking first whether
    the lock is free; or take the place that another attempt has left."""
    busy = NO_ANSWER
    if place is None:
        attempt.token = attempt.token or attempt.spec.token(await NewToken())
        result: Answer[Reply] | Grant | Busy = await ask(attempt, now, at_once=at_once, patient=attempt.waited)
    else:
        result = await _stand_in_line(attempt, place, patient=attempt.waited)
    while isinstance(result, Answer):
        held = result.value
        if type(held) is Held:  # nearly always, and a pattern costs as much as all the rest of this
            deadline = result.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
            if result.came < deadline:
                # Or it may have: a join that got no answer. Those behind us told the holder before, and shall not be forgotten.
                queued = place is not None and (place.told is not None or attempt.maybe_in_flight)
                return Grant(attempt, held.fence, result.came, deadline, queued=queued, last=held.last)
            await give_up(attempt)  # the answer took so long that the lease is over
        match result.value:
            case Conflict():
                raise await key_conflict(result.value, attempt.spec)
            case Busy():
                busy = result.value
                # Not queued yet: nothing of ours is there, unless an earlier copy of the request is still under way.
                attempt.may_be_on_server = attempt.maybe_in_flight
        if at_once and busy.lingers and not attempt.hasty:
            # Its holder may be done with it: it releases the lock when asked, and a waiter with a place asks it.
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
    """Under a new token; what the old one may have left behind is given up first."""
    if attempt.maybe_in_flight:
        await give_up(attempt)
    attempt.token = attempt.spec.token(await NewToken())
    attempt.may_be_on_server = attempt.maybe_in_flight = False


async def ask(
    attempt: Attempt, now: float, *, join: bool = False, at_once: bool = False, patient: bool = False, more: int = 0
) -> Answer[Reply]:
    """Ask until there is an answer. A server that says "in a moment" is asked again as long as we mean to wait. ``at_once``: of
    one that says nothing that counts from now on, though the keeper of this process was given a moment.

    ``patient``: it was there before, so an absence is ridden out as well; at the first contact it is an error at once, and a
    lost answer is asked for again twice.
    """
    spec = attempt.spec
    give_up_at = attempt.until
    silent_until = float("inf") if give_up_at is None else (now if at_once else give_up_at) + GRACE_S
    extra = (more, *spec.guarded) if more or spec.guard else spec.terms
    script = scripts(spec).acquire
    pause = 0.02
    failures = 0
    while True:
        # While a request is under way, and ever after if it is not answered, the attempt is in doubt.
        doubt, attempt.maybe_in_flight, attempt.may_be_on_server = attempt.maybe_in_flight, True, True
        timeout = max(0.05, min(spec.timeout, silent_until - now))
        try:
            answer = await Run(script, spec.granting, (attempt.token, spec.first_ms, int(join), *extra), timeout)
        except WireError as error:
            attempt.maybe_in_flight = doubt or isinstance(error, Unknown)
            failures += 1
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
            return answer


async def _introduce(attempt: Attempt) -> None:
    """It has a place in line: say what the server may want to know about it, and may do without."""
    call = attempt.introduction
    if call is not None:
        try:
            await retry_idempotent(call)
        except WireError:
            pass


async def _leave(attempt: Attempt, place: Waiter) -> None:
    """Give up a place in line, if it has that still: of one whose event loop is closed, the next one may have it."""
    if place.attempt is attempt:
        await UnregisterWaiter(place)


async def _stand_in_line(attempt: Attempt, waiter: Waiter, *, patient: bool = True) -> Grant | Busy | Answer[Reply]:
    """Join the queue and wait for the hand-over; a place that was inherited is there already. An Answer, never Busy, is for the
    caller to look at again. ``patient``: as in `ask`, until there was an answer."""
    until = attempt.until
    attempt.waits()
    try:
        outcome = await (RegisterWaiter(waiter, until) if waiter.told is None else Wait(waiter, None, until))
        while outcome is None:
            answer = await ask(attempt, await Now(), join=True, patient=patient or waiter.told is not None)
            if not isinstance(answer.value, Busy):
                return answer
            await _introduce(attempt)
            outcome = await Wait(waiter, answer, until)
    finally:
        if attempt.local_queue is None or not attempt.local_queue.pass_place_on(attempt, waiter):
            await _leave(attempt, waiter)
    match outcome:
        case Granted(fence, deadline, claim):
            now = await Now()
            if now >= deadline or (claim and not attempt.spec.renew):
                # Read too late, or nobody will renew: ask for the full lease. The same token keeps the same fence. If the
                # claim has ended meanwhile, somebody else has the lock, and we start over.
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
