"""Acquire and release lock objects, in threads and in asyncio. `holdfast._api.base_lock` has their options and state.

`BaseSyncLock` and `BaseAioLock` acquire and release a free lock without a flow in between, so that this takes as few calls as
possible. If the lock is not free, both run the flow `_operate`.
"""

from __future__ import annotations

import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never

from holdfast._api.base_lock import BaseLock, L
from holdfast._api.error_map import cause
from holdfast._api.flow import InTasks, InThreads, complete, hide_frames
from holdfast._api.foreign_words import ASYNC_WITH, WITH
from holdfast._api.lease import AioLease, Lease
from holdfast._api.lease_core import AioLeaseCore, Entered, SyncLeaseCore
from holdfast._api.options import refuse_mistaken
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._durations import Seconds
from holdfast._log import of_the_user
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._runtime.drivers.choice import driver_for
from holdfast._runtime.drivers.sync import Runner as SyncRunner
from holdfast._runtime.process import current
from holdfast.errors import (
    HoldfastError,
    HoldfastWarning,
    LeaseLost,
    NotHeld,
    QuorumError,
    ServerError,
)

if TYPE_CHECKING:
    import asyncio

    from holdfast._runtime.drivers.aio import Runner as AioRunner


class BaseAcquisition(BaseLock[L, Client]):
    """A lock object and its latest lease. Base class for threads and for asyncio."""

    def _start(self) -> None:
        self._current: Any = None
        self._entered: Entered[Any] = Entered()
        self._home: Any = None

    def _new_attempt(self, driver: Any) -> Attempt:
        keeper = self._keeper
        if keeper is None or keeper.closing:  # also the parent's keeper in a forked child
            self._find_keeper(driver)
        return Attempt(self._spec, "", self._local_queue, self._tally, self._node, self._is_direct)

    def _keep(self, core: Any) -> None:
        self._current = core

    def _live(self) -> Any:
        core = self._current
        return None if core is None or core.is_over() else core

    def _detach(self, core: Any) -> None:
        self._entered.remove(core)

    @property
    def lease(self) -> L | None:
        """The lease of the latest acquisition by this object; None once it is released, and before the first acquisition."""
        core = self._live()
        return None if core is None else core.user_lease()

    async def _operate(self, driver: Any, attempt: Attempt, wait: float | None) -> tuple[Any, Grant | Busy]:
        """Acquire the lock, and wait for it if necessary. Return the driver that has done this, and the result."""
        while True:
            result = None if attempt.led or attempt.entered else self._at_once(attempt)
            if result is not None:
                return driver, result
            self._refuse_nested(wait)
            attempt.slot = attempt.slot or driver.slot()
            try:
                return driver, await self._run_try(driver, attempt, wait)
            except SlotMoved:
                await self._find_server()
                driver = self._driver()
                wait = self._moved(attempt, driver, wait)
            except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
                raise self._user_error(error) from cause(error)

    async def _run_try(self, driver: Any, attempt: Attempt, wait: float | None) -> Grant | Busy:
        return await self._run_on(driver, self._try(attempt, wait))

    async def _release_failed(self, failed: HoldfastError, core: Any, error: BaseException | None) -> None:
        """Raise the error of a release at the end of a ``with`` statement, or warn of it.

        ``error``: exception of the body, or None. A lost lease is added to it as a note."""
        match failed:
            case NotHeld():
                # The lease was released in the body, or belongs to the process that forked this one. If the body has acquired
                # the lock again, as a Condition does, that lease has to be released.
                again = self._live()
                if again is not None and again.owner == core.owner and again.fence > core.fence:
                    await self._call_user(again.release)
            case LeaseLost() if error is not None:
                error.add_note(str(failed))
            case ServerError() | QuorumError():
                warnings.warn(f"{failed}; the lock ends with its lease", HoldfastWarning, of_the_user())
            case _:
                raise failed


class BaseSyncLock(InThreads, BaseAcquisition[L, SyncClient]):
    """The locks of threads: acquire, release, and the ``with`` statement."""

    _caller = "thread"
    _core_type = SyncLeaseCore
    _lease_type = Lease
    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        Works like threading.Lock.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        if mistaken:
            refuse_mistaken(mistaken, "acquire")
        wait = self._wait if blocking is True and timeout == -1 else self._acquire_wait(blocking, timeout)
        if self._cluster is not None:
            complete(self._find_server())
        driver = self._driver()
        attempt = self._new_attempt(driver)
        try:
            result = self._take(driver, attempt, wait, driver.process.clock())
            if isinstance(result, Busy):
                return False
            result.owner = threading.get_ident()
            attempt.unclaimed = None  # This object refers to the lease now.
            return True
        except BaseException as error:
            self._undo(attempt)
            hide_frames(error)
            raise

    def release(self) -> None:
        """Release the lock; any thread may do it.

        Raises NotHeld (a RuntimeError) if this object does not hold the lock, LeaseLost if the lease was lost before. Raises
        ServerError if the server cannot be reached. The lock is then free when the lease expires.
        """
        core: SyncLeaseCore | None = None
        try:
            core = self._live()
            if core is None:
                raise self._not_held()
            done = core.may_try_release() and core.try_release()
            if not done:
                core.go_on_releasing(done is None)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_release(core)
            raise

    def locked(self) -> bool:
        """Return True if a client holds the lock. Asks the server; raises ServerError if the server cannot be reached.

        For a semaphore or a side of an `RWLock`, return True if an acquisition by this object would have to wait.
        """
        return complete(self._ask(self._is_locked))

    def __enter__(self) -> L:
        """Acquire the lock within this object's ``wait`` and return the lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached.
        """
        if self._cluster is not None:
            complete(self._find_server())
        driver = self._driver()
        attempt, started = self._new_attempt(driver), driver.process.clock()
        try:
            result = self._take(driver, attempt, self._wait, started)
            if isinstance(result, Busy):
                raise self._busy(result, driver.run(self._holder(result)), driver.process.clock() - started)
            lease: L = result.user_lease()
            self._entered.push(threading.get_ident(), result)
            attempt.unclaimed = None  # The with statement refers to the lease now.
            return lease
        except BaseException as error:
            self._undo(attempt)
            hide_frames(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lease that this ``with`` acquired, or a newer one if the body released and acquired the lock again.

        If the lease was lost and the body succeeded, LeaseLost is raised. If the body raised an exception, LeaseLost is added
        to it as a note. If the server cannot be reached, only a warning is issued, and the lock is free when the lease expires.
        """
        try:  # The first statement: an interrupt before it would leave the lock held.
            self._leave(self._entered.innermost(threading.get_ident), error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._give_back_entered()
            raise
        finally:
            self._entered.remove(self._entered.innermost(threading.get_ident))

    def _give_back_entered(self) -> None:
        self._driver().run(self._entered.innermost(threading.get_ident).finish_release())

    def _leave(self, core: SyncLeaseCore, error: BaseException | None) -> None:
        try:
            core.release()
        except HoldfastError as failed:
            complete(self._release_failed(failed, core, error))

    def _driver(self) -> SyncRunner:
        driver: SyncRunner | None = self._home
        if driver is None or not driver.process.here:
            driver = self._home = self._new_driver()
        return driver

    def _new_driver(self) -> SyncRunner:
        return driver_for(current(), self._endpoint)

    def _take(self, driver: SyncRunner, attempt: Attempt, wait: float | None, now: float) -> SyncLeaseCore | Busy:
        result: Grant | Busy | None = self._at_once(attempt) if self._spec.linger else None
        if result is None and attempt.is_direct:
            result = driver.acquire(attempt, wait, now)
        if result is None:
            driver, result = complete(self._operate(driver, attempt, wait))
            if isinstance(result, Busy):
                self._tally.stayed_busy(attempt)
                return result
        assert isinstance(result, Grant)
        process, endpoint, user_type = driver.process, driver.endpoint, self._lease_type
        core = self._core_type(process, endpoint, result, self._on_lost, user_type, driver)
        self._keep(core)
        if attempt.waits_since is not None:
            self._tally.waited(result)
        return core

    def _finish_release(self, core: SyncLeaseCore | None) -> None:
        """Finish a `release` that KeyboardInterrupt, or an exception of a signal handler, has ended at any line.

        ``core``: the internal object of the lease that was being released. None: the release had not looked up the lease yet,
        so the latest lease is released.
        """
        core = core or self._current
        if core is not None:
            core.finish_interrupted_release()

    def _undo(self, attempt: Attempt) -> None:
        self._tally.gave_up(attempt)
        if attempt.unclaimed is not None:
            attempt.unclaimed.discard()
        self._driver().run(self._abandon(attempt))
        attempt.unclaimed = None


class BaseAioLock(InTasks, BaseAcquisition[L, AsyncClient]):
    """The locks of asyncio: acquire, release, and the ``async with`` statement."""

    _caller = "task"
    _core_type = AioLeaseCore
    _lease_type = AioLease
    if not TYPE_CHECKING:
        __enter__ = WITH

    def _start(self) -> None:
        super()._start()
        self._operations: dict[Attempt, AioRunner] | None = None
        """The driver of each operation that waits for the lock, by the attempt of the operation; None: none has waited yet."""

    async def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        Works like threading.Lock.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        if mistaken:
            refuse_mistaken(mistaken, "acquire")
        wait = self._wait if blocking is True and timeout == -1 else self._acquire_wait(blocking, timeout)
        if self._cluster is not None:
            await self._find_server()
        driver = self._driver()
        attempt, task = self._new_attempt(driver), self._this_task(driver.loop)
        try:
            asked = driver.begin(attempt, wait, driver.process.clock(), task)
            grant = None
            if asked is not None:
                try:
                    await asked
                except WireError:
                    pass  # `finish` finds the error in the future `asked`.
                grant = driver.finish(attempt, asked)
            result = await self._take(driver, attempt, wait) if grant is None else self._new_core(driver, attempt, grant)
            if isinstance(result, Busy):
                return False
            result.owner = id(task)
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
        done = core.may_try_release() and await core.try_release()
        if not done and not core.is_handed_on(done is None):
            await core.driver.run(core.release_on_server())

    async def locked(self) -> bool:
        """Return True if a client holds the lock. Asks the server; raises ServerError if the server cannot be reached.

        For a semaphore or a side of an `RWLock`, return True if an acquisition by this object would have to wait.
        """
        return await self._ask(self._is_locked)

    async def __aenter__(self) -> L:
        """Acquire the lock within this object's ``wait`` and return the lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached.
        """
        if self._cluster is not None:
            await self._find_server()
        driver = self._driver()
        attempt, task, started = self._new_attempt(driver), self._this_task(driver.loop), driver.process.clock()
        try:
            asked = driver.begin(attempt, self._wait, started, task)
            grant = None
            if asked is not None:
                try:
                    await asked
                except WireError:
                    pass  # `finish` finds the error in the future `asked`.
                grant = driver.finish(attempt, asked)
            result = await self._take(driver, attempt, self._wait) if grant is None else self._new_core(driver, attempt, grant)
            if isinstance(result, Busy):
                raise self._busy(result, await driver.run(self._holder(result)), driver.process.clock() - started)
            lease: L = result.user_lease()
            result.body_task = task
            self._entered.push(id(task), result)
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
        """Release the lease that this ``async with`` acquired, or a newer one if the body released and acquired the lock again.

        If the lease was lost and the body succeeded, or was cancelled because of the loss, LeaseLost is raised. If the body
        raised an exception, LeaseLost is added to it as a note. If the server cannot be reached, only a warning is issued, and
        the lock is free when the lease expires.
        """
        core = self._entered.innermost(self._owner)
        self._entered.remove(core)
        core.body_task = None
        if not core.ends_with_loop():
            await self._leave(core, core.end_of_body(error))

    async def _leave(self, core: AioLeaseCore, error: BaseException | None) -> None:
        try:
            await core.release()
        except HoldfastError as failed:
            await self._release_failed(failed, core, error)

    def _driver(self) -> AioRunner:
        driver: AioRunner | None = self._home
        loop = self._running_loop()  # None if no loop runs
        if driver is None or driver.loop is not loop or not driver.process.here or loop not in driver.process.drivers:
            self._may_move(driver, loop)
            driver = self._home = self._new_driver()
        return driver

    def _may_move(self, driver: AioRunner | None, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise RuntimeError if the lock is held or awaited in an event loop other than ``loop``."""
        if driver is not None and driver.process.here and driver.loop is not loop:
            if self._live() is not None and driver.loop.is_closed():
                raise RuntimeError(f"lock {self.name!r} is held in an event loop that is closed; call release() first")
            if self._live() is not None or driver.is_awaited(self._tally):
                raise self._used_elsewhere()
        operations = self._operations or {}
        for attempt, other in list(operations.items()):
            if not other.process.here or other.loop.is_closed():
                operations.pop(attempt, None)  # Tasks of a closed loop, or of the parent process, wait no more.
            elif other.loop is not loop:
                raise self._used_elsewhere()

    def _used_elsewhere(self) -> RuntimeError:
        return RuntimeError(f"lock {self.name!r} is held or awaited in another event loop")

    def _new_driver(self) -> AioRunner:
        from holdfast._runtime.drivers.aio_choice import aio_driver_for  # Imported late: programs of threads need no asyncio.

        return aio_driver_for(current(), self._endpoint)

    async def _take(self, driver: AioRunner, attempt: Attempt, wait: float | None) -> AioLeaseCore | Busy:
        try:
            driver, result = await self._operate(driver, attempt, wait)
        except HoldfastError as error:
            hide_frames(error)
            raise
        if isinstance(result, Busy):
            self._tally.stayed_busy(attempt)
            return result
        return self._new_core(driver, attempt, result)

    async def _run_try(self, driver: AioRunner, attempt: Attempt, wait: float | None) -> Grant | Busy:
        operations = self._operations = self._operations or {}
        operations[attempt] = driver
        try:
            return await super()._run_try(driver, attempt, wait)
        finally:
            operations.pop(attempt, None)

    def _drop(self, driver: AioRunner, attempt: Attempt) -> None:
        """Abandon the attempt of a coroutine that is dropped with its closed event loop, where nothing can be awaited.

        If an operation was running, its driver has cleaned up already.
        """
        self._tally.gave_up(attempt)
        if attempt in driver.running:
            driver.leave(attempt)

    def _new_core(self, driver: AioRunner, attempt: Attempt, result: Grant) -> AioLeaseCore:
        process, endpoint, user_type = driver.process, driver.endpoint, self._lease_type
        core: AioLeaseCore = self._core_type(process, endpoint, result, self._on_lost, user_type, driver)
        self._keep(core)
        if attempt.waits_since is not None:
            self._tally.waited(result)
        return core

    async def _undo(self, driver: AioRunner, attempt: Attempt) -> None:
        self._tally.gave_up(attempt)
        driver.running.discard(attempt)
        if attempt.unclaimed is not None:
            attempt.unclaimed.discard()
        await driver.clean_up(self._abandon(attempt))
        attempt.unclaimed = None
