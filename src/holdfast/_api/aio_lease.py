"""The lease of a lock for asyncio: renew it, release it, issue a ticket for it, and be notified of its loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._api import lease as leases
from holdfast._durations import Seconds
from holdfast.errors import LeaseLost, NotHeld

if TYPE_CHECKING:
    import asyncio

    from holdfast._api.ticket import Ticket
    from holdfast._runtime.drivers.aio import Runner

T = TypeVar("T")


class Lease(leases.BaseLease):
    """A lease: one acquisition of a lock, as ``async with lock as lease`` returns it."""

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lease is lost."""
        event: asyncio.Event = self._core.lost_event()
        return event

    async def renew(self, ttl: Seconds | None = None) -> None:
        """Set the lease to expire ``ttl`` seconds from now (default: its last length), or when ``max_hold`` ends, if that is
        sooner. The remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        await self._core.run(self._core.renew_on_server, ttl)

    async def verify(self) -> None:
        """Ask the server whether it still has the lease. `check` does not ask it.

        Call this where a lost lease must be noticed at once, such as after the lock may have been broken by hand. The answer is
        true at the time of the request only: have the resource check the fence, too. A lease that is renewed automatically is
        renewed by this request.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        await self._core.run(self._core.verify_on_server)

    async def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached: the lock is then free when the lease expires.
        """
        await self._core.release()


class LockLease(Lease):
    """The lease of a lock on one server: it can be handed over to another process by a ticket."""

    async def ticket(self, expires: Seconds = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, which passes it to `redeem` within ``expires`` seconds.

        When the ticket is returned, this lease has ended, as after a release. If no process redeems the ticket in time, it
        expires, and the next waiter acquires the lock.

        Raises LeaseLost if the lease is lost, or if the server does not confirm the ticket: the lock is released then. Raises
        NotHeld if the lease was released. Raises ServerError if the request could not be sent: the lease stays valid.
        """
        ticket: Ticket = await self._core.issue_ticket(expires)
        return ticket


class Term(Lease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""


class TellsLoss(leases.UserLease):
    """A mixin that notifies the owner of a lease of its loss: it sets ``lost``, cancels the task inside ``async with``, and
    calls ``on_lost``."""

    name: Any
    driver: Runner
    event: Any = None
    """The event behind ``lost``; None until ``lost`` is read."""
    on_lost: Callable[..., object] | None
    first_to_tell: Callable[[], bool]
    make_way: Callable[[], None]
    body_task: asyncio.Task[Any] | None = None
    """The task inside ``async with``, which is cancelled if the lease is lost; None outside."""
    cancelled_body = False
    is_over: Callable[[], bool]
    leave_to_keeper: Callable[[], None]
    telling: asyncio.Future[object] | None = None
    """Task that runs the coroutine of ``on_lost``. This reference keeps the task from being garbage-collected."""

    def run(self, operation: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Awaitable[T]:
        """Run an operation of the lease. Raises RuntimeError outside the event loop of the lease."""
        self.at_home()
        return self.driver.run(operation(*args))

    def notice_loss(self) -> None:
        try:
            if self.first_to_tell():
                self.driver.loop.call_soon_threadsafe(self.run_on_loss)
        except RuntimeError:
            pass  # The event loop is closed: no code is left that could be notified.
        finally:
            self.make_way()

    def forsaken(self) -> bool:
        """Return True if the body of ``async with`` is in a closed event loop, where it never continues."""
        return self.body_task is not None and self.driver.loop.is_closed()

    def ends_with_loop(self) -> bool:
        """Return True if the event loop is closed, and have the keeper (background thread) release the lease then.

        The ``with`` block of a task that is garbage-collected after its loop was closed ends here, and cannot await a
        release.
        """
        keeper = self.driver.process.running_keeper
        if not self.driver.loop.is_closed() or keeper is None:
            return False
        keeper.call(self.end_forsaken)
        return True

    def end_forsaken(self) -> None:
        """Release the lease, in the keeper thread."""
        with suppress(NotHeld, LeaseLost):
            self.leave_to_keeper()

    def at_home(self) -> None:
        """Raise RuntimeError outside the event loop of the lease, because its connections can be awaited only there."""
        from asyncio import get_running_loop  # Imported late, here and below: programs of threads need no asyncio.

        if get_running_loop() is not self.driver.loop and not self.is_over():
            which = "an event loop that is closed" if self.driver.loop.is_closed() else "another event loop"
            raise RuntimeError(f"lock {self.name!r} is held in {which}: use a lease only in the event loop that acquired it")

    def may_be_awaited(self) -> None:
        """Raise RuntimeError if `release` cannot be awaited here. If the loop is closed, the keeper (background
        thread) releases the lock."""
        if not self.driver.loop.is_closed() or self.is_over():
            self.at_home()
            return
        self.leave_to_keeper()
        raise RuntimeError(
            f"lock {self.name!r} was acquired in an event loop that is closed: it is released now, but this cannot be awaited; "
            "acquire and release a lock in the same event loop"
        )

    def end_of_body(self, error: BaseException | None) -> BaseException | None:
        """Return the exception that ended the ``async with`` body; None if holdfast cancelled the body after a loss.

        If other code has cancelled the task, too, the CancelledError is returned. asyncio.timeout does the same.
        """
        ours, self.cancelled_body = self.cancelled_body, False
        if not ours:
            return error
        from asyncio import CancelledError, current_task

        task = current_task()
        outside = 0 if task is None else task.uncancel()
        return None if isinstance(error, CancelledError) and task is not None and not outside else error

    def run_on_loss(self) -> None:
        if self.event is not None:
            self.event.set()
        if self.body_task is not None and not self.body_task.done():
            self.cancelled_body = self.body_task.cancel(f"lease of {self.name!r} lost")
        if self.on_lost is not None:
            from asyncio import ensure_future
            from inspect import isawaitable

            result = self.on_lost(self.user_lease())
            if isawaitable(result):
                self.telling = ensure_future(result)  # A task that nothing refers to may be collected.


class LeaseCore(TellsLoss, leases.LeaseCore):
    """The internal object of a lease of a task."""

    def forsaken(self) -> bool:
        several = None if self.whole is None else self.whole.core
        return super().forsaken() if several is None else bool(several.forsaken())

    def lost_event(self) -> asyncio.Event:
        """Return the event that is set when the lease is lost."""
        event: asyncio.Event | None = self.event
        if event is None:
            from holdfast._api.lost_event import LostEvent

            event = self.event = LostEvent(self.expired)
            if self.held_lease.lost:
                event.set()
        return event

    async def issue_ticket(self, expires: Seconds) -> Ticket:
        """Issue a ticket, as `LockLease.ticket` does."""
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        return await self.run(ticket.Issue(self, expires).operation)

    async def release(self) -> None:
        """Release the lock, as `Lease.release` does."""
        done = not self.is_over() and await self.try_release()
        if not done:
            await self.go_on_releasing(done is None)

    async def go_on_releasing(self, begun: bool) -> None:
        """Release the lease on the server if `try_release` could not. ``begun``: True if `try_release` returned None."""
        self.may_be_awaited()
        if begun or not self.hand_on():
            await self.driver.run(self.release_on_server())
