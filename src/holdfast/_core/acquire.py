"""Taking a lock: at once if it is free, else in the server's queue, until it is handed to us.

One round trip when the lock is free. A busy lock is joined only once the process's inbox listens on that server, so that
no hand-over can be missed; then nothing is sent but the refresh that `_core.waiting` does for all waiters together.
"""

from __future__ import annotations

from holdfast._core.mutex import (
    ACQUIRE,
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
    new_token,
)
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
    Refused,
    Run,
    Sleep,
    TimedOut,
    Unknown,
    Wait,
    WireError,
)
from holdfast._core.waiting import Waiter


class KeyConflict(Exception):
    """Something that is no lock of ours is stored under one of the lock's keys."""


async def acquire(attempt: Attempt, wait: float | None) -> Grant | Busy:
    """Take the lock within ``wait`` seconds (None: for ever; 0: one try, never queued). Busy when time ran out.

    Raises WireError when the server cannot be had, KeyConflict when its data is in the way. Whatever ends it other than a
    Grant, cancellation included, leaves nothing behind.
    """
    now = 0.0 if wait is None else await Now()
    until = None if wait is None else now + wait
    attempt.token = attempt.token or await Draw()
    try:
        answer = await _first_contact(attempt, until, now)
        while True:
            reply = answer.value
            if isinstance(reply, Held):
                deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
                if answer.came < deadline:
                    return Grant(attempt, reply.fence, answer.came, deadline)
                await give_up(attempt)  # the answer took so long that the lease is over
            elif isinstance(reply, Conflict):
                raise KeyConflict(reply.why)
            elif isinstance(reply, Busy) and until is not None and (wait == 0 or await Now() >= until):
                # Not queued yet: nothing of ours is there, unless an earlier copy of the request is still under way.
                attempt.pending = attempt.doubt
                await give_up(attempt)
                return reply
            if not isinstance(reply, Busy):
                await new_token(attempt)
            result = await _stand_in_line(attempt, until)
            if not isinstance(result, Answer):
                return result
            answer = result
    except BaseException:
        await give_up(attempt)
        raise


async def _ask(attempt: Attempt, join: bool, timeout: float) -> Answer[Reply]:
    """Send acquire once. While it is under way, and ever after if it is not answered, the attempt is in doubt."""
    spec = attempt.spec
    before, attempt.doubt, attempt.pending = attempt.doubt, True, True
    try:
        answer = await Run(ACQUIRE, spec.keys, (attempt.token, milliseconds(spec.first_ttl), int(join)), timeout)
    except (NotSent, Refused):
        attempt.doubt = before
        raise
    attempt.doubt = before
    return answer


async def _first_contact(attempt: Attempt, until: float | None, now: float) -> Answer[Reply]:
    """The first answer. A server that cannot be reached is an error at once; a lost answer is asked for again, and a server
    that says "in a moment" is asked again as long as we mean to wait."""
    spec = attempt.spec
    patient_until = until
    silent_until = float("inf") if until is None else until + GRACE
    failures = 0
    while True:
        try:
            return await _ask(attempt, False, max(0.05, min(spec.timeout, silent_until - now)))
        except Unknown:
            failures += 1
            now = await Now()
            if failures == 3 or now >= silent_until:
                raise
        except Refused as error:
            now = await Now()
            if patient_until is None:
                patient_until = now + patience(spec)
            if not error.transient or now >= patient_until:
                raise
            await Sleep(0.05)


async def _stand_in_line(attempt: Attempt, until: float | None) -> Grant | Busy | Answer[Reply]:
    """Join the queue and wait for the hand-over. An Answer is for the caller to look at again."""
    waiter = Waiter(attempt, patience(attempt.spec) if until is None else float("inf"))
    try:
        outcome = await Enlist(waiter, until)
        while outcome is None:
            answer = await _ask_patiently(attempt, until)
            if not isinstance(answer.value, Busy):
                return answer
            outcome = await Wait(waiter, answer, until)
    finally:
        await Delist(waiter)
    match outcome:
        case Granted(fence, deadline, claim):
            now = await Now()
            if claim and not attempt.spec.renew:
                # Nobody will renew: turn the claim window into the full lease. The same token keeps the same fence.
                return await _ask_patiently(attempt, until)
            return Grant(attempt, fence, now, deadline, claim)
        case Down(error):
            raise error
        case TimedOut():
            await give_up(attempt)
            if waiter.down:
                raise waiter.down
            return waiter.busy
        case Gone():
            return Answer(Dead(), 0.0, 0.0)
        case _:
            raise KeyConflict(outcome.why)


async def _ask_patiently(attempt: Attempt, until: float | None) -> Answer[Reply]:
    """Acquire with a place in the queue. The server was there before, so an absence is ridden out."""
    spec = attempt.spec
    give_up_at = None
    pause = 0.02
    while True:
        try:
            return await _ask(attempt, True, spec.timeout)
        except WireError as error:
            if isinstance(error, Refused) and not error.transient:
                raise
            now = await Now()
            if give_up_at is None:
                give_up_at = now + patience(spec) if until is None else until
            if now >= give_up_at:
                raise
            await Sleep(min(pause, max(give_up_at - now, 0.0)))
            pause = min(2 * pause, 1.0)


def patience(spec: Spec) -> float:
    """Seconds for which a wait without limit rides out a server that is away."""
    return max(spec.ttl, 30.0)
