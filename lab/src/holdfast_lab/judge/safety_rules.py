"""Safety rules of locks: one holder at a time, rising fences, no use of expired leases, nothing left behind, no revived leases.

Each function yields the violations of its rule in a history, arranged as `Evidence`. Its docstring names the faults that the
rule excuses. Three kinds are "amnesia" (a server lost its data), "clock" (a server's clock was set) and "foreign" (another
program changed a key of the lock). Histories of live processes have no events of servers, so some rules judge nothing there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from holdfast.testing.history import Event, process_of
from holdfast_lab.judge.evidence import ROUNDING, SERVER, UNSETTLING, Ask, Evidence, Hold, Scene


class Violation(NamedTuple):
    """A violation of a rule: its number, a description, and the events that prove it."""

    rule: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} {self.text}"


@dataclass(slots=True, frozen=True)
class Limits:
    """Time limits in seconds, and other settings of the rules. The defaults suit the default lease of 30 s."""

    notice: float = 11.0
    """Longest time until a holder notices a loss: by default, a third of the lease plus one timeout.

    Infinity if leases are not renewed.
    """
    handover: float = 4.0
    """Longest time for which a lock may be free while a client waits.

    The server may first keep the lock for a dead waiter. A waiter that misses the notification learns of a free lock at its
    next refresh.
    """
    claim: float = float("inf")
    """Longest time for which the server keeps a lock that it has granted to a dead waiter."""
    echo: float = float("inf")
    """Longest delay of a message. A fault that delays messages may have effects for so long after its start."""
    lag: float = 2.0
    """Longest delay from the known end of a wait or a lease until the process reacts to this end."""
    linger: float = 0.0
    """Longest time for which a process may keep a released lease while no worker asks for it."""
    passes: int = 32
    """How often a process may hand a lock on while another process is known to wait."""
    pass_time: float = 0.01
    """For how long after its acquisition a process may hand a lock on while another process waits."""
    recall: bool = False
    """True if a client with a wait of 0 must get a lock whose lease a process keeps unused. This needs fast messages."""
    tickets: bool = False
    """True if a holder may hand its lock over by a ticket.

    After a fault, such a handover may report a loss, although it succeeded. R15 then excuses the report.
    """
    quorum: int = 1
    """Number of servers that must keep a lock for its holder."""
    excuses: frozenset[str] = UNSETTLING
    """Kinds of server faults after which two clients may hold a lock. With a quarantine, amnesia is not among them."""
    permits: bool = False
    """True if several clients may hold the lock at once. The event ``ask`` states how many permits a client wants."""
    rewinds: str = "clock back"
    """Start of the note of the fault that sets a server's clock.

    This fault, together with a loss of the server's data, excuses lower fences.
    """
    outside: frozenset[str] = frozenset()
    """Workers that use a FairLock, and so do not join the local queue of their process."""


USUAL = Limits()

AGAIN_AFTER_S = 0.02
"""Seconds after which a process sends a release again. A release that took less time was sent only once."""


def r1_exclusion(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R1: no two clients believe at the same time that they hold a lock.

    The belief of a client begins with the event ``taken``. It ends with the event ``release`` or ``lost``, a crash of its
    process, or the end of its lease.

    Excused: a server fault, of a kind in ``limits.excuses``, made the server free the lock of one client early and grant it to
    the other.
    """
    for scene in case.scenes.values():
        for earlier, later in pairwise(scene.holds):
            case.docket.decide("R1", case.apart(earlier, later, limits.excuses))
        yield from _crowd(case, scene, limits.excuses)


def _crowd(case: Evidence, scene: Scene, excuses: Collection[str]) -> Iterator[Violation]:
    believers: list[Hold] = []
    for hold in scene.holds:
        since = hold.since
        if believers:
            believers = [other for other in believers if other.end > since]
        if believers and hold.end > since:
            others = [b for b in believers if not case.apart(b, hold, excuses)]
            if others:
                told = " and ".join(f"{b.who} (fence {b.fence}) believes it holds it until {case.ms(b.end)}" for b in others)
                text = f"{hold.lock!r} is acquired by {hold.who} (fence {hold.fence}) at {case.ms(since)}, while {told}"
                yield Violation("R1", text, (*(b.taken for b in others), hold.taken))
        believers.append(hold)


def _forgot(case: Evidence, earlier: Hold, later: Hold, limits: Limits) -> bool:
    """Return whether a fault explains that the second of two acquisitions has no higher fence.

    The server must have lost its fence counter between the two grants. Its clock must have been set back before the second.
    """
    return case.unsettled(earlier, later, ("amnesia",)) and any(
        fault.event.note.startswith(limits.rewinds) and fault.at <= later.since for fault in case.faults
    )


def r2_unique_fences(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R2: no two holders get the same fence.

    Excused: the server lost its data between the two grants, and its clock had been set back before the second.
    """
    for scene in case.scenes.values():
        seen: dict[int, Hold] = {}
        for hold in scene.holds:
            if not hold.fence:
                continue
            forgot = _forgot(case, next(iter(seen.values()), hold), hold, limits)
            case.docket.decide("R2", forgot)
            other = seen.setdefault(hold.fence, hold)
            if other is not hold and other.attempt != hold.attempt and not _forgot(case, other, hold, limits):
                yield Violation("R2", f"{other.who} and {hold.who} have the same fence {hold.fence}", (other.taken, hold.taken))


def r3_order_of_fences(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R3: a client that asks for the lock after another client acquired it gets a greater fence.

    The fence is compared with all fences acquired before the request was sent. Of two requests at the same time, either may get
    the greater fence. With several servers, a client also gets a greater fence if it had asked first, but acquired the lock
    after another client had held it.

    Excused:

    - The server lost its data between the two grants, and its clock had been set back before the second.
    - The lease was handed on inside a process, after a fault of kind amnesia, clock or foreign may have made the server grant
      the lock to another client.
    - With several servers, the client had asked first, and a fault of kind amnesia, clock or foreign has happened.
    """
    for scene in case.scenes.values():
        for number, hold in enumerate(scene.holds):
            if hold.ask is None or not hold.fence:
                continue
            asked, top = hold.ask.event.at, hold.ask.top
            asked_after = top is not None and top.fence >= hold.fence
            if top is not None:
                case.docket.decide("R3", _may_fall(case, top, hold, limits))
            for place, other in enumerate(scene.holds) if asked_after or limits.quorum > 1 else ():
                had_before = limits.quorum > 1 and place < number and other.end <= hold.since
                after = had_before or (asked_after and other.since <= asked)
                if not after or other is hold or other.fence < hold.fence:
                    continue
                # The new fence must exceed several earlier fences. A fault may excuse this for the highest, but not for a lower
                # one.
                if not _may_fall(case, other, hold, limits, asked_after=asked_after):
                    text = (
                        f"{hold.who} asked at {case.ms(asked)}, after {other.who} got fence {other.fence}, and got {hold.fence}"
                    )
                    yield Violation("R3", text, (other.taken, hold.ask.event, hold.taken))
                    break


def _may_fall(case: Evidence, earlier: Hold, later: Hold, limits: Limits, *, asked_after: bool = True) -> bool:
    if _forgot(case, earlier, later, limits):
        return True
    return (later.received or not asked_after) and case.unsettled(later, earlier)


def r4_register(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R4: the protected resource accepts no write with a lower fence than that of a write accepted before."""
    for scene in case.scenes.values():
        top: Event | None = None
        for write in scene.writes:
            if top is not None and write.fence < top.fence:
                case.docket.decide("R4")
            if write.note != "accepted":
                continue
            if top is not None and write.fence < top.fence:
                text = f"a write of {write.who} with fence {write.fence} was accepted at {case.ms(write.at)}, after {top.fence}"
                yield Violation("R4", text, (top, write))
            else:
                top = write


def r5_within_the_lease(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R5: no holder relies on a lock for longer than the server keeps it for this holder.

    With several servers, ``limits.quorum`` of them must keep the lock. Excused: a fault of kind amnesia, clock or foreign has
    hit the server since the grant.
    """
    for scene in case.scenes.values():
        if not scene.server:
            continue
        for hold in scene.holds:
            if hold.taken.until <= hold.since:
                text = f"{hold.who} acquired {hold.lock!r} at {case.ms(hold.since)}, when the lease was over"
                yield Violation("R5", text, (hold.taken,))
            broken = _beyond(case, hold, limits.quorum)
            case.docket.decide("R5", broken is None and case.disturbed(_first(case, hold, limits.quorum), hold.end, hold.lock))
            if broken is not None:
                yield broken


def _first(case: Evidence, hold: Hold, quorum: int) -> float:
    """Return when the server granted the lock; with several servers, the time of the first grant.

    If this time is unknown, return the time at which the holder acquired the lock.
    """
    first = next((said.at for said in case.leases[hold.lease] if said.kind == "granted"), hold.since)
    return first if quorum > 1 else case.granted(hold) or hold.since


def _beyond(case: Evidence, hold: Hold, quorum: int) -> Violation | None:
    kept = believed = never = float("-inf")
    each = {str(number): never for number in range(quorum)}  # end by server; placeholders for servers without events
    for event in case.said(hold):
        kind = event.kind
        if kind in {"granted", "extended", "freed"}:
            each[event.who] = event.until if kind != "freed" else min(each.get(event.who, never), event.at)
            kept = sorted(each.values())[-quorum]
        elif event.at > hold.ended or kind in {"release", "lost"}:
            return None
        elif kind in {"taken", "renewed"}:
            believed = event.until
        if believed > kept + ROUNDING and event.at < min(believed, hold.ended):
            if case.disturbed(_first(case, hold, quorum), event.at, hold.lock):
                return None
            until = "nothing" if kept == float("-inf") else f"it until {case.ms(kept)}"
            text = f"{hold.who} relies on {hold.lock!r} until {case.ms(believed)}, but the server keeps {until} for it"
            return Violation("R5", text, (hold.taken, event))
    return None


def r9_nothing_left(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R9: when a history is over, nothing of its locks is left in processes and on servers."""
    if "" in case.finished:
        case.docket.decide("R9")
    for event in case.left:
        yield Violation("R9", f"left behind: {event.note}", (event,))


def r12_over_is_over(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R12: a lease that was released or lost is not revived.

    - A former holder does not renew the lease, even if its process handed the lease on to another worker.
    - The server does not grant the lease again after its release or loss, and does not extend it after a successful release.
    - No client acquires a lease that its process knows to be lost.

    Excused:

    - Actions of a server after a fault of kind amnesia (it may go back to an older state), clock or foreign.
    - A grant that a duplicated request may have caused, and the events that follow from it.
    - If the lease was lost, a grant after any fault that the holder may have felt. The server does not learn of a loss.

    With several servers, their grants are not judged, because a slow vote may arrive after the end of the lease.
    """
    for hold in case.holds():
        if hold.taken.note:
            yield Violation(
                "R12", f"{hold.who} acquired {hold.lock!r}, which was known to be lost: {hold.taken.note}", (hold.taken,)
            )
        if hold.how not in {"", "crashed"}:
            case.docket.decide("R12", _may_revive(case, hold, limits, "lost" if hold.how == "lost" else "released", hold.ended))
            # With several servers, a slow vote may arrive after the end of the lease. The request that revokes the vote
            # follows.
            yield from _revived(case, hold, limits, [e for e in case.said(hold) if limits.quorum == 1 or e.kind not in SERVER])


def _revived(case: Evidence, hold: Hold, limits: Limits, said: list[Event]) -> Iterator[Violation]:
    over = ""
    for event in said:
        kind = event.kind
        if kind == "renewed" and over:
            yield Violation("R12", f"{hold.who} renewed {hold.lock!r} at {case.ms(event.at)}, when it was {over}", (event,))
        elif kind in {"release", "lost"} or (kind == "released" and not event.note):
            over = kind
        elif (kind == "granted" and over in {"released", "lost"}) or (kind == "extended" and over == "released"):
            if case.disturbed(_kept_since(case, hold), event.at, hold.lock):
                continue
            if kind == "granted" and _may_revive(case, hold, limits, over, event.at):
                over = "over"  # events that follow from this grant are excused, too
                continue
            text = f"the server {kind} {hold.lock!r} to {hold.who} at {case.ms(event.at)}, when it was {over}"
            yield Violation("R12", text, (hold.taken, event))


def _kept_since(case: Evidence, hold: Hold) -> float:
    """Return when the server granted the lock to this holder; if unknown, when the holder acquired it."""
    granted = case.granted(hold)
    return hold.since if granted is None else min(granted, hold.since)


def _may_revive(case: Evidence, hold: Hold, limits: Limits, over: str, at: float) -> bool:
    """Return whether faults excuse that the server granted an ended lease again.

    ``over`` is "released" or "lost". The server may have gone back to an older state. Or it may have carried out a late copy of
    a request, after it had lost the record by which it recognizes late copies.
    """
    late = [fault for fault in case.felt(hold.process, case.asked(hold), at, limits.echo) if fault.concerns(hold.lease)]
    if case.disturbed(_kept_since(case, hold), at, hold.lock):
        return True
    return any(over == "lost" or fault.kind == "duplicate" for fault in late)


def r13_same_answer(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R13: a request that is sent again gets the same answer.

    With a grant, the server reserves consecutive fences for a process, which uses one of them whenever it hands the lease on.
    Until the end of the lease:

    - The first fence stays the same, on the server and for the holder.
    - The process gets more fences only if it asks for them. They follow the fences that it has.
    - Each worker that gets the lease gets a higher reserved fence than the worker before.

    Excused: a fault of kind amnesia, clock or foreign has hit the server since the first grant of the lease.
    """
    for lease, said in case.leases.items():
        yield from _one_answer(case, lease, said)


def _one_answer(case: Evidence, lease: str, said: list[Event]) -> Iterator[Violation]:
    first = last = top = 0
    since, whose = case.start, ""
    for event in said:
        fence, text = event.fence, ""
        if not fence or event.kind not in {"granted", "extended", "passed", "taken"}:
            continue
        excused = bool(last) and case.docket.decide("R13", case.disturbed(since, event.at, event.lock))
        if event.kind == "granted":
            since = since if last else event.at
            first, last = fence, event.last or fence
        elif event.kind == "extended":
            if (event.last or fence) != last and (event.note != "more" or event.last < last):
                text = f"{lease} has fences {fence} to {event.last} at {case.ms(event.at)}, and had {first} to {last}"
                first = fence
            last = event.last or fence
        else:
            received = top > 0 or event.kind == "passed"
            if last and not (first <= fence <= last if received else fence == first):
                text = f"{event.who} got {fence} at {case.ms(event.at)}, and the server had granted {first} to {last}"
            elif fence < top or (fence == top and event.attempt != whose):
                text = f"{event.who} got {fence} at {case.ms(event.at)}, after {top} in the same process"
            top, whose = fence, event.attempt
        if text and not excused:
            yield Violation("R13", text, (event,))


def r14_given_up(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R14: a waiter that gave up gets no lock, unless another waiter of its process inherited its position.

    In two cases, a late grant is allowed if it is revoked within ``limits.lag`` seconds. One of several servers may be slow.
    And a waiter that is cancelled again while it gives up does not wait for the reply, so its request to give up may come after
    the grant.

    Excused:

    - A fault that the waiter may have felt while it gave up. The server may not know that the waiter gave up.
    - A duplicate of one of the waiter's requests, which may arrive later.
    - A fault of kind amnesia, clock or foreign, which has hit the server since the attempt began.
    """
    for ask in case.asks:
        event = ask.event
        if ask.outcome not in {"busy", "failed", "cancelled"} or not case.scenes[event.lock].server:
            continue
        place = case.scenes[event.lock].queued.get(event.attempt)
        ended = max([ask.ended, *(heir.ended for heir in place.owners if heir is not None)] if place else [ask.ended])
        if case.docket.decide("R14", _may_come_late(case, limits, ask, ended)):
            continue
        for granted in case.leases.get(event.attempt, ()):
            if (
                granted.kind == "granted"
                and granted.at > ended
                and not ((limits.quorum > 1 or _hurried(case, ask)) and _taken_back(case, event, granted, limits))
                and not case.disturbed(event.at, granted.at, event.lock)
            ):
                text = f"{event.who} gave up at {case.ms(ask.ended)}, and was granted {event.lock!r} at {case.ms(granted.at)}"
                yield Violation("R14", text, (event, granted))


def _may_come_late(case: Evidence, limits: Limits, ask: Ask, ended: float) -> bool:
    event, process = ask.event, process_of(ask.event.who)
    if case.felt(process, _gave_up(case, ask), ended, limits.echo) or case.disturbed(event.at, ended, event.lock):
        return True
    felt = case.felt(process, event.at, ended, limits.echo)
    return any(fault.kind == "duplicate" and fault.concerns(event.attempt) for fault in felt)


def _gave_up(case: Evidence, ask: Ask) -> float:
    """Return the earliest time at which the waiter may have begun to give up."""
    if ask.outcome == "busy":
        return min(max(ask.event.at, ask.event.until), ask.ended)
    cancelled = [fault.at for fault in case.faults if fault.kind == "cancel" and fault.event.who == ask.event.who]
    return max([ask.event.at, *(at for at in cancelled if at <= ask.ended and ask.outcome == "cancelled")])


def _hurried(case: Evidence, ask: Ask) -> bool:
    who, until = ask.event.who, ask.ended + ROUNDING
    cancelled = [f for f in case.faults if f.kind == "cancel" and f.event.who == who and ask.event.at <= f.at <= until]
    return ask.outcome == "cancelled" and len(cancelled) > 1


def _taken_back(case: Evidence, asked: Event, granted: Event, limits: Limits) -> bool:
    """Return whether a late grant was revoked within ``limits.lag`` seconds.

    Also return True if the history ends within this time, or a fault may have kept the revocation from the server.
    """
    if case.felt(process_of(asked.who), granted.at, granted.at + limits.lag, limits.echo):
        return True
    said = [event for event in case.leases[granted.attempt] if event.who == granted.who and event.kind == "freed"]
    return any(granted.at <= event.at <= granted.at + limits.lag for event in said) or granted.at + limits.lag > case.last


def r15_released(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R15: a release reports what happened, and only one release of a lease reports success.

    If the server kept the lock until the release, the release reports success. Otherwise, it reports a loss. Excused: the
    holder may have felt a fault during the release, or the server's clock was set since the lease was requested.
    """
    for scene in case.scenes.values():
        for hold in scene.holds:
            released = [event for event in case.said(hold) if event.kind == "released"]
            twice = next((event for event in released if event.note == "twice"), None)
            if twice is not None:
                yield Violation(
                    "R15", f"{hold.who} released {hold.lock!r} a second time, and it reported success", (hold.taken, twice)
                )
            if not scene.server or hold.how != "release":
                continue
            told = released[0].at if released else case.last
            # If messages are slow, another request may have timed out and closed the shared connection.
            resent = told >= hold.ended + AGAIN_AFTER_S and any(fault.weather for fault in case.touching(hold.process))
            unknown = resent or bool(case.felt(hold.process, hold.ended, told, limits.echo))
            if not case.docket.decide("R15", unknown or case.disturbed(case.asked(hold), told, hold.lock, ("clock",))):
                yield from _untrue(case, hold)
            elif unknown and not limits.tickets:
                yield from _denied(case, scene, hold, released)


def _denied(case: Evidence, scene: Scene, hold: Hold, released: list[Event]) -> Iterator[Violation]:
    """Yield a violation if a release that the server carried out reports a loss, because it was sent again.

    Excused: a fault of kind amnesia, clock or foreign has hit the server since the lease was requested.
    """
    told = released[0] if released else None
    kept = max((event.until for event in case.leases[hold.lease] if event.kind in {"granted", "extended"}), default=0.0)
    freed = next((event.at for event in scene.server if event.attempt == hold.lease and event.kind == "freed"), float("inf"))
    if told is None or not hold.ended <= freed < min(kept, hold.until, told.at):
        return
    if not case.docket.decide("R15 resent", case.disturbed(case.asked(hold), told.at, hold.lock)) and told.note == "LeaseLost":
        text = f"{hold.who} got a loss when it released {hold.lock!r}, but the server had carried the release out"
        yield Violation("R15", text, (hold.taken, told))


def r19_taken_again(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R19: a holder that acquires its lock once more gets the same fence.

    The lock is released only when the holder has released it as often as it acquired it. A holder that has lost its lock cannot
    acquire it once more.
    """
    for hold in case.holds():
        inside = 0
        for event in case.said(hold):
            text = ""
            if event.kind == "again":
                case.docket.decide("R19")
                inside += 1
                text = _other(case, hold, event)
            elif event.kind == "inner":
                inside -= 1
            elif event.kind == "release" and inside:
                text = f"{hold.who} released {hold.lock!r} at {case.ms(event.at)}, and had acquired it {inside} times more"
            if text:
                yield Violation("R19", text, (hold.taken, event))


def _other(case: Evidence, hold: Hold, again: Event) -> str:
    """Describe what is wrong with a repeated acquisition; "" if nothing is."""
    if again.fence != hold.fence:
        return f"{hold.who} holds {hold.lock!r} with fence {hold.fence}, acquired it again, and got {again.fence}"
    if again.at > hold.ended:
        return f"{hold.who} acquired {hold.lock!r} again at {case.ms(again.at)}, when its lease was over"
    return ""


def _untrue(case: Evidence, hold: Hold) -> Iterator[Violation]:
    gone, kept = False, float("-inf")
    for event in case.said(hold):
        if event.kind in {"granted", "extended"}:
            gone, kept = False, event.until
        elif event.kind == "freed":
            gone = gone or event.at < hold.ended
        elif event.kind == "released" and event.note == "" and gone:
            text = f"{hold.who} released {hold.lock!r} with success, but had lost it before"
            yield Violation("R15", text, (hold.taken, event))
        elif event.kind == "released" and event.note == "LeaseLost" and not gone and min(kept, hold.until) > event.at:
            text = f"{hold.who} got a loss when it released {hold.lock!r}, but had held it until then"
            yield Violation("R15", text, (hold.taken, event))
