"""Locks that are held until a database transaction has ended: what the integrations share."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from holdfast._api.rlock import Reentrant
from holdfast._runtime.process import current
from holdfast.errors import HoldfastWarning, LeaseLost, NotHeld, QuorumError, ServerError

_tasks: set[asyncio.Future[Any]] = set()
"""Tasks that release something: a task that nobody refers to may be collected."""


def enter(lock: Any, holding: Holding) -> Any:
    """Take it as ``with`` does, for a transaction to give back, and answer the lease."""
    _check(lock, "__enter__", "holdfast.Lock")
    leases = holding.leases
    leases.append(lock.__enter__())  # in one line: interrupted behind it, the transaction gives the lock back
    lock._entered.remove(leases[-1])  # noqa: SLF001
    return leases[-1]


async def enter_in_loop(lock: Any, holding: Holding) -> Any:
    _check(lock, "__aenter__", "holdfast.aio.Lock")
    lease = await lock.__aenter__()
    holding.leases.append(lease)
    lock._entered.remove(lease)  # noqa: SLF001
    lease._body = None  # noqa: SLF001 - no task is inside: the transaction finds out when it is to be committed
    return lease


def _check(lock: Any, method: str, wanted: str) -> None:
    if not hasattr(lock, "_entered"):
        raise TypeError(f"a lock is wanted, not {lock!r}; of an RWLock, its read or its write side")
    if not hasattr(lock, method):
        raise TypeError(f"a {wanted} is wanted, not {lock!r}")
    if isinstance(lock, Reentrant):
        raise TypeError(
            f"{lock!r} belongs to the thread or task that takes it, and others may end the transaction: use a Lock, or take it "
            "outside of the transaction"
        )


class Holding:
    """The leases that are held until one transaction has ended."""

    def __init__(self) -> None:
        self.leases: list[Any] = []
        self.committed = False

    def add(self, lease: Any) -> None:
        """One that was taken otherwise. Raises TypeError if it is none."""
        if not hasattr(lease, "check"):
            raise TypeError(f"a lease is wanted, as a lock that was taken has it (lock.lease), not {lease!r}")
        self.leases.append(lease)

    def has(self, lock: Any) -> Any:
        """The lease by which the transaction has this lock already; or None. Raises LeaseLost if it is lost.

        Functions that call each other in one transaction take the same lock, and would wait for themselves. Of a semaphore,
        each is given its own."""
        for lease in self.leases:
            if type(lease) is not getattr(lock, "_lease_type", None) or lease._held_lease.spec.permits is not None:  # noqa: SLF001
                continue
            if lease.key == lock.key and lease._endpoint == lock._endpoint and not lease._is_over():  # noqa: SLF001
                lease.check()
                return lease
        return None

    def check(self) -> None:
        """Just before the commit. Raises LeaseLost, or NotHeld: so nothing is committed."""
        for lease in self.leases:
            lease.check()

    def end(self) -> None:
        """The transaction has ended: give all back, the last one first."""
        try:
            self._end()
        except BaseException:
            # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line. A released lock is done with.
            self._end()
            raise

    def _end(self) -> None:
        with ExitStack() as all_of_them:  # even if one of them is interrupted
            for lease in self.leases:
                all_of_them.callback(self._give_back, lease, self.committed)
        self.leases = []
        self.committed = False

    def end_elsewhere(self) -> list[Any]:
        """The same from where garbage is collected, which may be anywhere: nothing can be waited for there. Answers what was
        held."""
        held = [lease for lease in self.leases if not lease._is_over()]  # noqa: SLF001
        keeper = current().running_keeper if held else None
        if keeper is not None:
            rest = Holding()
            rest.leases, self.leases = held, []
            keeper.call(lambda: threading.Thread(target=rest.end, name="holdfast-give-back", daemon=True).start())
        return held

    def drop(self) -> None:
        """Nobody has ended the transaction before it was collected."""
        held = self.end_elsewhere()
        if held:
            names = ", ".join(repr(lease.name) for lease in held)
            warnings.warn(f"a transaction that held {names} was dropped, neither committed nor closed", ResourceWarning, 2)

    def _give_back(self, lease: Any, committed: bool) -> None:
        try:
            given_back = lease.release()
            if given_back is not None:
                self._await(lease, _explained(given_back, lease, committed))
        except Exception as error:  # noqa: BLE001 - see `explain`
            explain(error, lease, committed)

    def _await(self, lease: Any, given_back: Coroutine[Any, Any, None]) -> None:
        """Run the release of an asyncio lock in a task of its own, as nobody awaits it."""

        def begin() -> None:
            task = asyncio.ensure_future(given_back)
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)

        try:
            lease._driver.loop.call_soon_threadsafe(begin)  # noqa: SLF001
        except RuntimeError:
            given_back.close()  # the loop is closed: nobody can wait until it is back
            lease._leave_to_keeper()  # noqa: SLF001


async def _explained(given_back: Coroutine[Any, Any, None], lease: Any, committed: bool) -> None:
    try:
        await given_back
    except Exception as error:  # noqa: BLE001 - see `explain`
        explain(error, lease, committed)


def explain(error: Exception, lease: Any, committed: bool) -> None:
    """The transaction has ended, and an error would say that it has not: so it is a warning, as at the end of a ``with`` when
    the server cannot be reached."""
    if isinstance(error, LeaseLost):
        if committed:
            warnings.warn(
                f"{error}. That was after the last look at it, and the transaction is committed; check the fence "
                f"({lease.fence}) in what it writes, to be safe from that",
                HoldfastWarning,
                stacklevel=4,
            )
    elif isinstance(error, ServerError | QuorumError):
        warnings.warn(f"{error}; the lock ends with its lease", HoldfastWarning, stacklevel=4)
    elif not isinstance(error, NotHeld):
        raise error
