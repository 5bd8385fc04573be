"""Leader election, for threads. `holdfast.aio` has the same for asyncio."""

# ruff: noqa: SLF001  (a candidate has a seat, which is a lock)

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from holdfast._api import election
from holdfast._api.caller import Caller
from holdfast._api.sync_lease import Term
from holdfast._api.sync_lock import FairLock, Lock
from holdfast._clock import clock
from holdfast._core.election import Elected, LeaderWatch
from holdfast.errors import HoldfastError, HoldfastWarning

__all__ = ["Elected", "Election", "Term"]


class SeatTerm(election.BaseTerm, Term):
    """A term on one server."""


class ElectionLock(election.BaseElectionLock, FairLock):
    _lease_type = SeatTerm


class Election(election.BaseElection[Term]):
    """An election, as one candidate takes part in it: at most one candidate leads, the others wait in strict order.

    A leader that crashes is followed by the next candidate ``ttl`` seconds after its last sign of life. Each term has a number,
    its fence, which rises with each leader, for ever: pass it on as a fencing token to what the leader writes to.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: of the election, 1 to 512 bytes.
        candidate: name of this candidate, for observers and for `hand_over`; default: ``host:pid``.
        value: text that observers get while this candidate leads, such as its URL.
        ttl: seconds of the lease, which is renewed while this candidate leads.
        wait: seconds to campaign for; None: until elected.
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        prefix: start of the keys on the server.
        quarantine: with one server, as for `Lock`.
        max_ttl: with several servers, the longest lease on them (60); the same for all clients of these servers.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _lock: Lock
    _caller: Caller

    _caller_type = Caller
    _lock_type = ElectionLock

    @staticmethod
    def _quorum_seat() -> type[Any]:
        from holdfast._api.sync_redlock import Seat as QuorumSeat  # here: most elections have one server

        return QuorumSeat

    @property
    def lease(self) -> Term | None:
        """The current term of this candidate, or None. `Term.lost` is set when leadership is lost."""
        return self._lock.lease  # type: ignore[return-value]

    def campaign(self, wait: float | None = None) -> Term:
        """Wait until this candidate is elected, and return its term; at once if it leads already. ``wait``: seconds to wait,
        instead of those of the object. Raises LockTimeout, ServerError."""
        started, lock = clock(), self._lock
        elected = False
        try:
            while not self.is_leader or (lease := lock.lease) is None:
                elected = False
                elected = lock.acquire(timeout=-1 if wait is None else wait)
                if not elected:
                    holder = lock._driver().run(lock._holder(election.NOBODY))
                    raise election.not_elected(self, holder, clock() - started)
        except HoldfastError:
            raise
        except BaseException:
            if elected:
                lock._finish_release(None)  # interrupted, at whatever line
            raise
        else:
            return lease  # type: ignore[return-value]

    def resign(self) -> None:
        """End the term; the next candidate is elected at once. Raises NotHeld if this one does not lead, LeaseLost,
        ServerError."""
        lock, lease = self._lock, None
        try:
            lease = lock.lease
            if lease is None:
                raise self._not_leading()
            lease.release()
        except HoldfastError:
            raise
        except BaseException:
            lock._finish_release(lease)  # interrupted, at whatever line
            raise

    def proclaim(self, value: str) -> None:
        """Replace the text that observers get. Raises NotHeld, LeaseLost, ServerError."""
        term = self._leading("proclaim")
        term._driver.run(term._proclaim(election.checked_value(value)))
        self._value = value

    def hand_over(self, to: str) -> None:
        """Make the candidate ``to`` the leader, wherever it stands in the queue. End your work before. Raises NoCandidate if
        there is no such candidate: then this one goes on leading. Raises NotHeld, LeaseLost, ServerError."""
        term = self._leading("hand_over")
        try:
            term._driver.run(term._hand_over(to))
        except HoldfastError:
            raise
        except BaseException:
            term._driver.run(term._abandoned())  # interrupted, at whatever line
            raise

    def leader(self) -> Elected | None:
        """Return who leads now: name, term and value; None for nobody. Raises ServerError."""
        return self._next(LeaderWatch())

    def observe(self) -> Iterator[Elected | None]:
        """Yield who leads, now and after each change, without end; None for nobody. Waits without polling. Terms rise; a leader
        of a moment may be left out. Raises ServerError when the server is away for longer than 30 seconds."""
        watch = LeaderWatch()
        while True:
            yield self._next(watch)

    def __enter__(self) -> Term:
        """Campaign. Raises LockTimeout, ServerError."""
        return self._lock.__enter__()  # type: ignore[return-value]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Resign. Raises LeaseLost if leadership was lost, or notes it on the error of the body."""
        lock = self._lock
        try:
            lock._leave_entered(error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            lock._give_back_entered()
            raise
        finally:
            lock._entered.remove(lock._entered.innermost(threading.get_ident()))

    def _next(self, watch: LeaderWatch) -> Elected | None:
        election_keys = self._office("observing")
        return self._caller.run(self._change(watch), election_keys.spec.keys[0], f"election {self.name!r}")
