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
from holdfast._core.election import Elected, Watch
from holdfast.errors import HoldfastError, HoldfastWarning

__all__ = ["Elected", "Election", "Term"]


class SeatTerm(election.BaseTerm, Term):
    """A term on one server."""


class Seat(election.BaseSeat, FairLock):
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

    _seat: Lock
    _caller: Caller

    _caller_type = Caller
    _seat_type = Seat

    @staticmethod
    def _quorum_seat() -> type[Any]:
        from holdfast._api.sync_redlock import Seat as QuorumSeat  # here: most elections have one server

        return QuorumSeat

    @property
    def lease(self) -> Term | None:
        """The current term of this candidate, or None. `Term.lost` is set when leadership is lost."""
        return self._seat.lease  # type: ignore[return-value]

    def campaign(self, wait: float | None = None) -> Term:
        """Wait until this candidate is elected, and return its term; at once if it leads already. ``wait``: seconds to wait,
        instead of those of the object. Raises LockTimeout, ServerError."""
        started, seat = clock(), self._seat
        elected = False
        try:
            while not self.is_leader or (lease := seat.lease) is None:
                elected = False
                elected = seat.acquire(timeout=-1 if wait is None else wait)
                if not elected:
                    holder = seat._driver().run(seat._holder(election.NOBODY))
                    raise election.not_elected(self, holder, clock() - started)
        except HoldfastError:
            raise
        except BaseException:
            if elected:
                seat._finish_release(None)  # interrupted, at whatever line
            raise
        else:
            return lease  # type: ignore[return-value]

    def resign(self) -> None:
        """End the term; the next candidate is elected at once. Raises NotHeld if this one does not lead, LeaseLost,
        ServerError."""
        seat, lease = self._seat, None
        try:
            lease = seat.lease
            if lease is None:
                raise self._not_leading()
            lease.release()
        except HoldfastError:
            raise
        except BaseException:
            seat._finish_release(lease)  # interrupted, at whatever line
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
        return self._next(Watch())

    def observe(self) -> Iterator[Elected | None]:
        """Yield who leads, now and after each change, without end; None for nobody. Waits without polling. Terms rise; a leader
        of a moment may be left out. Raises ServerError when the server is away for longer than 30 seconds."""
        watch = Watch()
        while True:
            yield self._next(watch)

    def __enter__(self) -> Term:
        """Campaign. Raises LockTimeout, ServerError."""
        return self._seat.__enter__()  # type: ignore[return-value]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Resign. Raises LeaseLost if leadership was lost, or notes it on the error of the body."""
        seat = self._seat
        try:
            seat._leave_entered(error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            seat._give_back_entered()
            raise
        finally:
            seat._entered.remove(seat._entered.innermost(threading.get_ident()))

    def _next(self, watch: Watch) -> Elected | None:
        office = self._office("observing")
        return self._caller.run(self._change(watch), office.spec.keys[0], f"election {self.name!r}")
