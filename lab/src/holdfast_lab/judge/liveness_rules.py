"""Rules of what must happen in time and in order: losses are noticed, free locks are granted, waits end, queues are kept.

Each function yields the violations of its rule, as in `safety_rules`. A time limit begins again after each fault, so that only
time without faults counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.evidence import DRIFT, INFINITY, ROUNDING, Ask, Evidence, Hold, Scene
from holdfast_lab.judge.permit_rules import wanted_too_much
from holdfast_lab.judge.safety_rules import Limits, Violation

MUTE = 2.2
"""For this many seconds after a process's last request, the server may still grant locks to waiters of the process."""


def r6_loss_is_noticed(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R6: a holder notices in time that its lock is lost, and gets no false notification of a loss.

    - If the server frees the lock, the holder stops relying on it within ``limits.notice`` seconds: it is notified, or its own
      lease ends.
    - If the lease ends before the release, the holder is notified within ``limits.lag`` seconds.
    - While its lease lasts and the server keeps the lock, the holder is not notified. See `_told_early` for excuses.

    Both time limits begin again after each fault that may affect the holder.
    """
    for scene in case.scenes.values():
        if not scene.server:
            continue
        for hold in scene.holds:
            freed = _freed(case, hold, limits.quorum) if limits.notice < INFINITY else None
            felt = case.touching(hold.process)
            if freed is not None and case.late("R6", hold.end, freed.at, limits.notice, felt):
                text = f"{hold.who} lost {hold.lock!r} at {case.ms(freed.at)}, and relied on it until {case.ms(hold.end)}"
                yield Violation("R6", text, (hold.taken, freed))
            if _told_early(case, hold, limits):
                text = f"{hold.who} was notified at {case.ms(hold.ended)} that {hold.lock!r} was lost, while it held the lock"
                yield Violation("R6", text, (hold.taken,))
            told = min(hold.ended, case.last)
            if told > hold.until and case.late("R6 end", told, hold.until, limits.lag, felt):
                text = f"{hold.who} was not notified that its lease of {hold.lock!r} had ended at {case.ms(hold.until)}"
                yield Violation("R6", text, (hold.taken,))


def _told_early(case: Evidence, hold: Hold, limits: Limits) -> bool:
    """Return whether a holder was notified of a loss while its lease lasted and the server kept the lock for it.

    Excused: the holder's process ended, or the server's clock was set since the lease was requested. With several servers, any
    fault that the holder may have felt is an excuse. If several clients may hold the lock, an earlier holder with a higher
    fence is an excuse, too (see `_outranked`).
    """
    if hold.how != "lost" or hold.ended >= hold.until - ROUNDING:
        return False
    since = case.asked(hold)
    if limits.quorum > 1:
        unknown = bool(case.felt(hold.process, since, hold.ended, limits.echo))
        return not case.docket.decide("R6 told", unknown) and _freed(case, hold, limits.quorum) is None
    if limits.permits and _outranked(case, hold, limits):
        case.docket.decide("R6 told", excused=True)
        return False
    closed = any(fault.kind == "crash" and fault.process == hold.process and fault.at <= hold.ended for fault in case.faults)
    if case.docket.decide("R6 told", closed or case.disturbed(since, hold.ended, hold.lock, ("clock",))):
        return False
    server = [event for event in case.leases[hold.lease] if event.kind in {"granted", "extended", "freed"}]
    known = [event for event in server if event.at <= hold.ended]
    return bool(known) and all(event.kind != "freed" for event in known) and known[-1].until > hold.ended + ROUNDING


def _outranked(case: Evidence, hold: Hold, limits: Limits) -> bool:
    """Return whether an earlier holder in the same process has a higher fence, because the server lost its data.

    The server's clock must have been set back, too. The process then considers the lease with the higher fence the later one.
    """
    before = [fault for fault in case.faults if fault.at <= hold.since]
    if not any(fault.kind == "amnesia" for fault in before):
        return False
    if not any(fault.event.note.startswith(limits.rewinds) for fault in before):
        return False
    earlier = [other for other in case.scenes[hold.lock].holds if other.process == hold.process and other.since < hold.since]
    return any(other.fence > hold.fence and other.end >= hold.since for other in earlier)


def _freed(case: Evidence, hold: Hold, quorum: int) -> Event | None:
    """Return the event after which fewer than ``quorum`` servers kept a lock on which its holder still relied.

    Return None if there is none, or if a server granted the lock to this holder once more.
    """
    keeps: set[str] = set()
    freed = None
    for event in case.said(hold):
        if event.kind in {"granted", "extended"}:
            keeps.add(event.who)
        elif event.kind == "freed":
            keeps.discard(event.who)
            if len(keeps) < quorum and freed is None and hold.since < event.at < hold.end:
                freed = event
        if event.kind == "granted" and event.at > hold.since:
            # A copy of the request may acquire the lock again for its holder.
            return None
    return freed


def r7_liveness(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R7: a lock does not stay free while a client waits for it, and each wait ends.

    - While a waiter is in the queue of the server or of its process, the lock is free for at most ``limits.handover`` seconds.
      With several servers, it is free while no client holds it.
    - The server may grant the lock to a waiter in its queue that is dead or gets no messages. This may happen once for each
      such waiter, and delays the others by at most ``limits.claim`` seconds.
    - A waiter whose process has hung for more than `MUTE` seconds is not granted the lock.
    - Each attempt (event ``ask``) ends at most ``limits.lag`` seconds after the end of its wait, or with a crash of its
      process.

    The time limits begin again after each fault that may affect the waiter.
    """
    for lock, scene in case.scenes.items():
        if limits.quorum > 1:
            yield from _idle(case, limits, lock, scene)
        elif scene.server and not limits.permits:
            yield from _left_free(case, limits, lock, scene)
            yield from _claimed_by_nobody(case, limits, scene)
        if scene.server and limits.quorum == 1:
            yield from _given_to_the_hung(case, scene)
    for ask in case.asks:
        if ask.ended > ask.event.until + limits.lag or ask.ended == INFINITY:
            yield from _overdue(case, ask, limits.lag)
        else:
            case.docket.decide("R7 end")


def _left_free(case: Evidence, limits: Limits, lock: str, scene: Scene) -> Iterator[Violation]:
    wanted = [(place.event, place.ended) for place in scene.queued.values()]
    wanted += [(event, ask.ended) for event, ask in scene.lined if ask is not None]
    for since, until in _free(case, lock, scene) if wanted else ():
        if until - since <= limits.handover:
            continue
        for event, ended in wanted:
            waits, ends = max(since, event.at), min(until, ended)
            process = process_of(event.who)
            if any(hold.process == process and hold.since < ends and hold.end > waits for hold in scene.holds):
                continue  # another client of the process believes that it holds the lock, which R6 judges
            if ends > waits and case.late("R7", ends, waits, limits.handover, case.touching(process)):
                text = f"{lock!r} was free from {case.ms(since)}, and {event.who} waited for it until {case.ms(ends)}"
                yield Violation("R7", text, (event,))
                break


def _claimed_by_nobody(case: Evidence, limits: Limits, scene: Scene) -> Iterator[Violation]:
    """Yield the queued waiters that never acquired the lock, but were granted it twice, or for too long.

    Excused: a server lost its data, its clock was set, or another program changed a key of the lock. A late or duplicated
    request excuses a second grant.
    """
    taken = {hold.lease for hold in scene.holds}
    for lease, place in scene.queued.items():
        times, longest, since, until = 0, 0.0, 0.0, 0.0
        for event in case.leases.get(lease, ()) if lease not in taken else ():
            if event.kind in {"granted", "extended"}:
                times += event.kind == "granted"
                since, until = event.at, event.until
            elif event.kind == "freed":
                until = min(until, event.at)
            longest = max(longest, min(until, case.last) - since)
        if not times:
            continue
        times -= until > case.last  # the waiter may still acquire the lock
        copies = [fault for fault in case.faults if fault.kind in {"duplicate", "slow"} and fault.concerns(lease)]
        excused = case.disturbed(place.event.since, until, place.event.lock) or (times > 1 and bool(copies))
        if not case.docket.decide("R7 claim", excused) and (times > 1 or longest > limits.claim):
            lock = place.event.lock
            text = f"{place.event.who} was granted {lock!r} {times} times, for up to {longest:.3f} s, and never acquired it"
            yield Violation("R7", text, (place.event,))


def _given_to_the_hung(case: Evidence, scene: Scene) -> Iterator[Violation]:
    """Yield the grants to queued waiters whose process had hung for more than `MUTE` seconds.

    Excused: the network duplicated a request of the waiter, a client of the same process had just asked for a lock, or the
    server's clock was set.
    """
    hung = {fault.process: fault.at for fault in case.faults if fault.kind == "hung"}
    for lease, place in scene.queued.items() if hung else ():
        process = process_of(place.event.who)
        since = max(hung.get(process, INFINITY), place.event.at)  # the request shows that the process lives
        for event in case.leases.get(lease, ()):
            if event.kind != "granted" or not since < event.at <= place.ended:
                continue
            excused = any(fault.kind == "duplicate" and fault.concerns(lease) for fault in case.faults)
            excused = excused or case.disturbed(since, event.at, event.lock, ("clock",)) or _asks(case, process, event.at)
            if not case.docket.decide("R7 hung", excused) and event.at > since + MUTE:
                text = f"{place.event.who} was granted {event.lock!r} at {case.ms(event.at)}, but hung since {case.ms(since)}"
                yield Violation("R7", text, (place.event, event))


def _asks(case: Evidence, process: str, at: float) -> bool:
    """Return whether a client of this process asked for a lock in the last `MUTE` seconds."""
    return any(process_of(ask.event.who) == process and at - MUTE <= ask.event.at <= at for ask in case.asks)


def _idle(case: Evidence, limits: Limits, lock: str, scene: Scene) -> Iterator[Violation]:
    """Yield the clients that waited too long for a lock on several servers while no client held it."""
    since = case.start
    holds = sorted(scene.holds, key=attrgetter("since"))
    for upto, kept in [(hold.since, hold.end if hold.how == "release" else hold.until) for hold in holds] + [(case.last, 0.0)]:
        for ask in case.asks:
            waits, ends = max(since, ask.event.at), min(upto, ask.ended, ask.event.until)
            if ask.event.lock != lock or ends <= waits:
                continue
            if case.late("R7", ends, waits, limits.handover, case.touching(process_of(ask.event.who))):
                text = f"nobody held {lock!r} from {case.ms(since)}, and {ask.event.who} asked for it until {case.ms(ends)}"
                yield Violation("R7", text, (ask.event,))
                break
        since = max(since, kept)


def _free(case: Evidence, lock: str, scene: Scene) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each period in which the lock was free on the server."""
    free_since, kept = case.start, float("-inf")
    for event in scene.server:
        if event.kind == "granted":
            if event.at > kept:
                yield free_since, event.at
            free_since = kept = event.until
        elif event.kind == "extended":
            free_since = kept = event.until
        elif event.kind == "freed" and event.at < kept:  # the event of an expired lock may come after its expiry
            free_since = kept = event.at
        if kept > event.at and case.disturbed(event.at, kept, lock, ("clock",)):
            free_since = kept = INFINITY  # the clock was set, so the end of the lease is unknown
    yield free_since, case.last


def _overdue(case: Evidence, ask: Ask, lag: float) -> Iterator[Violation]:
    event = ask.event
    process = process_of(event.who)
    faults = case.touching(process)
    late = min(ask.ended, case.last) > case.due(event.until, lag, faults)
    if ask.ended == INFINITY and (process in case.finished or "" in case.finished):
        late = not any(fault.end == INFINITY for fault in faults)
    case.docket.decide("R7 end", not late)
    if late:
        wait = "without limit" if event.until == INFINITY else f"until {case.ms(event.until)}"
        how = "never ended" if ask.ended == INFINITY else f"ended at {case.ms(ask.ended)}"
        yield Violation(
            "R7", f"{event.who} asked for {event.lock!r} at {case.ms(event.at)}, to wait {wait}; the wait {how}", (event,)
        )


def r8_order_of_waiters(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R8: waiters get the lock in the order in which they joined the queue.

    - Once a waiter knows its position in the server's queue, it gets the lock before each client that asks after this time. If
      the waiter times out, no such client gets the lock before the timeout.
    - The waiters of one process get the lock in the order of its local queue.
    - A waiter that gives up leaves its position to another waiter of its process, if there is one.
    - A process hands a lock on for at most one second. While another process is known to wait, it does so at most
      ``limits.passes`` times and for at most ``limits.pass_time`` seconds.

    A client may overtake a waiter in these cases:

    - A fault of more than a single message may have cost the waiter its position.
    - The waiter may have just lost a connection. The server skips a waiter without a subscription.
    - Messages were slow, and the server saw no subscription of the waiter's process.
    - The server had granted the waiter the lock, but the waiter learned of it too late.
    - The waiter wanted more permits than the limit of the semaphore, so that it had to leave the queue.
    """
    for scene in case.scenes.values():
        if scene.queued and scene.holds:
            for place in scene.queued.values():
                case.docket.decide("R8", _may_be_overtaken(case, limits, place.event, min(place.ended, case.last)))
            for lease, waiter, by in (*_overtaken(scene), *_passed_over(scene)):
                said = case.leases.get(lease, ())
                joined = waiter.since or waiter.at  # the grant may come before it learns of its position
                had_its_turn = any(event.kind == "granted" and joined <= event.at <= by.since for event in said)
                served = case.granted(by) or by.since
                process = process_of(waiter.who)
                deaf = case.deafened(process, served) or case.was_deaf(process, by)
                gone = limits.permits and wanted_too_much(case, scene, waiter, by.since)
                if not had_its_turn and not deaf and not gone and not _may_be_overtaken(case, limits, waiter, by.since):
                    text = f"{waiter.who} was in the queue at {case.ms(waiter.at)}; {by.who} came later, and was served first"
                    yield Violation("R8", text, (waiter, by.taken))
        yield from _out_of_line(case, scene, limits.outside)
        yield from _left_to_nobody(case, limits, scene)
        for lease in scene.passed:
            yield from _too_often(case, limits, scene, lease)


def _may_be_overtaken(case: Evidence, limits: Limits, waiter: Event, until: float) -> bool:
    """Return whether a fault may have cost a waiter (event ``queued``) its position before ``until``."""
    return bool(case.lasting(process_of(waiter.who), waiter.since or waiter.at, until, limits.echo))


def _came(scene: Scene, hold: Hold) -> float:
    """Return when the request that acquired the lock was sent."""
    place = scene.queued.get(hold.lease)
    if place is not None:
        return place.event.since
    return hold.taken.since or (hold.ask.event.at if hold.ask else float("-inf"))


def _overtaken(scene: Scene) -> Iterator[tuple[str, Event, Hold]]:
    """Yield each waiter that acquired the lock only after another client, which had asked later.

    An item has the waiter's lease, its event ``queued``, and the acquisition of the other client.
    """
    by_fence = all(hold.fence for hold in scene.holds)
    first, lease = None, ""
    for hold in sorted(scene.holds, key=attrgetter("fence" if by_fence else "since"), reverse=True):
        if hold.received:
            continue
        if first is not None and first.at < _came(scene, hold):
            yield lease, first, hold
        place = scene.queued.get(hold.lease)
        if place is not None and (first is None or place.event.at < first.at):
            first, lease = place.event, hold.lease


def _passed_over(scene: Scene) -> Iterator[tuple[str, Event, Hold]]:
    """Yield each waiter that timed out, although a client that had asked later got the lock before the timeout.

    An item has the waiter's lease, its event ``queued``, and the acquisition of the other client.
    """
    served = {hold.lease for hold in scene.holds}
    holds = [hold for hold in scene.holds if not hold.received]
    times = [hold.since for hold in holds]
    for lease, place in scene.queued.items():
        if lease in served or place.last is None or place.last.outcome != "busy":
            continue
        event = place.event
        for hold in holds[bisect_right(times, event.at) : bisect_right(times, place.last.event.until)]:
            if event.at < _came(scene, hold):
                yield lease, event, hold
                break


def _out_of_line(case: Evidence, scene: Scene, outside: frozenset[str]) -> Iterator[Violation]:
    """Yield the waiters that another client of their process overtook in the process's local queue.

    A client with a wait of 0 does not join the local queue, so it may overtake. The workers in ``outside`` use FairLocks, so
    they may overtake, too.
    """
    for event, ask in scene.lined:
        if ask is None or ask.outcome not in {"taken", "busy"}:
            continue
        case.docket.decide("R8 line")
        until = min(ask.ended, ask.event.until)
        process = process_of(event.who)
        for hold in scene.holds:
            came = hold.ask.event if hold.ask else None
            if came is None or hold.process != process or came.until <= came.at + ROUNDING or hold.who in outside:
                continue
            if came.at > event.at and hold.since < until:
                text = f"{event.who} was in the queue of {process} at {case.ms(event.at)}; {hold.who} was served first"
                yield Violation("R8", text, (event, hold.taken))
                break


def _left_to_nobody(case: Evidence, limits: Limits, scene: Scene) -> Iterator[Violation]:
    """Yield the waiters that gave up their position, although another waiter of their process could have inherited it."""
    for lease, place in scene.queued.items():
        owner = place.last
        if owner is None or owner.outcome not in {"busy", "cancelled"} or owner.event.until <= owner.event.at + ROUNDING:
            continue
        if owner.event.who in limits.outside:
            continue
        process = process_of(owner.event.who)
        left = min([owner.ended, owner.event.until, *(f.at for f in case.faults if f.event.who == owner.event.who)])
        since = place.event.since or place.event.at
        if case.docket.decide("R8 place", bool(case.lasting(process, since, owner.ended, limits.echo))):
            continue
        said = case.leases.get(lease, ())
        for event, ask in scene.lined:
            if ask is None or process_of(event.who) != process or event.at >= left:
                continue
            # If messages are slow, a waiter that failed may wake up long after it has left the queue.
            if ask.outcome == "failed" and any(fault.weather for fault in case.touching(process)):
                continue
            still = owner.ended < min(ask.ended, ask.event.until)
            served = any(e.kind == "granted" and e.at >= place.event.since for e in said)
            if still and not served and event.at < _last_loss(case, owner):
                text = (
                    f"{owner.event.who} gave its place up at {case.ms(owner.ended)}, when {event.who} could have inherited it"
                )
                yield Violation("R8", text, (place.event, event))
                break


def _last_loss(case: Evidence, owner: Ask) -> float:
    """Return when a worker last lost a lock during its attempt ``owner``; infinity: it lost none.

    A worker that acquires several locks together gives up all of them when it loses one.
    """
    who, since = owner.event.who, owner.event.at
    lost = [hold.ended for hold in case.holds() if hold.who == who and hold.how == "lost" and hold.ended <= owner.ended]
    return max((at for at in lost if at >= since), default=INFINITY)


LIMIT = 1.0
"""A process may hand a lock on for this many seconds after the acquisition."""


def _too_often(case: Evidence, limits: Limits, scene: Scene, lease: str) -> Iterator[Violation]:
    """Yield a violation if a process handed a lease on when it should have released it to the server."""
    since = next((hold.since for hold in scene.holds if hold.lease == lease), None)
    if since is None:
        return
    attempts: set[str] = set()
    for event in scene.passed[lease]:
        case.docket.decide("R8 pass")
        attempts.add(event.attempt)
        process = process_of(event.who)
        taken_for = event.at - since - ROUNDING
        outside = None
        if len(attempts) > limits.passes or taken_for > limits.pass_time * DRIFT:
            for place in scene.queued.values():
                waits = place.event
                known = _came_from_queue(case, scene, lease, since) or event.at > case.due(
                    waits.at, limits.handover, case.touching(process)
                )
                there = waits.at < event.at < place.ended and not case.disturbed(waits.at, event.at, event.lock)
                there = there and not case.mute(process_of(waits.who), event.at)
                if known and there and process_of(waits.who) != process:
                    outside = waits
        if outside is not None or taken_for > LIMIT * DRIFT:
            what = f"{outside.who} waited since {case.ms(outside.at)}" if outside else "it had handed the lock on for too long"
            text = f"{process} handed {event.lock!r} on at {case.ms(event.at)}, for the {len(attempts)}. time, while {what}"
            yield Violation("R8", text, (event,) if outside is None else (outside, event))
            return


def _came_from_queue(case: Evidence, scene: Scene, lease: str, since: float) -> bool:
    """Return whether the process acquired this lease as a waiter in the server's queue.

    Such a process knows without a notification that other processes may wait. Return False if the server freed the lease before
    ``since``: the process then did not notice the grant in time, and acquired the lock by a later request.
    """
    place = scene.queued.get(lease)
    if place is None:
        return False
    return not any(event.kind == "freed" and place.event.at < event.at < since for event in case.leases[lease])


def r16_kept_for_somebody(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R16: a process does not keep a lease that none of its workers uses.

    Within ``limits.handover`` seconds after a release, another worker of the process holds the lease, or the process releases
    it on the server. If no client waits for the lock, the process has ``limits.linger`` seconds more.

    If ``limits.recall`` is True, a client that asks for the lock while a process keeps its lease unused gets the lock, even
    with a wait of 0.

    The time limits begin again after each fault that may affect the process. A release that the server refused is excused.
    """
    for scene in case.scenes.values():
        if not scene.server:
            continue
        for lease in dict.fromkeys(hold.lease for hold in scene.holds):
            for kept in unused(case, scene, lease):
                process = process_of(next(hold.who for hold in scene.holds if hold.lease == lease))
                until = min(kept.until, case.crashed.get(process, INFINITY))
                faults = case.touching(process)
                due = case.due(kept.since, limits.handover + limits.linger, faults)
                at_once = kept.since + limits.handover + limits.linger
                for at in kept.wanted:
                    due, at_once = min(due, case.due(at, limits.handover, faults)), min(at_once, at + limits.handover)
                # A release that the server refuses is not sent again.
                refused = any(fault.kind == "refused" and fault.at <= kept.since <= fault.end for fault in faults)
                case.docket.decide("R16", refused or at_once + ROUNDING < until <= due + ROUNDING)
                if until > due + ROUNDING and not refused:
                    text = f"{process} kept {lease} from {case.ms(kept.since)} until {case.ms(until)}, and nobody used it"
                    yield Violation("R16", text, tuple(e for e in case.leases[lease] if e.at == kept.since)[:1])
        if limits.recall:
            yield from _refused_for_nothing(case, limits, scene)


class Kept(NamedTuple):
    """A period in which a process kept a lease that none of its workers held."""

    since: float
    until: float
    wanted: list[float]
    """Times at which a client wanted the lease: it asked, it was waiting at a release, or the lease was handed on to it."""
    passed: bool
    """True if the lease was being handed on."""


def unused(case: Evidence, scene: Scene, lease: str) -> Iterator[Kept]:
    """Yield the periods in which a process kept a lease that none of its workers held."""
    since: float | None = None
    wanted: list[float] = []
    passed = False
    told, back, kept = False, True, INFINITY
    for event in case.leases[lease]:
        if event.kind in {"granted", "extended"}:
            kept = event.until
        if event.kind == "asked":
            told = True
            wanted.append(event.at)
        elif event.kind in {"granted", "taken", "freed", "lost"}:
            if since is not None:
                yield Kept(since, min(event.at, kept), wanted, passed)
            since, wanted, passed = None, [], False
            told = told and event.kind != "granted"
            back = event.kind == "freed" or (back and event.kind != "granted")
        elif event.kind == "passed":
            passed = True
            wanted.append(event.at)
        elif event.kind == "released" and event.note in {"passed", "cancelled"} and not back:
            since = event.at
            process = process_of(event.who)
            inside = any(
                process_of(e.who) == process and e.at <= since and ask is not None and ask.ended > since
                for e, ask in scene.lined
            )
            wanted = [since] if told or inside else []
    if since is not None:
        yield Kept(since, min(case.last, kept), wanted, passed)


def _refused_for_nothing(case: Evidence, limits: Limits, scene: Scene) -> Iterator[Violation]:
    """Yield the clients for which a lock was busy, although a process kept its lease unused.

    Excused: a fault that the client or the process may have felt since the process kept the lease unused.
    """
    idle = [
        (process_of(next(hold.who for hold in scene.holds if hold.lease == lease)), kept)
        for lease in dict.fromkeys(hold.lease for hold in scene.holds)
        for kept in unused(case, scene, lease)
        if not kept.passed
    ]
    for ask in case.asks:
        event = ask.event
        if ask.outcome != "busy" or case.scenes[event.lock] is not scene:
            continue
        case.docket.decide("R16 refused", bool(case.felt(process_of(event.who), event.at, ask.ended, limits.echo)))
        for keeper, kept in idle:
            if not (kept.since < event.at and ask.ended < kept.until):
                continue
            if not any(case.felt(who, kept.since, ask.ended, limits.echo) for who in (keeper, process_of(event.who))):
                text = f"{event.who} was refused at {case.ms(ask.ended)} because {event.lock!r} was busy, but nobody used it"
                yield Violation("R16", text, (event,))
