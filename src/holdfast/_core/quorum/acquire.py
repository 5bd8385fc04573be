"""Acquire, renew and release a lock on several independent servers. A client holds it if a majority votes for the client.

All servers are asked for their votes at the same time. As soon as the result is certain, the client waits for no further reply.
Each vote grants a range of fences. The range of the lock goes from the highest first fence to the highest last fence of the
votes. A majority of the servers must confirm that they know this last fence. If there is no majority, the client undoes its
votes.

The servers have no queues, because two clients would block each other if each were first in the queue of a server. Instead,
each server notifies the waiting clients when the lock may be free (`_lua/quorum/vote.lua`).

Sources: redis.io, "Distributed Locks with Redis" (Redlock), for the majority, the duration of the lease and the undo;
models/quorum_fence.pml for the fence; models/quorum_amnesia.pml for servers that have lost their data.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from holdfast._core.lock.acquire import KeyConflict, Strategy
from holdfast._core.lock.name_conflict import explained
from holdfast._core.lock.records import Attempt, Grant, HeldLease, Waiter
from holdfast._core.lock.renewal import renewal
from holdfast._core.lock.replies import Busy, Held
from holdfast._core.lock.spec import margin, milliseconds
from holdfast._core.quorum.lease import NodeLease, QuorumLease
from holdfast._core.quorum.votes import (
    CONFIRM,
    OTHER_LIST,
    RELEASE_VOTE,
    VOTE,
    AllAnswered,
    HeldElsewhere,
    Quarantined,
    QuorumAttempt,
    RenewalCount,
    ServerSet,
    VoteRound,
    Yes,
    YesCount,
    config_mismatch,
    verdict,
)
from holdfast._core.requests import (
    Answer,
    AwaitNotice,
    Call,
    Command,
    GiveBack,
    NewToken,
    NotSent,
    Now,
    Poll,
    RunScript,
    Subscribe,
    TooFew,
    Unknown,
    Unsubscribe,
    WireError,
)

LOOK_EVERY_S = 1.0
"""Average seconds between two rounds of votes of a waiting client that gets no notification. Notifications may be lost."""

SPREAD_S = 0.004
"""Unit of random pauses, in seconds. After the first round in which no client got a majority, a pause is at most two units.

This maximum doubles after each further round without a majority, up to `SPREAD_MAX_S`.
"""

SPREAD_MAX_S = 0.5

ANSWER_LIMIT_S = 5.0
"""Seconds after which a connection is closed because a reply is missing.

Until then the connection stays open, although nobody waits for the reply, because the undo of a vote must follow the vote
request on the same connection.
"""


async def take(attempt: Attempt, at_once: bool, started: float, crowded: Waiter | None = None) -> Grant | Busy:
    """Ask for votes until a majority grants the lock. Return Busy if monotonic time `Attempt.until` has passed before.

    ``at_once``: True to ask only once. ``started``: monotonic time at which the attempt began. ``crowded``: None if nobody else
    is known to wait. Otherwise, the attempt subscribes to notifications before the first round, because the lock is probably
    busy. Raises TooFew if too few servers can vote.
    """
    assert isinstance(attempt, QuorumAttempt)
    if crowded is not None:
        await _subscribe(attempt, started)
    server_set, tries, splits, contact = attempt.server_set, 0, 0, started
    while True:
        attempt.token = attempt.spec.signed(await NewToken())
        attempt.hints.clear()
        vote_round = await _vote(attempt, attempt.since or started)
        grant = await _settle(attempt, vote_round) if vote_round.reached else None
        if grant is not None:
            return grant
        now = await Now()
        over = at_once or (attempt.until is not None and now >= attempt.until)
        await _undo(attempt, for_good=over)
        await _check(attempt, vote_round)
        voters, quarantined = vote_round.voters, vote_round.replies(Quarantined)
        if voters + len(quarantined) >= server_set.majority:
            contact = now
        if voters >= server_set.majority:
            if over:
                return vote_round.busy()
            attempt.waits(now)
            splits = 0 if vote_round.holder()[1] >= server_set.majority else splits + 1
            pause = _until_it_is_free(attempt, vote_round, splits)
        else:
            pause = _until_there_are_more(attempt, vote_round, voters, tries)
            # a server in quarantine is reachable, and votes again soon
            known = attempt.waited or quarantined
            end = attempt.until
            if end is None:
                end = now + pause if quarantined else contact + attempt.outage_budget
            if over or not known or now + pause > end:
                raise TooFew(vote_round.verdicts(), silent=vote_round.silent)
        if attempt.listener_id or voters < server_set.majority:
            await _await_hint(attempt, now + pause)
        else:
            await _subscribe(attempt, now)
        attempt.waited = True
        tries += 1


async def _subscribe(attempt: QuorumAttempt, now: float) -> None:
    attempt.listener_id = attempt.spec.signed(await NewToken())
    await Subscribe(attempt, min(now + attempt.spec.timeout, attempt.until or now + 1))


async def _vote(attempt: QuorumAttempt, since: float, more: int = 0) -> VoteRound:
    """Ask all servers for their votes once.

    ``since``: monotonic time at which the wait began. ``more``: number of further fences to reserve, if the token already holds
    the lock.
    """
    server_set, spec = attempt.server_set, attempt.spec
    attempt.may_be_on_server = True
    attempt.voted = ["bury"] * len(server_set.names)  # a reply may change it
    listening_on, attempt.listening_on = attempt.listening_on, set(range(len(server_set.names)) if attempt.listener_id else ())
    vote_round = VoteRound(server_set)
    now = await Now()
    call: Call = RunScript(
        VOTE,
        (*spec.keys, server_set.marker),
        (
            attempt.token,
            spec.first_ms,
            attempt.clock_estimate.hint(now, attempt.seen),
            milliseconds(server_set.longest),
            server_set.digest,
            attempt.listener_id,
            int((now - since) * 1000),
            more,
        ),
        ANSWER_LIMIT_S,
    )
    await Poll([call] * len(server_set.names), vote_round, spec.timeout, begins=True)
    times = []
    for number, answer in vote_round.answers.items():
        if isinstance(answer, Answer):
            reply = answer.value
            attempt.voted[number] = "leave" if isinstance(reply, Yes) else ""
            if isinstance(reply, Yes | HeldElsewhere):
                times.append((reply.time, answer.came))
                attempt.seen = max(attempt.seen, reply.fence)
        elif not isinstance(answer, Unknown):
            attempt.voted[number] = ""
            attempt.listening_on -= {number} - listening_on
    attempt.clock_estimate.learn(times)
    return vote_round


async def _check(attempt: QuorumAttempt, vote_round: VoteRound) -> None:
    """Raise ConfigMismatch or KeyConflict if the replies of the servers prove that they must not grant the lock, or cannot.

    ConfigMismatch: two names in the list stand for the same server, a server belongs to another list, or too many servers have
    another ``max_ttl``. KeyConflict: the keys of the lock hold other data on too many servers. Too many means that the other
    servers are no majority.
    """
    if mismatch := vote_round.misfit():
        raise mismatch
    found = vote_round.conflict()
    if found is None:
        return
    number, conflict = found
    servers, spec = len(attempt.server_set.names), attempt.spec

    async def ask(command: Command) -> Any:
        heard = AllAnswered({number})
        await Poll([command if one == number else None for one in range(servers)], heard, spec.timeout)
        answer = heard.answers.get(number, NotSent("no answer in time"))
        if isinstance(answer, WireError):
            raise answer
        return answer.value

    raise KeyConflict(await explained(conflict, *spec.keys[:2], spec.timeout, ask))


async def _meet(attempt: QuorumAttempt, vote_round: VoteRound) -> None:
    """Ask the servers that have not answered yet which list they belong to, once in a process.

    If one of them belongs to another list, note this in ``vote_round``. They may answer for at most the time of one round.
    """
    server_set = attempt.server_set
    heard = AllAnswered(set(range(len(server_set.names))) - vote_round.answers.keys())
    if heard.awaited:
        ask = Command(("HGET", server_set.marker, "servers"), ANSWER_LIMIT_S)
        calls: list[Call | None] = [ask if number in heard.awaited else None for number in range(len(server_set.names))]
        await Poll(calls, heard, attempt.spec.timeout)
    for number, answer in heard.answers.items():
        if isinstance(answer, Answer) and answer.value not in (None, server_set.digest.encode()):
            vote_round.mismatch = config_mismatch({server_set.names[number]: OTHER_LIST}, "servers")
    attempt.first_contact.due = vote_round.misfit() is not None


async def _settle(attempt: QuorumAttempt, vote_round: VoteRound) -> Grant | None:
    """Turn the votes of a majority into a grant with one fence.

    Return None if the servers do not fit together, the lease has already ended, or too few servers confirm the fence.
    """
    if attempt.first_contact.due:
        await _meet(attempt, vote_round)
    if vote_round.misfit():
        return None  # `take` undoes the votes first, and then raises the error
    spec, server_set = attempt.spec, attempt.server_set
    granted = vote_round.granted()
    length = spec.first_ttl - margin(spec.first_ttl)
    deadline = sorted((answer.sent for answer in granted.values()), reverse=True)[server_set.majority - 1] + length
    fences = await _agree(attempt, granted, deadline)
    now = await Now()
    if fences is None or now >= deadline:
        return None
    others = any(answer.value.others for answer in granted.values())
    grant = Grant(attempt, fences.fence, now, deadline, queued=others, last=fences.last)
    quorum_lease = grant.held_lease = QuorumLease(grant, server_set.majority, attempt.listener_id, attempt.listening_on)
    for number, name in enumerate(server_set.names):
        if attempt.voted[number]:  # the server has granted its vote, or has not replied yet
            end = granted[number].sent + length if number in granted else now + length
            part = Grant(attempt, fences.fence, now, end)
            quorum_lease.node_leases[number] = NodeLease(part, quorum_lease, number, name, number in granted)
    await Unsubscribe(attempt)
    return grant


async def _agree(attempt: QuorumAttempt, granted: dict[int, Answer[Yes]], deadline: float) -> Held | None:
    """Return the fences of the grant, after a majority of the servers has confirmed the highest of them.

    Return None if no majority confirms it before monotonic time ``deadline``.
    """
    votes = [answer.value for answer in granted.values()]
    best = max(votes, key=lambda vote: vote.fence)
    server_set, spec = attempt.server_set, attempt.spec
    if sum(vote.fence == best.fence for vote in votes) < server_set.majority:
        confirmed = YesCount(len(granted), server_set.majority)
        confirm = RunScript(CONFIRM, spec.keys[:2], (attempt.token, best.fence), ANSWER_LIMIT_S)
        calls: list[Call | None] = [confirm if number in granted else None for number in range(len(server_set.names))]
        await Poll(calls, confirmed, min(spec.timeout, max(0.0, deadline - await Now())))
        if not confirmed.reached:
            return None
    # The fences begin at the highest first fence, because another server may have issued lower ones before.
    return Held(max(vote.first for vote in votes), best.fence)


async def again(attempt: Attempt, quorum_lease: HeldLease, more: int) -> Answer[Held] | None:
    """Ask the servers to extend a held lease and to reserve ``more`` further fences. Return None if the lease is lost."""
    assert isinstance(attempt, QuorumAttempt)
    assert isinstance(quorum_lease, QuorumLease)
    asking = attempt.asking_again(quorum_lease.token)
    started = await Now()
    quorum_lease.may_extend(started, asking.spec.first_ttl)
    try:
        vote_round = await _vote(asking, started, more)
    finally:
        # After a release, a late copy of the request could acquire the lock again over another connection. A server that
        # refused before may have granted now.
        quorum_lease.doubtful |= {
            n for n, mode in enumerate(asking.voted) if mode == "bury" or (mode and n not in quorum_lease.node_leases)
        }
    granted = vote_round.granted()
    held: Held | None = Held(0, quorum_lease.last_fence)
    if vote_round.reached and more:
        held = await _agree(asking, granted, await Now() + asking.spec.timeout)
    if not vote_round.reached or held is None:
        await give_up(asking)
        return None
    length = quorum_lease.ttl - margin(quorum_lease.ttl)
    for number, answer in granted.items():
        node_lease = quorum_lease.node_leases.get(number)
        if node_lease is not None and not node_lease.lost:
            node_lease.believed = True
            if node_lease.answered_at >= node_lease.asked_at:
                node_lease.deadline = max(node_lease.deadline, answer.sent + length)
    sent = min(answer.sent for answer in granted.values())
    return Answer(held, sent, sent)


async def _undo(attempt: QuorumAttempt, *, for_good: bool = False, interrupted: bool = False) -> None:
    """Undo the votes of the last round. Wait for the confirmation only of servers that have replied to the vote request.

    On the other servers, the undo follows the vote request on the same connection. ``for_good``: True if the attempt ends, so
    that its subscription ends, too. ``interrupted``: True if the operation was interrupted, and connections may be
    closed. The keeper (background thread) then repeats the undo until each server has replied.
    """
    listener_id = attempt.listener_id if for_good else ""
    modes = [
        mode or ("leave" if listener_id and number in attempt.listening_on else "") for number, mode in enumerate(attempt.voted)
    ]
    if any(modes):
        keys, token, timeout = attempt.spec.keys, attempt.token, attempt.spec.timeout
        heard = AllAnswered({number for number, mode in enumerate(modes) if mode == "leave" or (mode and interrupted)})
        calls: list[Call | None] = [
            RunScript(RELEASE_VOTE, keys, (token, mode, listener_id), ANSWER_LIMIT_S) if mode else None for mode in modes
        ]
        revoke, until = (
            RunScript(RELEASE_VOTE, keys, (token, "bury", listener_id), timeout),
            await Now() + attempt.spec.first_ttl,
        )
        await Poll(calls, heard, timeout if heard.awaited else 0.0, otherwise=lambda number: GiveBack(revoke, number, until))
        for number, mode in enumerate(modes):
            if mode and interrupted and number not in heard.answers:
                await GiveBack(revoke, number, until)
    attempt.may_be_on_server, attempt.voted = False, [""] * len(modes)
    if for_good:
        await Unsubscribe(attempt)
        attempt.listener_id, attempt.listening_on = "", set()


async def give_up(attempt: Attempt) -> None:
    """Remove everything that an attempt left on the servers, at whatever point it was interrupted. Never raises a WireError."""
    assert isinstance(attempt, QuorumAttempt)
    try:
        if attempt.may_be_on_server or attempt.listener_id:
            await _undo(attempt, for_good=True, interrupted=True)
    except BaseException:
        await Unsubscribe(attempt)
        raise


def _jitter(attempt: QuorumAttempt) -> float:
    """Return a pseudo-random fraction from 0 to 1, made from the attempt's token, which is new in each round of votes."""
    return int(attempt.token[-4:], 16) / 0xFFFF


def _until_it_is_free(attempt: QuorumAttempt, vote_round: VoteRound, splits: int) -> float:
    """Return the seconds to wait before the next round of votes, unless a notification says earlier that the lock is free.

    ``splits``: number of rounds in a row in which no client had a majority. After such rounds, the time is random,
    so that the clients do not all ask again at the same moment.
    """
    jitter = _jitter(attempt)
    if vote_round.holder()[1] < attempt.server_set.majority:
        return min(SPREAD_S * 2.0 ** min(splits, 10), SPREAD_MAX_S) * jitter
    remaining, pause = vote_round.remaining(), LOOK_EVERY_S * (0.75 + jitter / 2)
    return pause if remaining is None else min(pause, remaining + 0.002 + SPREAD_S * jitter)


def _until_there_are_more(attempt: QuorumAttempt, vote_round: VoteRound, voters: int, tries: int) -> float:
    """Return the seconds to wait before the next round of votes if too few servers can vote.

    ``voters``: number of servers that can vote. ``tries``: number of rounds so far.
    """
    waits = sorted(reply.seconds for reply in vote_round.replies(Quarantined))
    missing = attempt.server_set.majority - voters
    pause = min(0.05 * 2.0 ** min(tries, 10), LOOK_EVERY_S) * (0.5 + _jitter(attempt))
    if len(waits) < missing:
        return pause
    told = float(waits[missing - 1]) + SPREAD_S * _jitter(attempt)
    # A silent server may come back at any time. It must be asked soon, so that it learns since when this attempt waits.
    return told if voters + len(waits) == len(attempt.server_set.names) else min(told, pause)


async def _await_hint(attempt: QuorumAttempt, until: float) -> None:
    """Wait until a majority of the servers has notified this attempt that the lock is free, or until monotonic time ``until``.

    After the first notification, the other servers get only a few milliseconds more.
    """
    if attempt.until is not None:
        until = min(until, attempt.until)
    shortened = False
    while len(attempt.hints) < attempt.server_set.majority and (now := await Now()) < until:
        if attempt.hints and not shortened:
            shortened, until = True, min(until, now + SPREAD_S * (0.5 + _jitter(attempt)))
        await AwaitNotice(attempt, until)


async def renew(attempt: QuorumAttempt, quorum_lease: QuorumLease, ttl: float, made: float) -> None:
    """Renew the lease to ``ttl`` seconds on all servers that have granted it. Raises TooFew if too few servers reply.

    ``made``: monotonic time, in seconds, of the renewal; also its sequence number. If a majority replies that the lock is not
    held, the lease is marked as lost, and no error is raised.
    """
    spec, server_set = attempt.spec, attempt.server_set
    votes = {number: node_lease for number, node_lease in quorum_lease.node_leases.items() if not node_lease.lost}
    yes_count = RenewalCount(len(votes), server_set.majority, lambda number: votes[number].asked_at <= made)
    call = renewal(spec, quorum_lease.token, ttl, made)
    await Poll([call if number in votes else None for number in range(len(server_set.names))], yes_count, spec.timeout)
    for number, answer in yes_count.answers.items():
        if not isinstance(answer, Answer):
            continue
        (state,) = answer.value
        if state == 1:
            votes[number].ttl = ttl  # set before `renewed`, which computes the next renewal from it
            votes[number].renewed(made, answer.sent, ttl)
        elif state != 2:
            votes[number].lose("its key is gone, or has the value of another client")
    if not yes_count.reached and not quorum_lease.lost_majority() and not quorum_lease.lost:
        raise shortfall(yes_count, server_set, votes, "renewed")


async def release(attempt: QuorumAttempt, quorum_lease: QuorumLease) -> bool:
    """Release the lock on all servers. Return True once a majority confirms that the lock was held, False if it was lost.

    If a server does not reply, the keeper (background thread) repeats the release until the vote of that server expires.
    Raises TooFew if the replies do not show whether the lock was still held.
    """
    server_set, servers = attempt.server_set, quorum_lease.servers()
    yes_count = YesCount(len(servers), server_set.majority)
    calls: list[Call | None] = [None] * len(server_set.names)
    for number in servers:
        calls[number] = quorum_lease.giving_back_at(number, revoke=False, timeout=ANSWER_LIMIT_S)
    try:
        await Poll(
            calls, yes_count, attempt.spec.timeout, otherwise=lambda number: GiveBack(*quorum_lease.giving_back_to(number))
        )
    finally:  # also after an interruption, when it is unknown how many releases were sent
        if not yes_count.decided:
            await give_back(quorum_lease, servers - yes_count.answers.keys())
    if yes_count.unsure:
        raise shortfall(yes_count, server_set, servers, "released")
    return yes_count.reached


async def give_back(quorum_lease: QuorumLease, servers: Iterable[int]) -> None:
    """Have the keeper (background thread) release the votes of the servers with these indices."""
    for number in servers:
        await GiveBack(*quorum_lease.giving_back_to(number))


def shortfall(yes_count: YesCount, server_set: ServerSet, asked: Container[int], yes: str) -> TooFew:
    """Return a TooFew error that lists each server's reply.

    ``asked``: indices of the servers that got the request. ``yes``: text for a server that carried it out.
    """
    said = {}
    for number, name in enumerate(server_set.names):
        answer = yes_count.answers.get(number)
        if isinstance(answer, Answer) or number not in asked:
            said[name] = yes if isinstance(answer, Answer) and yes_count.says_yes(answer) else "not held there"
        else:
            said[name] = verdict(answer, decided=yes_count.decided)
    return TooFew(said)


ON_SEVERAL_SERVERS = Strategy(take, again, give_up)
