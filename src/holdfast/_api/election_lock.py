"""The lock of an election, whose holder leads. `holdfast._api.election.Election` is the candidate that uses it."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from holdfast._api import error_map
from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, L
from holdfast._api.lease import AioTerm, Term
from holdfast._api.lease_core import AioLeaseCore, LeaseCore, SyncLeaseCore
from holdfast._core import election
from holdfast._core.election import Candidacy, Elected, ElectionKeys, NoSuchCandidate
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.replies import NO_ANSWER, PAUSED, Busy
from holdfast._core.lock.spec import Spec
from holdfast._core.names import side_key
from holdfast._core.requests import Unknown, WireError
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._runtime.process import describe
from holdfast.errors import ConfigError, LockTimeout, NoCandidate


class Candidate(Protocol):
    """The properties of an `Election` that its lock uses."""

    @property
    def name(self) -> str:
        """The name of the election."""

    @property
    def key(self) -> str:
        """The key of the election's lock on the server."""

    @property
    def candidate(self) -> str:
        """The name of the candidate."""

    @property
    def value(self) -> str:
        """The text that observers get while the candidate leads."""


class BaseElectionLock(BaseLock[L, Client]):
    """The lock of an election on one server. Each candidate has its own place in the server's queue."""

    _again: str = "this candidate leads already, until it resigns"

    _shared = False
    _strategy = election.FOR_A_CANDIDATE
    election: Candidate

    @property
    def election_keys(self) -> ElectionKeys:
        return ElectionKeys(self._spec, side_key(self._spec.keys[0], b"observers"))

    def _new_attempt(self, driver: Any) -> Attempt:
        node = super()._new_attempt(driver).node
        ours = self.election
        observers = self.election_keys.observers
        return Candidacy(self._spec, tally=self._tally, node=node, name=ours.candidate, value=ours.value, observers=observers)

    def note_free(self, at: float) -> None:
        """Tell the keeper that the lock's key was gone on its server at monotonic time ``at``, in seconds."""
        endpoint = self._endpoint if self._cluster is None else self._shard(self._cluster)
        self._found_free(endpoint, at)

    async def _holder(self, busy: Busy) -> bytes | None:
        if busy.process != PAUSED:
            try:
                found = (await election.read_leader(self.election_keys)).value.leader
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
    """The internal object of a term (time as the leader) on one server. Base class for threads and for asyncio."""

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
        if self.held_lease.lose("its key is gone, or another client holds the lock"):
            self.forget()
            self.notice_loss()
        raise self.lease_lost()


def not_elected(ours: Candidate, holder: bytes | None, waited: float, remaining: float | None = None) -> LockTimeout:
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


def trouble(spec: Spec, error: WireError | KeyConflict, more: str = "") -> Exception:
    """Return the user's error for an internal error of an election, with ``more`` added to its text."""
    if isinstance(error, KeyConflict):
        return ConfigError(f"election {spec.name!r} is not possible: {error}; nothing was changed", parameter="name")
    found = error_map.server_error(spec, error, "--election")
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


class BaseLeaderLock(BaseLock[L, Client]):
    """The methods that an `Election` calls on its lock, for one server or several."""

    def live_term(self) -> Any:
        """Return the internal object of the candidate's latest term, also after its loss; None without a term."""
        return self._live()

    async def leader_name(self) -> bytes | None:
        """Return the name of the leader, or of the lock's holder, for a message. None or empty means unknown."""
        return await self._run_on(self._driver(), self._holder(NO_ANSWER))


class LeaderLock(BaseSyncLock[Term], BaseLeaderLock[Term, SyncClient]):
    """The lock of a candidate, for threads."""

    _lease_type = Term

    def finish_release(self, core: SyncLeaseCore | None) -> None:
        """Finish a release that an interrupt has ended at any line. ``core``: object of the term; None: the latest."""
        self._finish_release(core)

    def give_back_since(self, before: SyncLeaseCore | None) -> None:
        """Release the term that an interrupted call has acquired. ``before``: an earlier term, to be kept, or None."""
        core = self._live()
        if core is not None and core is not before and core.owner == self._owner():
            core.finish_interrupted_release()

    def leave(self, error: BaseException | None) -> None:
        """Release the term at the end of its ``with`` statement. ``error``: exception of the body, or None."""
        self._leave(self._entered.innermost(self._owner), error)

    def give_back_entered(self) -> None:
        self._give_back_entered()

    def forget_entered(self) -> None:
        self._entered.remove(self._entered.innermost(self._owner))


class AioLeaderLock(BaseAioLock[AioTerm], BaseLeaderLock[AioTerm, AsyncClient]):
    """The lock of a candidate, for asyncio."""

    _lease_type = AioTerm


class _TermCore(BaseTermCore, SyncLeaseCore):
    """The internal object of a term of a thread."""


class _AioTermCore(BaseTermCore, AioLeaseCore):
    """The internal object of a term of a task."""


class ElectionLock(BaseElectionLock[Term, SyncClient], LeaderLock):
    """The lock of an election on one server, for threads."""

    _core_type = _TermCore


class AioElectionLock(BaseElectionLock[AioTerm, AsyncClient], AioLeaderLock):
    """The lock of an election on one server, for asyncio."""

    _core_type = _AioTermCore
