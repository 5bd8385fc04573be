"""A lock on several servers that know nothing of each other: it is whose a majority of them says.

All are asked at the same time, and nobody waits for the slow once it is decided. Sources: redis.io "Distributed Locks with
Redis" (Redlock) for the majority, the validity and the undo; for the fence, models/quorum_fence.pml: the highest answer alone
is no fence, a majority has to confirm it; for servers that forget, models/amnesia.pml. There is no queue, as clients at the
heads of different servers' queues would block each other: who waits is given a hint when the lock may be free
(`_lua/quorum/vote.lua`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.local_acquire import Ways
from holdfast._core.lock.name_conflict import explained
from holdfast._core.lock.records import Attempt, Grant, Tenure, Waiter, margin, milliseconds
from holdfast._core.lock.renewal import renewal
from holdfast._core.lock.replies import Busy, Held
from holdfast._core.quorum.lease import Mandate, Vote
from holdfast._core.quorum.votes import (
    CONFIRM,
    RELEASE_VOTE,
    VOTE,
    Ballot,
    Candidate,
    Count,
    Heard,
    Panel,
    Renewals,
    Taken,
    Waits,
    Yes,
    verdict,
)
from holdfast._core.requests import (
    Answer,
    Call,
    Command,
    Draw,
    Enroll,
    GiveBack,
    Hark,
    NotSent,
    Now,
    Poll,
    Run,
    TooFew,
    Unknown,
    WireError,
    Withdraw,
)

LOOK_EVERY = 1.0
"""Seconds after which one who waits looks for himself, on the average: a hint may be lost."""

SPREAD = 0.004
"""Seconds over which those are spread who got in each other's way, at first; twice as many each time."""

SPREAD_MOST = 0.5

PATIENT = 5.0
"""Seconds after which the connection to a server that owes an answer is closed. Until then what is sent to take something back
can go behind what it takes back; nobody waits for that."""


async def acquire(candidate: Candidate, wait: float | None) -> Grant | Busy:
    """Get a majority of the servers within ``wait`` seconds (None: for ever; 0: one round). Busy when time ran out.

    Raises TooFew when there are not enough servers to vote, Disagreement when they do not go together, KeyConflict when
    somebody else's data is in the way. Any end but a Grant, cancellation included, leaves nothing behind.
    """
    now = await Now()
    if wait is not None:
        candidate.until = now + wait
    try:
        return await campaign(candidate, wait == 0, now)
    except BaseException:
        await give_up(candidate)
        raise


async def campaign(candidate: Attempt, at_once: bool, started: float, crowded: Waiter | None = None) -> Grant | Busy:
    """Ask for votes until there is a majority, or `Attempt.until`; ``at_once``: once. ``crowded``: others wanted it, too, when
    this process had it last."""
    assert isinstance(candidate, Candidate)
    if crowded is not None:
        await _enroll(candidate, started)
    panel, tries, splits, contact = candidate.panel, 0, 0, started
    while True:
        candidate.token = candidate.spec.signed(await Draw())
        candidate.hints.clear()
        ballot = await _vote(candidate, candidate.since or started)
        grant = await _settle(candidate, ballot) if ballot.reached else None
        if grant is not None:
            return grant
        now = await Now()
        over = at_once or (candidate.until is not None and now >= candidate.until)
        await _undo(candidate, for_good=over)
        await _check(candidate, ballot)
        voters = ballot.voters
        if voters >= panel.majority:
            if over:
                return ballot.busy()
            candidate.waits()
            splits = 0 if ballot.holder()[1] >= panel.majority else splits + 1
            contact, pause = now, _until_it_is_free(candidate, ballot, splits)
        else:
            pause = _until_there_are_more(candidate, ballot, voters, tries)
            known = candidate.waited or ballot.replies(Waits)  # they are there, and have said how long it takes
            end = candidate.until
            if end is None:
                end = now + pause if ballot.replies(Waits) else contact + candidate.patience
            if over or not known or now + pause > end:
                raise TooFew(ballot.verdicts(), silent=ballot.silent)
        if candidate.hope or voters < panel.majority:
            await _await_a_chance(candidate, now + pause)
        else:
            await _enroll(candidate, now)
        candidate.waited = True
        tries += 1


async def _enroll(candidate: Candidate, now: float) -> None:
    """Be told from now on when the lock may be free."""
    candidate.hope = candidate.spec.signed(await Draw())
    await Enroll(candidate, min(now + candidate.spec.timeout, candidate.until or now + 1))


async def _vote(candidate: Candidate, since: float, more: int = 0) -> Ballot:
    """One round. ``more``: so many more fences for a token that has the lock."""
    panel, spec = candidate.panel, candidate.spec
    candidate.pending = True
    candidate.voted = ["bury"] * len(panel.names)  # until we know better
    hoped, candidate.hoped = candidate.hoped, set(range(len(panel.names)) if candidate.hope else ())
    ballot = Ballot(panel)
    now = await Now()
    call: Call = Run(
        VOTE,
        (*spec.keys, panel.marker),
        (
            candidate.token,
            spec.first_ms,
            candidate.horizon.hint(now, candidate.seen),
            milliseconds(panel.longest),
            panel.digest,
            candidate.hope,
            int((now - since) * 1000),
            more,
        ),
        PATIENT,
    )
    await Poll([call] * len(panel.names), ballot, spec.timeout, begins=True)
    times = []
    for number, answer in ballot.answers.items():
        if isinstance(answer, Answer):
            reply = answer.value
            candidate.voted[number] = "leave" if isinstance(reply, Yes) else ""
            if isinstance(reply, Yes | Taken):
                times.append((reply.time, answer.came))
                candidate.seen = max(candidate.seen, reply.fence)
        elif not isinstance(answer, Unknown):
            candidate.voted[number] = ""
            candidate.hoped -= {number} - hoped
    candidate.horizon.learn(times)
    return ballot


async def _check(candidate: Candidate, ballot: Ballot) -> None:
    """Raises KeyConflict, Disagreement."""
    ballot.check()
    found = ballot.conflict()
    if found is None:
        return
    number, conflict = found
    servers, spec = len(candidate.panel.names), candidate.spec

    async def ask(command: Command) -> Any:
        heard = Heard({number})
        await Poll([command if one == number else None for one in range(servers)], heard, spec.timeout)
        answer = heard.answers.get(number, NotSent("no answer in time"))
        if isinstance(answer, WireError):
            raise answer
        return answer.value

    raise KeyConflict(await explained(conflict, *spec.keys[:2], spec.timeout, ask))


async def _settle(candidate: Candidate, ballot: Ballot) -> Grant | None:
    """A majority has granted: make it a lease with one fence. None if that came too late, or somebody has a higher one."""
    await _check(candidate, ballot)
    spec, panel = candidate.spec, candidate.panel
    granted = ballot.granted()
    length = spec.first_ttl - margin(spec.first_ttl)
    deadline = sorted((answer.sent for answer in granted.values()), reverse=True)[panel.majority - 1] + length
    fences = await _agree(candidate, granted, deadline)
    now = await Now()
    if fences is None or now >= deadline:
        return None
    others = any(answer.value.others for answer in granted.values())
    grant = Grant(candidate, fences.fence, now, deadline, queued=others, last=fences.last)
    mandate = grant.whole = Mandate(grant, panel.majority, candidate.hope, candidate.hoped)
    for number, name in enumerate(panel.names):
        if candidate.voted[number]:  # or it has said no
            end = granted[number].sent + length if number in granted else now + length
            part = Grant(candidate, fences.fence, now, end)
            mandate.votes[number] = Vote(part, mandate, number, name, number in granted)
    await Withdraw(candidate)
    return grant


async def _agree(candidate: Candidate, granted: dict[int, Answer[Yes]], deadline: float) -> Held | None:
    """The fences that are the candidate's: the highest that were granted, which a majority has to know. None if it does not."""
    votes = [answer.value for answer in granted.values()]
    best = max(votes, key=lambda vote: vote.fence)
    panel, spec = candidate.panel, candidate.spec
    if sum(vote.fence == best.fence for vote in votes) < panel.majority:
        confirmed = Count(len(granted), panel.majority)
        confirm = Run(CONFIRM, spec.keys[:2], (candidate.token, best.fence), PATIENT)
        calls: list[Call | None] = [confirm if number in granted else None for number in range(len(panel.names))]
        await Poll(calls, confirmed, min(spec.timeout, max(0.0, deadline - await Now())))
        if not confirmed.reached:
            return None
    # From the highest first number: a lower one may have been issued before by one of the others.
    return Held(max(vote.first for vote in votes), best.fence)


async def again(candidate: Attempt, mandate: Tenure, more: int) -> Answer[Held] | None:
    """As `sharing.Ways.again`: a round of votes for who has them already."""
    assert isinstance(candidate, Candidate)
    assert isinstance(mandate, Mandate)
    asking = candidate.asking_again(mandate.token)
    try:
        ballot = await _vote(asking, await Now(), more)
    finally:
        # A copy under way would take what was given back meanwhile, on another connection. And who had said no may have it now.
        mandate.doubtful |= {n for n, mode in enumerate(asking.voted) if mode == "bury" or (mode and n not in mandate.votes)}
    granted = ballot.granted()
    held: Held | None = Held(0, candidate.gate.last if candidate.gate is not None else 0)
    if ballot.reached and more:
        held = await _agree(asking, granted, await Now() + asking.spec.timeout)
    if not ballot.reached or held is None:
        await give_up(asking)
        return None
    length = mandate.ttl - margin(mandate.ttl)
    for number, answer in granted.items():
        vote = mandate.votes.get(number)
        if vote is not None and not vote.lost:
            vote.believed = True
            if vote.answered_at >= vote.asked_at:
                vote.deadline = max(vote.deadline, answer.sent + length)
    sent = min(answer.sent for answer in granted.values())
    return Answer(held, sent, sent)


async def _undo(candidate: Candidate, *, for_good: bool = False, interrupted: bool = False) -> None:
    """Take the last round back. Waits for those who have answered before; the others' undo is behind what it undoes.

    ``for_good``: the candidate waits no more, either. ``interrupted``: in the middle of anything, so that the connections on
    which it was done may be gone; then the keeper sees to it that everybody hears of the undo."""
    hope = candidate.hope if for_good else ""
    modes = [mode or ("leave" if hope and number in candidate.hoped else "") for number, mode in enumerate(candidate.voted)]
    if any(modes):
        keys, token, timeout = candidate.spec.keys, candidate.token, candidate.spec.timeout
        heard = Heard({number for number, mode in enumerate(modes) if mode == "leave" or (mode and interrupted)})
        calls: list[Call | None] = [Run(RELEASE_VOTE, keys, (token, mode, hope), PATIENT) if mode else None for mode in modes]
        bury, until = Run(RELEASE_VOTE, keys, (token, "bury", hope), timeout), await Now() + candidate.spec.first_ttl
        await Poll(calls, heard, timeout if heard.awaited else 0.0, otherwise=lambda number: GiveBack(bury, number, until))
        for number, mode in enumerate(modes):
            if mode and interrupted and number not in heard.answers:
                await GiveBack(bury, number, until)
    candidate.pending, candidate.voted = False, [""] * len(modes)
    if for_good:
        await Withdraw(candidate)
        candidate.hope, candidate.hoped = "", set()


async def give_up(candidate: Attempt) -> None:
    """Leave nothing of a candidate behind, wherever it was interrupted. Never raises a WireError."""
    assert isinstance(candidate, Candidate)
    try:
        if candidate.pending or candidate.hope:
            await _undo(candidate, for_good=True, interrupted=True)
    except BaseException:
        await Withdraw(candidate)
        raise


def _jitter(candidate: Candidate) -> float:
    """From 0 to 1, another one in each round."""
    return int(candidate.token[-4:], 16) / 0xFFFF


def _until_it_is_free(candidate: Candidate, ballot: Ballot, splits: int) -> float:
    """Seconds to wait for a hint.

    If nobody has a majority, the attempts that share the votes must not all ask at the same time.
    """
    jitter = _jitter(candidate)
    if ballot.holder()[1] < candidate.panel.majority:
        return min(SPREAD * 2.0 ** min(splits, 10), SPREAD_MOST) * jitter
    remaining, pause = ballot.remaining(), LOOK_EVERY * (0.75 + jitter / 2)
    return pause if remaining is None else min(pause, remaining + 0.002 + SPREAD * jitter)


def _until_there_are_more(candidate: Candidate, ballot: Ballot, voters: int, tries: int) -> float:
    """Seconds to wait where too few servers can vote."""
    waits = sorted(reply.seconds for reply in ballot.replies(Waits))
    missing = candidate.panel.majority - voters
    pause = min(0.05 * 2.0 ** min(tries, 10), LOOK_EVERY) * (0.5 + _jitter(candidate))
    if len(waits) < missing:
        return pause
    told = float(waits[missing - 1]) + SPREAD * _jitter(candidate)
    # A silent server may be back at any time, and forgets since when this attempt waits if it is not asked.
    return told if voters + len(waits) == len(candidate.panel.names) else min(told, pause)


async def _await_a_chance(candidate: Candidate, until: float) -> None:
    """Until a majority says that the lock is free, or some have said so and the others had the time to; or ``until``."""
    if candidate.until is not None:
        until = min(until, candidate.until)
    shortened = False
    while len(candidate.hints) < candidate.panel.majority and (now := await Now()) < until:
        if candidate.hints and not shortened:
            shortened, until = True, min(until, now + SPREAD * (0.5 + _jitter(candidate)))
        await Hark(candidate, until)


async def renew(candidate: Candidate, mandate: Mandate, ttl: float, made: float) -> None:
    """Have all servers that have granted set the lease to ``ttl`` seconds from now. Raises TooFew if too few answer;
    `Mandate.falls` finds out if a majority has said no."""
    spec, panel = candidate.spec, candidate.panel
    votes = {number: vote for number, vote in mandate.votes.items() if not vote.lost}
    count = Renewals(len(votes), panel.majority)
    call = renewal(spec, mandate.token, ttl, made)
    await Poll([call if number in votes else None for number in range(len(panel.names))], count, spec.timeout)
    for number, answer in count.answers.items():
        if not isinstance(answer, Answer):
            continue
        (state,) = answer.value
        if state == 1:
            votes[number].ttl = ttl  # before: it says when the next one is due
            votes[number].renewed(made, answer.sent, ttl)
        elif state != 2:
            votes[number].lose("its key is gone or somebody else's")
    if not count.reached and not mandate.falls() and not mandate.lost:
        raise shortfall(count, panel, votes, "renewed")


async def release(candidate: Candidate, mandate: Mandate) -> bool:
    """Give the lock back on all servers, and return when a majority has said that it did. False if it was not ours any more.

    A server that fails, then or later, or is silent without a majority, is told again until its vote ends. Raises TooFew when
    nobody can say whether it was ours."""
    panel, servers = candidate.panel, mandate.servers()
    count = Count(len(servers), panel.majority)
    calls: list[Call | None] = [None] * len(panel.names)
    for number in servers:
        calls[number] = mandate.giving_back_at(number, bury=False, timeout=PATIENT)
    try:
        await Poll(calls, count, candidate.spec.timeout, otherwise=lambda number: GiveBack(*mandate.giving_back_to(number)))
    finally:  # even if it was ended in the middle, and nobody knows how far that had come
        if not count.decided:
            await give_back(mandate, servers - count.answers.keys())
    if count.unsure:
        raise shortfall(count, panel, servers, "given back")
    return count.reached


async def give_back(mandate: Mandate, servers: Iterable[int]) -> None:
    """Have these told to give back what they have, until they answer, or it has ended."""
    for number in servers:
        await GiveBack(*mandate.giving_back_to(number))


def shortfall(count: Count, panel: Panel, asked: Container[int], yes: str) -> TooFew:
    """Too few have said yes. ``asked``: the others have nothing of it; ``yes``: what those did who have."""
    said = {}
    for number, name in enumerate(panel.names):
        answer = count.answers.get(number)
        if isinstance(answer, Answer) or number not in asked:
            said[name] = yes if isinstance(answer, Answer) and count.says_yes(answer) else "it is not ours there"
        else:
            said[name] = verdict(answer, decided=count.decided)
    return TooFew(said)


ON_SEVERAL_SERVERS = Ways(campaign, again, give_up)
