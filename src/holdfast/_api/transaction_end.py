"""Locks that are held until a database transaction ends. The SQLAlchemy and Django integrations use this module."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from holdfast._api.base_lock import BaseLock, member_of
from holdfast._api.lease import core_of
from holdfast._api.rlock import Reentrant
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, NotHeld, QuorumError, ServerError

_tasks: set[asyncio.Future[Any]] = set()
"""Tasks that release a lock. The references here keep the tasks from being garbage-collected."""


def enter(lock: Any, holding: HeldUntilEnd) -> Any:
    """Acquire the lock as ``with`` does and return the lease, which is released when the transaction ends."""
    _check(lock, "__enter__", "holdfast.Lock")
    leases = holding.leases
    leases.append(lock.__enter__())  # Acquire and record in one line: then the transaction releases it.
    member_of(lock).detach(core_of(leases[-1]))
    return leases[-1]


async def enter_in_loop(lock: Any, holding: HeldUntilEnd) -> Any:
    _check(lock, "__aenter__", "holdfast.aio.Lock")
    lease = await lock.__aenter__()
    holding.leases.append(lease)
    member_of(lock).detach(core_of(lease))
    core_of(lease).body_task = None  # A loss must cancel no task: the check before the commit finds the loss.
    return lease


def _check(lock: Any, method: str, wanted: str) -> None:
    if not hasattr(lock, "_as_member"):
        raise TypeError(f"expected a lock, not {lock!r}; of an RWLock, pass its read or its write side")
    if not hasattr(lock, method):
        raise TypeError(f"expected a {wanted}, not {lock!r}")
    if isinstance(lock, Reentrant):
        raise TypeError(
            f"{lock!r} belongs to the thread or task that acquires it, but another thread or task may end the transaction: "
            "use a Lock, or acquire this lock outside of the transaction"
        )


class HeldUntilEnd:
    """The leases that are held until one transaction ends."""

    def __init__(self) -> None:
        self.leases: list[Any] = []
        self.committed = False

    def add(self, lease: Any) -> None:
        """Add a lease that was acquired elsewhere. Raises TypeError if the object is not a lease."""
        if not hasattr(lease, "check"):
            raise TypeError(f"expected the lease of an acquired lock (lock.lease), not {lease!r}")
        self.leases.append(lease)

    def has(self, lock: Any) -> Any:
        """Return the transaction's lease of this lock, or None if it has none. Raises LeaseLost if the lease is lost.

        Functions that call each other in one transaction can use the same lock: the inner function gets the lease of the outer
        one. For a semaphore or a side of an RWLock, the result is always None, because each function acquires its own permits.
        """
        if not self.leases or not isinstance(lock, BaseLock):
            return None
        member = member_of(lock)
        for lease in self.leases:
            core = core_of(lease)
            if type(lease) is not member.lease_type or core.held_lease.spec.permits is not None:
                continue
            if lease.key == lock.key and core.endpoint == member.endpoint() and not core.is_over():
                lease.check()
                return lease
        return None

    def check(self) -> None:
        """Raise LeaseLost or NotHeld if a lease has ended, so that the transaction is not committed. Called
        just before COMMIT."""
        for lease in self.leases:
            lease.check()

    def end(self) -> None:
        """Release all leases after the end of the transaction, the latest first."""
        try:
            self._end()
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line. Leases released before are skipped.
            self._end()
            raise

    def _end(self) -> None:
        with ExitStack() as all_of_them:  # An ExitStack runs all callbacks, even if one of them is interrupted.
            for lease in self.leases:
                all_of_them.callback(self._give_back, lease, self.committed)
        self.leases = []
        self.committed = False

    def end_elsewhere(self) -> list[Any]:
        """Release all leases in a new thread, and return those that were held.

        Garbage collection calls this method at any point of the program, so this method must not wait.
        """
        held = [lease for lease in self.leases if not core_of(lease).is_over()]
        keeper = current().running_keeper if held else None
        if keeper is not None:
            rest = HeldUntilEnd()
            rest.leases, self.leases = held, []
            keeper.call(lambda: threading.Thread(target=rest.end, name="holdfast-give-back", daemon=True).start())
        return held

    def drop(self) -> None:
        """Release the leases of a transaction that was garbage-collected before its end, and warn about this."""
        held = self.end_elsewhere()
        if held:
            names = ", ".join(repr(lease.name) for lease in held)
            warnings.warn(f"a transaction that held {names} was dropped without a commit or close", ResourceWarning, 2)

    def _give_back(self, lease: Any, committed: bool) -> None:
        try:
            given_back = lease.release()
            if given_back is not None:
                self._await(lease, _explained(given_back, lease, committed))
        except Exception as error:  # noqa: BLE001 - see `explain`
            explain(error, lease, committed)

    def _await(self, lease: Any, given_back: Coroutine[Any, Any, None]) -> None:
        """Run the release of an asyncio lock in a task of its own, because no code awaits it."""

        def begin() -> None:
            task = asyncio.ensure_future(given_back)
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

        try:
            core_of(lease).driver.loop.call_soon_threadsafe(begin)
        except RuntimeError:
            given_back.close()  # The loop is closed, so the release cannot be awaited; the keeper thread does it.
            core_of(lease).leave_to_keeper()


async def _explained(given_back: Coroutine[Any, Any, None], lease: Any, committed: bool) -> None:
    try:
        await given_back
    except Exception as error:  # noqa: BLE001 - see `explain`
        explain(error, lease, committed)


def explain(error: Exception, lease: Any, committed: bool) -> None:
    """Report a failed release as a warning, because an exception would suggest that the transaction has not ended.

    Report nothing if the lease was released already, or lost without a commit. Raise unexpected errors.
    """
    if isinstance(error, LeaseLost):
        if committed:
            warnings.warn(
                f"{error}. The loss was noticed after the last check, and the transaction is committed; to prevent this, "
                f"check the fence ({lease.fence}) in the statements of the transaction",
                HoldfastWarning,
                stacklevel=4,
            )
    elif isinstance(error, ServerError | QuorumError):
        warnings.warn(f"{error}; the lock ends with its lease", HoldfastWarning, stacklevel=4)
    elif not isinstance(error, NotHeld):
        raise error
