"""`Lock` and `FairLock` for asyncio. `holdfast._api.sync_lock` has them for threads."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, TypeVar

from holdfast._api import lock
from holdfast._api.error_map import cause
from holdfast._api.fair_lock import BaseFairLock
from holdfast._api.flow import InTasks
from holdfast._api.foreign_words import WITH
from holdfast._api.lease import AioLease, AioLockLease
from holdfast._api.lease_core import AioLeaseCore, Entered
from holdfast._api.lock import L
from holdfast._api.options import refuse_mistaken
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, NotHeld, QuorumError, ServerError

if TYPE_CHECKING:
    import asyncio

    from holdfast._api.ticket import Ticket
    from holdfast._runtime.drivers.aio import Runner

T = TypeVar("T")


class BaseAioLock(InTasks, lock.BaseLock[L, AsyncClient]):
    """The locks of asyncio: acquire, release, and the ``async with`` statement."""

    _caller = "task"
    _core_type = AioLeaseCore
    _lease_type = AioLease
    if not TYPE_CHECKING:
        __enter__ = WITH

    def _start(self) -> None:
        self._current: Any = None
        self._entered: Entered[Any] = Entered()
        self._home: Runner | None = None
        self._users: dict[Attempt, Runner] = {}
        """Driver of each waiting task, by its attempt. The wait keeps this driver, even if a Cluster moves the lock."""

    def _keep(self, core: Any) -> None:
        self._current = core

    def _live(self) -> Any:
        core = self._current
        return None if core is None or core.is_over() else core

    @property
    def lease(self) -> L | None:
        """The lease of the latest acquisition by this object; None once it is released, and before the first acquisition."""
        core = self._live()
        return None if core is None else core.user_lease()

    async def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        Works like threading.Lock.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        if mistaken:
            refuse_mistaken(mistaken, "acquire")
        wait = self._wait if blocking and timeout == -1 else self._acquire_wait(blocking, timeout)
        node = self._node
        if node is None or not self._is_direct or node.keeper.closing:
            driver, attempt = await self._prepared()
        else:
            queue, tally = self._local_queue, self._tally
            driver, attempt = self._driver(), Attempt(self._spec, local_queue=queue, tally=tally, node=node, is_direct=True)
        try:
            asked = driver.begin(attempt, wait)
            if asked is not None:
                self._users[attempt] = driver
                try:
                    await asked
                except WireError:
                    pass  # `_finish` finds the error in the future `asked`.
            result = self._finish(driver, attempt, asked) or await self._take(driver, attempt, wait)
            if isinstance(result, Busy):
                return False
            result.owner = id(self._this_task())
            attempt.unclaimed = None  # This object refers to the lease now.
            return True
        except GeneratorExit:
            self._drop(driver, attempt)
            raise
        except BaseException:
            await self._undo(driver, attempt)
            raise

    async def release(self) -> None:
        """Release the lock; any task may do it.

        Raises NotHeld (a RuntimeError) if this object does not hold the lock, LeaseLost if the lease was lost before. Raises
        ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        core = self._live()
        if core is None:
            raise self._not_held()
        done = not self._spec.linger and await core.try_release()  # a lease that may linger is never uncontended
        if not done:
            await core.go_on_releasing(done is None)

    async def locked(self) -> bool:
        """Return True if anybody holds the lock. For a semaphore or a side of an RWLock, return True if an
        acquisition would have to wait. Asks the server; raises ServerError if the server cannot be reached."""
        return await self._ask(self._is_locked)

    async def __aenter__(self) -> L:
        """Acquire the lock within this object's ``wait`` and return the lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached.
        """
        started = clock()
        driver, attempt = await self._prepared()
        try:
            asked = driver.begin(attempt, self._wait)
            if asked is not None:
                self._users[attempt] = driver
                try:
                    await asked
                except WireError:
                    pass  # `_finish` finds the error in the future `asked`.
            result = self._finish(driver, attempt, asked) or await self._take(driver, attempt, self._wait)
            if isinstance(result, Busy):
                raise self._busy(result, await driver.run(self._holder(result)), clock() - started)
            lease: L = result.user_lease()
            result.body_task = self._this_task()
            self._entered.push(id(result.body_task), result)
            attempt.unclaimed = None  # The with statement refers to the lease now.
            return lease
        except GeneratorExit:
            self._drop(driver, attempt)
            raise
        except BaseException:
            await self._undo(driver, attempt)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this ``async with`` acquired, and no other.

        If the lease was lost and the body succeeded, or was cancelled because of the loss, LeaseLost is raised. If the body
        raised an exception, LeaseLost is added to it as a note. If the server cannot be reached, only a warning is issued, and
        the lock is free when the lease expires.
        """
        core = self._entered.innermost(self._owner())
        self._entered.remove(core)
        core.body_task = None
        if not core.ends_with_loop():
            await self._leave(core, core.end_of_body(error))

    async def _leave(self, core: AioLeaseCore, error: BaseException | None) -> None:
        try:
            await core.release()
        except NotHeld:
            # The lease was released in the body, or belongs to the process that forked this one. If the body has acquired the
            # lock again, as an asyncio.Condition does, that lease has to be released.
            again = self._live()
            if again is not None and again.owner == core.owner and again.fence > core.fence:
                await again.release()
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except (ServerError, QuorumError) as unreachable:
            warnings.warn(f"{unreachable}; the lock ends with its lease", HoldfastWarning, stacklevel=3)

    def _detach(self, core: AioLeaseCore) -> None:
        self._entered.remove(core)

    def _driver(self) -> Runner:
        driver = self._home
        loop = self._running_loop()  # None if no loop runs
        if driver is None or driver.loop is not loop or not driver.process.here or loop not in driver.process.drivers:
            self._may_move(driver, loop)
            driver = self._home = self._new_driver()
        return driver

    def _may_move(self, driver: Runner | None, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise RuntimeError if the lock is held or awaited in another event loop than this one."""
        if driver is not None and driver.process.here and driver.loop is not loop:
            if self._live() is not None and driver.loop.is_closed():
                raise RuntimeError(f"lock {self.name!r} is held in an event loop that is closed; call release() first")
            if self._live() is not None:
                raise self._used_elsewhere()
        if any(self._awaits(attempt, other) for attempt, other in list(self._users.items()) if other.loop is not loop):
            raise self._used_elsewhere()

    def _awaits(self, attempt: Attempt, driver: Runner) -> bool:
        """Return True if a task may still wait for the lock through ``driver``, in this driver's event loop and process."""
        if driver.process.here and not driver.loop.is_closed():
            return True
        self._users.pop(attempt, None)  # Tasks of a closed loop, or of the parent process, wait no more.
        return False

    def _used_elsewhere(self) -> RuntimeError:
        return RuntimeError(f"lock {self.name!r} is held or awaited in another event loop")

    def _new_driver(self) -> Runner:
        from holdfast._runtime.drivers.aio_choice import aio_driver_for  # Imported late: programs of threads need no asyncio.

        return aio_driver_for(current(), self._endpoint)

    async def _prepared(self) -> tuple[Runner, Attempt]:
        """Return the driver for the lock's server, and a new attempt. In a Cluster, the server is looked up first."""
        if self._cluster is not None:
            await self._find_server()
        return (driver := self._driver()), self._new_attempt(driver)

    async def _take(self, driver: Runner, attempt: Attempt, wait: float | None) -> AioLeaseCore | Busy:
        result = None if attempt.led or attempt.entered else self._at_once(attempt)
        if result is None:
            self._refuse_nested(wait)
            attempt.slot = attempt.slot or driver.slot()
            self._users[attempt] = driver
            try:
                result = await driver.run(self._try(attempt, wait))
            except SlotMoved:
                await self._find_server()
                driver = self._driver()
                return await self._take(driver, attempt, self._moved(attempt, driver, wait))
            except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
                raise self._user_error(error) from cause(error)
            finally:
                self._users.pop(attempt, None)
        if isinstance(result, Busy):
            self._tally.stayed_busy(attempt)
            return result
        return self._new_core(driver, attempt, result)

    def _finish(self, driver: Runner, attempt: Attempt, asked: asyncio.Future[Any] | None) -> AioLeaseCore | None:
        """Return the lease if the request of `Runner.begin` has acquired the lock; None if the whole operation has to run."""
        if asked is None or (grant := driver.finish(attempt, asked)) is None:
            return None
        self._users.pop(attempt, None)
        return self._new_core(driver, attempt, grant)

    def _drop(self, driver: Runner, attempt: Attempt) -> None:
        """Abandon the attempt of a coroutine that is dropped with its closed event loop, where nothing can be awaited.

        If an operation was running, its driver has cleaned up already.
        """
        self._tally.gave_up(attempt)
        if self._users.pop(attempt, None) is not None and attempt in driver.running:
            driver.leave(attempt)

    def _new_core(self, driver: Runner, attempt: Attempt, result: Grant) -> AioLeaseCore:
        process, endpoint, user_type = driver.process, driver.endpoint, self._lease_type
        core: AioLeaseCore = self._core_type(process, endpoint, result, self._on_lost, user_type=user_type, driver=driver)
        self._keep(core)
        if result.queued or attempt.waited or self._tally.waiting:
            self._tally.waited(result)
        return core

    async def _undo(self, driver: Runner, attempt: Attempt) -> None:
        self._tally.gave_up(attempt)
        self._users.pop(attempt, None)
        driver.running.discard(attempt)
        if attempt.unclaimed is not None:
            attempt.unclaimed.discard()
        await driver.clean_up(self._abandon(attempt))
        attempt.unclaimed = None


class Lock(BaseAioLock[AioLockLease]):
    """A named lock that at most one process, thread or task holds, anywhere.

    The lock is held under a lease, which expires ``ttl`` seconds after its holder stops renewing it, so a crashed holder does
    not block others for longer. On release, the lock is handed over directly to the process that has waited longest. For a
    bounded time, waiters of the releasing process may get it first (never with `FairLock`). A `Lock` can replace an
    asyncio.Lock.

    If the lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised. A lock belongs to one event loop
    while it is held or awaited; otherwise any event loop may use it.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held, by a thread, so a blocked event loop
            loses nothing.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after the acquisition at which renewal stops, so that code that hangs cannot hold the lock forever.
        progress_within: seconds within which the holder has to call ``progress()`` again; otherwise the holder counts as hung,
            and the lease is lost.
        label: text that describes this user of the lock, shown to its waiters.
        prefix: start of all keys on the server.
        key: the key itself, to exclude also clients of other lock libraries, which run ``SET key token NX PX``.
        linger: seconds for which the lease is kept after a release, so that the next acquisition here needs no round trip;
            the lease is released at once when another process asks for the lock.
        max_passes: how many times in a row the lock is handed on inside this process while another process waits.
        max_pass_time: for how many seconds after the acquisition on the server the lock is handed on in this way.
        replicas: number of replicas that must confirm an acquisition; with fewer, the lock is released and ServerError raised.
        quarantine: seconds for which a server that may have lost data (it restarted, was flushed or was a replica) grants no
            lock with this option. Must be the same for all clients of these locks, and at least their longest ``ttl``. True:
            60.
        deadlock: what happens when holders of locks wait for each other in a cycle. ``"wait"``: they go on waiting, and
            `find_deadlocks` reports them; ``"raise"``: the wait that started last raises Deadlock.

    Raises:
        ConfigError: an option is out of range; nothing was sent to the server.
    """

    _lease_type = AioLockLease

    async def ticket(self, expires: Seconds = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, as `LockLease.ticket` does.

        Raises NotHeld if the lock is not held by this object.
        """
        from holdfast._api import ticket

        return await ticket.aio_issue(self._held_core(), expires)


class FairLock(BaseFairLock[AioLockLease, AsyncClient], Lock):
    """A `Lock` that is granted in the strict order of arrival, across all processes.

    Each waiting thread or task has its own place in the server's queue, and each hand-over costs a round trip. Options, errors
    and methods are those of `Lock`, except for ``linger``, ``max_passes`` and ``max_pass_time``.
    """
