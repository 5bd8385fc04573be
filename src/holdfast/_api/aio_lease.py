"""The lease of a lock for asyncio: renew it, release it, issue a ticket for it, and be notified of its loss."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast._api import lease as leases
from holdfast._core.lock.records import Grant
from holdfast._runtime.drivers.aio import Runner
from holdfast.errors import LeaseLost, NotHeld

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket


class _Lost(asyncio.Event):
    """An event that is set when the lease is lost. `is_set` also notices a lease that has expired unnoticed."""

    def __init__(self, lease: Any) -> None:
        super().__init__()
        self._expired = lease._expired  # noqa: SLF001

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


def running_task() -> int:
    """Return the id of the running task; 0 if no event loop runs, as while a coroutine is dropped."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0


class TellsLoss:
    """A mixin that tells the owner of a lease, of one or several locks, of its loss: it sets ``lost``, cancels the task inside
    ``async with``, and calls ``on_lost``."""

    name: Any
    _driver: Runner
    _event: Any
    """The event behind `lost`; None until it is asked for."""
    _on_lost: Callable[..., object] | None
    _first_to_tell: Callable[[], bool]
    _make_way: Callable[[], None]
    _body: asyncio.Task[Any] | None = None
    """The task inside ``async with``, which is cancelled if the lease is lost; None outside."""
    _cancelled_body = False
    _is_over: Callable[[], bool]
    _leave_to_keeper: Callable[[], None]
    _telling: asyncio.Future[object] | None = None
    """Task that runs the coroutine which ``on_lost`` returned; referred to here, or it could be garbage-collected."""

    def notice_loss(self) -> None:
        try:
            if self._first_to_tell():
                self._driver.loop.call_soon_threadsafe(self._on_loss)
        except RuntimeError:
            pass  # The event loop is closed: no code is left that could be told.
        finally:
            self._make_way()

    def _forsaken(self) -> bool:
        """Return True if the body of ``async with`` is in a closed event loop, where it never continues."""
        return self._body is not None and self._driver.loop.is_closed()

    def _ends_with_loop(self) -> bool:
        """Return True if the event loop is closed, and have the keeper (background thread) release the lease then.

        A task that is dropped in a closed loop can await nothing. It runs in the midst of other code, so it takes no locks
        here.
        """
        keeper = self._driver.process.running_keeper
        if not self._driver.loop.is_closed() or keeper is None:
            return False
        keeper.call(self._end_forsaken)
        return True

    def _end_forsaken(self) -> None:
        """Release the lease, in the keeper thread."""
        with suppress(NotHeld, LeaseLost):
            self._leave_to_keeper()

    def _at_home(self) -> None:
        """Raise RuntimeError outside the event loop of the lease, whose connections can only be awaited there."""
        if asyncio.get_running_loop() is not self._driver.loop and not self._is_over():
            which = "an event loop that is closed" if self._driver.loop.is_closed() else "another event loop"
            raise RuntimeError(f"lock {self.name!r} is held in {which}: use a lease only in the event loop that acquired it")

    def _may_be_awaited(self) -> None:
        """Raise RuntimeError if `release` cannot be awaited here. If the loop is closed, the keeper (background
        thread) releases the lock."""
        if not self._driver.loop.is_closed() or self._is_over():
            self._at_home()
            return
        self._leave_to_keeper()
        raise RuntimeError(
            f"lock {self.name!r} was acquired in an event loop that is closed: it is released now, but this cannot be awaited; "
            "acquire and release a lock in the same event loop"
        )

    def _end_of_body(self, error: BaseException | None) -> BaseException | None:
        """Return the exception that the ``async with`` body ended with, or None if it is our own cancellation after a loss.

        If other code has cancelled the task too, its CancelledError is returned, as by asyncio.timeout.
        """
        task = asyncio.current_task()
        ours, self._cancelled_body = self._cancelled_body, False
        if ours and task is not None:
            outside = task.uncancel()
            if isinstance(error, asyncio.CancelledError) and not outside:
                return None
        return error

    def _on_loss(self) -> None:
        if self._event is not None:
            self._event.set()
        if self._body is not None and not self._body.done():
            self._cancelled_body = self._body.cancel(f"lease of {self.name!r} lost")
        if self._on_lost is not None:
            result = self._on_lost(self)
            if inspect.isawaitable(result):
                self._telling = asyncio.ensure_future(result)  # A task that nothing refers to may be collected.


class Lease(TellsLoss, leases.BaseLease):
    """A lease: one acquisition of a lock, as ``async with lock as lease`` returns it."""

    def __init__(self, driver: Runner, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        # All attributes before super().__init__(), which reports a lease that is lost already.
        self._driver = driver
        self._event: asyncio.Event | None = None
        super().__init__(driver.process, driver.endpoint, grant, on_lost)

    def _forsaken(self) -> bool:
        several = None if self._whole is None else self._whole.lease
        return super()._forsaken() if several is None else bool(several._forsaken())  # noqa: SLF001

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lease is lost."""
        if self._event is None:
            event = self._event = _Lost(self)
            if self._held_lease.lost:
                event.set()
        return self._event

    async def renew(self, ttl: float | None = None) -> None:
        """Set the lease to expire ``ttl`` seconds from now (default: its last length); the remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._at_home()
        await self._driver.run(self._renew(ttl))

    async def ticket(self, expires: float = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, which calls `redeem` within ``expires`` seconds, once.

        This lease has ended then, as after a release. If no process redeems the ticket in time, it expires, and the next waiter
        acquires the lock.

        Raises LeaseLost if the lease is lost, NotHeld if it was released. Raises ServerError if the server cannot be reached:
        the lease stays valid.
        """
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        self._at_home()
        return await self._driver.run(ticket.Issue(self, expires).operation())

    async def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached: the lock is then free when the lease expires.
        """
        self._may_be_awaited()
        if not self._hand_on():
            await self._driver.run(self._release())


class Term(Lease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""
