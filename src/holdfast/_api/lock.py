"""`Lock` and `FairLock`, for threads and for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Never

from holdfast._api.acquisition import BaseAioLock, BaseSyncLock
from holdfast._api.base_lock import BaseLock, L
from holdfast._api.flow import of_asyncio
from holdfast._api.lease import AioLockLease, LockLease
from holdfast._api.options import refuse_mistaken
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket


class BaseFairLock(BaseLock[L, Client]):
    """The options of a lock that is never handed on inside a process. The server grants it in the order of arrival."""

    _shared = False

    @hides_client("FairLock.__init__")
    def __init__(
        self,
        client: Client,
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        replicas: int = 0,
        quarantine: bool | Seconds = False,
        deadlock: Literal["wait", "raise"] = "wait",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        super().__init__(
            client,
            name,
            ttl=ttl,
            wait=wait,
            renew=renew,
            on_lost=on_lost,
            max_hold=max_hold,
            progress_within=progress_within,
            label=label,
            prefix=prefix,
            key=key,
            replicas=replicas,
            quarantine=quarantine,
            deadlock=deadlock,
        )


class Lock(BaseSyncLock[LockLease]):
    """A named lock that at most one process, thread or task holds, anywhere.

    The lock is held under a lease, which expires ``ttl`` seconds after its holder stops renewing it, so a crashed holder does
    not block others for longer. On release, the lock is handed over directly to the process that has waited longest. For a
    bounded time, waiters of the releasing process may get it first (never with `FairLock`). A `Lock` can replace a
    threading.Lock.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` again; otherwise the holder counts as hung,
            and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.
        key: the whole key on the server, if clients of other lock libraries (``SET key token NX PX``) use it, too.
        linger: seconds for which the lease is kept after a release, so that the next acquisition here needs no round trip;
            the lease is released at once when another process asks for the lock.
        max_passes: how many times in a row the lock is handed on inside this process while another process waits.
        max_pass_time: for how many seconds after the acquisition on the server the lock is handed on inside this process.
        replicas: number of replicas that must confirm an acquisition; with fewer, the lock is released and ServerError raised.
        quarantine: seconds for which a server that may have lost data (it restarted, was flushed or was a replica) grants no
            lock with this option. Must be the same for all clients of these locks, and at least their longest ``ttl``. True:
            60.
        deadlock: what happens when holders of locks wait for each other in a cycle. ``"wait"``: they go on waiting, and
            `find_deadlocks` reports them; ``"raise"``: the wait that started last raises Deadlock.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _lease_type = LockLease

    def ticket(self, expires: Seconds = 60.0, **mistaken: Never) -> Ticket:
        """Return a ticket that hands the lock over to another process, as `LockLease.ticket` does.

        Raises NotHeld if the lock is not held by this object.
        """
        refuse_mistaken(mistaken, "Lock.ticket")
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        return ticket.issue(self._held_core(), expires)


class FairLock(BaseFairLock[LockLease, SyncClient], Lock):
    """A `Lock` that is granted in the strict order of arrival, across all processes.

    Each waiting thread or task has its own place in the server's queue, and each hand-over costs a round trip. Options, errors
    and methods are those of `Lock`, except for ``linger``, ``max_passes`` and ``max_pass_time``.
    """


@of_asyncio
class AioLock(BaseAioLock[AioLockLease]):
    """A named lock that at most one process, thread or task holds, anywhere.

    The lock is held under a lease, which expires ``ttl`` seconds after its holder stops renewing it, so a crashed holder does
    not block others for longer. On release, the lock is handed over directly to the process that has waited longest. For a
    bounded time, waiters of the releasing process may get it first (never with `FairLock`). A `Lock` can replace an
    asyncio.Lock.

    If the lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised. A lock belongs to one event loop
    while it is held or awaited; otherwise any event loop may use it.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held, by a thread, so a blocked event loop
            loses nothing.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` again; otherwise the holder counts as hung,
            and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.
        key: the whole key on the server, if clients of other lock libraries (``SET key token NX PX``) use it, too.
        linger: seconds for which the lease is kept after a release, so that the next acquisition here needs no round trip;
            the lease is released at once when another process asks for the lock.
        max_passes: how many times in a row the lock is handed on inside this process while another process waits.
        max_pass_time: for how many seconds after the acquisition on the server the lock is handed on inside this process.
        replicas: number of replicas that must confirm an acquisition; with fewer, the lock is released and ServerError raised.
        quarantine: seconds for which a server that may have lost data (it restarted, was flushed or was a replica) grants no
            lock with this option. Must be the same for all clients of these locks, and at least their longest ``ttl``. True:
            60.
        deadlock: what happens when holders of locks wait for each other in a cycle. ``"wait"``: they go on waiting, and
            `find_deadlocks` reports them; ``"raise"``: the wait that started last raises Deadlock.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _lease_type = AioLockLease

    async def ticket(self, expires: Seconds = 60.0, **mistaken: Never) -> Ticket:
        """Return a ticket that hands the lock over to another process, as `LockLease.ticket` does.

        Raises NotHeld if the lock is not held by this object.
        """
        refuse_mistaken(mistaken, "Lock.ticket")
        from holdfast._api import ticket

        return await ticket.aio_issue(self._held_core(), expires)


@of_asyncio
class AioFairLock(BaseFairLock[AioLockLease, AsyncClient], AioLock):
    """A `Lock` that is granted in the strict order of arrival, across all processes.

    Each waiting thread or task has its own place in the server's queue, and each hand-over costs a round trip. Options, errors
    and methods are those of `Lock`, except for ``linger``, ``max_passes`` and ``max_pass_time``.
    """
