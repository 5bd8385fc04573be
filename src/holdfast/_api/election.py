"""An `Election` is a candidate for the leadership of several processes, for threads or for asyncio."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn

from holdfast._api import error_map
from holdfast._api.base_lock import L
from holdfast._api.caller import AioCaller, Caller
from holdfast._api.election_lock import (
    AioElectionLock,
    AioLeaderLock,
    BaseElectionLock,
    ElectionLock,
    LeaderLock,
    not_elected,
    trouble,
)
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import ASYNC_WITH, ELECTION_METHODS, WITH, ForeignMethods
from holdfast._api.lease import AioTerm, Term
from holdfast._api.options import LONGEST_LEASE, refuse_mistaken
from holdfast._api.statistics import LockStatistics
from holdfast._clock import clock
from holdfast._core import election
from holdfast._core.election import Elected, ElectionKeys, LeaderWatch
from holdfast._core.lock.acquire import KeyConflict
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, Servers, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import are_several, on_one_server
from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning, NotHeld

__all__ = ["AioElection", "Elected", "Election"]

LONGEST_NAME, LONGEST_VALUE = 200, 65536


class BaseElection(Steps, ForeignMethods, Generic[L, Client]):
    """The options and the state of one candidate. Base class for threads and for asyncio."""

    _foreign = ELECTION_METHODS

    _lock: Any
    """The lock whose holder leads. It is a `BaseElectionLock`, or a lock on several servers."""

    _caller: Any
    _caller_type: type[Any]
    _lock_type: type[Any]

    @staticmethod
    def _quorum_lock_type() -> type[Any]:
        """Return the class of the lock for several servers. It is imported late, because most elections need one server."""
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
        """Return the internal object of this candidate's term. ``what``: name of the method that needs it, for errors.

        Raises NotHeld if the candidate does not lead, ConfigError for an election on several servers.
        """
        self._office(what)
        return self._term()

    def _office(self, what: str) -> ElectionKeys:
        """Return the keys of the election on its one server. ``what``: name of the method that needs them, for errors.

        Raises ConfigError for an election on several servers.
        """
        if isinstance(self._lock, BaseElectionLock):
            return self._lock.election_keys
        raise on_one_server(
            what,
            "no single server knows who leads, only a majority of them",
            "use one server, Sentinels or a Cluster for such an election",
        )

    async def _change(self, watch: LeaderWatch) -> Elected | None:
        """Wait until the leader changes, and return the new leader; None if nobody leads now.

        `Election.observe` and `Election.leader` run this operation. ``watch`` is the state of the observer; with a new
        ``watch``, return the present leader at once.
        """
        election_keys = self._office("observing")
        try:
            found = await election.change(election_keys, watch)
        except KeyConflict as error:
            raise trouble(election_keys.spec, error) from error_map.cause(error)
        if found is None:
            self._lock.note_free(watch.free_at)
        return found

    async def _next(self, watch: LeaderWatch) -> Elected | None:
        key = self._office("observing").spec.keys[0]
        found: Elected | None = await self._caller.run(self._change(watch), key, f"election {self.name!r}")
        return found

    @hides_frames
    async def _campaign(self, wait: Seconds | None) -> Any:
        started, lock = clock(), self._lock
        while not self.is_leader or (lease := lock.lease) is None:
            if not await self._call_user(functools.partial(lock.acquire, timeout=-1 if wait is None else wait)):
                raise not_elected(self, await lock.leader_name(), clock() - started)
        return lease

    def _term(self) -> Any:
        core = self._lock.live_term()
        if core is None:
            raise self._not_leading()
        return core

    async def _proclaim(self, value: str) -> None:
        core = self._leading("proclaim")
        await self._call_user(functools.partial(core.run, core.replace_value, checked_value(value)))
        self._value = value


def _check_name(name: object, parameter: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"{parameter} must be printable text of 1 to {LONGEST_NAME} characters", parameter=parameter)


def checked_value(value: object) -> str:
    if not isinstance(value, str) or len(value.encode(errors="replace")) > LONGEST_VALUE:
        raise ConfigError(f"value must be text of at most {LONGEST_VALUE} bytes", parameter="value")
    return value


class Election(InThreads, BaseElection[Term, SyncClient]):
    """A candidate in an election: at most one candidate leads at a time, and the others wait in strict order of arrival.

    If the leader crashes, the next candidate is elected at most ``ttl`` seconds after the leader's last renewal. Each term has
    a number, higher than that of each earlier term. Send this number along with your writes as a fencing token (see
    `Term.fence`). On several servers, `proclaim`, `hand_over`, `leader` and `observe` raise ConfigError.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: name of the election, 1 to 512 bytes.
        candidate: name of this candidate, for observers and for `hand_over`; default: ``host:pid``.
        value: text that observers get while this candidate leads, such as its URL.
        ttl: length of the lease in seconds; renewed while this candidate leads.
        wait: seconds to campaign. None: until elected.
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        prefix: start of all keys on the server.
        quarantine: as for `Lock`; with one server only.
        max_ttl: longest lease in seconds that clients of these servers use, the same for all of them; with several servers
            only. Default: 60.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    _lock: LeaderLock
    _caller_type = Caller
    _lock_type = ElectionLock

    @staticmethod
    def _quorum_lock_type() -> type[Any]:
        from holdfast._api.redlock import QuorumElectionLock

        return QuorumElectionLock

    @property
    def lease(self) -> Term | None:
        """The latest term of this candidate, also after its loss; None before its first term, and once it has resigned."""
        return self._lock.lease

    def campaign(self, wait: Seconds | None = None, **mistaken: Never) -> Term:
        """Wait until this candidate is elected, and return its term. If it leads already, return its term at once.

        ``wait`` is in seconds; None: as long as this object's ``wait`` option allows. Raises LockTimeout if the candidate was
        not elected in time, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "campaign")
        before = self._lock.live_term()
        try:
            return complete(self._campaign(wait))  # type: ignore[no-any-return]
        except HoldfastError:
            raise
        except BaseException:
            self._lock.give_back_since(before)  # An interrupt can come at any line.
            raise

    def resign(self) -> None:
        """End the term of this candidate; the next candidate is elected at once.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead before. Raises ServerError if the server
        cannot be reached. The next candidate is then elected when the lease expires.
        """
        core = None
        try:
            core = self._term()
            core.release()
        except HoldfastError:
            raise
        except BaseException:
            self._lock.finish_release(core)  # An interrupt can come at any line.
            raise

    def proclaim(self, value: str) -> None:
        """Replace the text that observers get while this candidate leads.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead, ServerError if the server cannot be
        reached, ConfigError if the text is too long.
        """
        complete(self._proclaim(value))

    def hand_over(self, to: str) -> None:
        """Make the candidate called ``to`` the leader, whatever its position in the queue.

        Finish your work as the leader before this call. Raises NoCandidate if there is no candidate of that name; this
        candidate then goes on leading. Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead. Raises
        ServerError if the request failed. If the server may have carried it out nevertheless, this candidate no longer leads.
        """
        core = self._leading("hand_over")
        try:
            core.run(core.transfer, to)
        except HoldfastError:
            raise
        except BaseException:
            core.finish_interrupted_release()  # An interrupt can come at any line.
            raise

    def leader(self) -> Elected | None:
        """Return the current leader (name, term, value), or None. Raises ServerError if the server cannot be reached."""
        return complete(self._next(LeaderWatch()))

    def observe(self) -> Iterator[Elected | None]:
        """Yield the current leader (name, term, value), then each new one, without end; None while there is no leader.

        Changes arrive as notifications; the server is also asked at least every 10 seconds. The term numbers only rise. A
        leader that led only for a moment may be left out. Raises ServerError if the server cannot be reached at the start, or
        later for longer than both 30 seconds and ``ttl``.
        """
        watch = LeaderWatch()
        while True:
            yield complete(self._next(watch))

    def __enter__(self) -> Term:
        """Wait until this candidate is elected, and return its term. Raises LockTimeout or ServerError, as `campaign` does."""
        return self._lock.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the term. If the lead was lost, raises LeaseLost, or adds it as a note to the exception of the body."""
        lock = self._lock
        try:
            lock.leave(error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            lock.give_back_entered()
            raise
        finally:
            lock.forget_entered()


@of_asyncio
class AioElection(InTasks, BaseElection[AioTerm, AsyncClient]):
    """A candidate in an election: at most one candidate leads at a time, and the others wait in strict order of arrival.

    If the leader crashes, the next candidate is elected at most ``ttl`` seconds after the leader's last renewal. Each term has
    a number, higher than that of each earlier term. Send this number along with your writes as a fencing token (see
    `Term.fence`). On several servers, `proclaim`, `hand_over`, `leader` and `observe` raise ConfigError.
    If leadership is lost, the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: name of the election, 1 to 512 bytes.
        candidate: name of this candidate, for observers and for `hand_over`; default: ``host:pid``.
        value: text that observers get while this candidate leads, such as its URL.
        ttl: length of the lease in seconds; renewed while this candidate leads.
        wait: seconds to campaign. None: until elected.
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        prefix: start of all keys on the server.
        quarantine: as for `Lock`; with one server only.
        max_ttl: longest lease in seconds that clients of these servers use, the same for all of them; with several servers
            only. Default: 60.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    if not TYPE_CHECKING:
        __enter__ = WITH

    _lock: AioLeaderLock
    _caller_type = AioCaller
    _lock_type = AioElectionLock

    @staticmethod
    def _quorum_lock_type() -> type[Any]:
        from holdfast._api.redlock import AioQuorumElectionLock

        return AioQuorumElectionLock

    @property
    def lease(self) -> AioTerm | None:
        """The latest term of this candidate, also after its loss; None before its first term, and once it has resigned."""
        return self._lock.lease

    async def campaign(self, wait: Seconds | None = None, **mistaken: Never) -> AioTerm:
        """Wait until this candidate is elected, and return its term. If it leads already, return its term at once.

        ``wait`` is in seconds; None: as long as this object's ``wait`` option allows. Raises LockTimeout if the candidate was
        not elected in time, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "campaign")
        return await self._campaign(wait)  # type: ignore[no-any-return]

    async def resign(self) -> None:
        """End the term of this candidate; the next candidate is elected at once.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead before. Raises ServerError if the server
        cannot be reached. The next candidate is then elected when the lease expires.
        """
        await self._term().release()

    async def proclaim(self, value: str) -> None:
        """Replace the text that observers get while this candidate leads.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead, ServerError if the server cannot be
        reached, ConfigError if the text is too long.
        """
        await self._proclaim(value)

    async def hand_over(self, to: str) -> None:
        """Make the candidate called ``to`` the leader, whatever its position in the queue.

        Finish your work as the leader before this call. Raises NoCandidate if there is no candidate of that name; this
        candidate then goes on leading. Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead. Raises
        ServerError if the request failed. If the server may have carried it out nevertheless, this candidate no longer leads.
        """
        core = self._leading("hand_over")
        await core.run(core.transfer, to)

    async def leader(self) -> Elected | None:
        """Return the current leader (name, term, value), or None. Raises ServerError if the server cannot be reached."""
        return await self._next(LeaderWatch())

    async def observe(self) -> AsyncIterator[Elected | None]:
        """Yield the current leader (name, term, value), then each new one, without end; None while there is no leader.

        Changes arrive as notifications; the server is also asked at least every 10 seconds. The term numbers only rise. A
        leader that led only for a moment may be left out. Raises ServerError if the server cannot be reached at the start, or
        later for longer than both 30 seconds and ``ttl``.
        """
        watch = LeaderWatch()
        while True:
            yield await self._next(watch)

    async def __aenter__(self) -> AioTerm:
        """Wait until this candidate is elected, and return its term. Raises LockTimeout or ServerError, as `campaign` does."""
        return await self._lock.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the term. If the lead was lost, raises LeaseLost, or adds it as a note to the exception of the body."""
        await self._lock.__aexit__(kind, error, trace)
