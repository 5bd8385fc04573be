"""The internal object of a lease. It renews, releases, checks and hands over one acquisition, and reports its loss.

Locks, tickets and the keeper (background thread) use it. Users hold a `BaseLease`, which refers to it. If a program drops a
lock object and its lease without a release, the `LeaseCore` is garbage-collected, and the lease is no longer renewed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from holdfast._api.error_map import cause, server_error
from holdfast._api.options import MAX_TTL, MIN_TTL, seconds
from holdfast._core.lock import release, renewal
from holdfast._core.lock.owner import Owner, Reference
from holdfast._core.lock.records import Attempt, Grant, HeldLease
from holdfast._core.requests import RunScript, WireError
from holdfast._durations import Seconds
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Runner as SyncRunner
from holdfast._runtime.flag import Flag
from holdfast.errors import HoldfastError, LeaseLost, NotHeld, QuorumError, ServerError

if TYPE_CHECKING:
    import asyncio

    from holdfast._runtime.drivers.aio import Runner as AioRunner

T = TypeVar("T")

log = logger("holdfast")


class KeeperOfLease(Protocol):
    """The methods of the keeper (background thread that renews leases) that a lease calls."""

    def watch(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        """Renew this lease until `forget` is called. For a lease that is watched already, compute the next renewal anew."""

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        """Stop renewing this lease."""

    def send_until_answered(self, endpoint: Endpoint, call: RunScript[int], until: float) -> None:
        """Send a request until the server answers it, or until local time ``until`` in seconds."""


class Home(Protocol):
    """The attributes of a process that its leases use."""

    @property
    def here(self) -> bool:
        """True in the process that this object was created for; False in a child forked from it."""

    @property
    def keeper(self) -> KeeperOfLease:
        """The keeper (background thread), which is started if it does not run yet."""

    @property
    def running_keeper(self) -> KeeperOfLease | None:
        """The keeper (background thread); None if it does not run."""

    def clock(self) -> float:
        """Return the local time in seconds."""


class UserLease:
    """A mixin for a lease's internal object. It creates the object that users hold, and the event behind ``lost``."""

    user_type: Callable[[Any], Any]
    """The class of the object that users hold."""
    _users: Callable[[], Any] | None = None
    event: Any = None
    """The event behind ``lost``; None until ``lost`` is read."""

    def user_lease(self) -> Any:
        """Return the object that users hold. As long as the user refers to it, the same object is returned; then a new one."""
        found = self._users() if self._users is not None else None
        if found is None:
            found = self.user_type(self)
            self._users = weakref.ref(found)
        return found

    def lost_event(self) -> Any:
        """Return the event that is set when the lease is lost."""
        event = self.event
        if event is None:
            # setdefault, so that threads and signal handlers that ask at the same moment get the same event.
            event = self.__dict__.setdefault("event", self._new_event())
            if self.expired():
                event.set()
        return event

    def _new_event(self) -> Any:
        """Return a new event: a `LostFlag`, in asyncio a `LostEvent`."""
        raise NotImplementedError

    def expired(self) -> bool:
        raise NotImplementedError


class LeaseCore(UserLease, Owner):
    """The internal object of a lease. Base class for threads and for asyncio."""

    attempt: Attempt
    endpoint: Any
    process: Home
    fence: int
    on_lost: Callable[..., object] | None
    user_type: Callable[[Any], Any]
    taker: Callable[[], object]
    """Weak reference to the thread or task that acquired a permit."""
    whole: Any = None
    """The `Whole` (acquisition of a `MultiLock`) that contains this lease, or None. It is notified if this lease is lost."""
    driver: Any
    """Runs the operations of the lease; None for the lease of a job's run."""
    passed: bool = False
    """True once the lease no longer belongs to this object, for example because it was handed on in this process."""
    told_loss: bool = False
    """True once the owner was notified of the loss."""
    handed_over = False
    """True once a ticket was issued for this lease."""
    held_lease: HeldLease
    """The record of the lease, which is registered with the keeper (background thread)."""
    owner = 0
    """Id of the thread or task that acquired the lock."""

    def __init__(  # noqa: PLR0917 - CPython collects the keyword arguments of a class in a dictionary
        self,
        process: Home,
        endpoint: Any,
        grant: Grant,
        on_lost: Callable[..., object] | None = None,
        user_type: Any = None,
        driver: Any = None,
    ) -> None:
        self.attempt = attempt = grant.attempt
        node: Any = attempt.node
        held_lease: Any = grant.held_lease
        self.process, self.endpoint, self.driver = process, endpoint, driver
        self.user_type, self.held_lease = user_type, held_lease
        self.on_lost, self.fence, attempt.held_since = on_lost, grant.fence, grant.taken
        attempt.unclaimed = self  # Set before any other object refers to this lease, so that an interrupt cannot drop it.
        # `held_lease` keeps this weak reference until the release. If the core is collected before that, it was never released.
        held_lease.owner = Reference(self, node.keeper.collected.append)
        held_lease.owner.on_collected = functools.partial(_dropped, attempt, held_lease)
        if attempt.tally is not None:
            attempt.tally.acquisitions += 1
        if held_lease.lost:
            self.notice_loss()  # The lease was lost before this object existed, so nobody was notified.

    @property
    def parts(self) -> tuple[tuple[Endpoint, HeldLease], ...]:
        """Return the leases that the keeper renews for this lease, each with its server."""
        return ((self.endpoint, self.held_lease),)

    @property
    def _where(self) -> str:
        return ", ".join(endpoint.address for endpoint, _ in self.parts)

    @property
    def name(self) -> str:
        return self.held_lease.spec.name

    @property
    def key(self) -> str:
        return self.held_lease.spec.key

    def __repr__(self) -> str:
        held_lease = self.held_lease
        over = self.passed or held_lease.over
        ended = "handed over" if self.handed_over else "released"
        state = f"lost: {held_lease.lost}" if self.expired() else ended if over else f"{self.remaining():.1f} s left"
        return f"<holdfast lease of {self.name!r}, fence {self.fence}, {state}>"

    def remaining(self) -> float:
        return 0.0 if self.is_over() else self.held_lease.remaining(self.process.clock())

    def check(self) -> None:
        if self.is_over():
            raise self.not_held()
        if self.expired():
            raise self.lease_lost()

    def progress(self) -> None:
        """Note that the holder makes progress. Raises as `check` does."""
        self.check()
        self.held_lease.progressed(self.process.clock())

    def begin(self) -> None:
        """Restart the ``progress_within`` seconds. A `MultiLock` calls this once all of its locks are held."""
        if self.held_lease.spec.progress_within is not None:
            self.held_lease.progressed(self.process.clock())
            self.look_again()

    def may_hand_over(self) -> None:
        """Raise an error if no ticket can be issued for this lease."""

    def is_over(self) -> bool:
        """Return True if the lease was released, or belongs to the process that this one was forked from."""
        return self.passed or self.held_lease.over or not self.process.here

    def is_inherited(self) -> bool:
        """Return True if the lease belongs to the process that this one was forked from, and was not released before."""
        return not self.process.here and not self.held_lease.over

    def expired(self) -> bool:
        """Return True if the lease is lost, or in a forked child. This may notice an expiry before the keeper does."""
        held_lease = self.held_lease
        if not self.process.here:
            return True  # A forked child holds no lease.
        if self.passed:
            return False
        due = not held_lease.over and not held_lease.lost and not held_lease.is_good(self.process.clock())
        if due and held_lease.lose(held_lease.why_over):
            self.forget()
            self.notice_loss()
        return bool(held_lease.lost)

    def forget(self) -> None:
        keeper = self.process.running_keeper
        if keeper is not None:
            for where, part in self.parts:
                keeper.forget(where, part)

    def note_renewal(self, kept: bool, made: float, sent: float, ttl: float, *, numbered: bool) -> bool:
        """Record the answer to a renewal by the user. Return False if the lease is lost. ``kept``: the server has the lease.
        ``made``, ``sent``: local times of the request in seconds."""
        held_lease = self.held_lease
        if self.expired():
            return False
        if kept:
            held_lease.ttl = ttl
            held_lease.renewed(made, sent, ttl, numbered=numbered)
            self.look_again()
        elif held_lease.lose("its key is gone, or another client holds the lock"):
            self.forget()
            self.notice_loss()
        return kept

    def look_again(self) -> None:
        """Have the keeper compute anew when this lease is due for renewal."""
        for where, part in self.parts:
            self.process.keeper.watch(where, part)

    async def renew_on_server(self, ttl: Seconds | None) -> None:
        """Renew the lease for ``ttl`` seconds (None: its last length). The public ``renew`` runs this operation."""
        self.check()
        held_lease = self.held_lease
        ttl = held_lease.ttl if ttl is None else seconds(ttl, "ttl", MIN_TTL, held_lease.spec.quarantine or MAX_TTL)
        now = self.process.clock()
        ttl = min(ttl, held_lease.ends_at - now)
        made = held_lease.note_request(now, ttl)
        try:
            kept, sent, numbered = await renewal.renew(held_lease.spec, held_lease.token, ttl, made)
        except WireError as error:
            raise server_error(held_lease.spec, error) from cause(error)
        finally:
            held_lease.may_extend(self.process.clock(), ttl)  # from now: a retry may have been sent later
        if not self.note_renewal(kept, made, sent, ttl, numbered=numbered):
            raise self.lease_lost()

    async def verify_on_server(self) -> None:
        """Ask the server whether it still has the lease, by a renewal. The public ``verify`` runs this operation.

        A renewal is the one request that all kinds of leases have. It does not prolong a lease with ``renew=False``.
        """
        held_lease = self.held_lease
        if held_lease.spec.renew:
            await self.renew_on_server(None)
            return
        length = held_lease.ttl
        try:
            await self.renew_on_server(max(MIN_TTL, held_lease.remaining(self.process.clock())))
        finally:
            held_lease.ttl = length  # what `renew` uses without an argument

    def may_try_release(self) -> bool:
        """Return True if `try_release` may succeed: the lease is not over, and nobody in this process waits for the lock."""
        queue = self.attempt.local_queue
        return (queue is None or not queue.queue) and not (self.passed or self.held_lease.over or not self.process.here)

    def try_release(self) -> Any:
        """Try to release by one request. Return (asyncio: awaitable) True: done; False: nothing was sent; None: unfinished."""
        return self.driver.release(self.attempt, self.held_lease, self)

    def hand_on(self) -> bool:
        """Hand the lease on to the next waiter of this process, or keep it for quick reuse. Return False if neither is
        possible.

        The caller must then release the lease on the server. Raises NotHeld if the lease was released before.
        """
        held_lease = self.held_lease
        if self.passed or held_lease.over or not self.process.here:
            raise self.not_held()
        now = self.process.clock()
        if not held_lease.is_good(now):
            self.expired()
        self.attempt.count_hold(now)
        local_queue = self.attempt.local_queue
        if local_queue is None:
            return False
        kept = local_queue.pass_on(self.attempt, held_lease, now)
        if kept is None:
            raise self.not_held()
        self.passed = kept
        return kept

    def may_be_there(self) -> bool:
        """Return True if the server may still have the lease: it is not lost, or lost by time or lack of progress."""
        held_lease = self.held_lease
        return not held_lease.lost or held_lease.stalled or self.process.clock() >= held_lease.deadline

    async def release_on_server(self, known: bool | WireError | None = None) -> None:
        """Release the lease on the server, after `hand_on` returned False. ``known``: the server's answer, if a request for
        several leases has released this one already; None: no such request was sent."""
        held_lease, attempt = self.held_lease, self.attempt
        local_queue = attempt.local_queue
        held_lease.end()
        try:
            if self.may_be_there():
                if isinstance(known, WireError):
                    raise known
                if known is None:
                    known = await release.release(
                        held_lease.spec, held_lease.token, not held_lease.lost, held_lease.maybe_in_flight, attempt
                    )
                if not known:
                    held_lease.lost = held_lease.lost or "the server no longer had it at the release"
        except WireError as error:
            if not held_lease.lost:
                raise server_error(held_lease.spec, error) from cause(error)
        finally:
            self.forget()  # After the round trip, because waiters wait for the release.
            if local_queue is not None:
                local_queue.on_released(attempt)
        if held_lease.lost:
            self.count_loss()
            raise self.lease_lost()

    def leave_to_keeper(self) -> None:
        """Have the keeper release the lease, for a caller that cannot await the release. Raises NotHeld or LeaseLost."""
        if self.hand_on():
            return
        held_lease, local_queue = self.held_lease, self.attempt.local_queue
        held_lease.end()
        self.forget()
        if local_queue is not None and not held_lease.lost:
            local_queue.give_back(self.attempt, held_lease)
            return
        for where, part in self.parts if self.may_be_there() else ():
            self.process.keeper.send_until_answered(
                where, part.giving_back(revoke=part.maybe_in_flight, timeout=part.spec.timeout), part.latest
            )
        if held_lease.lost:
            if local_queue is not None:
                local_queue.on_released(self.attempt)
            self.count_loss()
            raise self.lease_lost()

    async def let_go(self, *, begun: bool = False) -> None:
        """Release the lease without raising an error. If the server is unreachable, the keeper releases it as soon as it can.

        ``begun``: True if `try_release` has begun the release, and its outcome was None.
        """
        if self.is_over() and not begun:  # A release began before this call. It is unknown how far it came.
            await self.finish_release()
            return
        try:
            if begun or not self.hand_on():
                await self.release_on_server()
        except (ServerError, QuorumError, LeaseLost):  # a late renewal may have prolonged a lost lease on the server
            self.insist()
        except HoldfastError:
            pass  # It was released meanwhile.
        except BaseException:
            await self.finish_release()
            raise

    def insist(self) -> None:
        """Have the keeper release the lease, and repeat the request until the server replies or the lease has ended."""
        for where, part in self.parts:
            self.process.keeper.send_until_answered(
                where, part.giving_back(revoke=True, timeout=part.spec.timeout), part.latest
            )

    async def finish_release(self) -> None:
        """Finish a release that was interrupted at an unknown point, here and on the server."""
        held_lease, attempt = self.held_lease, self.attempt
        self.passed = True
        if not self.process.here:
            return
        self.count_time(self.process.clock())
        if attempt.local_queue is not None:
            attempt.local_queue.settle(attempt, None)
        if attempt.local_queue is None or held_lease.lost:  # A late renewal may have prolonged a lost lease on the server.
            held_lease.end()
        if held_lease.over:
            self.forget()
            await self.give_up()

    async def give_up(self) -> None:
        """Revoke the token of this lease, so that the server keeps nothing under it."""
        held_lease = self.held_lease
        given_up = Attempt(held_lease.spec, held_lease.token, may_be_on_server=True, maybe_in_flight=True)
        await release.give_up(given_up, held_lease.latest)

    def count_time(self, now: float) -> None:
        self.attempt.count_hold(now)

    def count_loss(self) -> None:
        """Count a loss in the statistics, once per lease and before its owner is notified."""
        tally = self.attempt.tally
        if tally is not None and not self.told_loss:
            tally.losses += 1

    def make_way(self) -> None:
        """Let the waiters of this process go on. They must not acquire the lock before its owner was notified of the loss."""
        if self.attempt.local_queue is not None:
            self.attempt.local_queue.on_released(self.attempt)

    def first_to_tell(self) -> bool:
        """Count the loss of the lease and mark its owner as notified. Return True only for the first call."""
        self.count_loss()
        self.count_time(self.process.clock())
        told, self.told_loss = self.told_loss, True
        if self.whole is not None and not told:
            self.whole.on_loss()
        return not told

    def discard(self) -> None:
        """End this lease in this process, because its acquisition was interrupted before the caller got it.

        The lease is then removed from the server by `acquire.abandon`, which the caller runs next.
        """
        attempt = self.attempt
        self.passed = True
        self.count_time(attempt.held_since or 0.0)
        if attempt.local_queue is None or not attempt.local_queue.has_lease(attempt):
            self.held_lease.end()
            self.forget()

    def not_held(self) -> NotHeld:
        why = "was handed over by a ticket" if self.handed_over else "was released already"
        why = why if self.process.here else "belongs to the process that forked this one"
        return NotHeld(f"lease of {self.name!r} (fence {self.fence}) {why} (at {self._where})", name=self.name, key=self.key)

    def lease_lost(self) -> LeaseLost:
        reason = self.held_lease.lost
        warning = "" if "another client" in reason else "; another client may hold the lock now"
        return LeaseLost(
            f"lease of {self.name!r} (fence {self.fence}) was lost: {reason}{warning} (at {self._where})",
            name=self.name,
            key=self.key,
            fence=self.fence,
            reason=reason,
        )


def _dropped(attempt: Attempt, held_lease: HeldLease) -> None:
    """Stop renewing a lease that was collected without a release, and warn about it. ``attempt``: the one that acquired it."""
    if held_lease.over:
        return
    held_lease.end()
    assert attempt.node is not None
    attempt.node.forget(held_lease)
    if attempt.tally is not None and not held_lease.lost:
        attempt.tally.ended += 1
    if attempt.local_queue is not None:
        attempt.local_queue.on_collected(held_lease)
    if not held_lease.lost:
        warnings.warn(
            f"lease of {held_lease.spec.name!r} was dropped without release; it is no longer renewed and expires",
            ResourceWarning,
            stacklevel=1,
        )


class LostFlag(Flag):
    """An event that is set when the lease is lost. `is_set` also checks whether the lease has expired."""

    def __init__(self, expired: Callable[[], bool]) -> None:
        super().__init__()
        self._expired = expired

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


class SyncCore(UserLease):
    """A mixin for the internal object of a lease of a thread."""

    name: Any
    on_lost: Callable[..., object] | None
    first_to_tell: Callable[[], bool]
    make_way: Callable[[], None]
    driver: SyncRunner
    is_over: Callable[[], bool]
    may_try_release: Callable[[], bool]
    try_release: Callable[[], bool | None]
    hand_on: Callable[[], bool]
    release_on_server: Callable[..., Coroutine[Any, Any, None]]
    finish_release: Callable[[], Coroutine[Any, Any, None]]

    def run(self, operation: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return self.driver.run(operation(*args))

    def notice_loss(self) -> None:
        try:
            if self.first_to_tell():
                self.tell_owner()
        finally:
            self.make_way()

    def tell_owner(self) -> None:
        if self.event is not None:
            self.event.set()
        if self.on_lost is not None:
            # A thread of its own, because the keeper has other leases to renew while the callback runs.
            lease = self.user_lease()
            try:
                threading.Thread(target=self.on_lost, args=(lease,), name="holdfast-on-lost", daemon=True).start()
            except RuntimeError as error:  # The thread limit is reached, or the interpreter is shutting down.
                log.warning("on_lost of %r cannot be called: %s", self.name, error)

    def _new_event(self) -> threading.Event:
        return LostFlag(self.expired)

    def go_on_releasing(self, begun: bool) -> None:
        """Release the lease on the server if `try_release` could not. ``begun``: True if `try_release` returned None."""
        if begun or not self.hand_on():
            self.driver.run(self.release_on_server())

    def release(self) -> None:
        try:
            done = self.may_try_release() and self.try_release()
            if not done:
                self.go_on_releasing(done is None)
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self.finish_interrupted_release()
            raise

    def finish_interrupted_release(self) -> None:
        self.driver.run(self.finish_release())


class AioCore(UserLease):
    """A mixin for the internal object of a lease of a task. On a loss, it also cancels the task inside ``async with``."""

    name: Any
    driver: AioRunner
    on_lost: Callable[..., object] | None
    first_to_tell: Callable[[], bool]
    make_way: Callable[[], None]
    body_task: asyncio.Task[Any] | None = None
    """The task inside ``async with``, which is cancelled if the lease is lost; None outside."""
    cancelled_body = False
    is_over: Callable[[], bool]
    may_try_release: Callable[[], bool]
    try_release: Callable[[], Awaitable[bool | None]]
    hand_on: Callable[[], bool]
    release_on_server: Callable[..., Coroutine[Any, Any, None]]
    leave_to_keeper: Callable[[], None]
    telling: asyncio.Future[object] | None = None
    """Task that runs the coroutine of ``on_lost``. This reference keeps the task from being garbage-collected."""

    def run(self, operation: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Awaitable[T]:
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
        """Return True if the event loop is closed and the keeper (background thread) runs. The keeper then releases the lease.

        The ``with`` block of a task that is garbage-collected after its loop was closed ends here, and cannot await a
        release.
        """
        if not self.driver.loop.is_closed():
            return False
        keeper = self.driver.process.running_keeper
        if keeper is None:
            return False
        keeper.call(self.end_forsaken)
        return True

    def end_forsaken(self) -> None:
        """Release the lease, in the keeper thread."""
        with contextlib.suppress(NotHeld, LeaseLost):
            self.leave_to_keeper()

    def at_home(self) -> None:
        """Raise RuntimeError outside the event loop of the lease, because only this loop can await its connections."""
        if not self.driver.runs_here() and not self.is_over():
            which = "an event loop that is closed" if self.driver.loop.is_closed() else "another event loop"
            raise RuntimeError(f"lock {self.name!r} is held in {which}: use a lease only in the event loop that acquired it")

    def may_be_awaited(self) -> None:
        """Raise RuntimeError if `release` cannot be awaited here. If the lease's loop is closed, the keeper releases the
        lock."""
        if self.driver.runs_here():
            return
        if not self.driver.loop.is_closed() or self.is_over():
            self.at_home()
            return
        self.leave_to_keeper()
        raise RuntimeError(
            f"lock {self.name!r} was acquired in an event loop that is closed: the keeper thread releases the lock, but "
            "the release cannot be awaited; acquire and release a lock in the same event loop"
        )

    def end_of_body(self, error: BaseException | None) -> BaseException | None:
        """Return the exception that ended the ``async with`` body; None if holdfast cancelled the body after a loss.

        If other code cancelled the task too, its CancelledError is returned, as asyncio.timeout does.
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

    def _new_event(self) -> asyncio.Event:
        from holdfast._api.lost_event import LostEvent

        return LostEvent(self.expired)

    async def release(self) -> None:
        done = self.may_try_release() and await self.try_release()
        if not done and not self.is_handed_on(done is None):
            await self.driver.run(self.release_on_server())

    def is_handed_on(self, begun: bool) -> bool:
        """Hand the lease on if `try_release` could not release it. Return False if the server has to release it.

        ``begun``: True if `try_release` returned None. Raises as `may_be_awaited` and `hand_on` do.
        """
        self.may_be_awaited()
        return not begun and self.hand_on()


class SyncLeaseCore(SyncCore, LeaseCore):
    """The internal object of a lease of a thread."""


class AioLeaseCore(AioCore, LeaseCore):
    """The internal object of a lease of a task."""

    def forsaken(self) -> bool:
        several = None if self.whole is None else self.whole.core
        return super().forsaken() if several is None else bool(several.forsaken())


class Owned(Protocol):
    """The attributes of a lease's internal object that `Entered` uses."""

    owner: int
    """Id of the thread or task that acquired the lock."""
    inside: bool
    """True once a ``with`` statement has acquired the lock."""

    def is_over(self) -> bool:
        """Return True if the lease was released."""


C = TypeVar("C", bound=Owned)


class Entered(Generic[C]):
    """The leases of open ``with`` statements, by thread or task, because several threads or tasks may share one lock object."""

    __slots__ = ("_cores",)

    def __init__(self) -> None:
        self._cores: list[C] | None = None  # No list before the first use: most of ten thousand locks are never entered.

    def __contains__(self, core: object) -> bool:
        return self._cores is not None and core in self._cores

    def push(self, owner: int, core: C) -> None:
        core.owner, core.inside = owner, True
        self._cores = [*(self._cores or []), core]

    def innermost(self, owner: Callable[[], int]) -> C:
        """Return the innermost lease that the calling thread or task has entered. If there is none, return the lease that
        any thread or task entered last.

        One task may set up a test fixture, and another task tear it down. ``owner``: function that returns the caller's id.
        """
        cores = self._cores
        if not cores:
            raise RuntimeError("cannot leave a with statement of a lock that was never entered")
        if len(cores) > 1:
            caller = owner()
            cores = [core for core in cores if core.owner == caller] or cores
        return cores[-1]

    def remove(self, core: C) -> None:
        assert self._cores is not None
        core.inside = False
        self._cores.remove(core)
