"""Leader election, for asyncio: `holdfast.aio.Election`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from holdfast._api import election
from holdfast._api.aio_lease import Term
from holdfast._api.aio_lock import FairLock, Lock
from holdfast._api.caller import AioCaller
from holdfast._clock import clock
from holdfast._core.election import Elected, LeaderWatch

__all__ = ["Elected", "Election", "Term"]


class SeatTerm(election.BaseTerm, Term):
    """A term on one server."""


class ElectionLock(election.BaseElectionLock, FairLock):
    _lease_type = SeatTerm


class Election(election.BaseElection[Term]):
    """An election, as one candidate takes part in it: at most one candidate leads, the others wait in strict order.

    A leader that crashes is followed by the next candidate ``ttl`` seconds after its last sign of life. Each term has a number,
    its fence, which rises with each leader, for ever: pass it on as a fencing token to what the leader writes to. If
    leadership is lost, the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: of the election, 1 to 512 bytes.
        candidate: name of this candidate, for observers and for `hand_over`; default: ``host:pid``.
        value: text that observers get while this candidate leads, such as its URL.
        ttl: seconds of the lease, which is renewed while this candidate leads.
        wait: seconds to campaign for; None: until elected.
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        prefix: start of the keys on the server.
        quarantine: with one server, as for `Lock`.
        max_ttl: with several servers, the longest lease on them (60); the same for all clients of these servers.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _lock: Lock
    _caller: AioCaller

    _caller_type = AioCaller
    _lock_type = ElectionLock

    @staticmethod
    def _quorum_seat() -> type[Any]:
        from holdfast._api.aio_redlock import Seat as QuorumSeat  # here: most elections have one server

        return QuorumSeat

    @property
    def lease(self) -> Term | None:
        """The current term of this candidate, or None. `Term.lost` is set when leadership is lost."""
        return self._lock.lease  # type: ignore[return-value]

    async def campaign(self, wait: float | None = None) -> Term:
        """Wait until this candidate is elected, and return its term; at once if it leads already. ``wait``: seconds to wait,
        instead of those of the object. Raises LockTimeout, ServerError."""
        started, lock = clock(), self._lock
        while not self.is_leader or (lease := lock.lease) is None:
            if not await lock.acquire(timeout=-1 if wait is None else wait):
                holder = await lock._driver().run(lock._holder(election.NOBODY))  # noqa: SLF001
                raise election.not_elected(self, holder, clock() - started)
        return lease  # type: ignore[return-value]

    async def resign(self) -> None:
        """End the term; the next candidate is elected at once. Raises NotHeld if this one does not lead, LeaseLost,
        ServerError."""
        lease = self._lock.lease
        if lease is None:
            raise self._not_leading()
        await lease.release()

    async def proclaim(self, value: str) -> None:
        """Replace the text that observers get. Raises NotHeld, LeaseLost, ServerError."""
        term = self._leading("proclaim")
        term._at_home()  # noqa: SLF001
        await term._driver.run(term._proclaim(election.checked_value(value)))  # noqa: SLF001
        self._value = value

    async def hand_over(self, to: str) -> None:
        """Make the candidate ``to`` the leader, wherever it stands in the queue. End your work before. Raises NoCandidate if
        there is no such candidate: then this one goes on leading. Raises NotHeld, LeaseLost, ServerError."""
        term = self._leading("hand_over")
        term._at_home()  # noqa: SLF001
        await term._driver.run(term._hand_over(to))  # noqa: SLF001

    async def leader(self) -> Elected | None:
        """Return who leads now: name, term and value; None for nobody. Raises ServerError."""
        return await self._next(LeaderWatch())

    async def observe(self) -> AsyncIterator[Elected | None]:
        """Yield who leads, now and after each change, without end; None for nobody. Waits without polling. Terms rise; a leader
        of a moment may be left out. Raises ServerError when the server is away for longer than 30 seconds."""
        watch = LeaderWatch()
        while True:
            yield await self._next(watch)

    async def __aenter__(self) -> Term:
        """Campaign. Raises LockTimeout, ServerError."""
        return await self._lock.__aenter__()  # type: ignore[return-value]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Resign. Raises LeaseLost if leadership was lost, or notes it on the error of the body."""
        await self._lock.__aexit__(kind, error, trace)

    async def _next(self, watch: LeaderWatch) -> Elected | None:
        election_keys = self._office("observing")
        return await self._caller.run(self._change(watch), election_keys.spec.keys[0], f"election {self.name!r}")
