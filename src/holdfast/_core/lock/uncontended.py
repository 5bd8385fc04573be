"""Acquire and release a lock that nobody else wants, with plain functions instead of an operation.

To acquire a lock, a driver calls `lead`, sends the request, and calls `took` with the reply. To release it, a driver calls
`leave`, sends the request, and calls `left` with the reply. If another attempt of the process has the turn, the driver calls
`park`, and `woken` after the wait. In an uncommon case, these functions return None or False. Then the operation goes on
(`_core.lock.acquire.acquire` or `_core.lock.release.release`), with the outcome of the request that was sent.

A signal handler or a cancellation may end the caller at any point. After `lead`, the caller then runs
`_core.lock.acquire.abandon`. After `leave`, it revokes the token of the lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast._core.lock.local_queue import RECALL_WITHIN_S
from holdfast._core.lock.owner import is_held_by, nobody
from holdfast._core.lock.records import Attempt, Grant, HeldLease
from holdfast._core.lock.renewal import register
from holdfast._core.requests import Frame

if TYPE_CHECKING:
    from holdfast._core.lock.local_queue import LocalQueue
    from holdfast._core.lock.node import Node


class Tokens(Protocol):
    """The tokens that a process has drawn in advance, usually a list."""

    def pop(self) -> str:
        """Return an unused token and remove it. Raises IndexError if none is left."""


def lead(attempt: Attempt, tokens: Tokens, now: float, wait: float | None) -> Frame | None:
    """Give the turn in the local queue to an attempt, and return the request that acquires the lock under its token.

    Return None, with nothing changed, if this process holds the lock or asks for it, if others waited at its last grant, or if
    no token is left. ``now``: monotonic time. ``wait``: seconds to wait from then on; None: without limit.
    """
    spec = attempt.spec
    queue: LocalQueue | None = attempt.local_queue  # type: ignore[assignment]  # see `Attempt.is_direct`
    try:
        if queue is None:
            token = tokens.pop()
        else:
            # Checked without the mutex first, because this is the usual case if many attempts compete.
            if queue.turn_of is not None or queue.held_lease is not None or queue.crowded or queue.in_change():
                return None
            with queue.mutex:
                if queue.turn_of is not None or queue.held_lease is not None:
                    return None
                token = tokens.pop()
                queue.turn_of, queue.asked = attempt, False
    except IndexError:
        return None
    attempt.led, attempt.began = True, now
    if wait is not None:
        attempt.until = now + (wait or (0.0 if queue is None else RECALL_WITHIN_S))
    attempt.token = (spec.signed(token) if spec.home else token) + spec.token_suffix
    # Set before the request is sent, because its outcome is unknown from then on.
    attempt.may_be_on_server = attempt.maybe_in_flight = True
    return spec.acquire_frame


def park(attempt: Attempt, now: float, wait: float | None, owner: int = 0) -> bool:
    """Put an attempt into the local queue, if another attempt of this process has the turn. Call this if `lead` returned None.

    Return True if the caller may wait in `Attempt.slot` until monotonic time `Attempt.until`, and then has to call `woken`.
    Return False, and queue nothing, if the attempt does not wait, if no other attempt has the turn, or if the caller would wait
    for itself without limit. ``wait``: as in `lead`. ``owner``: id of the calling thread or task.
    """
    queue: LocalQueue | None = attempt.local_queue  # type: ignore[assignment]  # see `Attempt.is_direct`
    if wait is None and queue is not None and queue.held_lease is not None and is_held_by(queue.held_lease, owner, inside=True):
        return False
    if queue is None or wait == 0 or not isinstance(queue.turn_of, Attempt) or queue.in_change():
        return False
    attempt.began = now
    if wait is not None:
        attempt.until = now + wait
    if not queue.park(attempt):  # the other attempt has just ended its turn
        return False
    attempt.waits(now)
    return True


def woken(attempt: Attempt, now: float) -> Grant | None:
    """Return the grant of the lease that was handed on to an attempt while it waited in the local queue.

    Return None if no lease was handed on, if the grant has no fence, or if it is not valid at monotonic time ``now``.
    """
    turn = attempt.turn
    if type(turn) is not Grant or not turn.fence:
        return None
    queue: LocalQueue = attempt.local_queue  # type: ignore[assignment]  # see `Attempt.is_direct`
    return turn if queue.accept(attempt, turn, now) else None


def took(attempt: Attempt, reply: object, sent: float, came: float) -> Grant | None:
    """Return the grant for a raw reply, with its lease registered; None: no valid lease. ``sent``, ``came``: monotonic time."""
    node: Node = attempt.node  # type: ignore[assignment]  # see `Attempt.is_direct`
    queue: LocalQueue | None = attempt.local_queue  # type: ignore[assignment]  # as above
    deadline = sent + attempt.spec.first_valid
    if type(reply) is not list or len(reply) != 3 or reply[0] != 1 or came >= deadline or node.keeper.closing:
        return None
    attempt.maybe_in_flight = False
    grant = Grant(attempt, reply[1], came, deadline, reply[2])
    # An interrupt may come between any two of these steps. `abandon` then finds the lease in the attempt, whatever was done.
    attempt.held_lease = grant.held_lease = held_lease = HeldLease(grant)
    with node.mutex:
        outdated = register(node, held_lease, came)
        early = bool(node.asked_early) and node.asked_for(attempt.token)  # a waiter's message for it came before the reply
        if queue is not None and queue.turn_of is attempt:
            queue.crowded, queue.asked, queue.trouble = early, queue.asked or early, None
            queue.held_lease = held_lease
    for lost in outdated:
        node.keeper.safely(node.keeper.report, lost)
    return grant


def leave(attempt: Attempt, held_lease: HeldLease, now: float) -> Frame | None:
    """Begin the release of a lease, and return the request that releases the lock under its token.

    Return None, with nothing changed, if the operation has to release the lease, for example if it is lost or may linger.
    """
    spec = held_lease.spec
    queue: LocalQueue | None = attempt.local_queue  # type: ignore[assignment]  # see `Attempt.is_direct`
    if held_lease.over or held_lease.lost or held_lease.maybe_in_flight or spec.linger or not held_lease.is_good(now):
        return None
    if queue is None:
        over, held_lease.over = held_lease.over, True
        if over:
            return None  # a signal handler has just released it
    else:
        if queue.queue or queue.in_change():
            return None
        with queue.mutex:
            earlier, queue.passing = queue.passing, attempt  # first of all, see `LocalQueue.pass_on`
            leaves = not (held_lease.over or held_lease.lost or earlier is attempt or queue.queue) and queue.turn_of is attempt
            held_lease.over = held_lease.over or leaves
            queue.passing = earlier
        if not leaves:
            return None
    held_lease.owner = nobody
    attempt.count_hold(now)
    return spec.release_frame


def left(attempt: Attempt, held_lease: HeldLease, reply: object) -> bool:
    """End the release of a lease after the server's reply. Return False if the reply does not confirm the release."""
    node: Node = attempt.node  # type: ignore[assignment]  # see `Attempt.is_direct`
    queue: LocalQueue | None = attempt.local_queue  # type: ignore[assignment]  # as above
    if reply != 1:
        return False
    with node.mutex:  # not before the request, which nothing may delay, because other callers wait
        node.renewing.forget(held_lease.token)
        if queue is not None and queue.turn_of is attempt and not queue.queue:
            queue.held_lease, queue.turn_of, queue.asked = None, None, False
            return True
    if queue is not None:
        queue.on_released(attempt)
    return True
