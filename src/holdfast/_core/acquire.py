"""Taking a lock: at once if it is free, else in the server's queue, until it is handed to us.

One round trip when the lock is free. A busy lock is joined only once the process's inbox listens on that server, so that
no hand-over can be missed; then nothing is sent but the refresh that `_core.waiting` does for all waiters together.
"""

from __future__ import annotations

from holdfast._core.gate import MORE, Failed, Gate, Given, Lead
from holdfast._core.mutex import (
    ACQUIRE,
    BLOCK,
    GRACE,
    Attempt,
    Busy,
    Dead,
    Grant,
    Held,
    Reply,
    Spec,
    give_up,
    margin,
    milliseconds,
)
from holdfast._core.renewing import Tenure
from holdfast._core.requests import (
    Answer,
    Conflict,
    Delist,
    Down,
    Draw,
    Enlist,
    Gone,
    Granted,
    NotSent,
    Now,
    Park,
    Refused,
    Run,
    Sleep,
    TimedOut,
    Unknown,
    Wait,
    WireError,
)
from holdfast._core.waiting import Waiter

RECALL = 0.25
"""Seconds for which one who does not wait gives a holder who may only linger the time to say so, by giving the lock back."""

_AGAIN: Answer[Reply] = Answer(Dead(), 0.0, 0.0)
"""Our place is gone: start over under a new token."""


class KeyConflict(Exception):
    """Something that is no lock of ours is stored under one of the lock's keys."""


async def acquire(attempt: Attempt, wait: float | None) -> Grant | Busy:
    """Take the lock within ``wait`` seconds (None: for ever; 0: one try, never queued). Busy when time ran out.

    Raises WireError when the server cannot be had, KeyConflict when its data is in the way. Whatever ends it other than a
    Grant, cancellation included, leaves nothing behind.
    """
    now = 0.0
    if wait is not None:
        now = await Now()
        attempt.until = now + wait
    try:
        gate = attempt.gate
        if gate is None:
            return await _take(attempt, wait == 0, now)
        given = _enter(attempt, gate, wait == 0, now)
        if given is None:
            await Park(attempt, attempt.until)
            given = gate.received(attempt)
            attempt.waited = True
            now = await Now()
        return await _use(attempt, gate, given, wait == 0, now)
    except BaseException:
        await abandon(attempt)
        raise


async def abandon(attempt: Attempt) -> None:
    """Leave nothing of an attempt behind, here or at the server, whatever it has got."""
    gate, given = attempt.gate, attempt.given
    if gate is not None and isinstance(given, Lead) and given.place is not None:
        gate.bequeath(attempt, given.place)  # before it is given up at the server, if somebody else here wants it
    if gate is None or not gate.has_lease(attempt):
        await give_up(attempt)
    if gate is not None:
        gate.withdraw(attempt)


def _enter(attempt: Attempt, gate: Gate, at_once: bool, now: float) -> Given | Busy | None:
    if not at_once:
        return gate.enter(attempt)
    busy = gate.busy(attempt)
    if busy is not None:
        return busy
    if gate.leads():
        attempt.gate = None  # one who waits is asking already, and may wait for long: we ask for ourselves
        return Lead()
    attempt.until = now + RECALL  # in case that the keeper is just giving it back
    return gate.enter(attempt)


async def _use(attempt: Attempt, gate: Gate, given: Given | Busy | None, at_once: bool, now: float) -> Grant | Busy:
    """What was given in the line of this process is made a lock of it."""
    while True:
        match given:
            case Grant(tenure=tenure) if tenure is not None and tenure.lost:
                given = gate.lost(attempt)
            case Grant(fence=fence, tenure=tenure) if tenure is not None and (fence == 0 or now >= tenure.deadline):
                # Or it took us so long to wake up that it is over, and the keeper has not noticed yet.
                given = await _freshen(attempt, gate, tenure)
            case Grant():
                return given
            case Lead(place):
                return await _lead(attempt, at_once, now, place)
            case Failed(error):
                raise error
            case Busy():
                return given
            case None:
                return gate.busy(attempt) or gate.heard


async def _freshen(attempt: Attempt, gate: Gate, tenure: Tenure) -> Given:
    """There are no fences left, or hardly any time: ask the server for more of both, under the token that has the lock."""
    asking = Attempt(attempt.spec, tenure.token, doubt=tenure.doubt)
    try:
        answer = await _ask_until(asking, attempt.until, await Now(), more=MORE)
    finally:
        tenure.doubt = asking.doubt  # also when we are interrupted: whoever gives it back has to know
    if isinstance(answer.value, Held) and not tenure.lost:
        return gate.freshened(attempt, tenure, answer.value, answer.sent)
    if isinstance(answer.value, Held) or asking.doubt:
        await give_up(asking)  # the keeper has given it up for lost meanwhile; or an earlier copy may still be answered so
    tenure.lose("its key is gone or somebody else's")
    return gate.lost(attempt)


async def _lead(attempt: Attempt, at_once: bool, now: float, place: Waiter | None) -> Grant | Busy:
    """Ask the server, for all of this process who want the lock."""
    gate = attempt.gate
    try:
        result = await _take(attempt, at_once, now, place)
    except WireError as error:
        if gate is not None:
            gate.failed(attempt, error)
        raise
    if gate is not None:
        if isinstance(result, Grant):
            gate.took(attempt, result)
        else:
            gate.heard = result
            gate.left(attempt)
    return result


async def _take(attempt: Attempt, at_once: bool, now: float, place: Waiter | None = None) -> Grant | Busy:
    """Take the lock from the server. ``place``: in the queue there, left by another one."""
    until = attempt.until
    if place is None:
        attempt.token = attempt.token or await _token(attempt.spec)
        answer = await _ask_until(attempt, until, now, patient=attempt.waited)
    else:
        result = await _stand_in_line(attempt, until, place.busy, place)
        if not isinstance(result, Answer):
            return result
        answer = result
    queued = place is not None
    busy = Busy(0.0, 0, "", lingers=False)
    while True:
        match answer.value:
            case Held(fence, last):
                deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
                if answer.came < deadline:
                    return Grant(attempt, fence, answer.came, deadline, queued=queued, last=last)
                await give_up(attempt)  # the answer took so long that the lease is over
            case Conflict(why):
                raise KeyConflict(why)
            case Busy():
                busy = answer.value
                # Not queued yet: nothing of ours is there, unless an earlier copy of the request is still under way.
                attempt.pending = attempt.doubt
        if at_once and busy.lingers:
            # Its holder may have done with it: he gives it back when he is asked, and who has a place asks him.
            at_once, until = False, await Now() + RECALL
            attempt.until = until
        if until is not None and (at_once or await Now() >= until):
            await give_up(attempt)
            return busy
        if not isinstance(answer.value, Busy):
            await _new_token(attempt)
        queued = True
        result = await _stand_in_line(attempt, until, busy)
        if not isinstance(result, Answer):
            return result
        answer = result


async def _token(spec: Spec) -> str:
    """A new token. One that ends so may keep the lock for a while after use, which the server tells those who find it busy."""
    token = await Draw()
    return token + "~" if spec.linger else token


async def _new_token(attempt: Attempt) -> None:
    """Start over under a new token; what the old one may have left behind is given up first."""
    if attempt.doubt:
        await give_up(attempt)
    attempt.token = await _token(attempt.spec)
    attempt.pending = attempt.doubt = False


async def _ask_until(
    attempt: Attempt, until: float | None, now: float, *, join: bool = False, patient: bool = False, more: int = 0
) -> Answer[Reply]:
    """Ask until there is an answer. A server that says "in a moment" is asked again as long as we mean to wait.

    ``patient``: it was there before, so an absence is ridden out as well; at the first contact it is an error at once, and a
    lost answer is asked for again twice.
    """
    spec = attempt.spec
    give_up_at = until
    silent_until = float("inf") if until is None else until + GRACE
    extra = (more,) if more else ()
    pause = 0.02
    failures = 0
    while True:
        # While a request is under way, and ever after if it is not answered, the attempt is in doubt.
        doubt, attempt.doubt, attempt.pending = attempt.doubt, True, True
        timeout = max(0.05, min(spec.timeout, silent_until - now))
        try:
            answer = await Run(ACQUIRE, spec.keys, (attempt.token, milliseconds(spec.first_ttl), int(join), *extra), timeout)
        except WireError as error:
            attempt.doubt = doubt or isinstance(error, Unknown)
            failures += 1
            now = await Now()
            if give_up_at is None:
                give_up_at = now + attempt.patience
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
            attempt.doubt = doubt
            return answer


async def _stand_in_line(
    attempt: Attempt, until: float | None, busy: Busy, place: Waiter | None = None
) -> Grant | Busy | Answer[Reply]:
    """Join the queue and wait for the hand-over. An Answer, never Busy, is for the caller to look at again."""
    waiter = place or Waiter(attempt, busy)
    try:
        outcome = await (Wait(waiter, None, until) if place is not None else Enlist(waiter, until))
        while outcome is None:
            answer = await _ask_until(attempt, until, await Now(), join=True, patient=True)
            if not isinstance(answer.value, Busy):
                return answer
            outcome = await Wait(waiter, answer, until)
    finally:
        if attempt.gate is None or not attempt.gate.bequeath(attempt, waiter):
            await Delist(waiter)
    match outcome:
        case Granted(fence, deadline, claim):
            now = await Now()
            if now >= deadline or (claim and not attempt.spec.renew):
                # Read too late, or nobody will renew: ask for the full lease. The same token keeps the same fence. If the
                # claim has ended meanwhile, somebody else has the lock, and we start over.
                answer = await _ask_until(attempt, until, now, patient=True)
                return answer if isinstance(answer.value, Held) else _AGAIN
            return Grant(attempt, fence, now, deadline, claim, queued=True, last=fence + BLOCK - 1)
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
            raise KeyConflict(outcome.why)
