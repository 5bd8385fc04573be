"""Rules of safety: no two holders, no equal or falling fences, no belief without a lease, nothing left or revived.

A rule is a function that looks at the `Evidence` and yields violations. Its docstring names the faults that it excuses. If a
history has no events of the server (a live run), rules that need them find nothing to judge. The rules of what must happen, in
time and in order, are in `liveness_rules`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from holdfast.testing.history import Event, process_of
from holdfast.testing.judge.evidence import ROUNDING, SERVER, UNSETTLING, Ask, Evidence, Hold, Scene


class Violation(NamedTuple):
    rule: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule} {self.text}"


@dataclass(slots=True, frozen=True)
class Limits:
    """How long things may take when no fault is in the way, in seconds. The defaults suit the default lease of 30 s."""

    notice: float = 11.0
    """From the loss of a lock on the server until its holder is told: a third of the lease, and one time-out. Infinity where
    nobody renews."""
    handover: float = 4.0
    """For which a lock may be free while somebody waits for it: the claim window, one refresh, and a little."""
    claim: float = float("inf")
    """For which a lock may be kept for who is next in line, and is dead."""
    echo: float = float("inf")
    """For which a fault that is over at once may be felt: a message is under way for so long at most."""
    lag: float = 2.0
    """By which an end that a process reckons itself (of a wait, of a lease) may be late."""
    linger: float = 0.0
    """For which a lease may be kept when nobody uses it, and nobody else asks."""
    passes: int = 32
    """As often a lock may be passed on inside a process while another process is known to wait."""
    pass_time: float = 0.01
    """As long, from when it was taken, it may then be passed on."""
    recall: bool = False
    """Even who does not wait gets a lock that is only kept: messages are quick here."""
    quorum: int = 1
    """So many servers have to keep a lock for its holder: more than one where it is had from a majority."""
    excuses: frozenset[str] = UNSETTLING
    """Faults of a server after which there may be two holders: not amnesia, where servers guard against that."""
    permits: bool = False
    """Several clients may hold the lock, each with the number of permits in its ``ask``."""
    rewinds: str = "clock back"
    """How a fault begins after which fences may fall, if it comes with amnesia: a clock that is behind what was issued."""


USUAL = Limits()


def r1_exclusion(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """Of one lock, never two believe at the same time to hold it. A belief begins with ``taken`` and ends with what comes
    first of ``release``, ``lost``, a crash, and its ``until``, as last renewed.

    Excused: an overlap of which the earlier was granted before a server's fault of kind amnesia, clock or foreign
    (``limits.excuses``) and the later one after it (or both while it lasted).
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
                told = " and ".join(f"{b.who} (fence {b.fence}) believes to hold it until {case.ms(b.end)}" for b in others)
                text = f"{hold.lock!r} is taken by {hold.who} (fence {hold.fence}) at {case.ms(since)}, while {told}"
                yield Violation("R1", text, (*(b.taken for b in others), hold.taken))
        believers.append(hold)


def _forgot(case: Evidence, earlier: Hold, later: Hold, limits: Limits) -> bool:
    """The server lost its counter between the two, and its clock has been set back before the later."""
    return case.unsettled(earlier, later, ("amnesia",)) and any(
        fault.event.note.startswith(limits.rewinds) and fault.at <= later.since for fault in case.faults
    )


def r2_unique_fences(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """No fence is given to two holders. Excused: amnesia between them, together with a clock that was set back."""
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
    """R3: a client that asks after another one took the lock gets a greater fence.

    The fence is compared with the highest of those taken before the request; the order of two answers that were both under way
    says nothing. Excused: as in R2, and a lease handed on in a process after the server lost the lock, or granted it to another
    client, by a fault as in R1. With several servers, a client that takes the lock after another one held it gets a greater
    fence in whatever order they asked, except after a fault as in R1.
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
                if not _may_fall(case, other, hold, limits, asked_after=asked_after):  # the highest may be, and another not
                    text = (
                        f"{hold.who} asked at {case.ms(asked)}, after {other.who} had fence {other.fence}, and got {hold.fence}"
                    )
                    yield Violation("R3", text, (other.taken, hold.ask.event, hold.taken))
                    break


def _may_fall(case: Evidence, earlier: Hold, later: Hold, limits: Limits, *, asked_after: bool = True) -> bool:
    if _forgot(case, earlier, later, limits):
        return True
    return (later.received or not asked_after) and case.unsettled(later, earlier)


def r4_register(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R4: the protected resource accepts no write with a lower fence than one it has accepted."""
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
    """R5: no holder believes it holds a lock for longer than the server keeps it.

    With several servers, ``limits.quorum`` of them must keep it. The rule is checked after each event of either side.

    Excused: events after a fault of the server, of kind amnesia, clock or foreign, since the grant.
    """
    for scene in case.scenes.values():
        if not scene.server:
            continue
        for hold in scene.holds:
            if hold.taken.until <= hold.since:
                text = f"{hold.who} took {hold.lock!r} at {case.ms(hold.since)}, when the lease was over"
                yield Violation("R5", text, (hold.taken,))
            broken = _beyond(case, hold, limits.quorum)
            case.docket.decide("R5", broken is None and case.disturbed(_first(case, hold, limits.quorum), hold.end, hold.lock))
            if broken is not None:
                yield broken


def _first(case: Evidence, hold: Hold, quorum: int) -> float:
    """When a server gave a hold its lock first."""
    first = next((said.at for said in case.leases[hold.lease] if said.kind == "granted"), hold.since)
    return first if quorum > 1 else case.granted(hold) or hold.since


def _beyond(case: Evidence, hold: Hold, quorum: int) -> Violation | None:
    kept = believed = never = float("-inf")
    each = {str(number): never for number in range(quorum)}  # by server; these have said nothing yet
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
            text = f"{hold.who} believes to hold {hold.lock!r} until {case.ms(believed)}, but the server keeps {until} for him"
            return Violation("R5", text, (hold.taken, event))
    return None


def r9_nothing_left(case: Evidence, _: Limits) -> Iterator[Violation]:
    """When all is over, nothing is left behind."""
    if "" in case.finished:
        case.docket.decide("R9")
    for event in case.left:
        yield Violation("R9", f"left behind: {event.note}", (event,))


def r12_over_is_over(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R12: a lease that was released or lost is not revived.

    Its holder renews it no more, also after handing it on inside its process. The server does not grant it again, nor extend it
    after a release that succeeded. No client takes a lease that its process knows to be lost.

    Excused for the server: amnesia (it may recall an older state), clock, foreign. Also excused: a grant, with the events that
    follow from it, after a duplicate of a request that the sender could not know of; after a loss, which the server is not
    told of, a grant after any fault that the holder may have felt.
    """
    for hold in case.holds():
        if hold.taken.note:
            yield Violation(
                "R12", f"{hold.who} took {hold.lock!r}, which was known to be lost: {hold.taken.note}", (hold.taken,)
            )
        if hold.how not in {"", "crashed"}:
            case.docket.decide("R12", _may_revive(case, hold, limits, "lost" if hold.how == "lost" else "released", hold.ended))
            # With several servers, a slow vote may arrive after the end; the request that revokes it follows behind.
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
            if case.disturbed(hold.since, event.at, hold.lock):
                continue
            if kind == "granted" and _may_revive(case, hold, limits, over, event.at):
                over = "over"  # and what follows from that grant is excused with it
                continue
            text = f"the server {kind} {hold.lock!r} to {hold.who} at {case.ms(event.at)}, when it was {over}"
            yield Violation("R12", text, (hold.taken, event))


def _may_revive(case: Evidence, hold: Hold, limits: Limits, over: str, at: float) -> bool:
    """Tell whether a lease that is over may be granted again at that time.

    A server that recalls an older state may do so, and so may a late copy of a request, if the server lost its record that the
    request is late.
    """
    late = [fault for fault in case.felt(hold.process, case.asked(hold), at, limits.echo) if fault.concerns(hold.lease)]
    if case.disturbed(hold.since, at, hold.lock):
        return True
    return any(over == "lost" or fault.kind == "duplicate" for fault in late)


def r13_same_answer(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R13: a request that is sent again gets the same answer.

    From the grant to the end of the lease, the fence stays the same, at the server and for the holder. A holder gets more
    fences only if it asks for them, and they follow on those that it had. A lease handed on inside its process has a fence
    of that block, and a higher one each time.

    Excused: amnesia, clock, foreign since the first grant.
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
                text = f"{event.who} got {fence} at {case.ms(event.at)}, and the server had given {first} to {last}"
            elif fence < top or (fence == top and event.attempt != whose):
                text = f"{event.who} got {fence} at {case.ms(event.at)}, after {top} in the same process"
            top, whose = fence, event.attempt
        if text and not excused:
            yield Violation("R13", text, (event,))


def r14_given_up(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R14: a waiter that gave up is not granted the lock afterwards, unless another one of its process has its place.

    (Of several servers, a slow one may grant it; the grant has to be revoked at once.) Excused: a fault while the waiter gave
    up, so that the server may not have heard of it; a copy of one of its requests that no client knew of; and a server that has
    lost data since the request, as in R1.
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
                and not (limits.quorum > 1 and _taken_back(case, granted, limits))
                and not case.disturbed(event.at, granted.at, event.lock)
            ):
                text = f"{event.who} gave up at {case.ms(ask.ended)}, and was given {event.lock!r} at {case.ms(granted.at)}"
                yield Violation("R14", text, (event, granted))


def _may_come_late(case: Evidence, limits: Limits, ask: Ask, ended: float) -> bool:
    event, process = ask.event, process_of(ask.event.who)
    if case.felt(process, _gave_up(case, ask), ended, limits.echo) or case.disturbed(event.at, ended, event.lock):
        return True
    felt = case.felt(process, event.at, ended, limits.echo)
    return any(fault.kind == "duplicate" and fault.concerns(event.attempt) for fault in felt)


def _gave_up(case: Evidence, ask: Ask) -> float:
    """When somebody began to give up, as far as that is known."""
    if ask.outcome == "busy":
        return min(max(ask.event.at, ask.event.until), ask.ended)
    cancelled = [fault.at for fault in case.faults if fault.kind == "cancel" and fault.event.who == ask.event.who]
    return max([ask.event.at, *(at for at in cancelled if at <= ask.ended and ask.outcome == "cancelled")])


def _taken_back(case: Evidence, granted: Event, limits: Limits) -> bool:
    said = [event for event in case.leases[granted.attempt] if event.who == granted.who and event.kind == "freed"]
    return any(granted.at <= event.at <= granted.at + limits.lag for event in said) or granted.at + limits.lag > case.last


def r15_released(case: Evidence, limits: Limits) -> Iterator[Violation]:
    """R15: the answer to a release is true, and it is given once.

    It is success if the server had kept the lock until then, and a loss if not. Excused: a fault that the holder may have felt
    during the release, as nobody can know then; and a server's clock that was set while it held the lock.
    """
    for scene in case.scenes.values():
        for hold in scene.holds:
            twice = next((event for event in case.said(hold) if event.kind == "released" and event.note == "twice"), None)
            if twice is not None:
                yield Violation(
                    "R15", f"{hold.who} was told a second time that it gave {hold.lock!r} back", (hold.taken, twice)
                )
            if not scene.server or hold.how != "release":
                continue
            told = next((event.at for event in case.said(hold) if event.kind == "released"), case.last)
            unknown = bool(case.felt(hold.process, hold.ended, told, limits.echo))
            if not case.docket.decide("R15", unknown or case.disturbed(case.asked(hold), told, hold.lock, ("clock",))):
                yield from _untrue(case, hold)


def r19_taken_again(case: Evidence, _: Limits) -> Iterator[Violation]:
    """R19: a holder that acquires its lock again gets the same fence.

    The lock is not released before the holder has released it as often as it acquired it. A lost lock is not acquired again.
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
                text = f"{hold.who} gave {hold.lock!r} back at {case.ms(event.at)}, and had taken it {inside} times more"
            if text:
                yield Violation("R19", text, (hold.taken, event))


def _other(case: Evidence, hold: Hold, again: Event) -> str:
    """Describe what is wrong with this repeated acquisition; empty if nothing is."""
    if again.fence != hold.fence:
        return f"{hold.who} has {hold.lock!r} with fence {hold.fence}, took it again, and got {again.fence}"
    if again.at > hold.ended:
        return f"{hold.who} took {hold.lock!r} again at {case.ms(again.at)}, when it was over"
    return ""


def _untrue(case: Evidence, hold: Hold) -> Iterator[Violation]:
    gone, kept = False, float("-inf")
    for event in case.said(hold):
        if event.kind in {"granted", "extended"}:
            gone, kept = False, event.until
        elif event.kind == "freed":
            gone = gone or event.at < hold.ended
        elif event.kind == "released" and event.note == "" and gone:
            text = f"{hold.who} was told that it gave {hold.lock!r} back, and had lost it before"
            yield Violation("R15", text, (hold.taken, event))
        elif event.kind == "released" and event.note == "LeaseLost" and not gone and min(kept, hold.until) > event.at:
            text = f"{hold.who} was told that it had lost {hold.lock!r}, and had it until it gave it back"
            yield Violation("R15", text, (hold.taken, event))
