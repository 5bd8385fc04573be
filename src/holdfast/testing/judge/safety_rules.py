"""What must never happen: two holders, equal or falling fences, belief without a lease, things left behind or revived.

A rule is a function that looks at the `Evidence` and yields violations. What it excuses is written at the rule. Where the
server's side of a history is not known (a live run), rules that need it find nothing to judge. What must happen, in time and
in order, is in `deadlines`.
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
    """Several may hold it, each as many permits as his ``ask`` says."""
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
    """Who asks after somebody has taken the lock gets a greater fence. Compared with the highest fence of those taken before
    the question; the order of two answers that were both under way says nothing. Excused as in R2; and what was passed on in a
    process when the server had forgotten its lock, or given it to somebody else, by a fault as in R1. Where several
    servers have to agree, who takes the lock after another one had it gets a greater fence, whoever has asked first; but for a
    fault as in R1."""
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
    """What the lock protects accepts no write with a lower fence than one it has accepted."""
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
    """Nobody believes to hold a lock for longer than the server (or ``limits.quorum`` of several) keeps it for him, after each
    thing that either says.

    Excused: what comes after a server's fault of kind amnesia, clock or foreign that came after the grant.
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
    """What was released or lost is not revived: the holder renews it no more, and the server does not grant it again, nor
    extend it after a release that succeeded. Who has passed it on inside his process renews it no more, either; and nobody
    takes what his process knows to be lost.

    Excused for the server: amnesia (it remembers what was before), clock, foreign; and a grant, with what follows from it,
    after a duplicate of a request that its sender could not know of, or, after a loss, of which nobody has told the server,
    after any fault that the holder may have felt.
    """
    for hold in case.holds():
        if hold.taken.note:
            yield Violation(
                "R12", f"{hold.who} took {hold.lock!r}, which was known to be lost: {hold.taken.note}", (hold.taken,)
            )
        if hold.how not in {"", "crashed"}:
            case.docket.decide("R12", _may_revive(case, hold, limits, "lost" if hold.how == "lost" else "released", hold.ended))
            # Where there are several servers, the vote of a slow one may come when all is over, with what takes it back behind.
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
    """What is over may be granted again at that time: by a server that remembers what was before, or by a late copy of a
    request, that the server knew to be late before it forgot that."""
    late = [fault for fault in case.felt(hold.process, case.asked(hold), at, limits.echo) if fault.concerns(hold.lease)]
    if case.disturbed(hold.since, at, hold.lock):
        return True
    return any(over == "lost" or fault.kind == "duplicate" for fault in late)


def r13_same_answer(case: Evidence, _: Limits) -> Iterator[Violation]:
    """A request that is sent again is answered the same: from the grant on, as long as the lock is his, the fence stays what it
    was, at the server and for the holder. Only a holder who asks for more fences is given more, and they follow on those that
    he had. What is passed on inside his process has a fence of that block, and a higher one each time.

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
    """Who has given up, for whatever reason, is not given the lock afterwards, unless another one of his process has his place.
    (Of several servers, a slow one may give it, and has to take it back at once.) Excused: a fault while he gave up, which his
    server may not have heard of; a copy of one of his requests that nobody knew of; and a server that has forgotten since he
    asked, as in R1."""
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
    """The answer to a release is true: fine if the server had kept the lock until then, a loss if not; and it is given once.
    Excused: a fault that he may have felt while he gave it back, after which nobody can know; and that the server's clock was
    set while he had it."""
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
    """Who has a lock and takes it again has the same fence; it is not given back before he has left it as often as he has taken
    it, and what was lost is not taken again."""
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
    """What is wrong with taking it again, if anything is."""
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
