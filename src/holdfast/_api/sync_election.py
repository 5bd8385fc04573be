"""`Election` for threads: leader election among candidates. `holdfast.aio` has the class for asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast._api import election
from holdfast._api.caller import Caller
from holdfast._api.flow import complete
from holdfast._api.foreign_words import ASYNC_WITH
from holdfast._api.lease import Term
from holdfast._api.sync_election_lock import ElectionLock, LeaderLock
from holdfast._clock import clock
from holdfast._core.election import Elected, LeaderWatch
from holdfast._durations import Seconds
from holdfast._net.clients import SyncClient
from holdfast.errors import HoldfastError, HoldfastWarning

__all__ = ["Elected", "Election", "Term"]


class Election(election.BaseElection[Term, SyncClient]):
    """A candidate in an election: at most one candidate leads at a time, and the others wait in strict order of arrival.

    If the leader crashes, the next candidate is elected at most ``ttl`` seconds after the leader's last renewal. Each term has
    a number, higher than that of each earlier term. Send this number along with your writes as a fencing token (see
    `Term.fence`).

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
    _caller: Caller

    _caller_type = Caller
    _lock_type = ElectionLock

    @staticmethod
    def _quorum_lock_type() -> type[Any]:
        from holdfast._api.sync_redlock import (
            ElectionLock as QuorumElectionLock,  # Imported late: most elections have one server.
        )

        return QuorumElectionLock

    @property
    def lease(self) -> Term | None:
        """The current term of this candidate; None while it does not lead. `Term.lost` is set when leadership is lost."""
        return self._lock.lease

    def campaign(self, wait: Seconds | None = None) -> Term:
        """Wait until this candidate is elected, and return its term. If it leads already, return its term at once.

        ``wait`` is in seconds; None: as long as this object's ``wait`` option allows. Raises LockTimeout if the candidate was
        not elected in time, ServerError if the server cannot be reached.
        """
        started, lock = clock(), self._lock
        elected = False
        try:
            while not self.is_leader or (lease := lock.lease) is None:
                elected = False
                elected = lock.acquire(timeout=-1 if wait is None else wait)
                if not elected:
                    holder = lock.leader_name()
                    raise election.not_elected(self, holder, clock() - started)
        except HoldfastError:
            raise
        except BaseException:
            if elected:
                lock.finish_release(None)  # An interrupt can come at any line.
            raise
        else:
            return lease

    def resign(self) -> None:
        """End the term of this candidate; the next candidate is elected at once.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead before. Raises ServerError if the server
        cannot be reached. The next candidate is then elected when the lease expires.
        """
        lock, core = self._lock, None
        try:
            core = lock.live_term()
            if core is None:
                raise self._not_leading()
            core.release()
        except HoldfastError:
            raise
        except BaseException:
            lock.finish_release(core)  # An interrupt can come at any line.
            raise

    def proclaim(self, value: str) -> None:
        """Replace the text that observers get while this candidate leads.

        Raises NotHeld if this candidate does not lead, LeaseLost if it lost the lead, ServerError if the server cannot be
        reached, ConfigError if the text is too long.
        """
        core = self._leading("proclaim")
        core.driver.run(core.replace_value(election.checked_value(value)))
        self._value = value

    def hand_over(self, to: str) -> None:
        """Make the candidate called ``to`` the leader, whatever its position in the queue. Finish your work as the leader
        before this call.

        Raises NoCandidate if there is no candidate of that name; this candidate then goes on leading. Raises NotHeld if this
        candidate does not lead, LeaseLost if it lost the lead. Raises ServerError if the server cannot be reached. If the
        request may have arrived all the same, this candidate no longer leads.
        """
        core = self._leading("hand_over")
        try:
            core.driver.run(core.transfer(to))
        except HoldfastError:
            raise
        except BaseException:
            core.finish_interrupted_release()  # An interrupt can come at any line.
            raise

    def leader(self) -> Elected | None:
        """Return the current leader: its name, term and value; None if there is none. Raises ServerError, as `observe` does."""
        return self._next(LeaderWatch())

    def observe(self) -> Iterator[Elected | None]:
        """Yield the current leader (name, term, value), and the new one after each change, without end. None: there is no
        leader.

        Waits for notifications, without polling. The term numbers only rise. A leader that led only for a moment may be left
        out. Raises ServerError if the server cannot be reached for more than 30 seconds, or for more than ``ttl`` if that is
        longer.
        """
        watch = LeaderWatch()
        while True:
            yield self._next(watch)

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

    def _next(self, watch: LeaderWatch) -> Elected | None:
        election_keys = self._office("observing")
        return complete(self._caller.run(self._change(watch), election_keys.spec.keys[0], f"election {self.name!r}"))
