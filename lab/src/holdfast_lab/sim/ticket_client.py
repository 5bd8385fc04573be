"""Tickets in the simulation: workers issue and redeem tickets, and each step is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._api import ticket as tickets
from holdfast._api.ticket import TicketFields
from holdfast._core.lock import ticket as ticket_operations
from holdfast._core.lock.acquire import ON_ONE_SERVER, KeyConflict, abandon
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.ticket import NotExchanged
from holdfast._core.requests import WireError
from holdfast.errors import HoldfastError
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import Slot, TaskCancelled
from holdfast_lab.sim.world import World


@dataclass(slots=True, eq=False)
class IssuedTicket:
    """A ticket, and the attempts to redeem it."""

    told: TicketFields
    """The contents of the ticket."""
    giver: Lease
    lock: str
    lease: str
    """Name, in the history, of the lease with which the ticket holds the lock until it is redeemed."""
    ends: float
    """Earliest virtual time at which the ticket may expire. The server's clock may be a little fast."""
    asked: list[float] = field(default_factory=list)
    """Virtual times at which workers began to redeem the ticket."""
    taken: list[Lease] = field(default_factory=list)
    """The leases for which the ticket was redeemed. More than one is a violation."""
    refused: list[tuple[float, str]] = field(default_factory=list)
    """Refusals of the ticket, each with its virtual time and its reason."""


def out(world: World) -> bool:
    """Return True if a ticket that was not redeemed still holds a lock."""
    given = {event.attempt for event in world.history if event.kind == "ticket"}
    holders = [server.keyspace.peek(key)[0] for server in world.servers for key in server.locks]
    return any(world.drawn_for(holder.decode("ascii", "replace")) in given for holder in holders)


def _begin(lock: Lock) -> None:
    """Begin an acquisition by a ticket. It counts as the earliest request, because a ticket may overtake the queue."""
    worker = lock.worker
    worker.acquisitions += 1
    worker.acquisition = f"{worker.name}#{worker.acquisitions}"
    worker.asked_to_join, worker.asked_first = 0.0, EPOCH


async def issue(lock: Lock, lease: Lease, seconds: float) -> IssuedTicket | None:
    """Turn a lease into a ticket that expires after ``seconds``. On an error, release the lease and return None."""
    worker = lock.worker
    with worker.operation():
        lease.leave()
        _begin(lock)  # in the history, the ticket is an acquisition
        asked = worker.process.world.now
        try:
            ticket = await tickets.Issue(lease, seconds).operation()
        except HoldfastError as error:
            lease.left(type(error).__name__)
            await _end(lease)
            return None
        except TaskCancelled:
            lease.left("cancelled")
            raise
        lease.left()
        lock.note("ticket")
    return IssuedTicket(tickets.read(ticket), lease, lock.spec.key, worker.acquisition, asked + 0.99 * seconds)


async def _end(lease: Lease) -> None:
    """Release the lease as the end of ``with`` does. Record nothing, because the history has this release already."""
    try:
        if not lease.hand_on():
            await lease.release_on_server()
    except HoldfastError:
        pass
    except TaskCancelled:
        await lease.finish_release()
        raise


async def redeem(lock: Lock, slip: IssuedTicket) -> Lease | None:
    """Redeem a ticket. Return None if it is refused or an error occurs."""
    worker = lock.worker
    process = worker.process
    with worker.operation():
        _begin(lock)
        slip.asked.append(process.world.now)
        lock.note("ask", until=process.world.now)
        slot = Slot(worker)
        attempt = slot.attempt = Attempt(lock.spec, slot=slot, node=process.node)
        try:
            found = await ticket_operations.redeem(attempt, slip.told.token, slip.told.ends)
            if isinstance(found, NotExchanged):
                slip.refused.append((process.world.now, found.why))
                lock.note("failed", f"TicketRefused: {found.why}")
                return None
            lease = Lease(worker, found)
            slip.taken.append(lease)
        except (WireError, KeyConflict) as error:
            lock.note("failed", f"{type(error).__name__}: {error}")
            return None
        except TaskCancelled:
            try:
                if attempt.unclaimed is not None:
                    attempt.unclaimed.discard()
                await abandon(attempt, ON_ONE_SERVER)
            finally:
                lock.note("cancelled")
            raise
        else:
            attempt.unclaimed = None
            return lease
