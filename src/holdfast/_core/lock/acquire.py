"""Acquire a lock on one server: at once if the lock is free, otherwise after waiting in the server's queue.

The first request asks only whether the lock is free, and acquires a free lock in one round trip. If the lock is busy, the
inbox of the process (the channel for messages to it) is subscribed next, so that no hand-over message can be missed. Then a
second request puts the attempt into the server's queue. From then on, `_core.lock.server_queue` sends one refresh for all
waiters of the process, and no request for this attempt alone.
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
"""Maximum seconds that ``wait=0`` waits if the holder may have released the lock and let it linger (keep it for quick reuse).

The attempt asks such a holder to hand the lock over.
"""

_AGAIN: Answer[Reply] = Answer(Revoked(), 0.0, 0.0)
"""The result of a wait that has lost its position in the queue: the attempt then starts over under a new token."""


class KeyConflict(Exception):
    """Raised if a key of the lock holds data that is not a lock of holdfast."""


async def key_conflict(found: Conflict, spec: Spec) -> KeyConflict:
    """Return the error for a lock whose key holds other data. Its message says which kind of object uses the key."""
    return KeyConflict(await explained(found, *spec.keys[:2], spec.timeout))


async def acquire(attempt: Attempt, wait: float | None) -> Grant | Busy:
    """Acquire the lock within ``wait`` seconds. Return Busy if the lock was not free in this time.

    ``wait``: None: without limit; 0: try once, without joining the queue. Raises WireError if the server is unreachable or
    replies with an error, and KeyConflict if a key of the lock holds other data. Unless a Grant is returned, everything that
    the attempt left on the server is removed, even after a cancellation.
    """
    try:
        now = attempt.began
        if wait is not None and not attempt.led:
            now = await Now()
            attempt.until = now + wait
        return await acknowledged(await take(attempt, wait == 0, now))
    except BaseException:
        await give_up(attempt)
        raise


async def take(attempt: Attempt, at_once: bool, now: float, place: Waiter | None = None) -> Grant | Busy:
    """Acquire the lock before monotonic time `Attempt.until`. Return Busy if that time has passed.

    ``at_once``: True: try once, without waiting. ``place``: None: ask first whether the lock is free. If ``place`` is not
    None, join the queue at once, or keep waiting at the server-queue position that another attempt of this process has left.
    """
    busy = NO_ANSWER
    if place is None:
        attempt.token = attempt.token or attempt.spec.token(await NewToken())
        result: Answer[Reply] | Grant | Busy = await ask(attempt, now, at_once=at_once, patient=attempt.waited)
    else:
        result = await _stand_in_line(attempt, place, patient=attempt.waited)
    while isinstance(result, Answer):
        held = result.value
        if type(held) is Held:  # the usual case comes first: a pattern match costs as much as all the rest
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
                # Not queued yet: the server stores nothing of this attempt, unless an earlier copy of the request arrives.
                attempt.may_be_on_server = attempt.maybe_in_flight
        if at_once and busy.lingers and not attempt.hasty:
            # The holder may only linger. It releases the lock when asked, and only a waiter with a place in the queue asks it.
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

    If the server replies with a transient error, the request is repeated until `Attempt.until`. ``join``: True: join the queue
    if the lock is busy. ``at_once``: True: give up at monotonic time ``now`` plus `GRACE_S`. ``more``: number of further
    fences to reserve for this process. ``patient``: True: repeat the request during an outage, too, because the server has
    replied before. False: raise at once if the connection fails, and send a request without a reply only three times.
    """
    spec = attempt.spec
    give_up_at = attempt.until
    silent_until = float("inf") if give_up_at is None else (now if at_once else give_up_at) + GRACE_S
    extra = (more, *spec.guarded) if more or spec.guard else spec.terms
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
                first = await Run(script, spec.granting, (attempt.token, spec.first_ms, int(join), *extra), timeout)
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
    """Leave the queue of the server, unless another attempt of this process has inherited the position."""
    if place.attempt is attempt:
        await UnregisterWaiter(place)


async def _stand_in_line(attempt: Attempt, waiter: Waiter, *, patient: bool = True) -> Grant | Busy | Answer[Reply]:
    """Join the server's queue, unless the attempt has inherited a position in it, and wait for the hand-over.

    Return a Grant, or Busy if the attempt's time is up. Return the server's reply (an Answer, never with Busy) if a request
    brought the result; the caller evaluates it. ``patient``: as in `ask`, for the first request.
    """
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
                # The message was read too late, or nobody will renew the claim: ask for the full lease. The same token keeps
                # the same fence. If the claim has ended meanwhile, another client holds the lock, and the attempt starts over.
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
