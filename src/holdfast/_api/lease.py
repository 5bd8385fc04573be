"""Leases as users hold them, for threads and for asyncio. Each refers to a `holdfast._api.lease_core.LeaseCore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, NoReturn

from holdfast._api.flow import of_asyncio
from holdfast._api.foreign_words import LEASE_METHODS, ForeignMethods
from holdfast._api.options import refuse_mistaken
from holdfast._durations import Seconds

if TYPE_CHECKING:
    import asyncio
    import threading

    from holdfast._api.ticket import Ticket


class BaseLease(ForeignMethods):
    """The lease of an acquisition, as users hold it. Base class for threads and for asyncio."""

    _foreign = LEASE_METHODS

    def __init__(self, core: Any) -> None:
        self._core = core
        self.fence: int = core.fence
        """Number of this acquisition, greater than that of every earlier one of the lock. Send it along with your writes, so
        that the resource can refuse writes with a lower fence."""

    @property
    def name(self) -> str:
        """The name of the lock."""
        name: str = self._core.name
        return name

    @property
    def key(self) -> str:
        """The key of the lock on the server."""
        key: str = self._core.key
        return key

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a lease cannot be pickled: it belongs to the process that acquired lock {self.name!r}; to hand the lock over to "
            "another process, send it the ticket that ticket() returns"
        )

    def remaining(self) -> float:
        """Return the seconds for which the lease is still valid if it is not renewed; 0.0 after a loss or release. Asks no
        server."""
        left: float = self._core.remaining()
        return left

    def check(self) -> None:
        """Raise LeaseLost if the lease is lost, NotHeld if it was released. Unlike `verify`, asks no server."""
        self._core.check()

    def progress(self) -> None:
        """Report that the holder makes progress, so that its ``progress_within`` seconds start again. Asks no server.

        Without ``progress_within``, this only checks the lease. Raises LeaseLost if the lease is lost, NotHeld if it was
        released.
        """
        self._core.progress()


def core_of(lease: Any) -> Any:
    """Return the internal object behind a lease or `MultiLease` that a user holds."""
    return lease._core  # noqa: SLF001 - the only door between the objects that users hold and the internal ones


class Lease(BaseLease):
    """A lease: one acquisition of a lock, as ``with lock as lease`` returns it."""

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost. ``if lease.lost:`` asks the same as ``lease.lost.is_set()``."""
        return self._core.lost_event()  # type: ignore[no-any-return]

    def renew(self, ttl: Seconds | None = None, **mistaken: Never) -> None:
        """Set the lease to expire ``ttl`` seconds from now. The default is its last length.

        The lease expires when ``max_hold`` ends, if that is sooner. The remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "Lease.renew")
        self._core.run(self._core.renew_on_server, ttl)

    def verify(self) -> None:
        """Ask the server whether it still has the lease. `check` does not ask it.

        Call this where a lost lease must be noticed at once, for example because somebody may have broken the lock. The answer
        is true at the time of the request only, so have the resource check the fence, too. If the lease is renewed
        automatically, this request renews it.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._core.run(self._core.verify_on_server)

    def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached. The lock is then free when the lease expires.
        """
        self._core.release()


class LockLease(Lease):
    """The lease of a lock on one server. A ticket can hand over the lock to another process."""

    def ticket(self, expires: Seconds = 60.0, **mistaken: Never) -> Ticket:
        """Return a ticket that hands the lock over to another process, which passes it to `redeem` within ``expires`` seconds.

        When the ticket is returned, this lease has ended, as after a release. If no process redeems the ticket in time, the
        ticket expires, and the next waiter acquires the lock.

        Raises NotHeld if the lease was released, LeaseLost if it is lost. If the server does not confirm the ticket, releases
        the lock and raises LeaseLost. Raises ServerError, and keeps the lease, if the request was not sent or was refused.
        """
        refuse_mistaken(mistaken, "LockLease.ticket")
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        return ticket.issue(self._core, expires)  # In one line, because an interrupt after it would lose the ticket.


class Term(Lease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""


@of_asyncio
class AioLease(BaseLease):
    """A lease: one acquisition of a lock, as ``async with lock as lease`` returns it."""

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lease is lost. ``if lease.lost:`` asks the same as ``lease.lost.is_set()``."""
        return self._core.lost_event()  # type: ignore[no-any-return]

    async def renew(self, ttl: Seconds | None = None, **mistaken: Never) -> None:
        """Set the lease to expire ``ttl`` seconds from now. The default is its last length.

        The lease expires when ``max_hold`` ends, if that is sooner. The remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "Lease.renew")
        await self._core.run(self._core.renew_on_server, ttl)

    async def verify(self) -> None:
        """Ask the server whether it still has the lease. `check` does not ask it.

        Call this where a lost lease must be noticed at once, for example because somebody may have broken the lock. The answer
        is true at the time of the request only, so have the resource check the fence, too. If the lease is renewed
        automatically, this request renews it.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        await self._core.run(self._core.verify_on_server)

    async def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached. The lock is then free when the lease expires.
        """
        await self._core.release()


@of_asyncio
class AioLockLease(AioLease):
    """The lease of a lock on one server. A ticket can hand over the lock to another process."""

    async def ticket(self, expires: Seconds = 60.0, **mistaken: Never) -> Ticket:
        """Return a ticket that hands the lock over to another process, which passes it to `redeem` within ``expires`` seconds.

        When the ticket is returned, this lease has ended, as after a release. If no process redeems the ticket in time, the
        ticket expires, and the next waiter acquires the lock.

        Raises NotHeld if the lease was released, LeaseLost if it is lost. If the server does not confirm the ticket, releases
        the lock and raises LeaseLost. Raises ServerError, and keeps the lease, if the request was not sent or was refused.
        """
        refuse_mistaken(mistaken, "LockLease.ticket")
        from holdfast._api import ticket

        return await ticket.aio_issue(self._core, expires)


@of_asyncio
class AioTerm(AioLease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""
