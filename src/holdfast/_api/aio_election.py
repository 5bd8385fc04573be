"""Leader election, for asyncio: `holdfast.aio.Leader`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from holdfast._api import election
from holdfast._api.aio_lease import Lease
from holdfast._api.caller import AioCaller
from holdfast._clock import clock
from holdfast._core.election import Elected, Watch
from holdfast.aio import FairLock, Lock

__all__ = ["Elected", "Leader"]


class Term(election.BaseTerm, Lease):
    """One term of a leader: the lease, and what else its leader may do."""

    async def proclaim(self, value: str) -> None:
        """As `Leader.proclaim`."""
        self._at_home()
        await self._driver.run(self._proclaim(election.checked_value(value)))

    async def hand_over(self, to: str) -> None:
        self._at_home()
        await self._driver.run(self._hand_over(to))


class Seat(election.BaseSeat, FairLock):
    _lease_type = Term


class Leader(election.BaseLeader[Lease]):
    """A candidate for leadership: at most one of all who campaign under a name leads, the others wait in strict order.

    A leader that crashes is followed by the next candidate ``ttl`` seconds after its last sign of life. Its term is a number
    that rises with each leader, for ever: pass it on as a fencing token to what the leader writes to. If leadership is lost,
    the body of ``async with`` is cancelled and LeaseLost is raised.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL; or three, five or another odd number of
            them, which elect by majority (as `Redlock`).
        name: of the election, 1 to 512 bytes.
        candidate: who you are, for those who observe or hand over; default: ``host:pid``.
        value: what you tell the others when you lead, such as your URL.
        ttl: seconds of the lease, renewed while you lead.
        wait: seconds to campaign for; None: until elected.
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        prefix: start of the keys on the server.
        guard: with one server, as for `Lock`.
        max_ttl: with several servers, the longest lease on them (60); the same for all who use them.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _seat: Lock
    _caller: AioCaller

    _caller_type = AioCaller
    _seat_type = Seat

    @staticmethod
    def _redlock() -> type[Any]:
        from holdfast._api.aio_redlock import Redlock  # here: most have one server

        return Redlock

    @property
    def lease(self) -> Lease | None:
        """The lease of the current term of this candidate, or None. It knows that leadership is lost: `Lease.lost`."""
        return self._seat.lease

    async def campaign(self, wait: float | None = None) -> Lease:
        """Be elected: returns when this candidate leads, with the lease of its term. ``wait``: seconds, instead of those of the
        object. Raises LockTimeout, ServerError."""
        started, seat = clock(), self._seat
        while not self.is_leader or (lease := seat.lease) is None:
            if not await seat.acquire(timeout=-1 if wait is None else wait):
                holder = await seat._driver().run(seat._holder(election.NOBODY))  # noqa: SLF001
                raise election.not_elected(self, holder, clock() - started)
        return lease

    async def resign(self) -> None:
        """Lead no more: the next candidate is elected at once. Raises NotHeld if this one does not lead, LeaseLost,
        ServerError."""
        lease = self._seat.lease
        if lease is None:
            raise self._not_leading()
        await lease.release()

    async def proclaim(self, value: str) -> None:
        """Tell the others something else than before. Raises NotHeld, LeaseLost, ServerError."""
        await self._leading("proclaim").proclaim(value)
        self._value = value

    async def hand_over(self, to: str) -> None:
        """Make the candidate ``to`` leader, wherever it stands in line. End your work before. If there is no such candidate,
        NoCandidate is raised, and this one goes on leading. Raises NotHeld, LeaseLost, ServerError."""
        await self._leading("hand_over").hand_over(to)

    async def leader(self) -> Elected | None:
        """Who leads now: name, term and value; None for nobody. Raises ServerError."""
        return await self._next(Watch())

    async def observe(self) -> AsyncIterator[Elected | None]:
        """Who leads: now, and after each change, for ever; None for nobody. Waits without polling. Terms rise; who led for a
        moment only may be left out. Raises ServerError when the server is away for longer than 30 seconds."""
        watch = Watch()
        while True:
            yield await self._next(watch)

    async def __aenter__(self) -> Lease:
        """Campaign. Raises LockTimeout, ServerError."""
        return await self._seat.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Resign. Raises LeaseLost if leadership was lost, or notes it on the error of the body."""
        await self._seat.__aexit__(kind, error, trace)

    async def _next(self, watch: Watch) -> Elected | None:
        office = self._office("observing")
        return await self._caller.run(self._change(watch), office.spec.keys[0], f"election {self.name!r}")
