"""`redeem` for asyncio: take over a lock that another process has handed over by a ticket. `holdfast` has it for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from holdfast._api.aio_lease import LockLease
from holdfast._api.aio_lock import BaseAioLock
from holdfast._api.options import refuse_mistaken
from holdfast._api.ticket import BaseRedeem
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient
from holdfast._net.redaction import hides_client


class RedeemedLock(BaseRedeem[LockLease, AsyncClient], BaseAioLock[LockLease]):
    """The lock of a ticket, as `redeem` returns it. Acquiring it redeems the ticket."""

    _lease_type = LockLease


@hides_client()
def redeem(
    client: AsyncClient,
    ticket: str | bytes,
    *,
    prefix: str = "hf:",
    key: str | bytes | None = None,
    ttl: Seconds = 30.0,
    renew: bool = True,
    on_lost: Callable[[LockLease], object] | None = None,
    max_hold: Seconds | None = None,
    progress_within: Seconds | None = None,
    label: str | None = None,
    **mistaken: Never,
) -> RedeemedLock:
    """Return the lock that another process has handed over by a ticket; ``async with`` takes it over.

    ``async with`` returns an ordinary lease, which is renewed, and released at the end. Its fence is higher than that of the
    process which issued the ticket. ``async with`` never waits. It succeeds once for each ticket, else raises TicketRefused
    with the reason.

    Args:
        client: as for `Lock`; it must be for the server that has the lock.
        ticket: the ticket that `Lease.ticket` returned, or its text after any transport.
        prefix: the prefix of the lock that was handed over, if it is not ``hf:``.
        key: the ``key=`` of the lock, if it was created with one. Without it, the ticket must be for the key of its name.
        ttl: length of the lease in seconds; renewed while the lock is held.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: as for `Lock`.
        max_hold: seconds after the ticket was redeemed at which renewal stops.
        progress_within: as for `Lock`.
        label: text that describes this user of the lock, shown to its waiters.

    Raises:
        ConfigError: an option is out of range, or the value is not a ticket, or it is for another key than that of its name;
            nothing was sent to the server.
        TicketRefused: when the ticket is redeemed: it was redeemed before or has expired, or the lock was broken meanwhile.
    """
    refuse_mistaken(mistaken, "redeem")
    return RedeemedLock(
        client,
        ticket,
        prefix=prefix,
        key=key,
        ttl=ttl,
        renew=renew,
        on_lost=on_lost,
        max_hold=max_hold,
        progress_within=progress_within,
        label=label,
    )
