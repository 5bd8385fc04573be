"""Rules of permits: holders never exceed the limit, and free permits are granted in time.

The event ``ask`` states how many permits a client wants, and the limit. A writer that became a reader (event ``downgraded``)
has one permit. Each function yields the violations of its rule, as in `safety_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.evidence import INFINITY, ROUNDING, Evidence, Fault, Hold, Place, Scene
from holdfast_lab.judge.safety_rules import Limits, Violation

READERS = 1_000_000
"""Number of permits of a read-write lock. A writer holds all of them, and a reader one."""


def _wants(ask: Event | None) -> int:
    return int(ask.note.split()[0]) if ask is not None and ask.note else 1


def _weight(case: Evidence, hold: Hold, at: float) -> int:
    """Return the number of permits that a holder believes it has at the time ``at``."""
    if any(event.kind == "downgraded" and event.at <= at for event in case.said(hold)):
        return 1
    return _wants(hold.ask.event if hold.ask else None)


def wanted_too_much(case: Evidence, scene: Scene, waiter: Event, until: float) -> bool:
    """Return whether a waiter wanted more permits than the limit at some time before ``until``.

    The server removes such a waiter from the queue. When it asks again, within a second, it gets a later position.
    """
    wants = next((_wants(ask.event) for ask in case.asks if ask.event.attempt == waiter.attempt), 1)
    return any(waiter.since <= limit.at <= until and limit.last < wants for limit in scene.limits)


def _most(case: Evidence, scene: Scene, hold: Hold) -> int:
    """Return the highest limit between the grant of an acquisition and the time at which its holder learned of it."""
    given = case.granted(hold)
    since = hold.since if given is None else given
    known = [event for event in scene.limits if event.at <= hold.since]
    before = [event for event in known if event.at < since]
    return max(event.last for event in [*before[-1:], *known[len(before) :]]) if known else READERS


def r17_permits(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R17: together, the holders never believe that they have more permits than the limit.

    When the limit is lowered, holders keep their permits, and no client gets permits until enough are free.

    Excused: a server fault, of a kind in ``limits.excuses``, made the server free the permits of one holder early and grant
    them to another.
    """
    for scene in case.scenes.values():
        believers: list[Hold] = []
        for earlier, later in pairwise(scene.holds):
            case.docket.decide("R17", case.apart(earlier, later, limits.excuses))
        for hold in scene.holds:
            believers = [other for other in believers if other.end > hold.since]
            if hold.end > hold.since:
                others = [b for b in believers if not case.apart(b, hold, limits.excuses)]
                # If a fault took the permits from one of these holders and gave them to a later one, count only the later
                # holder.
                others = [b for b in others if not any(o is not b and case.apart(b, o, limits.excuses) for o in others)]
                used = sum(_weight(case, other, hold.since) for other in others)
                most, mine = _most(case, scene, hold), _weight(case, hold, hold.since)
                if others and used + mine > most:
                    told = " and ".join(f"{b.who} (fence {b.fence}) until {case.ms(b.end)}" for b in others)
                    text = f"{hold.who} acquires {mine} of {most} permits of {hold.lock!r} at {case.ms(hold.since)}, and {told}"
                    yield Violation("R17", text, (*(b.taken for b in others), hold.taken))
            believers.append(hold)


def r18_next(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R18: when enough permits are free for the first waiter in the queue, it gets them within ``limits.handover`` seconds.

    Of several waiters that joined at the same time, any may be the first. The time limit begins again after each fault that may
    affect these waiters.
    """
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
                span = f"from {case.ms(since)} to {case.ms(at)}"
                text = f"{names} is first in the queue of {lock!r}, and enough permits are free {span}"
                yield Violation("R18", text, tuple(place.event for place in heads.values()))
                break


def _felt(case: Evidence, place: Place) -> list[Fault]:
    return case.touching(process_of(place.event.who))


def _turns(case: Evidence, scene: Scene) -> list[float]:
    """Return each time at which the permits or the queue may have changed, and a moment just before it."""
    times = {event.at for event in scene.server} | {event.until for event in scene.server if event.until}
    times |= {event.at for said in case.leases.values() for event in said if event.kind == "lowered"}
    times |= {at for place in scene.queued.values() for at in (place.event.at, place.ended)}
    known = [at for at in times if at < INFINITY]
    return sorted({*known, *(at - 2 * ROUNDING for at in known)})


def _heads(case: Evidence, scene: Scene, at: float) -> dict[str, Place]:
    """Return the waiters that may be first in the queue, by lease.

    There may be several, because the order of waiters is unknown if each sent its request before any of them had learned its
    position.
    """
    waits = {
        lease: place
        for lease, place in scene.queued.items()
        if place.event.at <= at < place.ended
        and not wanted_too_much(case, scene, place.event, at)
        and not any(event.kind == "granted" and event.at <= at for event in case.leases.get(lease, ()))
    }
    soonest = min((place.event.at for place in waits.values()), default=INFINITY)
    return {lease: place for lease, place in waits.items() if place.event.since <= soonest}


def _used(case: Evidence, scene: Scene, wanted: dict[str, int], at: float) -> int:
    """Return the number of permits that are held at a time, according to the server.

    ``wanted``: number of permits that each acquisition requested, by the acquisition's name. If the server's clock was set
    during a lease, the lease lasts until the server frees it.
    """
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
