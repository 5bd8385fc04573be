"""Locks for asyncio. `_api.sync_lock` has the same for threads."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._api import lease, lock, options
from holdfast._api.aio_lease import Lease, running_task
from holdfast._api.fair_lock import BaseFairLock
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._runtime.drivers.aio import Runner
from holdfast._runtime.drivers.aio_choice import aio_driver_for
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, NotHeld, QuorumError, ServerError

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket
    from holdfast._net.endpoint import Topology

__all__ = ["FairLock", "Lease", "Lock"]

T = TypeVar("T")


class Lock(lock.BaseLock[Lease]):
    """A named lock that at most one process, thread or task holds, anywhere.

    Taken, it is a lease: it ends ``ttl`` seconds after its holder stops renewing it, so a crashed holder blocks nobody for
    longer. It is handed over directly, to processes in the order in which they came; one that has it may pass it on inside
    first, for a bounded time (`FairLock` never does). Fits wherever an asyncio.Lock does.

    If the lease is lost, the body of ``async with`` is cancelled and LeaseLost is raised. A lock belongs to an event loop
    while it is held or awaited, and is free to move when idle.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``,
            ``local://``).
        name: of the lock, 1 to 512 bytes.
        ttl: seconds of the lease, 0.05 at least; renewed while held, by a thread, so a blocked event loop loses nothing.
        wait: seconds to wait for a busy lock; None: for ever; 0: not at all.
        renew: False leaves renewal to you (`Lease.renew`).
        on_lost: called in the loop with the lease when a lease is lost; may be a coroutine function.
        max_hold: seconds after which renewal stops, so that hung code cannot hold the lock for ever.
        progress_within: seconds within which the holder has to call ``progress()``, again and again, or it is held to be hung:
            the lease is lost.
        label: who uses this lock, shown to those who wait for it.
        prefix: start of the keys on the server.
        key: the key itself, where a peer of another make ("SET key token NX PX") is to be excluded too.
        linger: seconds for which the lease is kept after the last use, so that taking the lock again costs no trip; given
            back at once when another process asks.
        max_passes: how often at most the lock is passed on inside this process while another process waits.
        max_pass_time: seconds after which it is passed on no more, from when it was taken, while another process waits.
        replicas: how many replicas of the server must have the lock before it counts as taken; with fewer it is given back, and
            ServerError says so.
        quarantine: seconds for which a server that may have lost data (restarted, flushed, or a replica before) grants none of
            these locks; at least the longest ``ttl`` of all clients that use them, the same for all. True: 60.
        deadlock: what happens when holders of locks wait for each other in a cycle: with ``"wait"`` they wait on, and
            `find_deadlocks` finds them; with ``"raise"`` the wait that began last ends with Deadlock.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    _face = "asyncio"
    _lease_type = Lease

    def _start(self) -> None:
        self._current: Lease | None = None
        self._entered: lease.Entered[Lease] = lease.Entered()
        self._home: Runner | None = None
        self._users: dict[Runner, int] = {}
        """How many tasks await it, by what asks for them: where its server changes, those who came before wait on."""

    @property
    def lease(self) -> Lease | None:
        """The lease of the latest acquisition by this object, until it is given back."""
        lease = self._current
        return None if lease is None or lease._is_over() else lease  # noqa: SLF001

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if it stayed busy. As threading.Lock's, except that without arguments it waits as long as
        this object's ``wait`` says. Raises ServerError."""
        wait = self._wait if blocking and timeout == -1 else options.acquire_wait(self._wait, blocking, timeout)
        return await self._acquire(wait)

    async def _acquire(self, wait: float | None) -> bool:
        if self._cluster is not None:
            await self._locate(self._cluster)
        driver = self._driver()
        attempt = self._new_attempt(driver.process)
        try:
            result = await self._take(driver, attempt, wait)
            if isinstance(result, Busy):
                return False
            result._owner = id(asyncio.current_task())  # noqa: SLF001
            attempt.unclaimed = None  # this object has it
            return True
        except GeneratorExit:
            self._tally.gave_up(attempt)
            raise  # dropped with its event loop, where nothing can be awaited: what could be done is done
        except BaseException:
            await self._undo(attempt)
            raise

    async def release(self) -> None:
        """Give the lock back; any task may. Raises NotHeld (a RuntimeError) if it is not held, LeaseLost, ServerError."""
        lease = self.lease
        if lease is None:
            raise self._not_held()
        await lease.release()

    async def ticket(self, expires: float = 60.0) -> Ticket:
        """Hand the lock over to another process, see `Lease.ticket`. Raises NotHeld if this object does not hold it."""
        lease = self.lease
        if lease is None:
            raise self._not_held()
        return await lease.ticket(expires)

    async def locked(self) -> bool:
        """True while anybody anywhere holds the lock. Asks the server; raises ServerError."""
        return await self._ask(self._is_locked)

    async def _ask(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._cluster is not None:
            await self._locate(self._cluster)
        return await self._driver().run(operation())

    async def __aenter__(self) -> Lease:
        """Take the lock within ``wait``. Raises LockTimeout, ServerError."""
        started = clock()
        if self._cluster is not None:
            await self._locate(self._cluster)
        driver = self._driver()
        attempt = self._new_attempt(driver.process)
        try:
            result = await self._take(driver, attempt, self._wait)
            if isinstance(result, Busy):
                raise self._busy(result, await driver.run(self._holder(result)), clock() - started)
            result._body = asyncio.current_task()  # noqa: SLF001
            self._entered.push(id(result._body), result)  # noqa: SLF001
            attempt.unclaimed = None  # the with statement has it
            return result
        except GeneratorExit:
            self._tally.gave_up(attempt)
            raise  # dropped with its event loop, where nothing can be awaited: what could be done is done
        except BaseException:
            await self._undo(attempt)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back the lease of this ``async with``, and no other. LeaseLost is raised if the body succeeded or was
        cancelled because of it, else noted on its exception; a server that cannot be reached is a warning."""
        lease = self._entered.innermost(running_task())
        self._entered.remove(lease)
        lease._body = None  # noqa: SLF001
        if not lease._ends_with_loop():  # noqa: SLF001
            await self._leave(lease, lease._end_of_body(error))  # noqa: SLF001

    async def _leave(self, lease: Lease, error: BaseException | None) -> None:
        try:
            await lease.release()
        except NotHeld:
            # Given back inside the body, or taken by the process that forked this one. If the body has taken it again, as an
            # asyncio.Condition does, that is given back.
            again = self.lease
            if again is not None and again._owner == lease._owner and again.fence > lease.fence:  # noqa: SLF001
                await again.release()
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except (ServerError, QuorumError) as unreachable:
            warnings.warn(f"{unreachable}; the lock ends with its lease", HoldfastWarning, stacklevel=3)

    async def _locate(self, cluster: Topology) -> None:
        """Before each use: slots move."""
        if not cluster.known:
            try:
                await asyncio.get_running_loop().run_in_executor(None, cluster.refresh, self._endpoint.timeout)
            except WireError as error:
                raise self._user_error(error) from error
        self._settle(cluster)

    def _driver(self) -> Runner:
        driver = self._home
        loop = asyncio.get_running_loop()
        if driver is None or driver.process is not current() or loop not in driver.process.drivers or driver.loop is not loop:
            if driver is not None and driver.process is current() and driver.loop is not loop:
                if self.lease is not None and driver.loop.is_closed():
                    raise RuntimeError(f"lock {self.name!r} is held in an event loop that is closed; release() gives it back")
                if self.lease is not None:
                    raise self._used_elsewhere()
            if any(self._awaits(other) for other in list(self._users) if other.loop is not loop):
                raise self._used_elsewhere()
            driver = self._home = self._new_driver()
        return driver

    def _awaits(self, driver: Runner) -> bool:
        """A task awaits the lock there."""
        if driver.process is current() and not driver.loop.is_closed():
            return True
        self._users.pop(driver, None)  # nobody does any more
        return False

    def _used_elsewhere(self) -> RuntimeError:
        return RuntimeError(f"lock {self.name!r} is held or awaited in another event loop")

    def _new_driver(self) -> Runner:
        return aio_driver_for(current(), self._endpoint)

    async def _take(self, driver: Runner, attempt: Attempt, wait: float | None) -> Lease | Busy:
        result = self._at_once(attempt)
        if result is None:
            attempt.slot = driver.slot()
            asked = driver
            self._users[asked] = self._users.get(asked, 0) + 1
            try:
                result = await driver.run(self._try(attempt, wait))
            except SlotMoved:
                assert self._cluster is not None
                await self._locate(self._cluster)
                driver = self._driver()
                return await self._take(driver, attempt, self._moved(attempt, driver.process, wait))
            except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
                raise self._user_error(error) from error
            finally:
                left = self._users.pop(asked, 1) - 1
                if left:
                    self._users[asked] = left
        if isinstance(result, Busy):
            self._tally.stayed_busy(attempt)
            return result
        lease = self._lease_type(driver, result, self._on_lost)
        self._keep(lease)
        if result.queued or attempt.waited or self._tally.waiting:
            self._tally.waited(result)
        return lease

    def _keep(self, lease: Lease) -> None:
        self._current = lease

    async def _undo(self, attempt: Attempt) -> None:
        self._tally.gave_up(attempt)
        lease.discard_unreturned(attempt)
        await self._driver().run(self._abandon(attempt))
        attempt.unclaimed = None


class FairLock(BaseFairLock[Lease], Lock):
    """A `Lock` that is given to all who want it in the strict order in which they came, over all processes.

    Threads and tasks of one process stand in the server's line each for itself, and each hand-over takes a trip. Options,
    errors and methods are those of `Lock`, without ``linger``, ``max_passes`` and ``max_pass_time``.
    """
