"""The lease of a lock for asyncio, as `holdfast._api.sync_lock` has it for threads."""

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
    """Set when the lease is lost; asking notices an end that nobody has had time to notice yet."""

    def __init__(self, lease: Any) -> None:
        super().__init__()
        self._expired = lease._expired  # noqa: SLF001

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


def running_task() -> int:
    """The id of the running task; 0 where a coroutine is dropped, and no event loop runs."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0


class TellsLoss:
    """How the owner of a lease, of one lock or of several, is told that it is lost: its event is set, the task inside its body
    cancelled, ``on_lost`` called."""

    name: Any
    _driver: Runner
    _event: Any
    """None where nobody has asked for it."""
    _on_lost: Callable[..., object] | None
    _first_to_tell: Callable[[], bool]
    _make_way: Callable[[], None]
    _body: asyncio.Task[Any] | None = None
    """The task inside ``async with``, to be cancelled if the lease is lost."""
    _cancelled_body = False
    _is_over: Callable[[], bool]
    _leave_to_keeper: Callable[[], None]
    _telling: asyncio.Future[object] | None = None
    """Task of a coroutine that ``on_lost`` returned. The reference keeps it from being collected."""

    def notice_loss(self) -> None:
        try:
            if self._first_to_tell():
                self._driver.loop.call_soon_threadsafe(self._on_loss)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to be told
        finally:
            self._make_way()

    def _forsaken(self) -> bool:
        """Its body is in an event loop that is closed, where it never goes on."""
        return self._body is not None and self._driver.loop.is_closed()

    def _ends_with_loop(self) -> bool:
        """The end of its body is that its task is dropped, and its event loop is closed: nothing can be awaited. The keeper
        gives it back, and not we, who may be in the middle of anything."""
        keeper = self._driver.process.running_keeper
        if not self._driver.loop.is_closed() or keeper is None:
            return False
        keeper.call(self._end_forsaken)
        return True

    def _end_forsaken(self) -> None:
        """Give it back, by the keeper."""
        with suppress(NotHeld, LeaseLost):
            self._leave_to_keeper()

    def _at_home(self) -> None:
        """Raise RuntimeError in another event loop than that of the lease: its connections can only be awaited there."""
        if asyncio.get_running_loop() is not self._driver.loop and not self._is_over():
            which = "an event loop that is closed" if self._driver.loop.is_closed() else "another event loop"
            raise RuntimeError(f"lock {self.name!r} is held in {which}: a lease can only be used in the loop that took it")

    def _may_be_awaited(self) -> None:
        """As `_at_home`, for who gives it back: nobody could do that any more where the loop is closed, so the keeper does."""
        if not self._driver.loop.is_closed() or self._is_over():
            self._at_home()
            return
        self._leave_to_keeper()
        raise RuntimeError(
            f"lock {self.name!r} was taken in an event loop that is closed: it is given back now, but nobody can await that; "
            "take a lock and release it in the same event loop"
        )

    def _end_of_body(self, error: BaseException | None) -> BaseException | None:
        """Return the exception of the ``async with`` body, except our own cancellation, which ends here. If somebody else
        cancelled the task too, that one goes on (as asyncio.timeout)."""
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
                self._telling = asyncio.ensure_future(result)  # kept: a task that nobody refers to may be collected


class Lease(TellsLoss, leases.BaseLease):
    """One acquisition of a lock: what ``async with`` gives."""

    def __init__(self, driver: Runner, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        # All of ours before: a lease that is lost already is told so while it is made.
        self._driver = driver
        self._event: asyncio.Event | None = None
        super().__init__(driver.process, driver.endpoint, grant, on_lost)

    def _forsaken(self) -> bool:
        several = None if self._whole is None else self._whole.lease
        return super()._forsaken() if several is None else bool(several._forsaken())  # noqa: SLF001

    @property
    def lost(self) -> asyncio.Event:
        """An Event: set when the lease is lost."""
        if self._event is None:
            event = self._event = _Lost(self)
            if self._held_lease.lost:
                event.set()
        return self._event

    async def renew(self, ttl: float | None = None) -> None:
        """Set the lease to ``ttl`` seconds from now (default: as long as it was last); never adds to it.

        Raises LeaseLost, NotHeld or ServerError.
        """
        self._at_home()
        await self._driver.run(self._renew(ttl))

    async def ticket(self, expires: float = 60.0) -> Ticket:
        """Hand the lock over: a ticket, which another process redeems (`redeem`) within ``expires`` seconds, once.
        This lease is over then, as if given back. If nobody redeems the ticket it expires, and the next in line has the lock.

        Raises LeaseLost, NotHeld, or ServerError, after which the lease goes on.
        """
        from holdfast._api import ticket  # here: most never need it

        self._at_home()
        return await self._driver.run(ticket.Issue(self, expires).operation())

    async def release(self) -> None:
        """Give the lock back. Raises LeaseLost if it was lost before, NotHeld the second time, ServerError if the server
        cannot be reached (the lock then ends with its lease)."""
        self._may_be_awaited()
        if not self._hand_on():
            await self._driver.run(self._release())


class Term(Lease):
    """The lease of one term of a leader, from its election to its end. The fence is the number of the term."""
