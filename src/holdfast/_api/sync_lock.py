"""`Lock` and `FairLock` for threads. `holdfast.aio` has classes of the same names for asyncio."""

from __future__ import annotations

import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, TypeVar

from holdfast._api import lock
from holdfast._api.error_map import cause, hide_frames
from holdfast._api.fair_lock import BaseFairLock
from holdfast._api.flow import InThreads, complete
from holdfast._api.foreign_words import ASYNC_WITH
from holdfast._api.lease import Lease, LockLease
from holdfast._api.lease_core import Entered, SyncLeaseCore
from holdfast._api.lock import L
from holdfast._api.options import refuse_mistaken
from holdfast._clock import clock
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt, Grant
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.server_queue import SlotMoved
from holdfast._core.requests import ConfigMismatch, TooFew, WireError
from holdfast._durations import Seconds
from holdfast._net.clients import SyncClient
from holdfast._runtime.drivers.choice import driver_for
from holdfast._runtime.drivers.sync import Runner
from holdfast._runtime.process import current
from holdfast.errors import HoldfastError, HoldfastWarning, LeaseLost, NotHeld, QuorumError, ServerError

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket

T = TypeVar("T")


class BaseSyncLock(InThreads, lock.BaseLock[L, SyncClient]):
    """The locks of threads: acquire, release, and the ``with`` statement."""

    _caller = "thread"
    _core_type = SyncLeaseCore
    _lease_type = Lease
    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    def _start(self) -> None:
        self._current: Any = None
        self._entered: Entered[Any] = Entered()
        self._home: Runner | None = None

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

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **mistaken: Never) -> bool:
        """Acquire the lock and return True; return False if it stays busy. ``timeout`` is in seconds.

        Works like threading.Lock.acquire, except that without arguments it waits as long as this object's ``wait`` option
        allows. Raises ServerError if the server cannot be reached.
        """
        if mistaken:
            refuse_mistaken(mistaken, "acquire")
        wait = self._wait if blocking and timeout == -1 else self._acquire_wait(blocking, timeout)
        node = self._node
        if node is None or not self._is_direct or node.keeper.closing:
            driver, attempt = self._prepared()
        else:
            queue, tally = self._local_queue, self._tally
            driver, attempt = self._driver(), Attempt(self._spec, local_queue=queue, tally=tally, node=node, is_direct=True)
        try:
            result = self._take(driver, attempt, wait)
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
            done = not self._spec.linger and core.try_release()  # a lease that may linger is never uncontended
            if not done:
                core.go_on_releasing(done is None)
        except HoldfastError:
            raise
        except BaseException:
            self._finish_release(core)
            raise

    def locked(self) -> bool:
        """Return True if anybody holds the lock. For a semaphore or a side of an RWLock, return True if an
        acquisition would have to wait. Asks the server; raises ServerError if the server cannot be reached."""
        return complete(self._ask(self._is_locked))

    def __enter__(self) -> L:
        """Acquire the lock within this object's ``wait`` and return the lease.

        Raises LockTimeout if the lock stays busy, ServerError if the server cannot be reached.
        """
        started = clock()
        driver, attempt = self._prepared()
        try:
            result = self._take(driver, attempt, self._wait)
            if isinstance(result, Busy):
                raise self._busy(result, driver.run(self._holder(result)), clock() - started)
            lease: L = result.user_lease()
            self._entered.push(threading.get_ident(), result)
            attempt.unclaimed = None  # The with statement refers to the lease now.
            return lease
        except BaseException as error:
            self._undo(attempt)
            hide_frames(error)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lease that this ``with`` acquired, and no other.

        If the lease was lost and the body succeeded, LeaseLost is raised. If the body raised an exception, LeaseLost is added
        to it as a note. If the server cannot be reached, only a warning is issued, and the lock is free when the lease expires.
        """
        try:
            self._leave_entered(error)
        except (HoldfastError, HoldfastWarning):
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._give_back_entered()
            raise
        finally:
            self._entered.remove(self._entered.innermost(threading.get_ident()))

    def _leave_entered(self, error: BaseException | None) -> None:
        self._leave(self._entered.innermost(threading.get_ident()), error)

    def _give_back_entered(self) -> None:
        """Finish the end of a ``with`` statement that was interrupted."""
        self._driver().run(self._entered.innermost(threading.get_ident()).finish_release())

    def _leave(self, core: SyncLeaseCore, error: BaseException | None) -> None:
        try:
            core.release()
        except NotHeld:
            # The lease was released in the body, or belongs to the process that forked this one. If the body has acquired the
            # lock again, as a threading.Condition does, that lease has to be released.
            again = self._live()
            if again is not None and again.owner == core.owner and again.fence > core.fence:
                again.release()
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(str(lost))
        except (ServerError, QuorumError) as unreachable:
            warnings.warn(f"{unreachable}; the lock ends with its lease", HoldfastWarning, stacklevel=4)

    def _detach(self, core: SyncLeaseCore) -> None:
        self._entered.remove(core)

    def _driver(self) -> Runner:
        driver = self._home
        if driver is None or not driver.process.here:
            driver = self._home = self._new_driver()
        return driver

    def _new_driver(self) -> Runner:
        return driver_for(current(), self._endpoint)

    def _take(self, driver: Runner, attempt: Attempt, wait: float | None) -> SyncLeaseCore | Busy:
        result: Grant | Busy | None = self._at_once(attempt) if self._spec.linger else None
        if result is None and attempt.is_direct:
            result = driver.acquire(attempt, wait)
        if result is None:
            driver, result = self._operate(driver, attempt, wait)
            if isinstance(result, Busy):
                self._tally.stayed_busy(attempt)
                return result
        assert isinstance(result, Grant)
        process, endpoint, user_type = driver.process, driver.endpoint, self._lease_type
        core = self._core_type(process, endpoint, result, self._on_lost, user_type=user_type, driver=driver)
        self._keep(core)
        if result.queued or attempt.waited or self._tally.waiting:
            self._tally.waited(result)
        return core

    def _prepared(self) -> tuple[Runner, Attempt]:
        """Return the driver for the lock's server, and a new attempt. In a Cluster, the server is looked up first."""
        if self._cluster is not None:
            complete(self._find_server())
        return (driver := self._driver()), self._new_attempt(driver)

    def _operate(self, driver: Runner, attempt: Attempt, wait: float | None) -> tuple[Runner, Grant | Busy]:
        """Acquire the lock with an operation. Return the driver that has run the operation, and the result."""
        result = None if attempt.led or attempt.entered else self._at_once(attempt)
        if result is not None:
            return driver, result
        self._refuse_nested(wait)
        attempt.slot = attempt.slot or driver.slot()
        try:
            return driver, driver.run(self._try(attempt, wait))
        except SlotMoved:
            complete(self._find_server())
            driver = self._driver()
            return self._operate(driver, attempt, self._moved(attempt, driver, wait))
        except (WireError, KeyConflict, TooFew, ConfigMismatch) as error:
            raise self._user_error(error) from cause(error)

    def _finish_release(self, core: SyncLeaseCore | None) -> None:
        """Finish a `release` that KeyboardInterrupt, or an exception of a signal handler, has ended at any line.

        ``core`` is the lease whose release had begun; another thread may have acquired the lock since. None: the release had
        not looked up the lease yet, so the latest one is meant.
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


class Lock(BaseSyncLock[LockLease]):
    """A named lock that at most one process, thread or task holds, anywhere.

    The lock is held under a lease, which expires ``ttl`` seconds after its holder stops renewing it, so a crashed holder does
    not block others for longer. On release, the lock is handed over directly to the process that has waited longest. For a
    bounded time, waiters of the releasing process may get it first (never with `FairLock`). A `Lock` can replace a
    threading.Lock.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL (``redis://``, ``rediss://``, ``unix://``, ``local://``).
        name: name of the lock, 1 to 512 bytes.
        ttl: length of the lease in seconds, at least 0.05; renewed while the lock is held.
        wait: seconds to wait for a busy lock. None: without limit; 0: do not wait.
        renew: False if you renew the lease yourself (`Lease.renew`).
        on_lost: called with the lease, in a thread of its own, when a lease is lost.
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

    _lease_type = LockLease

    def ticket(self, expires: Seconds = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, as `LockLease.ticket` does.

        Raises NotHeld if the lock is not held by this object.
        """
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        return ticket.issue(self._held_core(), expires)


class FairLock(BaseFairLock[LockLease, SyncClient], Lock):
    """A `Lock` that is granted in the strict order of arrival, across all processes.

    Each waiting thread or task has its own place in the server's queue, and each hand-over costs a round trip. Options, errors
    and methods are those of `Lock`, except for ``linger``, ``max_passes`` and ``max_pass_time``.
    """
