"""Waiters for the tests of `_core/lock/server_queue.py`: made, enlisted, and told that they stand in line."""

from __future__ import annotations

from holdfast._core.lock.records import Attempt, Waiter
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import Waiting
from holdfast._core.requests import Answer, Outcome
from support.driver import Slot, slot_of, spec

INFINITY = float("inf")


def waiter(
    token: str = "p.1",  # noqa: S107
    *,
    until: float | None = INFINITY,
    ttl: float = 30.0,
    max_hold: float | None = None,
) -> Waiter:
    attempt = Attempt(spec(ttl=ttl, max_hold=max_hold), token, may_be_on_server=True, until=until, slot=Slot())
    return Waiter(attempt, Busy(0.0, 0, "", lingers=False))


def put(this: Waiter) -> list[Outcome | None]:
    return slot_of(this.attempt).outcomes


def enlisted(waiting: Waiting, this: Waiter, now: float = 0.0) -> bool:
    put(this).clear()
    return waiting.register_waiter(this, now)


def busy(last_fence: int = 5, remaining: float | None = 20.0) -> Busy:
    return Busy(remaining, last_fence, "q", lingers=False)


def queued(waiting: Waiting, this: Waiter, *, sent: float = 0.0, now: float = 0.0, answer: Busy | None = None) -> Waiter:
    """Listening, and told by the server that it stands in line."""
    if not enlisted(waiting, this, now):
        waiting.on_listening(now, b"hf:")
        put(this).clear()
    waiting.joined(this, Answer(answer or busy(), sent, now), now)
    return this


def sent_by(waiting: Waiting, until: float) -> list[tuple[float, int]]:
    """The refreshes sent up to a time, each with the number of its waiters, when all are answered "waiting" at once."""
    seen = []
    while (now := waiting.next_at()) <= until:
        for refresh in waiting.due(now):
            seen.append((now, len(refresh.batch)))
            waiting.on_refreshed(refresh.batch, [busy()] * len(refresh.batch), now, now)
    return seen
