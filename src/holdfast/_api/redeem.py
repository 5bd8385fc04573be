"""`redeem` takes over a lock that another process has handed over by a ticket. For threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from holdfast._api import options
from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, L
from holdfast._api.flow import of_asyncio
from holdfast._api.lease import AioLockLease, LockLease
from holdfast._api.ticket import bad, bound, read
from holdfast._core.lock import ticket as ticket_operations
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.ticket import NotExchanged
from holdfast._core.names import side_key, start
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import resolve
from holdfast.errors import ConfigError, TicketRefused


class BaseRedeem(BaseLock[L, Client]):
    """A lock that is acquired by redeeming a ticket. Base class for threads and for asyncio."""

    _own_operation = True
    _shared = False  # The holder of a ticket has the lock already, and must not queue with the waiters of this process.

    @hides_client("redeem.__init__")
    def __init__(
        self,
        client: Client,
        ticket: str | bytes,
        *,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        ttl: Seconds = 30.0,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        **mistaken: Never,
    ) -> None:
        options.refuse_mistaken(mistaken, "redeem")
        self._told = told = read(ticket)
        bound(told, prefix, key)
        self._endpoint = resolve(client, self._api)
        self._cluster = self._endpoint.cluster
        spec = options.make_spec(
            "ticket",
            self._endpoint.timeout,
            ttl=ttl,
            renew=renew,
            max_hold=max_hold,
            progress_within=progress_within,
            quarantine=told.quarantine or False,
        )
        try:
            keys = (told.key, side_key(told.key, b"state"), side_key(told.key, b"queue"))
        except ConfigError:
            raise bad("is damaged") from None
        home = b"" if key is None else start(prefix)
        self._set_up(spec._replace(name=told.name, keys=keys, replicas=told.replicas, home=home), None, on_lost, label)

    async def _try(self, attempt: Attempt, _wait: float | None) -> Grant | Busy:
        found = await ticket_operations.redeem(attempt, self._told.token, self._told.ends)
        if isinstance(found, NotExchanged):
            raise self._refused(found.why)
        return found

    def _refused(self, why: str) -> TicketRefused:
        said = {
            "used": "was redeemed before: a ticket can be redeemed only once",
            "expired": "expired before it was redeemed; the next waiter may hold the lock now",
            "gone": "is no longer valid: the lock was broken or deleted, or the server has lost its data, or is another server",
            "late": "was redeemed, but the lease had expired when the reply arrived; the lock was released",
        }[why]
        return TicketRefused(
            f"the ticket for lock {self.name!r} {said} (at {self._where})", name=self.name, key=self.key, reason=why
        )


class RedeemedLock(BaseRedeem[LockLease, SyncClient], BaseSyncLock[LockLease]):
    """The lock of a ticket, as `redeem` returns it. Acquiring it redeems the ticket."""

    _lease_type = LockLease


@hides_client()
def redeem(
    client: SyncClient,
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
    """Return the lock that another process has handed over by a ticket; ``with`` takes it over.

    ``with`` returns an ordinary lease, which is renewed, and released at the end. Its fence is higher than that of the process
    which issued the ticket. ``with`` never waits. It succeeds once for each ticket; otherwise it raises TicketRefused with the
    reason.

    Args:
        client: as for `Lock`; it must be for the server that has the lock.
        ticket: the ticket that `LockLease.ticket` returned, or its full text (`Ticket.reveal`).
        prefix: the prefix of the lock that was handed over, if it is not ``hf:``.
        key: the ``key=`` of the lock, if it was created with one. Without it, the ticket must be for the key that holdfast
            makes from the lock's name.
        ttl: length of the lease in seconds; renewed while the lock is held.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: as for `Lock`.
        max_hold: seconds after the ticket was redeemed at which renewal stops.
        progress_within: as for `Lock`.
        label: text that describes this user of the lock, shown to its waiters.

    Raises:
        ConfigError: an option is out of range, the value is not a ticket, or the ticket is not for ``key``, by default the key
            that holdfast makes from the lock's name. Nothing was sent to the server.
        TicketRefused: raised by ``with`` if the ticket was redeemed before or has expired, or if the lock was broken meanwhile.
    """
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
        **mistaken,
    )


@of_asyncio
class AioRedeemedLock(BaseRedeem[AioLockLease, AsyncClient], BaseAioLock[AioLockLease]):
    """The lock of a ticket, as `redeem` returns it. Acquiring it redeems the ticket."""

    _lease_type = AioLockLease


@of_asyncio
@hides_client("redeem")
def aio_redeem(
    client: AsyncClient,
    ticket: str | bytes,
    *,
    prefix: str = "hf:",
    key: str | bytes | None = None,
    ttl: Seconds = 30.0,
    renew: bool = True,
    on_lost: Callable[[AioLockLease], object] | None = None,
    max_hold: Seconds | None = None,
    progress_within: Seconds | None = None,
    label: str | None = None,
    **mistaken: Never,
) -> AioRedeemedLock:
    """Return the lock that another process has handed over by a ticket; ``async with`` takes it over.

    ``async with`` returns an ordinary lease, which is renewed, and released at the end. Its fence is higher than that of the
    process which issued the ticket. ``async with`` never waits. It succeeds once for each ticket; otherwise it raises
    TicketRefused with the reason.

    Args:
        client: as for `Lock`; it must be for the server that has the lock.
        ticket: the ticket that `LockLease.ticket` returned, or its full text (`Ticket.reveal`).
        prefix: the prefix of the lock that was handed over, if it is not ``hf:``.
        key: the ``key=`` of the lock, if it was created with one. Without it, the ticket must be for the key that holdfast
            makes from the lock's name.
        ttl: length of the lease in seconds; renewed while the lock is held.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: as for `Lock`.
        max_hold: seconds after the ticket was redeemed at which renewal stops.
        progress_within: as for `Lock`.
        label: text that describes this user of the lock, shown to its waiters.

    Raises:
        ConfigError: an option is out of range, the value is not a ticket, or the ticket is not for ``key``, by default the key
            that holdfast makes from the lock's name. Nothing was sent to the server.
        TicketRefused: raised by ``async with`` if the ticket was redeemed before or has expired, or if the lock was broken
            meanwhile.
    """
    return AioRedeemedLock(
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
        **mistaken,
    )
