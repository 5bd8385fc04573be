"""The lock for a migration: it acquires a new lock and then an old (timestamp) lock, and releases them in the reverse order.

The algorithm is written once, as coroutines that await the methods of the two locks. In the sync API, these methods never
suspend. In the asyncio API, they suspend while they wait for the server.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from holdfast.errors import LeaseLost

T = TypeVar("T")
L = TypeVar("L")
New = TypeVar("New")
Old = TypeVar("Old")


class Half(Protocol[L]):
    """The methods of the new or the old lock that the algorithm calls."""

    async def take(self, wait: float | None) -> L:
        """Acquire the lock within ``wait`` seconds (None: without limit). Raises LockTimeout."""

    async def give_back(self, lease: L) -> None:
        """Release the lock. Raises LeaseLost if it was lost."""

    def holds(self, lease: L) -> bool:
        """Return True while the lease is not lost."""


class Both(NamedTuple, Generic[New, Old]):
    """The leases of one holder of a migrating lock: of the new lock and of the old one."""

    new: New
    old: Old


async def take(new: Half[New], old: Half[Old], wait: float | None, clock: Callable[[], float]) -> Both[New, Old]:
    """Acquire the new lock, then the old one, within ``wait`` seconds (None: without limit). Raises LockTimeout.

    Clients of the migration lock wait for the new lock, in the order of their arrival. Only the holder of the new lock tries to
    acquire the old one. ``clock``: function that returns the monotonic time in seconds.
    """
    until = None if wait is None else clock() + wait

    def left() -> float | None:
        return None if until is None else max(0.0, until - clock())

    while True:
        first = await new.take(left())
        second: Old | None = None
        try:
            second = await old.take(left())
            if new.holds(first):
                return Both(first, second)
        except BaseException:
            await _undo(new, old, first, second)
            raise
        await _undo(new, old, first, second)  # the new lock was lost during the wait for the old one: start again


async def give_back(new: Half[New], old: Half[Old], both: Both[New, Old]) -> None:
    """Release the old lock, then the new one, so that the next holder of the new lock finds the old lock free."""
    try:
        await old.give_back(both.old)
    finally:
        await new.give_back(both.new)


async def _undo(new: Half[New], old: Half[Old], first: New, second: Old | None) -> None:
    try:
        if second is not None:
            await old.give_back(second)
    except LeaseLost:
        pass
    finally:
        try:
            await new.give_back(first)
        except LeaseLost:
            pass


def at_once(operation: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because it awaits only methods of the sync API, and return its result."""
    try:
        operation.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("a method of a sync lock suspended its coroutine, which it must never do")
