"""A lock for asyncio that its owner may take again, as `holdfast._api.sync_rlock` has it for threads."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast._api import aio_redlock
from holdfast._api.aio_lease import Lease
from holdfast._api.aio_lock import Lock
from holdfast._api.options import acquire_wait
from holdfast._api.rlock import OwnedLease, Reentrant, holdings
from holdfast._net.resolve import are_several
from holdfast.errors import NotHeld

__all__ = ["RLock"]


class _Lease(OwnedLease, Lease):
    """One acquisition of an RLock: what ``async with`` gives."""


class RLock(Reentrant[Lease], Lock):
    """A `Lock` that who has it may take again, and gives back as often: for functions that call each other.

    Taking it again costs no trip and gives the same lease, with the same fence; only the last release gives it back. It belongs
    to the asyncio task that took it, or to the thread where no task runs, and nobody else can release it. It goes by the name:
    all RLock objects of one name and server are one lock for who has it. After a loss, taking it again raises LeaseLost.

    Args:
        client: as for `Lock`; or a list or dictionary of several servers, as for `Redlock`.
        max_ttl, answer_within: as for `Redlock`, and for several servers only; the others are as for `Lock`. ``linger``,
            ``replicas``, ``quarantine`` and ``deadlock`` are for one server only.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _lease_type = _Lease

    if not TYPE_CHECKING:  # the options are those of __init__

        def __new__(cls, client: object, *_args: Any, **_options: Any) -> Self:
            if cls is RLock and are_several(client):
                return object.__new__(_OnSeveralServers)
            return object.__new__(cls)

        __new__.__wrapped__ = Reentrant.__init__  # for help()

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if it stayed busy. At once for who has it. As threading.RLock's, except that without arguments
        it waits as long as this object's ``wait`` says. Raises LeaseLost if it was held and lost, ServerError."""
        held = holdings()
        mine = held.mine(self._mark) if self._mark in held else None
        if mine is None:
            return await super().acquire(blocking, timeout)
        acquire_wait(self._wait, blocking, timeout)
        return mine.again() is not None

    async def release(self) -> None:
        """Give the lock back, if it was taken no more than once; only who has it may. Raises NotHeld (a RuntimeError) if this
        thread or task does not have it, LeaseLost, ServerError."""
        mine = holdings()
        try:
            holding = mine.leave(self._mark)
        except KeyError:
            raise self._not_held() from None
        if holding is not None:
            try:
                await holding.lease.release()
            except NotHeld:
                raise  # it was given back by hand, and a ``with`` is still to be left
            except BaseException:
                mine.tidy(self._mark)
                raise
            del mine[self._mark]

    async def __aenter__(self) -> Lease:
        """Take the lock within ``wait``, at once for who has it. Raises LockTimeout, LeaseLost if it was held and lost,
        ServerError."""
        mine = holdings().mine(self._mark)
        if mine is None:
            return await super().__aenter__()
        lease: Lease = mine.again()
        if lease._body is None:  # noqa: SLF001
            lease._body, mine.guarded = asyncio.current_task(), mine.count  # noqa: SLF001
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what this ``async with`` has taken. LeaseLost is raised if the body succeeded or was cancelled because of
        it, else noted on its exception; a server that cannot be reached is a warning."""
        holding = self._inside()
        lease = holding.lease
        if holding.count == holding.guarded:
            lease._body, holding.guarded = None, 0  # noqa: SLF001
        error = lease._end_of_body(error)  # noqa: SLF001
        holding.leaving = holding.count
        try:
            if holding.count > 1:
                self._step_out(error)
            else:
                await self._leave(lease, error)
        finally:
            holdings().left(self._mark)


class _OnSeveralServers(RLock, aio_redlock.Redlock):
    """An `RLock` on several servers."""

    _lease_type = aio_redlock.Lease  # type: ignore[assignment]
    _several = True


_OnSeveralServers.__name__ = _OnSeveralServers.__qualname__ = (
    "RLock"  # so it is called in messages, and by who asks for its type
)
