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

_AGAIN: Answer[Reply] = Answer(Dead(), 0.0, 0.0)
"""Our place is gone: start over under a new token."""


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
        answer = await _ask_until(attempt, until, now)
        busy = Busy(0.0, 0, "", lingers=False)
        while True:
            match answer.value:
                case Held(fence):
                    deadline = answer.sent + attempt.spec.first_ttl - margin(attempt.spec.first_ttl)
                    if answer.came < deadline:
                        return Grant(attempt, fence, answer.came, deadline)
                    await give_up(attempt)  # the answer took so long that the lease is over
                case Conflict(why):
                    raise KeyConflict(why)
                case Busy():
                    busy = answer.value
                    # Not queued yet: nothing of ours is there, unless an earlier copy of the request is still under way.
                    attempt.pending = attempt.doubt
            if until is not None and (wait == 0 or await Now() >= until):
                await give_up(attempt)
                return busy
            if not isinstance(answer.value, Busy):
                await new_token(attempt)
            result = await _stand_in_line(attempt, until, busy)
            if not isinstance(result, Answer):
                return result
            answer = result
    except BaseException:
        await give_up(attempt)
        raise


async def _ask_until(
    attempt: Attempt, until: float | None, now: float, *, join: bool = False, patient: bool = False
) -> Answer[Reply]:
    """Ask until there is an answer. A server that says "in a moment" is asked again as long as we mean to wait.

    ``patient``: it was there before, so an absence is ridden out as well; at the first contact it is an error at once, and a
    lost answer is asked for again twice.
    """
    spec = attempt.spec
    give_up_at = until
    silent_until = float("inf") if until is None else until + GRACE
    pause = 0.02
    failures = 0
    while True:
        # While a request is under way, and ever after if it is not answered, the attempt is in doubt.
        doubt, attempt.doubt, attempt.pending = attempt.doubt, True, True
        timeout = max(0.05, min(spec.timeout, silent_until - now))
        try:
            answer = await Run(ACQUIRE, spec.keys, (attempt.token, milliseconds(spec.first_ttl), int(join)), timeout)
        except WireError as error:
            attempt.doubt = doubt or isinstance(error, Unknown)
            failures += 1
            now = await Now()
            if give_up_at is None:
                give_up_at = now + patience(spec)
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


async def _stand_in_line(attempt: Attempt, until: float | None, busy: Busy) -> Grant | Busy | Answer[Reply]:
    """Join the queue and wait for the hand-over. An Answer, never Busy, is for the caller to look at again."""
    waiter = Waiter(attempt, patience(attempt.spec) if until is None else float("inf"), busy, until)
    try:
        outcome = await Enlist(waiter, until)
        while outcome is None:
            answer = await _ask_until(attempt, until, await Now(), join=True, patient=True)
            if not isinstance(answer.value, Busy):
                return answer
            outcome = await Wait(waiter, answer, until)
    finally:
        await Delist(waiter)
    match outcome:
        case Granted(fence, deadline, claim):
            now = await Now()
            if now >= deadline or (claim and not attempt.spec.renew):
                # Read too late, or nobody will renew: ask for the full lease. The same token keeps the same fence. If the
                # claim has ended meanwhile, somebody else has the lock, and we start over.
                answer = await _ask_until(attempt, until, now, patient=True)
                return answer if isinstance(answer.value, Held) else _AGAIN
            return Grant(attempt, fence, now, deadline, claim)
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


def patience(spec: Spec) -> float:
    """Seconds for which a wait without limit rides out a server that is away."""
    return max(spec.ttl, 30.0)
