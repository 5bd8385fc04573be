"""Rules of barriers, latches and events, under any faults.

- B1: no party goes on before all have come, and each gets a different number.
- B2: when a barrier opens, all its parties go on, except those that something else has ended.
- B3: the action runs once, to its end, before the parties go on.
- B4: a party that waits with a dead one is told. B5: so is one that waits at a barrier whose state the server has lost.
- L1: each count counts once, and a latch never counts below zero.
- L2: a waiter is released only if the latch or event was open while it waited. L3: no waiter sleeps through an opening.
- L4: one call of ``set`` sets an event once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.testing.history import Event
from holdfast.testing.judge.excuses import AMNESIA, Upsets
from holdfast.testing.judge.safety_rules import Violation
from holdfast.testing.judge.verdicts import Docket

LATE = 2.0
"""Seconds within which a message arrives when nothing goes wrong."""


@dataclass
class RendezvousHistory:
    """A history, with what is known of it before it begins."""

    history: list[Event]
    count: int
    """Parties of the barrier, or what the latch counts."""
    ttl: float = 0.0
    acts: bool = False
    """All have an action."""
    calm: bool = False
    """Nothing goes wrong."""
    only: set[str] = field(default_factory=set)
    """The kinds of faults, if there are any."""
    docket: Docket = field(default_factory=Docket)
    upsets: Upsets = field(init=False)
    """When the server has lost what it knew."""

    def __post_init__(self) -> None:
        self.upsets = Upsets(self.history)

    def of(self, *kinds: str) -> list[Event]:
        """The events of these kinds."""
        return [event for event in self.history if event.kind in kinds]


def barrier(case: RendezvousHistory) -> Iterator[Violation]:
    """The rules of barriers."""
    came = {event.attempt: event for event in case.of("come")}
    groups: dict[int, list[Event]] = defaultdict(list)
    for event in case.of("together"):
        groups[event.last].append(event)
    for group in groups.values():
        numbers = sorted(event.fence for event in group)
        who = " ".join(event.attempt for event in group)
        case.docket.decide("B1")
        if numbers != list(range(case.count)) or any(event.attempt not in came for event in group):
            yield Violation("B1", f"{who} go on with the numbers {numbers}, of {case.count}")
        acted = [event for event in case.of("acted") if event.attempt in {one.attempt for one in group}]
        if case.acts:
            case.docket.decide("B3")
        if case.acts and len([event for event in acted if event.at <= group[0].at]) != 1:
            yield Violation("B3", f"{who} go on after {len(acted)} actions")
    yield from _outcomes(case)
    yield from _the_dead(case, came)
    yield from _the_forgotten(case, came)


def _outcomes(case: RendezvousHistory) -> Iterator[Violation]:
    met = {event.attempt: event for event in case.of("together")}
    for event in case.of("through"):
        case.docket.decide("B2")
        if event.attempt not in met or met[event.attempt].fence != event.fence:
            yield Violation("B1", f"{event.attempt} goes on as {event.fence}, and is not among those who do")
    for event in case.of("parted"):
        excused = event.note in {"cancelled", "away"} or (event.note == "timeout" and not case.calm)
        if event.attempt in met:
            since, until = sorted((met[event.attempt].at, event.at))
            excused = excused or case.upsets.between(since, until, AMNESIA)
        if event.attempt in met and not case.docket.decide("B2", excused):
            yield Violation("B2", f"{event.attempt} is told that it is broken ({event.note}), and the others go on")
        if not case.docket.decide("B4 told", not case.calm) and event.note in {"died", "lost"}:
            yield Violation("B4", f"{event.attempt} is told {event.note}, and all are well")

    yield from _the_gone(case, met)


def _the_gone(case: RendezvousHistory, met: dict[str, Event]) -> Iterator[Violation]:
    faults = [event.note for event in case.of("fault")]
    # Perhaps it could not say that it leaves.
    excused = case.acts or not set(faults) <= {"cancel", "duplicate", "slow"} or ("slow" in faults and len(faults) > 2)
    for event in case.of("parted"):
        if event.note != "cancelled" or case.docket.decide("B1 left", excused):
            continue
        if event.attempt in met and met[event.attempt].at > event.at + LATE / 2:
            yield Violation("B1", f"{event.attempt} has left long since, and others go on with it")


def _the_dead(case: RendezvousHistory, came: dict[str, Event]) -> Iterator[Violation]:
    if case.only != {"crash"}:
        case.docket.excused["B4"] += len(case.of("crashed"))
        return
    over = {event.attempt: event.at for event in case.of("through", "parted")}
    met = {event.attempt for event in case.of("together")}
    for crash in case.of("crashed"):
        waited = [a for a, event in came.items() if event.at < crash.at < over.get(a, float("inf")) and a not in met]
        acting = {event.attempt for event in case.of("acting")}  # perhaps in vain
        dead = [a for a in waited if a.startswith(f"{crash.who}/") and came[a].at < crash.at - LATE and a not in acting]
        if dead:
            case.docket.decide("B4")
        late = [a for a in waited if over.get(a, 0.0) > crash.at + case.ttl + LATE]
        if dead and late:
            yield Violation("B4", f"{late[0]} waits for the dead {dead[0]} until {over[late[0]] - crash.at:.1f} s later")


def _the_forgotten(case: RendezvousHistory, came: dict[str, Event]) -> Iterator[Violation]:
    """B5: a party at a barrier whose state the server has lost is told so, as it might wait for ever."""
    if not case.only <= {"amnesia", "flush"}:
        return
    over = {event.attempt: event.at for event in case.of("through", "parted")}
    met = {event.attempt for event in case.of("together")}
    for fault in case.of("fault"):
        if fault.note not in {"amnesia of inf s", "amnesia: flushed"}:
            continue
        for attempt in (a for a, event in came.items() if event.at < fault.at - LATE and a not in met):
            until = over.get(attempt, case.history[-1].at)
            if until > fault.at:
                case.docket.decide("B5")
            if until > fault.until + case.ttl + LATE:
                yield Violation("B5", f"{attempt} waits for {until - fault.until:.1f} s where nothing is known of it")


def latch(case: RendezvousHistory) -> Iterator[Violation]:
    """The rules of latches."""
    when = {(event.kind, event.attempt): number for number, event in enumerate(case.history)}
    begun = {event.attempt: event for event in case.of("count")}
    resets = [(when["clear", e.attempt], when.get(("cleared", e.attempt), len(case.history))) for e in case.of("clear")]

    def missing(kind: str, then: int, since: int = 0) -> int:
        """If what had come so far by then was all that was counted, of what has begun since a reset."""
        known = (e for a, e in begun.items() if when.get((kind, a), then + 1) <= then and when["count", a] >= since)
        return max(0, case.count - _sum(known))

    def over(attempt: str, then: int) -> bool:
        """Tell whether a reset undid this count before that."""
        ended = when.get(("counted", attempt), len(case.history))
        return any(ended < begin and end < then for begin, end in resets)

    for event in case.of("counted"):
        if case.docket.decide("L1", case.upsets.between(case.history[0].at, event.at, AMNESIA)):
            continue
        began, ended = when["count", event.attempt], when["counted", event.attempt]
        counts = (e for a, e in begun.items() if when["count", a] <= ended and not over(a, began))
        least = max(0, case.count - _sum(counts))
        most = missing("counted", began, max((done for since, done in resets if since < ended), default=0))
        if not least <= event.fence <= most:
            yield Violation("L1", f"{event.attempt} finds {event.fence} missing, not from {least} to {most}")
    for event in case.of("released"):
        case.docket.decide("L2")
        left = missing("count", when["released", event.attempt])
        if left > 0:
            yield Violation("L2", f"{event.attempt} is released, and {left} are missing")
    for wait, end in _waits(case):
        if end.note == "forgotten" and not case.upsets.between(wait.at, end.at, AMNESIA):
            yield Violation("L1", f"{end.attempt} is told that the server has lost what was counted, and it has not")
    yield from _open_meanwhile(case)
    yield from _asleep(case)


def _sum(counts: Iterator[Event]) -> int:
    counted = list(counts)
    return len({event.note for event in counted if event.note}) + sum(event.last for event in counted if not event.note)


def event(case: RendezvousHistory) -> Iterator[Violation]:
    """The rules of events."""
    opened, closed = ([one.at for one in case.of(kind)] for kind in ("opened", "closed"))
    yield from _open_meanwhile(case)
    yield from _set_by_nobody(case, opened, closed)
    yield from _asleep(case)


def _open_meanwhile(case: RendezvousHistory) -> Iterator[Violation]:
    """L2: a released waiter waited for something that was open, at the server, during its wait."""
    opened, closed = ([one.at for one in case.of(kind)] for kind in ("opened", "closed"))
    spans = [(at, next((end for end in closed if end > at), float("inf"))) for at in opened]
    for wait, end in _waits(case):
        if end.kind != "released":
            continue
        case.docket.decide("L2")
        if not any(since <= end.at and until >= wait.at for since, until in spans):
            yield Violation("L2", f"{end.attempt} is released, and it was not open meanwhile")


def _set_by_nobody(case: RendezvousHistory, opened: list[float], closed: list[float]) -> Iterator[Violation]:
    """L4: each opening has a call of ``set`` that ended after the last clear, if at all. A failed call may act later."""
    over = {one.attempt: one.at for one in case.of("counted")}
    for at in opened:
        cleared = max((end for end in closed if end <= at), default=float("-inf"))
        forgot = case.upsets.between(cleared, at, AMNESIA)
        begun = [one for one in case.of("count") if one.at <= at]
        going_on = any(over.get(one.attempt, float("inf")) >= cleared for one in begun)
        if not case.docket.decide("L4", forgot) and not going_on:
            yield Violation("L4", f"it opens at {at:.3f}, and no call that sets it has gone on since it was cleared")


def _waits(case: RendezvousHistory) -> Iterator[tuple[Event, Event]]:
    ends = {one.attempt: one for one in case.of("released", "unreleased", "ended")}
    for wait in case.of("await"):
        if wait.attempt in ends:
            yield wait, ends[wait.attempt]


def _asleep(case: RendezvousHistory) -> Iterator[Violation]:
    opened = [one.at for one in case.of("opened")]
    for wait, end in _waits(case):
        if case.docket.decide("L3", not case.calm):
            continue
        missed = [at for at in opened if wait.at + LATE < at < end.at - LATE]
        if missed and end.kind != "ended":
            yield Violation("L3", f"{end.attempt} sleeps for {end.at - missed[0]:.1f} s after what it waits for")
