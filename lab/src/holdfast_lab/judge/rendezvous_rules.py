"""Rules of barriers, latches and events.

- B1: no participant passes a barrier before all participants have arrived, and each one gets a different number.
- B2: when a barrier opens, all its participants pass, except those whose wait a timeout, a cancellation or a fault ended.
- B3: the barrier's action runs exactly once, and has ended before the participants pass.
- B4: when a participant dies, the participants that wait with it get an error.
- B5: when the server loses the state of a barrier, the participants that wait at it get an error.
- L1: each call of ``count_down`` is counted once, and the count of a latch never falls below zero.
- L2: a waiter is released only if the latch or event was open at some time during its wait.
- L3: each waiter notices in time when the latch or event opens.
- L4: one call of ``set`` sets an event only once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.testing.history import Event
from holdfast_lab.judge.excuses import AMNESIA, Upsets
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.verdicts import Docket

LATE = 2.0
"""Seconds that a message takes at most if no fault happens."""


@dataclass
class RendezvousHistory:
    """The history of a barrier, a latch or an event."""

    history: list[Event]
    count: int
    """Number of participants of the barrier, or the initial count of the latch."""
    ttl: float = 0.0
    acts: bool = False
    """True if the barrier has an action."""
    calm: bool = False
    """True if no fault happens."""
    only: set[str] = field(default_factory=set)
    """Kinds of faults that may happen in the history."""
    docket: Docket = field(default_factory=Docket)
    upsets: Upsets = field(init=False)

    def __post_init__(self) -> None:
        self.upsets = Upsets(self.history)

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.history if event.kind in kinds]


def barrier(case: RendezvousHistory) -> Iterator[Violation]:
    """Yield the violations of B1 to B5."""
    came = {event.attempt: event for event in case.of("come")}
    groups: dict[int, list[Event]] = defaultdict(list)
    for event in case.of("together"):
        groups[event.last].append(event)
    for group in groups.values():
        numbers = sorted(event.fence for event in group)
        who = " ".join(event.attempt for event in group)
        case.docket.decide("B1")
        if numbers != list(range(case.count)) or any(event.attempt not in came for event in group):
            yield Violation("B1", f"{who} pass with the numbers {numbers}, of {case.count}")
        acted = [event for event in case.of("acted") if event.attempt in {one.attempt for one in group}]
        if case.acts:
            case.docket.decide("B3")
        if case.acts and len([event for event in acted if event.at <= group[0].at]) != 1:
            yield Violation("B3", f"{who} pass after {len(acted)} actions")
    yield from _outcomes(case)
    yield from _the_dead(case, came)
    yield from _the_forgotten(case, came)


def _outcomes(case: RendezvousHistory) -> Iterator[Violation]:
    met = {event.attempt: event for event in case.of("together")}
    for event in case.of("through"):
        case.docket.decide("B2")
        if event.attempt not in met or met[event.attempt].fence != event.fence:
            yield Violation("B1", f"{event.attempt} passes as number {event.fence}, which the server did not give it")
    for event in case.of("parted"):
        excused = event.note in {"cancelled", "away"} or (event.note == "timeout" and not case.calm)
        if event.attempt in met:
            since, until = sorted((met[event.attempt].at, event.at))
            excused = excused or case.upsets.between(since, until, AMNESIA)
        if event.attempt in met and not case.docket.decide("B2", excused):
            yield Violation("B2", f"{event.attempt} learns that the barrier is broken ({event.note}), but the others pass")
        if not case.docket.decide("B4 told", not case.calm) and event.note in {"died", "lost"}:
            yield Violation("B4", f"{event.attempt} gets the error {event.note}, although all parties are alive")

    yield from _the_gone(case, met)


def _the_gone(case: RendezvousHistory, met: dict[str, Event]) -> Iterator[Violation]:
    faults = [event.note for event in case.of("fault")]
    # A cancelled participant may have been unable to tell the server that it leaves.
    excused = case.acts or not set(faults) <= {"cancel", "duplicate", "slow"} or ("slow" in faults and len(faults) > 2)
    for event in case.of("parted"):
        if event.note != "cancelled" or case.docket.decide("B1 left", excused):
            continue
        if event.attempt in met and met[event.attempt].at > event.at + LATE / 2:
            yield Violation("B1", f"{event.attempt} left long before, but the others pass with it")


def _the_dead(case: RendezvousHistory, came: dict[str, Event]) -> Iterator[Violation]:
    if case.only != {"crash"}:
        case.docket.excused["B4"] += len(case.of("crashed"))
        return
    over = {event.attempt: event.at for event in case.of("through", "parted")}
    met = {event.attempt for event in case.of("together")}
    for crash in case.of("crashed"):
        waited = [a for a, event in came.items() if event.at < crash.at < over.get(a, float("inf")) and a not in met]
        acting = {event.attempt for event in case.of("acting")}
        dead = [a for a in waited if a.startswith(f"{crash.who}/") and came[a].at < crash.at - LATE and a not in acting]
        if dead:
            case.docket.decide("B4")
        late = [a for a in waited if over.get(a, 0.0) > crash.at + case.ttl + LATE]
        if dead and late:
            yield Violation("B4", f"{late[0]} waits for the dead {dead[0]} until {over[late[0]] - crash.at:.1f} s later")


def _the_forgotten(case: RendezvousHistory, came: dict[str, Event]) -> Iterator[Violation]:
    """B5: when the server loses the state of a barrier, no participant waits at it forever."""
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
                yield Violation("B5", f"{attempt} waits for {until - fault.until:.1f} s after the server lost its barrier")


def latch(case: RendezvousHistory) -> Iterator[Violation]:
    """Yield the violations of L1 to L3."""
    when = {(event.kind, event.attempt): number for number, event in enumerate(case.history)}
    begun = {event.attempt: event for event in case.of("count")}
    resets = [(when["clear", e.attempt], when.get(("cleared", e.attempt), len(case.history))) for e in case.of("clear")]

    def missing(kind: str, then: int, since: int = 0) -> int:
        """Return the number of missing arrivals if only some calls of ``count_down`` count.

        A call counts if it began at the index ``since`` of the history or later, and had begun (if ``kind`` is "count") or
        ended (if "counted") by the index ``then``.
        """
        known = (e for a, e in begun.items() if when.get((kind, a), then + 1) <= then and when["count", a] >= since)
        return max(0, case.count - _sum(known))

    def over(attempt: str, then: int) -> bool:
        """Return whether a reset that ended before the index ``then`` undid this call of ``count_down``."""
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
            yield Violation("L1", f"{event.attempt} gets the count {event.fence}, not one from {least} to {most}")
    for event in case.of("released"):
        case.docket.decide("L2")
        left = missing("count", when["released", event.attempt])
        if left > 0:
            yield Violation("L2", f"{event.attempt} is released, but the count is {left}")
    for wait, end in _waits(case):
        if end.note == "forgotten" and not case.upsets.between(wait.at, end.at, AMNESIA):
            yield Violation("L1", f"{end.attempt} learns that the server has lost the count, but the server has not")
    yield from _open_meanwhile(case)
    yield from _asleep(case)


def _sum(counts: Iterator[Event]) -> int:
    counted = list(counts)
    return len({event.note for event in counted if event.note}) + sum(event.last for event in counted if not event.note)


def event(case: RendezvousHistory) -> Iterator[Violation]:
    """Yield the violations of L2 to L4."""
    opened, closed = ([one.at for one in case.of(kind)] for kind in ("opened", "closed"))
    yield from _open_meanwhile(case)
    yield from _set_by_nobody(case, opened, closed)
    yield from _asleep(case)


def _open_meanwhile(case: RendezvousHistory) -> Iterator[Violation]:
    """L2: if a waiter is released, the latch or event was open on the server during its wait."""
    opened, closed = ([one.at for one in case.of(kind)] for kind in ("opened", "closed"))
    spans = [(at, next((end for end in closed if end > at), float("inf"))) for at in opened]
    for wait, end in _waits(case):
        if end.kind != "released":
            continue
        case.docket.decide("L2")
        if not any(since <= end.at and until >= wait.at for since, until in spans):
            yield Violation("L2", f"{end.attempt} is released, but the latch or event was not open during its wait")


def _set_by_nobody(case: RendezvousHistory, opened: list[float], closed: list[float]) -> Iterator[Violation]:
    """L4: an event opens only by a call of ``set`` that had not ended before the last ``clear``.

    A failed call may be carried out later, so it never counts as ended.
    """
    over = {one.attempt: one.at for one in case.of("counted")}
    for at in opened:
        cleared = max((end for end in closed if end <= at), default=float("-inf"))
        forgot = case.upsets.between(cleared, at, AMNESIA)
        begun = [one for one in case.of("count") if one.at <= at]
        going_on = any(over.get(one.attempt, float("inf")) >= cleared for one in begun)
        if not case.docket.decide("L4", forgot) and not going_on:
            yield Violation("L4", f"the event opens at {at:.3f}, but no call of set was active since the last clear")


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
            yield Violation("L3", f"{end.attempt} still waits {end.at - missed[0]:.1f} s after the opening")
