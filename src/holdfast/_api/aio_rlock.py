"""`RLock` for asyncio: a lock that its owner can acquire again. `holdfast._api.sync_rlock` has it for threads."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from holdfast._api import aio_redlock
from holdfast._api.aio_lock import Lock
from holdfast._api.lease import AioLease as Lease
from holdfast._api.lease import AioLockLease as LockLease
from holdfast._api.lease_core import AioLeaseCore
from holdfast._api.options import acquire_wait, refuse_mistaken
from holdfast._api.rlock import BaseOwnedCore, Reentrant, holdings
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient
from holdfast._net.resolve import are_several
from holdfast.errors import NotHeld

__all__ = ["RLock"]


class _OwnedCore(BaseOwnedCore, AioLeaseCore):
    """The internal object of the lease of an RLock."""


class RLock(Reentrant[LockLease, AsyncClient], Lock):
    """A `Lock` that its owner can acquire again, for functions that call each other. The owner has to release it as often as
    the owner has acquired it.

    Acquiring the lock again needs no round trip and returns the same lease, with the same fence. Only the last release frees
    the lock. The owner is the asyncio task that acquired the lock, or the thread if no task runs in it. Nobody else can release
    it. All RLock objects of one name and server count as one lock. If the lease was lost, acquiring the lock again
    raises LeaseLost.

    Args:
        client: as for `Lock`; or a list or dictionary of several servers, as for `Redlock`.
        max_ttl: as for `Redlock`, with several servers only.
        answer_within: as for `Redlock`, with several servers only. ``linger``, ``replicas``, ``quarantine`` and ``deadlock``
            work with one server only. All other options are as for `Lock`.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _core_type: type[AioLeaseCore] = _OwnedCore

    if not TYPE_CHECKING:  # For type checkers, the options are those of __init__.

        def __new__(cls, client: object, *_args: Any, **_options: Any) -> Self:
            if cls is RLock and are_several(client):
                return object.__new__(_OnSeveralServers)
            return object.__new__(cls)

        __new__.__wrapped__ = Reentrant.__init__  # For the signature that help() shows.

    async def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. A caller that holds the lock already acquires it
        again at once.

        Works like threading.RLock.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. ``timeout`` is in seconds. Raises LeaseLost if the caller held the lock and lost it, ServerError if the server
        cannot be reached.
        """
        refuse_mistaken(mistaken, "acquire")
        held = holdings()
        mine = held.mine(self._mark) if self._mark in held else None
        if mine is None:
            return await super().acquire(blocking, timeout)
        acquire_wait(self._wait, blocking, timeout)
        return mine.again(True)

    async def release(self) -> None:
        """Release one acquisition; the lock is free when all acquisitions are released. Only the thread or task that acquired
        the lock can release it.

        Raises NotHeld (a RuntimeError) if this thread or task does not hold the lock, LeaseLost if the lease was lost before.
        Raises ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        mine = holdings()
        try:
            holding = mine.leave(self._mark)
        except KeyError:
            raise self._not_held() from None
        if holding is not None:
            try:
                await holding.core.release()
            except NotHeld:
                raise  # The user has released the lease itself. The end of an outer ``with`` still needs this `Holding`.
            except BaseException:
                mine.tidy(self._mark)
                raise
            del mine[self._mark]

    async def __aenter__(self) -> LockLease:
        """Acquire the lock within this object's ``wait`` and return the lease. A caller that holds the lock already acquires it
        again at once.

        Raises LockTimeout if the lock stays busy, LeaseLost if the caller held it and lost it, ServerError if the server cannot
        be reached.
        """
        mine = holdings().mine(self._mark)
        if mine is None:
            return await super().__aenter__()
        core = mine.core
        lease: LockLease = core.user_lease()
        mine.again(lease)
        if core.body_task is None:
            core.body_task, mine.guarded = asyncio.current_task(), mine.count
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the acquisition that this ``async with`` made.

        If the lease was lost and the body succeeded, or was cancelled because of the loss, LeaseLost is raised. If the body
        raised an exception, LeaseLost is added to it as a note. If the server cannot be reached, only a warning is issued, and
        the lock is free when the lease expires.
        """
        holding = self._inside()
        core = holding.core
        if holding.count == holding.guarded:
            core.body_task, holding.guarded = None, 0
        error = core.end_of_body(error)
        holding.leaving = holding.count
        try:
            if holding.count > 1:
                self._step_out(error)
            else:
                await self._leave(core, error)
        finally:
            holdings().left(self._mark)


class _OnSeveralServers(RLock, aio_redlock.Redlock):
    """An `RLock` on several servers. A majority of them has to grant it."""

    _core_type = aio_redlock.QuorumCore
    _lease_type = Lease  # type: ignore[assignment]  # without tickets
    _several = True


_OnSeveralServers.__name__ = _OnSeveralServers.__qualname__ = "RLock"  # The name that users see in messages and in type(lock).
