"""A lock for threads that its owner may take again. `holdfast.aio` has the same for asyncio."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast._api import sync_redlock
from holdfast._api.options import acquire_wait
from holdfast._api.rlock import Holding, Holdings, OwnedLease, Reentrant, holdings
from holdfast._api.sync_lease import Lease
from holdfast._api.sync_lock import Lock
from holdfast._net.resolve import are_several
from holdfast.errors import HoldfastError, HoldfastWarning, NotHeld

__all__ = ["RLock"]


class _Lease(OwnedLease, Lease):
    """One acquisition of an RLock: what ``with`` gives."""


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

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if it stayed busy. At once for who has it. As threading.RLock's, except that without arguments
        it waits as long as this object's ``wait`` says. Raises LeaseLost if it was held and lost, ServerError."""
        held = holdings()
        mine = held.mine(self._mark) if self._mark in held else None
        if mine is None:
            return super().acquire(blocking, timeout)
        acquire_wait(self._wait, blocking, timeout)
        return mine.again() is not None

    def release(self) -> None:
        """Give the lock back, if it was taken no more than once; only who has it may. Raises NotHeld (a RuntimeError) if this
        thread or task does not have it, LeaseLost, ServerError."""
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
            # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line.
            self._once_less(count)
            raise

    def _release_last(self, mine: Holdings, held: Holding[Lease]) -> None:
        try:
            held.lease.release()
        except NotHeld:
            raise  # it was given back by hand, and a ``with`` is still to be left
        except BaseException:
            mine.tidy(self._mark)
            raise
        del mine[self._mark]

    def _once_less(self, count: int) -> None:
        """Finish a `release` that was interrupted: it was taken ``count`` times before; 0: as often as it is now."""
        mine = holdings()
        held = mine.get(self._mark)
        if held is not None:
            count = count or held.count
            if count > 1:
                held.count = count - 1
            else:
                self._driver().run(held.lease._abandoned())  # noqa: SLF001
                mine.tidy(self._mark)

    def __enter__(self) -> Lease:
        """Take the lock within ``wait``, at once for who has it. Raises LockTimeout, LeaseLost if it was held and lost,
        ServerError."""
        mine = holdings().mine(self._mark)
        return super().__enter__() if mine is None else mine.again()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give back what this ``with`` has taken. LeaseLost is raised if the body succeeded, else noted on its exception; a
        server that cannot be reached is a warning."""
        try:
            holding = self._inside()
            holding.leaving = holding.count
            if holding.count > 1:
                self._step_out(error)
            else:
                self._leave(holding.lease, error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line.
            self._interrupted(self._inside())
            raise
        finally:
            holdings().left(self._mark)

    def _interrupted(self, holding: Holding[Lease]) -> None:
        """The end of a ``with`` was, and nobody knows how far it had come."""
        holding.leaving = holding.leaving or holding.count
        if holding.leaving > 1:
            holding.count = holding.leaving - 1
        else:
            self._driver().run(holding.lease._abandoned())  # noqa: SLF001

    def _release_save(self) -> int:
        """As threading.RLock's, for threading.Condition: give it back, however often it was taken."""
        holding = self._held()
        holding.saved = holding.count
        holding.lease.release()
        return holding.saved

    def _acquire_restore(self, count: int) -> None:
        """As threading.RLock's: take it as often as it was, however long that takes."""
        super().acquire(timeout=threading.TIMEOUT_MAX)
        self._held().count = count


class _OnSeveralServers(RLock, sync_redlock.Redlock):
    """An `RLock` on several servers."""

    _lease_type = sync_redlock.Lease  # type: ignore[assignment]
    _several = True


_OnSeveralServers.__name__ = _OnSeveralServers.__qualname__ = (
    "RLock"  # so it is called in messages, and by who asks for its type
)
