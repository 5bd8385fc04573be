"""Tickets for asyncio: a lock that another process has handed over. `holdfast` has the same for threads."""

from __future__ import annotations

from holdfast._api import aio_lock
from holdfast._api.ticket import BaseRedeem


class redeem(BaseRedeem[aio_lock.Lease], aio_lock.Lock):  # noqa: N801 - reads as a function
    """A lock that another process has handed over, taken over by way of its ticket.

    ``async with`` gives an ordinary lease: renewed, with a fence greater than the giver's, given back at the end. Nobody waits:
    the ticket is good, once, or TicketRefused says why it is not.

    Args:
        client: as for `Lock`: of the server that has the lock.
        ticket: what `Lease.ticket` gave: as it is, or as the plain text that has become of it on its way.
        prefix: as for the lock that was handed over, if that had another one than ``hf:``.
        key: the same as the lock's, if that was made with ``key=``. A ticket for any other key than its name's is refused.
        ttl: seconds of the lease; renewed while held.
        renew: False leaves renewal to you (`Lease.renew`).
        on_lost: as for `Lock`.
        max_hold: seconds after which renewal stops, counted from here.
        progress_within: as for `Lock`.
        label: who uses this lock, shown to those who wait for it.

    Raises:
        ConfigError: an option is out of range, or the ticket is none, or for the key of another lock than it names; nothing was
            sent.
        TicketRefused: when it is redeemed: it is used up, or expired, or the lock was taken away from it.
    """
