"""One lock made of two: the new one first, then the timestamp lock; given back the other way round.

Written once: to the algorithm it makes no difference whether its halves answer at once (threads), are awaited (asyncio), or are
simulated. It asks no server itself.
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
    """One of both locks, for one who takes it."""

    async def take(self, wait: float | None) -> L:
        """Take it within so many seconds. Raises LockTimeout."""

    async def give_back(self, lease: L) -> None:
        """Raises LeaseLost if it was lost."""

    def holds(self, lease: L) -> bool:
        """It is not lost."""


class Both(NamedTuple, Generic[New, Old]):
    """The two leases of a holder."""

    new: New
    old: Old


async def take(new: Half[New], old: Half[Old], wait: float | None, clock: Callable[[], float]) -> Both[New, Old]:
    """Take both within ``wait`` seconds (None: for ever). Raises LockTimeout.

    Those who know the new lock wait for that, in the order in which they came; only who has it asks for the old one.
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
        await _undo(new, old, first, second)  # the new one was lost while the old one was waited for: from the start


async def give_back(new: Half[New], old: Half[Old], both: Both[New, Old]) -> None:
    """Give both back, the old one first: whoever gets the new one next finds it free."""
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
    """Return the result of an operation whose halves answer at once."""
    try:
        operation.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it has to wait for something")
