"""What must happen, in time and in order: a loss is noticed, a free lock is handed on, waits end, and first come, first served.

Rules as in `rules`. Time counts without faults: what is due after so many seconds is due that long after the last fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from holdfast.testing.history import Event, process_of
from holdfast.testing.judge.evidence import INFINITY, Ask, Evidence, Hold, Scene
from holdfast.testing.judge.rules import ROUNDING, Limits, Violation


def r6_loss_is_noticed(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """Who has lost a lock on the server learns of it within ``limits.notice``, or stops believing by himself. Whose belief
    ends by itself, before he has given the lock back, is told so within ``limits.lag``. Time counts without faults that he
    may feel."""
    for scene in case.scenes.values():
        if not scene.server:
            continue
        for hold in scene.holds:
            said = [event for event in case.attempts[hold.attempt] if event.at > hold.since]
            freed = next((event for event in said if event.kind == "freed" and event.at < hold.end), None)
            # A copy of the request, made by somebody in between, may get the lock back for the one who believes to have it.
            if freed is not None and not any(event.kind == "granted" for event in said):
                due = case.due(freed.at, limits.notice, case.touching(hold.process))
                if hold.end > due + ROUNDING:
                    text = f"{hold.who} lost {hold.lock!r} at {case.ms(freed.at)}, and believed until {case.ms(hold.end)}"
                    yield Violation("R6", text, (hold.taken, freed))
            if hold.until < min(hold.ended, case.last) - limits.lag:
                due = case.due(hold.until, limits.lag, case.touching(hold.process))
                if min(hold.ended, case.last) > due + ROUNDING:
                    text = f"{hold.who} was not told that its lease of {hold.lock!r} had ended at {case.ms(hold.until)}"
                    yield Violation("R6", text, (hold.taken,))


def r7_liveness(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """A lock is not left free for longer than ``limits.handover`` while somebody stands in line. Each ``ask`` comes to an end,
    and not later than ``limits.lag`` after the end of its wait. Time counts without faults; who crashes need not end."""
    for lock, scene in case.scenes.items():
        if not scene.queued or not scene.server:
            continue
        for since, until in _free(case, lock, scene):
            if until - since <= limits.handover:
                continue
            for event, ask in scene.queued.values():
                waits, ends = max(since, event.at), min(until, ask.ended if ask else event.at)
                if ends > case.due(waits, limits.handover, case.touching(process_of(event.who))) + ROUNDING:
                    text = f"{lock!r} was free from {case.ms(since)}, and {event.who} waited for it until {case.ms(ends)}"
                    yield Violation("R7", text, (event,))
                    break
    for ask in case.asks:
        if ask.ended > ask.event.until + limits.lag or ask.ended == INFINITY:
            yield from _overdue(case, ask, limits.lag)


def _free(case: Evidence, lock: str, scene: Scene) -> Iterator[tuple[float, float]]:
    """When nobody had the lock, by what the server knows."""
    free_since, kept = case.start, float("-inf")
    for event in scene.server:
        if event.kind == "granted":
            if event.at > kept:
                yield free_since, event.at
            free_since = kept = event.until
        elif event.kind == "extended":
            free_since = kept = event.until
        elif event.at < kept:  # a lock that has run out is found out later
            free_since = kept = event.at
        if kept > event.at and case.disturbed(event.at, kept, lock, ("clock",)):
            free_since = kept = INFINITY  # and nobody knows until when
    yield free_since, case.last


def _overdue(case: Evidence, ask: Ask, lag: float) -> Iterator[Violation]:
    event = ask.event
    process = process_of(event.who)
    faults = case.touching(process)
    late = min(ask.ended, case.last) > case.due(event.until, lag, faults)
    if ask.ended == INFINITY and (process in case.finished or "" in case.finished):
        late = not any(fault.end == INFINITY for fault in faults)
    if late:
        wait = "for ever" if event.until == INFINITY else f"until {case.ms(event.until)}"
        how = "never ended" if ask.ended == INFINITY else f"ended at {case.ms(ask.ended)}"
        yield Violation("R7", f"{event.who} asked for {event.lock!r} at {case.ms(event.at)} {wait}, which {how}", (event,))


def r8_order_of_waiters(case: Evidence, _: Limits) -> Iterator[Violation]:
    """Who had been told of his place in the queue before another sent the request that got him in (into the queue, or to the
    lock at once) has the lock first. Who gave up is overtaken only by whom was served when his time was over.

    Excused: a fault that who was overtaken may have felt, at any time before. Without faults there is no excuse. Who was
    granted the lock in his turn, and heard of it too late, was not overtaken.
    """
    for scene in case.scenes.values():
        if scene.queued and scene.holds:
            for waiter, by in (*_overtaken(scene), *_passed_over(scene)):
                said = case.attempts.get(waiter.attempt, ())
                had_its_turn = any(event.kind == "granted" and waiter.at <= event.at <= by.since for event in said)
                if not had_its_turn and not any(fault.at <= by.since for fault in case.touching(process_of(waiter.who))):
                    text = f"{waiter.who} stood in line at {case.ms(waiter.at)}; {by.who} came later, and was served before"
                    yield Violation("R8", text, (waiter, by.taken))


def _came(scene: Scene, hold: Hold) -> float:
    """When the request was sent with which this holder came."""
    place = scene.queued.get(hold.attempt)
    if place is not None:
        return place[0].since
    return hold.ask.event.at if hold.ask else float("-inf")


def _overtaken(scene: Scene) -> Iterator[tuple[Event, Hold]]:
    """Places in the queue whose owners were served after somebody who had come later."""
    by_fence = all(hold.fence for hold in scene.holds)
    first: Event | None = None
    for hold in sorted(scene.holds, key=attrgetter("fence" if by_fence else "since"), reverse=True):
        if first is not None and first.at < _came(scene, hold):
            yield first, hold
        place = scene.queued.get(hold.attempt)
        if place is not None and (first is None or place[0].at < first.at):
            first = place[0]


def _passed_over(scene: Scene) -> Iterator[tuple[Event, Hold]]:
    """Places in the queue whose owners waited to the end in vain, while somebody was served who had come later."""
    served = {hold.attempt for hold in scene.holds}
    times = [hold.since for hold in scene.holds]
    for attempt, (event, ask) in scene.queued.items():
        if attempt in served or ask is None or ask.outcome != "busy":
            continue
        for hold in scene.holds[bisect_right(times, event.at) : bisect_right(times, ask.event.until)]:
            if event.at < _came(scene, hold):
                yield event, hold
                break
