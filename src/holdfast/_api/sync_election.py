"""Leader election, for threads. `holdfast.aio` has the same for asyncio."""

# ruff: noqa: SLF001  (a candidate is a seat, which is a lock)

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from holdfast._api import election
from holdfast._api.caller import Caller
from holdfast._api.sync_lease import Lease
from holdfast._api.sync_lock import FairLock, Lock
from holdfast._clock import clock
from holdfast._core.election import Elected, Watch
from holdfast.errors import HoldfastError, HoldfastWarning

__all__ = ["Elected", "Leader"]


class Term(election.BaseTerm, Lease):
    def proclaim(self, value: str) -> None:
        self._driver.run(self._proclaim(election.checked_value(value)))

    def hand_over(self, to: str) -> None:
        try:
            self._driver.run(self._hand_over(to))
        except HoldfastError:
            raise
        except BaseException:
            self._driver.run(self._abandoned())  # interrupted, at whatever line
            raise


class Seat(election.BaseSeat, FairLock):
    _lease_type = Term


class Leader(election.BaseLeader[Lease]):
    """A candidate for leadership: at most one of all who campaign under a name leads, the others wait in strict order.

    A leader that crashes is followed by the next candidate ``ttl`` seconds after its last sign of life. Its term is a number
    that rises with each leader, for ever: pass it on as a fencing token to what the leader writes to.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: of the election, 1 to 512 bytes.
        candidate: who you are, for those who observe or hand over; default: ``host:pid``.
        value: what you tell the others when you lead, such as your URL.
        ttl: seconds of the lease, renewed while you lead.
        wait: seconds to campaign for; None: until elected.
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        prefix: start of the keys on the server.
        guard: with one server, as for `Lock`.
        max_ttl: with several servers, the longest lease on them (60); the same for all who use them.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _seat: Lock
    _caller: Caller

    _caller_type = Caller
    _seat_type = Seat

    @staticmethod
    def _redlock() -> type[Any]:
        from holdfast._api.sync_redlock import Redlock  # here: most have one server

        return Redlock

    @property
    def lease(self) -> Lease | None:
        """The lease of the current term of this candidate, or None. It knows that leadership is lost: `Lease.lost`."""
        return self._seat.lease

    def campaign(self, wait: float | None = None) -> Lease:
        """Be elected: returns when this candidate leads, with the lease of its term. ``wait``: seconds, instead of those of the
        object. Raises LockTimeout, ServerError."""
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
            return lease

    def resign(self) -> None:
        """Lead no more: the next candidate is elected at once. Raises NotHeld if this one does not lead, LeaseLost,
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
        """Tell the others something else than before. Raises NotHeld, LeaseLost, ServerError."""
        self._leading("proclaim").proclaim(value)
        self._value = value

    def hand_over(self, to: str) -> None:
        """Make the candidate ``to`` leader, wherever it stands in line. End your work before. If there is no such candidate,
        NoCandidate is raised, and this one goes on leading. Raises NotHeld, LeaseLost, ServerError."""
        self._leading("hand_over").hand_over(to)

    def leader(self) -> Elected | None:
        """Who leads now: name, term and value; None for nobody. Raises ServerError."""
        return self._next(Watch())

    def observe(self) -> Iterator[Elected | None]:
        """Who leads: now, and after each change, for ever; None for nobody. Waits without polling. Terms rise; who led for a
        moment only may be left out. Raises ServerError when the server is away for longer than 30 seconds."""
        watch = Watch()
        while True:
            yield self._next(watch)

    def __enter__(self) -> Lease:
        """Campaign. Raises LockTimeout, ServerError."""
        return self._seat.__enter__()

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
