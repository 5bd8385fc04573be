"""Acquire a lock that threads and tasks of one process share.

Each attempt enters the queue inside its process (`_core.lock.local_queue`). One attempt at a time holds the lock, or asks the
server for it; the others wait in that queue.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from holdfast._core.lock.acquire import RECALL_WITHIN_S, ask, take
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import Node
from holdfast._core.lock.records import AskServer, Attempt, Failed, Grant, HeldLease, Turn, Waiter
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replication import acknowledged
from holdfast._core.lock.replies import Busy, Held
from holdfast._core.requests import Answer, NewToken, Now, TooFew, UnregisterWaiter, WaitLocally, WireError


class Strategy(NamedTuple):
    """The three functions with which a lock is acquired: one set for a single server, another one for servers that vote."""

    take: Callable[[Attempt, bool, float, Waiter | None], Coroutine[Any, Any, Grant | Busy]]
    """Function that asks the server or servers for the lock and waits; its parameters are those of `_core.lock.acquire.take`.
    """
    again: Callable[[Attempt, HeldLease, int], Coroutine[Any, Any, Answer[Held] | None]]
    """Function that extends a held lease and reserves the given number of fences for its process.

    It returns None if the lease is lost.
    """
    give_up: Callable[[Attempt], Coroutine[Any, Any, None]]
    """Function that removes everything that an attempt left on the server or servers."""


async def again(attempt: Attempt, held_lease: HeldLease, more: int) -> Answer[Held] | None:
    """Extend a held lease on one server, and reserve ``more`` further fences for this process.

    Return None if the lease is lost.
    """
    asking = Attempt(attempt.spec, held_lease.token, maybe_in_flight=held_lease.maybe_in_flight, until=attempt.until)
    try:
        answer = await ask(asking, await Now(), patient=attempt.waited, more=more)
    finally:
        held_lease.maybe_in_flight = asking.maybe_in_flight
    if isinstance(answer.value, Held) and not held_lease.lost:
        return Answer(answer.value, answer.sent, answer.came)
    await give_up(asking)  # lost, as the keeper may have found meanwhile; and a late copy must not acquire the lock again
    return None


ON_ONE_SERVER = Strategy(take, again, give_up)


async def acquire(attempt: Attempt, wait: float | None, strategy: Strategy = ON_ONE_SERVER) -> Grant | Busy:
    """Acquire the lock through the queue inside this process, within ``wait`` seconds (None: without limit; 0: without
    waiting).

    Return Busy if another client held the lock for that time. Raises WireError if the server is unreachable. ``strategy``:
    functions that ask the server or servers for the lock.
    """
    try:
        if attempt.led:  # `_core.lock.uncontended` has given it the turn, and has usually asked the server
            return await _ask_server(attempt, AskServer(), wait == 0, attempt.began, strategy)
        now = 0.0
        if wait is not None or attempt.entered:
            now = await Now()
            attempt.until = attempt.until if attempt.entered or wait is None else now + wait
        turn = None if attempt.entered else _enter(attempt, wait == 0, now)
        if turn is None:
            turn, now = await _wait_for_turn(attempt, wait != 0, now)
        while isinstance(turn, Grant):
            held_lease = turn.held_lease
            assert held_lease is not None
            if held_lease.lost:
                turn = local_queue_of(attempt).drop_lease()
            elif turn.fence and now < held_lease.deadline:
                return turn
            else:  # no fence is left; or waking up took so long that the lease is over, and the keeper has not noticed yet
                turn = await _ask_for_more(attempt, held_lease, strategy)
        if isinstance(turn, Failed):
            raise turn.error
        return await _ask_server(attempt, turn, wait == 0, now, strategy) if isinstance(turn, AskServer) else turn
    except BaseException:
        await abandon(attempt, strategy)
        raise


async def _wait_for_turn(attempt: Attempt, waits: bool, now: float) -> tuple[Turn | Busy, float]:
    """Wait in the local queue until the attempt gets a turn, or its time is up. Return its turn, as `_look`, and the time."""
    if waits:
        attempt.waits()
    while attempt.turn is None and (attempt.until is None or now < attempt.until):
        await WaitLocally(attempt)
        now = await Now()
    return _look(attempt), now


async def abandon(attempt: Attempt, strategy: Strategy = ON_ONE_SERVER) -> None:
    """Remove everything that an attempt left in the queue of its process and on the server.

    Release the lock if it was acquired.
    """
    _unregister(attempt)
    local_queue = attempt.local_queue
    if local_queue is None:
        return await strategy.give_up(attempt)
    try:
        place = attempt.turn.place if isinstance(attempt.turn, AskServer) else None
        # The next waiter of this process inherits the place first. If there is none, no later one may inherit it either.
        if place is not None and place.attempt is attempt and not local_queue.pass_place_on(attempt, place):
            await UnregisterWaiter(place)
        if not local_queue.has_lease(attempt):
            await strategy.give_up(attempt)
    finally:
        local_queue.withdraw(attempt)  # even if nothing can be awaited any more: the next waiter depends on it


def _unregister(attempt: Attempt) -> None:
    """Stop renewing the lease that `_core.lock.uncontended` has registered, unless the local queue knows the lease already."""
    held_lease, node = attempt.held_lease, attempt.node
    if held_lease is not None and (attempt.local_queue is None or not attempt.local_queue.has_lease(attempt)):
        assert isinstance(node, Node)
        held_lease.end()
        with node.mutex:
            node.renewing.forget(held_lease.token)


def local_queue_of(attempt: Attempt) -> LocalQueue:
    """Return the queue inside this process that an attempt belongs to. The attempt must belong to one."""
    local_queue = attempt.local_queue
    assert isinstance(local_queue, LocalQueue)
    return local_queue


def _enter(attempt: Attempt, at_once: bool, now: float) -> Turn | Busy | None:
    local_queue = local_queue_of(attempt)
    if local_queue.in_change():
        # A signal handler has interrupted this thread in the middle of a change of the queue: the attempt bypasses it.
        attempt.local_queue, attempt.hasty = None, at_once
        return AskServer()
    if not at_once:
        return local_queue.enter(attempt)
    attempt.until = now + RECALL_WITHIN_S  # the keeper may just be releasing the lock, or checking whether the lease is lost
    busy = local_queue.busy(attempt)
    if busy is not None and not local_queue.start_question(attempt, now):
        attempt.until = now
        return busy
    if busy is None and local_queue.is_asking():
        attempt.local_queue, attempt.until = None, now  # another attempt is asking, and may wait for long: ask independently
        return AskServer()
    return local_queue.enter(attempt)


def _look(attempt: Attempt) -> Turn | Busy:
    """Return the result that an attempt got in the queue of its process: a grant, an error, or permission to ask the server.

    Return Busy if the attempt's time is up. Raises the error of the attempt that asks the server, if the server does not
    reply.
    """
    local_queue = local_queue_of(attempt)
    attempt.waited = True
    with local_queue.mutex:
        leader = local_queue.node.waiting.get(local_queue.turn_of.token) if isinstance(local_queue.turn_of, Attempt) else None
        turn = local_queue.received(attempt) or local_queue.busy(attempt)
    if turn is not None:
        return turn
    trouble = local_queue.trouble if leader is None else leader.down
    if trouble is not None:
        raise trouble  # the attempt that asks the server for this process gets no reply
    return local_queue.last_reply if leader is None else leader.busy


async def _ask_for_more(attempt: Attempt, held_lease: HeldLease, strategy: Strategy) -> Turn:
    """Ask the server to extend a held lease and to reserve further fences, so that it can be handed on to this attempt.

    The caller does so if no reserved fence is left, or the lease is valid for too short a time.
    """
    local_queue = local_queue_of(attempt)
    answer = await strategy.again(attempt, held_lease, local_queue.fences_wanted())
    if answer is not None and not held_lease.lost:
        return local_queue.note_more_fences(attempt, held_lease, answer.value, answer.sent)
    held_lease.lose("its key is gone or somebody else's")
    return local_queue.drop_lease()


async def _ask_server(attempt: Attempt, turn: AskServer, at_once: bool, now: float, strategy: Strategy) -> Grant | Busy:
    """Ask the server for the lock. Meanwhile the other attempts of this process wait in its local queue.

    ``turn``: permission to ask, with the server-queue position that the attempt has inherited, if any. ``at_once``: True: ask
    once, without waiting.
    """
    if attempt.local_queue is None:
        return await acknowledged(await strategy.take(attempt, at_once, now, None))
    local_queue, place = local_queue_of(attempt), turn.place
    # Not before the inbox is subscribed: with the server away, the attempt would wait for that instead of failing at once.
    if place is None and local_queue.crowded and local_queue.reachable and not (at_once or attempt.maybe_in_flight):
        attempt.token = attempt.spec.token(await NewToken())
        # Asking first whether the lock is free would most likely be a wasted round trip.
        place = Waiter(attempt, local_queue.last_reply)
    try:
        result = await strategy.take(attempt, at_once, now, place)
    except (WireError, TooFew) as error:
        local_queue.failed(attempt, error)
        raise
    result = await acknowledged(result)
    if isinstance(result, Grant):
        local_queue.note_grant(attempt, result)
    else:
        local_queue.last_reply, local_queue.trouble = result, None
        local_queue.on_released(attempt)
    return result
