"""Elect a leader. Candidates acquire a lock, the holder proclaims itself as the leader, and observers are notified of changes.

A candidate that has acquired the lock leads only after it has proclaimed itself, which stores its name and text on the server
(`_lua/election/proclaim.lua`). Until then, observers are told that there is no leader. The number of a term is the fence of the
lock, so each term has a higher number than all earlier ones.

If the leader dies, its lease expires, and observers are told that there is no leader. A proclamation that arrives later is
ignored. The words are those of etcd (package concurrency: Campaign, Proclaim, Resign, Observe).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from holdfast._core.lock.acquire import Strategy, again, key_conflict, start_over, take
from holdfast._core.lock.records import Attempt, Grant, Registrar, Tally, Waiter
from holdfast._core.lock.release import give_up
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import Spec, margin, milliseconds
from holdfast._core.requests import (
    Answer,
    Conflict,
    Now,
    Refused,
    RunScript,
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
"""Maximum seconds after which an observer asks the server for the leader again, because a notification may get lost."""

LISTEN_GRACE_S = 0.5
"""Seconds that an observer waits for a new holder of the lock to proclaim itself, before it reports that there is no leader."""

LOOK_AGAIN_AFTER_S = 0.02
"""An observer asks the server again this many seconds after the end of the leader's lease. Also the pause before the first
retry."""

OUTAGE_BUDGET_S = 30.0
"""Seconds for which an observer retries while the server does not reply; the ttl of the lease is used if that is longer."""


class Elected(NamedTuple):
    """The present leader of an election."""

    name: str
    term: int
    """Number of the term, which is the fence of the lock. It is higher than that of every earlier term."""
    value: str
    """Text that the leader proclaimed, such as its address."""


class NoLeader(NamedTuple):
    """The reply to an observer that the election has no leader at present."""

    taken: bool
    """True if a candidate holds the lock, but has not proclaimed itself as the leader yet."""


class NoSuchCandidate(NamedTuple):
    """The reply that no candidate with the wanted name waits, or that the candidate's process cannot be notified."""

    names: tuple[str, ...]
    """Names of the waiting candidates."""


class View(NamedTuple):
    """The server's reply to an observer: the leader, and how long the lease of the lock lasts."""

    leader: Elected | NoLeader
    remaining: float | None
    """Seconds until the holder's lease expires, unless it is renewed; 0: nobody holds the lock; None: it never expires."""


# Replies of the scripts


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
    """The keys of an election on the server: those of its lock (in ``spec``) and that of its observers."""

    spec: Spec
    observers: bytes
    """Key of the sorted set in which observers are registered, as described in `_lua/election/observe.lua`."""


class Candidacy(Attempt):
    """One attempt of a candidate to be elected. ``name``: the candidate's name; ``value``: text that it proclaims as leader."""

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
        node: Registrar | None = None,
    ) -> None:
        super().__init__(spec, slot=slot, tally=tally, node=node)
        self.name = name
        self.value = value
        self.observers = observers

    @property
    def election_keys(self) -> ElectionKeys:
        return ElectionKeys(self.spec, self.observers)

    @property
    def introduction(self) -> RunScript[int] | None:
        spec = self.spec
        return RunScript(JOIN_ELECTION, spec.keys[1:2], (self.token, self.name), min(spec.timeout, 0.3))


# For candidates


async def campaign(candidacy: Attempt, at_once: bool, now: float, place: Waiter | None = None) -> Grant | Busy:
    """Wait until the candidate is elected, and return its grant. Return Busy if monotonic time `Attempt.until` has passed.

    The parameters are those of `_core.lock.acquire.take`. Raises WireError or KeyConflict.
    """
    assert isinstance(candidacy, Candidacy)
    while True:
        result = await take(candidacy, at_once, now, place)
        if isinstance(result, Busy):
            return result
        grant = await _take_up(candidacy, result)
        if grant is not None:
            return grant
        await give_up(candidacy)
        await start_over(candidacy)
        candidacy.waited = True  # the server has replied before, so an outage is tolerated from now on
        now, place = await Now(), None


FOR_A_CANDIDATE = Strategy(campaign, again, give_up)
"""The functions with which a candidate acquires the lock of an election. It then proclaims itself, and leads after that."""


async def _take_up(candidacy: Candidacy, grant: Grant) -> Grant | None:
    """Proclaim the candidate, which holds the lock, as the leader, and extend its lease to the full ttl.

    Return None if the lease ended before the proclamation, so that the candidate is not the leader.
    """
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


def proclamation(candidacy: Candidacy, term: int, ttl: float = 0.0) -> RunScript[bool | NoSuchCandidate | Conflict]:
    """Return the request that stores the leader's name and text for a term.

    ``ttl``: minimum seconds to which the lease is extended; 0: it is not extended.
    """
    spec = candidacy.spec
    args = candidacy.token, milliseconds(ttl) if ttl else 0, term, candidacy.name, candidacy.value
    return RunScript(PROCLAIM, (*spec.keys, candidacy.observers), args, spec.timeout)


async def proclaim(candidacy: Candidacy, term: int) -> bool:
    """Replace the text that the leader has proclaimed. Return False if the candidate is no longer the leader.

    Raises WireError or KeyConflict.
    """
    value = (await retry_idempotent(proclamation(candidacy, term))).value
    if isinstance(value, Conflict):
        raise await key_conflict(value, candidacy.spec)
    return bool(value)


async def notify_observers(election_keys: ElectionKeys) -> None:
    """Notify the observers that the leader has resigned. Errors are ignored, because observers also ask from time to time."""
    try:
        await RunScript(NOTIFY_OBSERVERS, (election_keys.observers,), (), election_keys.spec.timeout)
    except WireError:
        pass


async def transfer(election_keys: ElectionKeys, token: str, to: str) -> bool | NoSuchCandidate:
    """Hand the leadership over to the waiting candidate with the name ``to``.

    Return False if ``token`` no longer holds the lock. Return NoSuchCandidate, with nothing changed, if no candidate of this
    name waits, or if the candidate's process cannot be notified. Raises Unknown if it is unknown whether
    the leadership was handed over. Raises another WireError, or KeyConflict, if it was not handed over.
    """
    call = RunScript(TRANSFER, (*election_keys.spec.keys, election_keys.observers), (token, to), election_keys.spec.timeout)
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
    """The state of one observer: what it has seen of the election so far."""

    seen: Elected | NoLeader | None = None
    """Last result that was reported to the observer; None: nothing was reported yet."""
    highest: int = 0
    """Highest number of a term that the observer has seen."""
    free_at: float = float("-inf")
    """Monotonic time, in seconds, of the last request that found that nobody holds the lock; -infinity: no such request."""

    def is_news(self, found: Elected | NoLeader) -> bool:
        """Return True if ``found`` is to be reported, because it differs from the last result.

        A leader of an earlier term is not reported, because only a replica that lags behind still names this leader.
        """
        old = isinstance(found, Elected) and found.term < self.highest
        alike = isinstance(found, NoLeader) and isinstance(self.seen, NoLeader)
        return not (old or alike or found == self.seen)

    def see(self, found: Elected | NoLeader) -> Elected | None:
        self.seen = found
        if isinstance(found, NoLeader):
            return None
        self.highest = max(self.highest, found.term)
        return found


async def change(election_keys: ElectionKeys, watch: LeaderWatch) -> Elected | None:
    """Wait until the leader changes, and return the new leader; None if there is no leader now.

    ``watch``: the state of the observer. The first call with a new ``watch`` does not wait for a change. Raises WireError or
    KeyConflict.
    """
    listener: Listener | None = None
    contact, taken_since = await Now(), None
    told = watch.seen is not None  # the server has replied before, so an outage is tolerated
    try:
        while True:
            try:
                answer = await read_leader(election_keys, listener.listener_id if listener is not None else "")
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
                # Ask the server again after subscribing, so that no change in between is missed.
                listener = await subscribed(until, election_keys.spec.prefix)
            else:
                await await_notice(listener, until)
    finally:
        if listener is not None:
            await Unsubscribe(listener)


async def read_leader(election_keys: ElectionKeys, listener_id: str = "") -> Answer[View]:
    """Ask the server for the present leader. Raises WireError or KeyConflict.

    ``listener_id``: id of the listener that the server is to notify of the next change; empty: no notification.
    """
    spec = election_keys.spec
    keys, args = (*spec.keys[:2], election_keys.observers), (milliseconds(LISTEN_S + spec.timeout), listener_id)
    answer = await retry_idempotent(RunScript(OBSERVE, keys, args, spec.timeout))
    if isinstance(answer.value, Conflict):
        raise await key_conflict(answer.value, spec)
    return Answer(answer.value, answer.sent, answer.came)
