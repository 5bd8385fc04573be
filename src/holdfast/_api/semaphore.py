"""`Semaphore` and `BoundedSemaphore`, for threads and for asyncio."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Never

from holdfast._api.base_lock import L
from holdfast._api.flow import complete, of_asyncio
from holdfast._api.foreign_words import SEMAPHORE_METHODS
from holdfast._api.lease import AioLease, Lease
from holdfast._api.lease_core import SyncLeaseCore
from holdfast._api.options import checked_timeout, refuse_mistaken, refuse_number
from holdfast._api.permit import BaseAioPermits, BaseSyncPermits, PermitsLock
from holdfast._core import permit
from holdfast._core.lock.spec import Permits
from holdfast._core.permit import ALL
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError, HoldfastError


class BaseSemaphore(PermitsLock[L, Client]):
    """The options of a semaphore. Base class for threads and for asyncio."""

    _foreign = SEMAPHORE_METHODS

    def _acquire_wait(self, blocking: bool, timeout: Seconds | None) -> float | None:
        return acquire_wait(self._wait, blocking, timeout)

    @hides_client("Semaphore.__init__")
    def __init__(
        self,
        client: Client,
        name: str | bytes,
        limit: int | None = None,
        *,
        weight: int = 1,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        super().__init__(
            client,
            name,
            checked(limit, weight),
            ttl=ttl,
            wait=wait,
            renew=renew,
            on_lost=on_lost,
            max_hold=max_hold,
            progress_within=progress_within,
            label=label,
            prefix=prefix,
        )

    async def _set_limit(self, limit: int) -> None:
        checked(limit, self._permits.wanted)
        await self._ask(functools.partial(self._count, limit))


def checked(limit: object, weight: object) -> Permits:
    """Return a semaphore's ``limit`` and ``weight`` as `Permits`. Raises ConfigError if one is invalid or weight > limit."""
    for what, value in (("limit", limit), ("weight", weight)):
        if value is None and what == "limit":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= ALL:
            raise ConfigError(f"{what} must be a whole number from 1 to {ALL}, not {value!r}", parameter=what)
    assert isinstance(weight, int)
    assert limit is None or isinstance(limit, int)
    if limit is not None and weight > limit:
        raise ConfigError(
            f"weight={weight} is more than limit={limit}: no acquisition could ever succeed; pass a smaller weight",
            parameter="weight",
        )
    return permit.semaphore(weight, limit)


def acquire_wait(own: float | None, blocking: bool, timeout: Seconds | None) -> float | None:
    """Convert arguments of threading.Semaphore.acquire to seconds to wait (None: no limit).

    ``own``: the result without arguments. Raises ValueError as threading.Semaphore does.
    """
    refuse_number(blocking)
    if not blocking:
        if timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        return 0.0
    return own if timeout is None else checked_timeout(timeout)


class Semaphore(BaseSemaphore[Lease, SyncClient], BaseSyncPermits[Lease]):
    """A semaphore: at most ``limit`` permits are held at the same time, across all processes.

    A permit is held under a lease, so the permits of a crashed holder become free when its lease expires. Each acquisition gets
    a fence, higher than all earlier ones. Permits are granted in the order of arrival, so a waiter that wants more permits
    than are free is not overtaken. Threads and tasks can share one object, which can hold several permits at a time. A
    `Semaphore` can replace a threading.BoundedSemaphore.

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the semaphore, 1 to 512 bytes.
        limit: number of permits. The first user sets it for all; others with a different number are refused. None: the number
            that others have set.
        weight: number of permits that one acquisition takes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the permit is held.
        wait: seconds to wait for permits. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold permits forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the semaphore, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server. Also raised at the first use, if others use
            another limit.
    """

    @property
    def lease(self) -> Lease | None:
        """The lease of the latest acquisition by this object that is not released; None if there is none."""
        return super().lease

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Acquire ``weight`` permits and return True; return False if too few became free in time. ``timeout`` is in seconds.

        Works like threading.Semaphore.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "acquire")
        # A negative timeout is 0 here, and -1 would mean this object's ``wait`` in the base class.
        return super().acquire(blocking, 0.0 if timeout == -1 else timeout)  # type: ignore[arg-type]  # None: `_acquire_wait`

    def release(self, n: int = 1, **mistaken: Never) -> None:
        """Release ``n`` acquisitions of this object; any thread or task may do it.

        The caller's own acquisitions are released first, from the newest on, then those of others, from the oldest on.
        Acquisitions whose ``with`` has not ended are released last. Raises ReleasedTooOften (a NotHeld and ValueError) if this
        object holds fewer than ``n`` acquisitions, LeaseLost if the lease of one of them is lost. Raises ServerError if the
        server cannot be reached. The permits are then free when the leases expire.
        """
        refuse_mistaken(mistaken, "Semaphore.release")
        claimed: list[SyncLeaseCore] = []
        try:
            complete(self._give_back(n, claimed))
        except HoldfastError:
            raise
        except BaseException:
            self._finish_giving_back(n, claimed)  # An interrupt can come at any line.
            raise

    def set_limit(self, limit: int) -> None:
        """Change the number of permits for all users, also for those whose ``limit`` option has the old number.

        Holders keep their permits, and waiters get those that are free now. Raises ConfigError if the number is invalid,
        ServerError if the server cannot be reached.
        """
        complete(self._set_limit(limit))

    def limit(self) -> int:
        """Ask the server for the limit of the semaphore. Raises ServerError if the server cannot be reached."""
        return complete(self._ask(self._count)).limit

    def available(self) -> int:
        """Ask the server for the number of free permits. Raises ServerError if the server cannot be reached."""
        return complete(self._ask(self._count)).free


class BoundedSemaphore(Semaphore):
    """A `Semaphore` under the name that threading uses. Every `Semaphore` is bounded, so only permits that are held can
    be released."""


@of_asyncio
class AioSemaphore(BaseSemaphore[AioLease, AsyncClient], BaseAioPermits[AioLease]):
    """A semaphore: at most ``limit`` permits are held at the same time, across all processes.

    A permit is held under a lease, so the permits of a crashed holder become free when its lease expires. Each acquisition gets
    a fence, higher than all earlier ones. Permits are granted in the order of arrival, so a waiter that wants more permits
    than are free is not overtaken. Threads and tasks can share one object, which can hold several permits at a time. A
    `Semaphore` can replace an asyncio.BoundedSemaphore.

    Args:
        client: as for `Lock`: one server, or a Cluster; not several servers.
        name: name of the semaphore, 1 to 512 bytes.
        limit: number of permits. The first user sets it for all; others with a different number are refused. None: the number
            that others have set.
        weight: number of permits that one acquisition takes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the permit is held.
        wait: seconds to wait for permits. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold permits forever.
        progress_within: seconds within which the holder has to call ``progress()`` of its lease again; otherwise the holder
            counts as hung, and the lease is lost.
        label: text that describes this user of the semaphore, shown to its waiters.
        prefix: start of all keys on the server.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server. Also raised at the first use, if others use
            another limit.
    """

    @property
    def lease(self) -> AioLease | None:
        """The lease of the latest acquisition by this object that is not released; None if there is none."""
        return super().lease

    async def acquire(self, blocking: bool = True, timeout: Seconds | None = None, **mistaken: Never) -> bool:
        """Acquire ``weight`` permits and return True; return False if too few became free in time. ``timeout`` is in seconds.

        Works like threading.Semaphore.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        refuse_mistaken(mistaken, "acquire")
        # A negative timeout is 0 here, and -1 would mean this object's ``wait`` in the base class.
        return await super().acquire(blocking, 0.0 if timeout == -1 else timeout)  # type: ignore[arg-type]  # None: `_acquire_wait`

    async def release(self, n: int = 1, **mistaken: Never) -> None:
        """Release ``n`` acquisitions of this object; any thread or task may do it.

        The caller's own acquisitions are released first, from the newest on, then those of others, from the oldest on.
        Acquisitions whose ``with`` has not ended are released last. Raises ReleasedTooOften (a NotHeld and ValueError) if this
        object holds fewer than ``n`` acquisitions, LeaseLost if the lease of one of them is lost. Raises ServerError if the
        server cannot be reached. The permits are then free when the leases expire.
        """
        refuse_mistaken(mistaken, "Semaphore.release")
        await self._give_back(n, [])

    async def set_limit(self, limit: int) -> None:
        """Change the number of permits for all users, also for those whose ``limit`` option has the old number.

        Holders keep their permits, and waiters get those that are free now. Raises ConfigError if the number is invalid,
        ServerError if the server cannot be reached.
        """
        await self._set_limit(limit)

    async def limit(self) -> int:
        """Ask the server for the limit of the semaphore. Raises ServerError if the server cannot be reached."""
        return (await self._ask(self._count)).limit

    async def available(self) -> int:
        """Ask the server for the number of free permits. Raises ServerError if the server cannot be reached."""
        return (await self._ask(self._count)).free


@of_asyncio
class AioBoundedSemaphore(AioSemaphore):
    """A `Semaphore` under the name that threading uses. Every `Semaphore` is bounded, so only permits that are held can
    be released."""
