"""`RLock` for threads: a lock that its owner can acquire again. `holdfast.aio` has the class for asyncio."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, cast

from holdfast._api import sync_redlock
from holdfast._api.lease import Lease, LockLease
from holdfast._api.lease_core import SyncLeaseCore
from holdfast._api.options import acquire_wait, refuse_mistaken
from holdfast._api.rlock import BaseOwnedCore, Holding, Holdings, Reentrant, holdings
from holdfast._api.sync_lock import Lock
from holdfast._durations import Seconds
from holdfast._net.clients import SyncClient
from holdfast._net.resolve import are_several
from holdfast.errors import HoldfastError, HoldfastWarning, NotHeld

__all__ = ["RLock"]


class _OwnedCore(BaseOwnedCore, SyncLeaseCore):
    """The internal object of the lease of an RLock."""


class RLock(Reentrant[LockLease, SyncClient], Lock):
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

    _core_type: type[SyncLeaseCore] = _OwnedCore

    if not TYPE_CHECKING:  # For type checkers, the options are those of __init__.

        def __new__(cls, client: object, *_args: Any, **_options: Any) -> Self:
            if cls is RLock and are_several(client):
                return object.__new__(_OnSeveralServers)
            return object.__new__(cls)

        __new__.__wrapped__ = Reentrant.__init__  # For the signature that help() shows.

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
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
            return super().acquire(blocking, timeout)
        acquire_wait(self._wait, blocking, timeout)
        return mine.again(True)

    def release(self) -> None:
        """Release one acquisition; the lock is free when all acquisitions are released. Only the thread or task that acquired
        the lock can release it.

        Raises NotHeld (a RuntimeError) if this thread or task does not hold the lock, LeaseLost if the lease was lost before.
        Raises ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        count = 0
        try:
            mine = holdings()
            held = mine.get(self._mark)
            if held is None:
                raise self._not_held()
            count = held.count
            if mine.leave(self._mark) is not None:
                self._release_last(mine, held)
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._once_less(count)
            raise

    def _release_last(self, mine: Holdings, held: Holding) -> None:
        try:
            held.core.release()
        except NotHeld:
            raise  # The user has released the lease itself. The end of an outer ``with`` still needs this `Holding`.
        except BaseException:
            mine.tidy(self._mark)
            raise
        del mine[self._mark]

    def _once_less(self, count: int) -> None:
        """Finish an interrupted `release`. ``count``: number of acquisitions before it; 0: nothing was changed yet."""
        mine = holdings()
        held = mine.get(self._mark)
        if held is not None:
            count = count or held.count
            if count > 1:
                held.count = count - 1
            else:
                held.core.finish_interrupted_release()
                mine.tidy(self._mark)

    def __enter__(self) -> LockLease:
        """Acquire the lock within this object's ``wait`` and return the lease. A caller that holds the lock already acquires it
        again at once.

        Raises LockTimeout if the lock stays busy, LeaseLost if the caller held it and lost it, ServerError if the server cannot
        be reached.
        """
        mine = holdings().mine(self._mark)
        if mine is None:
            return super().__enter__()
        return mine.again(cast("LockLease", mine.core.user_lease()))  # The lease first: an interrupt in it must count nothing.

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the acquisition that this ``with`` made.

        If the lease was lost and the body succeeded, LeaseLost is raised. If the body raised an exception, LeaseLost is added
        to it as a note. If the server cannot be reached, only a warning is issued, and the lock is free when the lease expires.
        """
        try:
            holding = self._inside()
            holding.leaving = holding.count
            if holding.count > 1:
                self._step_out(error)
            else:
                self._leave(holding.core, error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._interrupted(self._inside())
            raise
        finally:
            holdings().left(self._mark)

    def _interrupted(self, holding: Holding) -> None:
        """Finish the end of a ``with`` statement that was interrupted at an unknown point."""
        holding.leaving = holding.leaving or holding.count
        if holding.leaving > 1:
            holding.count = holding.leaving - 1
        else:
            holding.core.finish_interrupted_release()

    def _release_save(self) -> int:
        """Release the lock completely and return how often it was acquired. threading.Condition calls this, as on a
        threading.RLock."""
        holding = self._held()
        holding.saved = holding.count
        holding.core.release()
        return holding.saved

    def _acquire_restore(self, count: int) -> None:
        """Acquire the lock again ``count`` times, without a time limit. threading.Condition calls this, as on a
        threading.RLock."""
        super().acquire(timeout=threading.TIMEOUT_MAX)
        self._held().count = count


class _OnSeveralServers(RLock, sync_redlock.Redlock):
    """An `RLock` on several servers. A majority of them has to grant it."""

    _core_type = sync_redlock.QuorumCore
    _lease_type = Lease  # type: ignore[assignment]  # without tickets
    _several = True


_OnSeveralServers.__name__ = _OnSeveralServers.__qualname__ = "RLock"  # The name that users see in messages and in type(lock).
