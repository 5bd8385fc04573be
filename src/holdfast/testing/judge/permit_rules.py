"""What must hold of something that several may have at the same time, and what must become of what is free.

How many permits somebody wants, and of how many, is said by his ``ask``; a writer who has become a reader (``downgraded``) has
one. Rules as in `rules` and `deadlines`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.testing.history import Event, process_of
from holdfast.testing.judge.evidence import INFINITY, ROUNDING, Evidence, Fault, Hold, Place, Scene
from holdfast.testing.judge.safety_rules import Limits, Violation

READERS = 1_000_000
"""As many may read at the same time: a writer has that many permits."""


def _wants(ask: Event | None) -> int:
    return int(ask.note.split()[0]) if ask is not None and ask.note else 1


def _weight(case: Evidence, hold: Hold, at: float) -> int:
    """How many permits a holder believes to have."""
    if any(event.kind == "downgraded" and event.at <= at for event in case.said(hold)):
        return 1
    return _wants(hold.ask.event if hold.ask else None)


def _most(case: Evidence, scene: Scene, hold: Hold) -> int:
    """How many there were at most, from when the holder was given his until he took them up."""
    given = case.granted(hold)
    since = hold.since if given is None else given
    known = [event for event in scene.limits if event.at <= hold.since]
    before = [event for event in known if event.at < since]
    return max(event.last for event in [*before[-1:], *known[len(before) :]]) if known else READERS


def r17_permits(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """Those who believe to hold permits never believe in more than there are. Who has some when their number is lowered keeps
    them, and nobody gets any before there are enough. Excused: as in R1."""
    for scene in case.scenes.values():
        believers: list[Hold] = []
        for earlier, later in pairwise(scene.holds):
            case.docket.decide("R17", case.apart(earlier, later, limits.excuses))
        for hold in scene.holds:
            believers = [other for other in believers if other.end > hold.since]
            if hold.end > hold.since:
                others = [b for b in believers if not case.apart(b, hold, limits.excuses)]
                used = sum(_weight(case, other, hold.since) for other in others)
                most, mine = _most(case, scene, hold), _weight(case, hold, hold.since)
                if others and used + mine > most:
                    told = " and ".join(f"{b.who} (fence {b.fence}) until {case.ms(b.end)}" for b in others)
                    text = f"{hold.who} takes {mine} of {most} permits of {hold.lock!r} at {case.ms(hold.since)}, while {told}"
                    yield Violation("R17", text, (*(b.taken for b in others), hold.taken))
            believers.append(hold)


def r18_next(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """What is free at the server is not left so for longer than ``limits.handover`` if it is enough for who is next in line,
    whichever that is where several came at the same time. Time counts without faults that these may feel."""
    for lock, scene in case.scenes.items():
        wanted = {ask.event.attempt: _wants(ask.event) for ask in case.asks if ask.event.lock == lock}
        first: tuple[str, ...] = ()
        since = 0.0
        for at in _turns(case, scene):
            free = _limit(scene, at) - _used(case, scene, wanted, at)
            heads = _heads(case, scene, at)
            if not heads or any(wanted.get(lease, 1) > free for lease in heads):
                first = ()
            elif tuple(heads) != first:
                first, since = tuple(heads), at
                case.docket.decide("R18")
            elif at > since + limits.handover + ROUNDING and not case.docket.decide(
                "R18", not all(at > case.due(since, limits.handover, _felt(case, place)) + ROUNDING for place in heads.values())
            ):
                names = " or ".join(place.event.who for place in heads.values())
                text = f"{names} is next for {lock!r}, and enough is free from {case.ms(since)} to {case.ms(at)}"
                yield Violation("R18", text, tuple(place.event for place in heads.values()))
                break


def _felt(case: Evidence, place: Place) -> list[Fault]:
    return case.touching(process_of(place.event.who))


def _turns(case: Evidence, scene: Scene) -> list[float]:
    """When anything may have changed, and a moment before."""
    times = {event.at for event in scene.server} | {event.until for event in scene.server if event.until}
    times |= {event.at for said in case.leases.values() for event in said if event.kind == "lowered"}
    times |= {at for place in scene.queued.values() for at in (place.event.at, place.ended)}
    known = [at for at in times if at < INFINITY]
    return sorted({*known, *(at - 2 * ROUNDING for at in known)})


def _heads(case: Evidence, scene: Scene, at: float) -> dict[str, Place]:
    """Who may be next at that time: nobody else who waits was told of his place before this one asked for his."""
    waits = {
        lease: place
        for lease, place in scene.queued.items()
        if place.event.at <= at < place.ended
        and not any(event.kind == "granted" and event.at <= at for event in case.leases.get(lease, ()))
    }
    soonest = min((place.event.at for place in waits.values()), default=INFINITY)
    return {lease: place for lease, place in waits.items() if place.event.since <= soonest}


def _used(case: Evidence, scene: Scene, wanted: dict[str, int], at: float) -> int:
    """How many permits are held at that time, as far as the server knows. When its clock was set, nobody knows until when."""
    held: dict[str, float] = {}
    for event in scene.server:
        if event.at > at:
            break
        if event.kind in {"granted", "extended"}:
            unknown = case.disturbed(event.at, event.until, event.lock, ("clock",))
            held[event.attempt] = INFINITY if unknown else event.until
        elif event.kind == "freed":
            held.pop(event.attempt, None)
    used = 0
    for lease, until in held.items():
        if until > at:
            lowered = any(e.kind == "lowered" and e.at <= at for e in case.leases.get(lease, ()))
            used += 1 if lowered else wanted.get(lease, 1)
    return used


def _limit(scene: Scene, at: float) -> int:
    known = [event.last for event in scene.limits if event.at <= at]
    return known[-1] if known else 0
