"""Leader election: a lock whose holder proclaims itself, and observers that are notified.

The words are those of etcd (package concurrency: Campaign, Proclaim, Resign, Observe). The term is the fence of the lock, so it
rises for ever. A candidate that has got the lock leads when it has said so (`_lua/election/proclaim.lua`), which takes up a
hand-over, too; observers see nobody until then. A proclamation counts only while the lock is the leader's own: a late one does
nothing, and a leader that died is seen no more when its lease has expired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.acquire import acquire, key_conflict, start_over
from holdfast._core.lock.records import Attempt, Grant, Spec, Tally, margin, milliseconds
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import (
    Answer,
    Conflict,
    Now,
    Refused,
    Run,
    Sleep,
    Slot,
    Unknown,
    Unsubscribe,
    WireError,
    in_the_way,
)
from holdfast._core.retry import retry_idempotent
from holdfast._core.subscription import Listener, await_notice, subscribed
from holdfast._lua import Script, codes, whole_number

LISTEN_S = 10.0
"""Seconds after which an observer looks at the latest: what would have told it may have got lost."""

LISTEN_GRACE_S = 0.5
"""Seconds for which an observer waits until the new holder of the lock has written its name."""

LOOK_AGAIN_AFTER_S = 0.02
"""Seconds after the end of a lease at which is looked; and after which is asked again what was not answered."""

OUTAGE_BUDGET_S = 30.0
"""Seconds for which an observer rides out a server that is away, or the lease, if that is longer."""


class Elected(NamedTuple):
    """The leader."""

    name: str
    term: int
    """Greater than all terms before: the fence."""
    value: str
    """The text that the leader proclaimed, such as its address."""


class NoLeader(NamedTuple):
    """Nobody leads, as far as the server knows."""

    taken: bool
    """Whether a client holds the lock without having proclaimed itself yet."""


class NoSuchCandidate(NamedTuple):
    """There is no such candidate, or none that can be told."""

    names: tuple[str, ...]
    """Of those there are."""


class View(NamedTuple):
    """The server's answer to an observer."""

    leader: Elected | NoLeader
    remaining: float | None
    """Seconds until the lease ends, unless it is renewed; None: it has no end, and is none of ours."""


# Answers of the scripts


def _read_done(raw: object) -> bool | NoSuchCandidate | Conflict:
    match raw:
        case [0 | 1 as done]:
            return done == 1
        case [codes.NO_CANDIDATE, *names]:
            return NoSuchCandidate(tuple(name.decode(errors="replace") for name in names))  # type: ignore[attr-defined]
        case _:
            return in_the_way(raw)


def _read_view(raw: object) -> View | Conflict:
    match raw:
        case [0]:
            return View(NoLeader(taken=False), 0.0)
        case [codes.UNPROCLAIMED, int(left)]:
            return View(NoLeader(taken=True), None if left == -1 else left / 1000)
        case [1, int(left), int(term), bytes(name), bytes(value)]:
            return View(Elected(name.decode(), term, value.decode()), None if left == -1 else left / 1000)
        case _:
            return in_the_way(raw)


JOIN_ELECTION: Script[int] = Script("election/join", whole_number)
PROCLAIM: Script[bool | NoSuchCandidate | Conflict] = Script("election/proclaim", _read_done)
OBSERVE: Script[View | Conflict] = Script("election/observe", _read_view)
TRANSFER: Script[bool | NoSuchCandidate | Conflict] = Script("election/transfer", _read_done)
NOTIFY_OBSERVERS: Script[int] = Script("election/notify_observers", whole_number)


@dataclass(frozen=True, slots=True)
class ElectionKeys:
    """The keys of an election."""

    spec: Spec
    observers: bytes
    """A further key on the server, see `_lua/election/observe.lua`."""


class Candidacy(Attempt):
    """One try to be elected, by a candidate of this name, with the value that it proclaims when it leads."""

    __slots__ = ("name", "observers", "value")

    def __init__(
        self,
        spec: Spec,
        *,
        name: str,
        value: str = "",
        observers: bytes,
        slot: Slot | None = None,
        tally: Tally | None = None,
    ) -> None:
        super().__init__(spec, slot=slot, tally=tally)
        self.name = name
        self.value = value
        self.observers = observers
        """As of the `ElectionKeys`."""

    @property
    def election_keys(self) -> ElectionKeys:
        return ElectionKeys(self.spec, self.observers)

    @property
    def introduction(self) -> Run[int] | None:
        spec = self.spec
        return Run(JOIN_ELECTION, spec.keys[1:2], (self.token, self.name), min(spec.timeout, 0.3))


# For candidates


async def campaign(candidacy: Candidacy, wait: float | None) -> Grant | Busy:
    """Be elected within ``wait`` seconds (None: for ever). Busy when time ran out. Raises as `_core.lock.acquire.acquire`, and
    leaves as little behind."""
    until = None if wait is None else await Now() + wait
    while True:
        result = await acquire(candidacy, wait)
        if isinstance(result, Busy):
            return result
        try:
            grant = await _take_up(candidacy, result)
            if grant is not None:
                return grant
            await give_up(candidacy)
        except BaseException:
            await give_up(candidacy)
            raise
        await start_over(candidacy)
        candidacy.waited = True  # the server was there: if it is away now, that is ridden out
        wait = None if until is None else max(0.0, until - await Now())


async def _take_up(candidacy: Candidacy, grant: Grant) -> Grant | None:
    """Say who leads, for the full lease from now on. None: that was too late, somebody else may be elected."""
    ttl = candidacy.spec.first_ttl
    while True:
        call = proclamation(candidacy, grant.fence, ttl)
        try:
            answer = await call
        except WireError as error:
            if isinstance(error, Refused) and not error.transient:
                raise
            if await Now() + LOOK_AGAIN_AFTER_S >= grant.deadline:
                return None
            await Sleep(LOOK_AGAIN_AFTER_S)
        else:
            deadline = answer.sent + ttl - margin(ttl)
            if isinstance(answer.value, Conflict):
                raise await key_conflict(answer.value, candidacy.spec)
            if not answer.value or answer.came >= deadline:
                return None
            grant.taken, grant.deadline, grant.in_claim_window = answer.came, deadline, False
            return grant


def proclamation(candidacy: Candidacy, term: int, ttl: float = 0.0) -> Run[bool | NoSuchCandidate | Conflict]:
    """The request to say who leads, and what else; and to have the lock for ``ttl`` seconds, at least."""
    spec = candidacy.spec
    args = candidacy.token, milliseconds(ttl) if ttl else 0, term, candidacy.name, candidacy.value
    return Run(PROCLAIM, (*spec.keys, candidacy.observers), args, spec.timeout)


async def proclaim(candidacy: Candidacy, term: int) -> bool:
    """Say something else than before. False if the leader is none any more. Raises WireError, KeyConflict."""
    value = (await retry_idempotent(proclamation(candidacy, term))).value
    if isinstance(value, Conflict):
        raise await key_conflict(value, candidacy.spec)
    return bool(value)


async def notify_observers(election_keys: ElectionKeys) -> None:
    """Have observers look, now that the leader has gone. An observer that it does not reach looks from time to time."""
    try:
        await Run(NOTIFY_OBSERVERS, (election_keys.observers,), (), election_keys.spec.timeout)
    except WireError:
        pass


async def transfer(election_keys: ElectionKeys, token: str, to: str) -> bool | NoSuchCandidate:
    """Hand over to the candidate ``to``: True if that was done, False if the lock was not ours any more, `NoSuchCandidate` if
    there is no such candidate: then nothing has changed. Raises Unknown if nobody knows; another WireError, or KeyConflict, if
    nothing has changed."""
    call = Run(TRANSFER, (*election_keys.spec.keys, election_keys.observers), (token, to), election_keys.spec.timeout)
    unknown: Unknown | None = None
    failures = 0
    while True:
        try:
            answer = await call
        except WireError as error:
            unknown = error if isinstance(error, Unknown) else unknown
            failures += 1
            if failures == 3 or (unknown is None and isinstance(error, Refused) and not error.transient):
                raise (unknown or error) from None
            await Sleep(LOOK_AGAIN_AFTER_S)
        else:
            if isinstance(answer.value, Conflict):
                raise await key_conflict(answer.value, election_keys.spec)
            return answer.value


# For observers


@dataclass(slots=True)
class LeaderWatch:
    """The state of one observer."""

    seen: Elected | NoLeader | None = None
    """None: nothing yet."""
    highest: int = 0
    """Of the terms."""
    free_at: float = float("-inf")
    """Local time of the last question to which the answer was that nobody has the lock."""

    def is_news(self, found: Elected | NoLeader) -> bool:
        """It is something else than what was seen last. A server that is behind may show a leader whose time is over."""
        old = isinstance(found, Elected) and found.term < self.highest
        alike = isinstance(found, NoLeader) and isinstance(self.seen, NoLeader)
        return not (old or alike or found == self.seen)

    def see(self, found: Elected | NoLeader) -> Elected | None:
        """That is seen now."""
        self.seen = found
        if isinstance(found, NoLeader):
            return None
        self.highest = max(self.highest, found.term)
        return found


async def change(election_keys: ElectionKeys, watch: LeaderWatch) -> Elected | None:
    """Wait for a change and return the leader, None for nobody. Returns at once if nothing was seen before. Raises
    WireError when the server stays away, KeyConflict when something else is where it should be."""
    listener: Listener | None = None
    contact, taken_since = await Now(), None
    told = watch.seen is not None  # the server was there
    try:
        while True:
            try:
                answer = await look(election_keys, listener.listener_id if listener is not None else "")
            except WireError as error:
                now = await Now()
                over = now - contact > max(OUTAGE_BUDGET_S, election_keys.spec.ttl) or not told
                if over or (isinstance(error, Refused) and not error.transient):
                    raise
                await Sleep(min(1.0, LOOK_AGAIN_AFTER_S + now - contact))
                continue
            view, contact, told = answer.value, answer.came, True
            until = (
                contact + LISTEN_S if view.remaining is None else contact + min(view.remaining + LOOK_AGAIN_AFTER_S, LISTEN_S)
            )
            taken = isinstance(view.leader, NoLeader) and view.leader.taken
            if isinstance(view.leader, NoLeader) and not taken:
                watch.free_at = answer.sent
            taken_since = taken_since or contact if taken else None
            if taken_since is not None and contact < taken_since + LISTEN_GRACE_S:
                until = min(until, taken_since + LISTEN_GRACE_S)
            elif watch.is_news(view.leader):
                return watch.see(view.leader)
            if listener is None:
                # and look again, so that nothing is missed in between
                listener = await subscribed(until, election_keys.spec.prefix)
            else:
                await await_notice(listener, until)
    finally:
        if listener is not None:
            await Unsubscribe(listener)


async def look(election_keys: ElectionKeys, listener_id: str = "") -> Answer[View]:
    """The present leader, as seen. Raises as `change`."""
    spec = election_keys.spec
    keys, args = (*spec.keys[:2], election_keys.observers), (milliseconds(LISTEN_S + spec.timeout), listener_id)
    answer = await retry_idempotent(Run(OBSERVE, keys, args, spec.timeout))
    if isinstance(answer.value, Conflict):
        raise await key_conflict(answer.value, spec)
    return Answer(answer.value, answer.sent, answer.came)
