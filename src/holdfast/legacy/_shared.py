"""The methods and the flows that the locks of `_timestamp` and `_migrating` share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from holdfast._api.flow import InTasks, InThreads, Steps, complete, of_asyncio
from holdfast._api.lease import core_of
from holdfast._api.lease_core import Entered
from holdfast._api.options import acquire_wait, checked_wait
from holdfast._durations import Seconds
from holdfast._log import of_the_user
from holdfast.errors import HoldfastWarning, LeaseLost, LockTimeout, NotHeld, ServerError

L = TypeVar("L")


class LegacyCore:
    """The internal object of a lease. Other modules of holdfast use it; users do not see it."""

    def __init__(self, is_over: Callable[[], bool], release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.is_over = is_over
        """Function that returns True if the lease was released, or belongs to the process that forked this one."""
        self.release = release
        """Function that returns the flow (coroutine) of the lease's method `release`."""


@dataclass(eq=False, slots=True)
class Taken(Generic[L]):
    """One acquisition by a lock object, with the thread or task that made it."""

    lease: L
    owner: int = 0
    inside: bool = False

    def is_over(self) -> bool:
        """Return True if the lease was released, or belongs to the process that forked this one."""
        return bool(core_of(self.lease).is_over())


class Detachable(NamedTuple):
    """The internals of a lock of this package, for `django.hold` and `sqlalchemy.hold`. Other locks have a `Member` instead."""

    detach: Callable[[object], None]
    """Drops the record of an open ``with`` statement. The caller releases the lease itself."""


class BaseLegacyLock(Steps, Generic[L]):
    """The state and the flows of a timestamp or migrating lock. Base class for threads and for asyncio."""

    def __init__(self, key: bytes, wait: object) -> None:
        self._wait = checked_wait(wait)
        self._text = key.decode(errors="backslashreplace")
        self._current: Taken[L] | None = None
        self._entered: Entered[Taken[L]] = Entered()

    @property
    def key(self) -> str:
        """The key that holds the expiry time."""
        return self._text

    @property
    def lease(self) -> L | None:
        """The lease of the latest acquisition by this lock object; None if there is none, or if it was released."""
        taken = self._current
        return None if taken is None or taken.is_over() else taken.lease

    def __repr__(self) -> str:
        return f"<holdfast.legacy.{'aio.' if self._api == 'asyncio' else ''}{type(self).__name__} {self._text!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a lock cannot be pickled: create one with the same key ({self._text!r}) in the other process")

    def _not_held(self) -> NotHeld:
        return NotHeld(f"lock {self._text!r} is not held by this object", name=self._text, key=self._text)

    async def _take(self, wait: float | None) -> L:
        """Acquire the lock within ``wait`` seconds (None: without limit), and return the lease. Raises LockTimeout."""
        raise NotImplementedError

    async def _acquire(self, blocking: bool, timeout: Seconds) -> bool:
        try:
            self._taken(self._owner(), await self._take(acquire_wait(self._wait, blocking, timeout)))
        except LockTimeout:
            return False
        return True

    async def _release(self) -> None:
        lease = self.lease
        if lease is None:
            raise self._not_held()
        await core_of(lease).release()

    async def _enter_block(self) -> L:
        return self._enter(self._owner(), await self._take(self._wait))

    async def _leave_block(self, error: BaseException | None) -> None:
        try:
            await core_of(self._left(self._owner())).release()
        except NotHeld:
            pass  # It was released inside the body, or acquired by the process that forked this one.
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except ServerError as unreachable:
            warnings.warn(f"{unreachable}; the lock ends by itself", HoldfastWarning, of_the_user())

    def _taken(self, owner: int, lease: L) -> None:
        self._current = Taken(lease, owner)

    def _enter(self, owner: int, lease: L) -> L:
        taken: Taken[L] = Taken(lease)
        self._current = taken
        self._entered.push(owner, taken)
        return lease

    def _as_member(self) -> Detachable:
        return Detachable(self._detach)

    def _detach(self, _core: object) -> None:
        """Forget the ``with`` block that was entered last, because the end of a transaction will release its lease."""
        taken = self._current
        assert taken is not None
        self._entered.remove(taken)

    def _left(self, owner: int) -> L:
        """Forget the ``with`` block that ends, and return the lease to release."""
        taken = self._entered.innermost(lambda: owner)
        self._entered.remove(taken)
        again = self._current
        # The body may have released the lock and acquired it again, as a Condition does. Then the newer lease is released.
        newer = taken.is_over() and again is not None and not again.is_over() and again.owner == taken.owner
        return again.lease if newer and again is not None else taken.lease


class Base(InThreads, BaseLegacyLock[L]):
    """The methods of a threading.Lock, for locks of this package."""

    def acquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:
        """Acquire the lock, as threading.Lock does. Return False if it stayed busy. Raises ServerError.

        Without arguments, the call waits as long as this object's ``wait`` allows.
        """
        return complete(self._acquire(blocking, timeout))

    def release(self) -> None:
        """Release the lock; any thread may do this.

        Raises NotHeld (a RuntimeError) if it is not held, LeaseLost, ServerError.
        """
        complete(self._release())

    def __enter__(self) -> L:
        """Acquire the lock within ``wait`` seconds. Raises LockTimeout, ServerError."""
        return complete(self._enter_block())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lease of this ``with``, or a newer one if the body released the lock and acquired it again.

        If the lease was lost, LeaseLost is raised after a body that succeeded. Otherwise the loss becomes a note on the body's
        exception. An unreachable server causes only a warning.
        """
        complete(self._leave_block(error))


@of_asyncio
class AioBase(InTasks, BaseLegacyLock[L]):
    """The methods of an asyncio.Lock, for locks of this package."""

    async def acquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:
        """Acquire the lock, as threading.Lock does. Return False if it stayed busy. Raises ServerError.

        Without arguments, the call waits as long as this object's ``wait`` allows.
        """
        return await self._acquire(blocking, timeout)

    async def release(self) -> None:
        """Release the lock; any task may do this.

        Raises NotHeld (a RuntimeError) if it is not held, LeaseLost, ServerError.
        """
        await self._release()

    async def __aenter__(self) -> L:
        """Acquire the lock within ``wait`` seconds. Raises LockTimeout, ServerError."""
        return await self._enter_block()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease of this ``async with``, or a newer one if the body released the lock and acquired it again.

        If the lease was lost, LeaseLost is raised after a body that succeeded. Otherwise the loss becomes a note on the body's
        exception. An unreachable server causes only a warning.
        """
        await self._leave_block(error)
