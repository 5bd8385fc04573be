"""The common base of `Election` in both APIs: a candidate, the lock that makes it the leader, and its term."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, Generic, Never, NoReturn

from holdfast._api import error_map, lock
from holdfast._api.foreign_words import ELECTION_METHODS, ForeignMethods
from holdfast._api.lease_core import LeaseCore
from holdfast._api.lock import L
from holdfast._api.options import LONGEST_LEASE, refuse_mistaken
from holdfast._api.statistics import LockStatistics
from holdfast._core import election
from holdfast._core.election import Candidacy, Elected, ElectionKeys, LeaderWatch, NoSuchCandidate
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.replies import NO_ANSWER, PAUSED, Busy
from holdfast._core.lock.spec import Spec
from holdfast._core.names import side_key
from holdfast._core.requests import Unknown, WireError
from holdfast._durations import Seconds
from holdfast._net.clients import Client, Servers
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several, on_one_server
from holdfast._runtime.process import describe
from holdfast.errors import ConfigError, LockTimeout, NoCandidate, NotHeld

LONGEST_NAME, LONGEST_VALUE = 200, 65536


class BaseElectionLock(lock.BaseLock[L, Client]):
    """The lock of an election on one server, as one candidate sees it. Each candidate has its own place in the
    server's queue."""

    _shared = False
    _strategy = election.FOR_A_CANDIDATE
    election: BaseElection[Any, Any]

    @property
    def election_keys(self) -> ElectionKeys:
        return ElectionKeys(self._spec, side_key(self._spec.keys[0], b"observers"))

    def _new_attempt(self, driver: Any) -> Attempt:
        node = super()._new_attempt(driver).node
        ours = self.election
        observers = self.election_keys.observers
        return Candidacy(self._spec, tally=self._tally, node=node, name=ours.candidate, value=ours.value, observers=observers)

    def note_free(self, at: float) -> None:
        """Report that the key of the lock was gone on its server at local time ``at`` (seconds)."""
        endpoint = self._endpoint if self._cluster is None else self._shard(self._cluster)
        self._found_free(endpoint, at)

    async def _holder(self, busy: Busy) -> bytes | None:
        if busy.process != PAUSED:
            try:
                found = (await election.look(self.election_keys)).value.leader
            except (WireError, KeyConflict):
                return None
            if isinstance(found, Elected):
                return found.name.encode()
        record = await super()._holder(busy)
        return (describe(record, busy.named, self._spec.keys[0]) or "").encode()

    def _busy(self, busy: Busy, holder: bytes | None, waited: float) -> LockTimeout:
        if busy.process == PAUSED:
            return super()._busy(busy, holder, waited)
        return not_elected(self.election, holder, waited, busy.remaining)


class BaseTermCore(LeaseCore):
    """The internal object of a term (time as the leader) on one server: the part that the sync and the asyncio API share."""

    attempt: Candidacy

    async def release_on_server(self, known: bool | WireError | None = None) -> None:
        await super().release_on_server(known)
        await election.notify_observers(self.attempt.election_keys)

    async def replace_value(self, value: str) -> None:
        """Replace the text that observers get. `Election.proclaim` runs this operation."""
        self.check()
        self.attempt.value = value
        try:
            leads = await election.proclaim(self.attempt, self.fence)
        except (WireError, KeyConflict) as error:
            raise trouble(self.held_lease.spec, error) from error_map.cause(error)
        if not leads:
            self.taken_away()

    async def transfer(self, to: str) -> None:
        """Make the candidate called ``to`` the leader. `Election.hand_over` runs this operation."""
        self.check()
        held_lease = self.held_lease
        held_lease.over = True  # Until it is known who leads, this candidate must not count as the leader.
        try:
            done = await election.transfer(self.attempt.election_keys, held_lease.token, to)
        except Unknown as error:
            await self.finish_release()
            more = " (this candidate resigned, and the other one may lead now)"
            raise trouble(held_lease.spec, error, more) from error_map.cause(error)
        except (WireError, KeyConflict) as error:
            self.go_on()
            raise trouble(held_lease.spec, error) from error_map.cause(error)
        except BaseException:
            await self.finish_release()
            raise
        if done is True:
            self.count_time(self.process.clock())
            held_lease.end()
            self.forget()
            if held_lease.maybe_in_flight:
                await self.give_up()  # A late copy of the request that acquired the lock must not acquire it again.
            return
        self.go_on()
        if isinstance(done, NoSuchCandidate):
            raise _no_candidate(held_lease.spec, to, done.names)
        self.taken_away()

    def go_on(self) -> None:
        """Resume the renewals of a term that was not handed over."""
        self.held_lease.over = False
        self.look_again()

    def taken_away(self) -> NoReturn:
        if self.held_lease.lose("its key is gone, or another client holds it"):
            self.forget()
            self.notice_loss()
        raise self.lease_lost()


class BaseElection(ForeignMethods, Generic[L, Client]):
    """The options and the state of one candidate: the part that the sync and the asyncio API share."""

    _foreign = ELECTION_METHODS

    _lock: Any
    """The lock whose holder leads: a `BaseElectionLock`, or one on several servers."""

    _caller: Any
    _caller_type: type[Any]
    _lock_type: type[Any]

    @staticmethod
    def _quorum_lock_type() -> type[Any]:
        """Return the class of the lock for an election on several servers."""
        raise NotImplementedError

    @hides_client("Election.__init__")
    def __init__(
        self,
        client: Client | Servers[Client],
        name: str | bytes,
        *,
        candidate: str | None = None,
        value: str = "",
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        on_lost: Callable[[L], object] | None = None,
        prefix: str = "hf:",
        quarantine: bool | Seconds = False,
        max_ttl: Seconds = LONGEST_LEASE,
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, "Election")
        options = {"ttl": ttl, "wait": wait, "on_lost": on_lost, "prefix": prefix}
        if are_several(client):
            if quarantine is not False:
                raise ConfigError("quarantine works only with an Election on one server", parameter="quarantine")
            election_lock = self._quorum_lock_type()(client, name, max_ttl=max_ttl, **options)
        else:
            if max_ttl != LONGEST_LEASE:
                raise ConfigError("max_ttl works only with an Election on several servers", parameter="max_ttl")
            self._caller = self._caller_type(client)
            election_lock = self._lock_type(client, name, quarantine=quarantine, **options)
            election_lock.election = self
        if candidate is not None:
            _check_name(candidate, "candidate")
        self._candidate, self._value = candidate, checked_value(value)
        self._lock = election_lock

    @property
    def name(self) -> str:
        """The name of the election."""
        name: str = self._lock.name
        return name

    @property
    def key(self) -> str:
        """The key of the election's lock on the server."""
        key: str = self._lock.key
        return key

    @property
    def candidate(self) -> str:
        """The name of this candidate."""
        return self._candidate or f"{socket.gethostname()}:{os.getpid()}"

    @property
    def value(self) -> str:
        """The text that observers get while this candidate leads."""
        return self._value

    @property
    def is_leader(self) -> bool:
        """True while this candidate leads, as far as its lease shows. Asks no server."""
        return self.term is not None

    @property
    def term(self) -> int | None:
        """The number of this candidate's term, which is its fence; None while it does not lead. Asks no server."""
        lease = self._lock.lease
        return lease.fence if lease is not None and lease.remaining() > 0 else None

    def statistics(self) -> LockStatistics:
        """Return how often this candidate was elected, and how long it waited and led. Asks no server."""
        found: LockStatistics = self._lock.statistics()
        return found

    def __repr__(self) -> str:
        return f"<holdfast candidate {self.candidate!r} for {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a candidate cannot be pickled: create an Election of the name {self.name!r} in the other process")

    def _not_leading(self) -> NotHeld:
        return NotHeld(f"{self.candidate!r} does not lead {self.name!r}", name=self.name, key=self.key)

    def _leading(self, what: str) -> Any:
        """Return the term of this candidate. Raises NotHeld if it does not lead, ConfigError with several servers.

        ``what`` is the method that needs the term, for the message.
        """
        self._office(what)
        core = self._lock.live_term()
        if core is None:
            raise self._not_leading()
        return core

    def _office(self, what: str) -> ElectionKeys:
        """Return the keys of the election on its one server. Raises ConfigError for an election on several servers.

        ``what`` is the method that needs one server, for the message.
        """
        if isinstance(self._lock, BaseElectionLock):
            return self._lock.election_keys
        raise on_one_server(
            what,
            "no single server knows who leads, only a majority of them",
            "use one server, Sentinels or a Cluster for that",
        )

    async def _change(self, watch: LeaderWatch) -> Elected | None:
        """Wait for a change of the leader and return the new one. `Election.observe` and `Election.leader` run this."""
        election_keys = self._office("observing")
        try:
            found = await election.change(election_keys, watch)
        except KeyConflict as error:
            raise trouble(election_keys.spec, error) from error_map.cause(error)
        if found is None:
            self._lock.note_free(watch.free_at)
        return found


def not_elected(
    ours: BaseElection[Any, Any], holder: bytes | None, waited: float, remaining: float | None = None
) -> LockTimeout:
    """Return the error for a candidate that was not elected in time."""
    who = holder.decode(errors="replace") if holder else None
    return LockTimeout(
        f"{ours.candidate!r} was not elected to {ours.name!r} within {waited:.1f} s: "
        f"{who or 'another candidate'} leads; campaign again, or pass a longer wait",
        name=ours.name,
        key=ours.key,
        waited=waited,
        holder=who,
        remaining=remaining,
    )


def _check_name(name: object, parameter: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"{parameter} must be printable text of 1 to {LONGEST_NAME} characters", parameter=parameter)


def checked_value(value: object) -> str:
    """Return the text that a leader proclaims. Raises ConfigError if it is no text, or too long."""
    if not isinstance(value, str) or len(value.encode(errors="replace")) > LONGEST_VALUE:
        raise ConfigError(f"value must be text of at most {LONGEST_VALUE} bytes", parameter="value")
    return value


NOBODY = NO_ANSWER
"""Reply that names no holder: argument of `BaseElectionLock._holder` if no server has answered."""


def trouble(spec: Spec, error: WireError | KeyConflict, more: str = "") -> Exception:
    """Return the user's error for an internal error of an election, with ``more`` added to its text."""
    if isinstance(error, KeyConflict):
        return ConfigError(f"election {spec.name!r} is not possible: {error}; nothing was changed", parameter="name")
    found = error_map.server_error(spec, error)
    found.args = (f"{found}{more}",)
    return found


def _no_candidate(spec: Spec, to: str, names: tuple[str, ...]) -> NoCandidate:
    there = f"candidates: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else "there are no candidates"
    return NoCandidate(
        f"no candidate called {to!r} is campaigning for {spec.name!r} ({there}); the leader goes on leading",
        name=spec.name,
        key=spec.key,
        candidate=to,
        candidates=names,
    )
