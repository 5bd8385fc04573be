"""Tickets for asyncio: a lock that another process has handed over. `holdfast` has the same for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from holdfast._api.aio_lock import Lease, Lock
from holdfast._api.options import refuse_mistaken
from holdfast._api.ticket import BaseRedeem
from holdfast._net.redaction import hides_client


class RedeemedLock(BaseRedeem[Lease], Lock):
    """The lock of a ticket, made by `redeem`. Its lease is a `Lease`."""


@hides_client()
def redeem(
    client: object,
    ticket: str | bytes,
    *,
    prefix: str = "hf:",
    key: str | bytes | None = None,
    ttl: float = 30.0,
    renew: bool = True,
    on_lost: Callable[[Lease], object] | None = None,
    max_hold: float | None = None,
    progress_within: float | None = None,
    label: str | None = None,
    **mistaken: Never,
) -> RedeemedLock:
    """Return the lock that another process has handed over by a ticket; ``async with`` takes it over.

    ``async with`` gives an ordinary lease: renewed, with a fence greater than the giver's, released at the end. It does not
    wait: the ticket is good, once, or TicketRefused says why it is not.

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
