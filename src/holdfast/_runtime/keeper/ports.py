"""The interface of the keeper for modules whose code runs in the keeper's thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class KeeperThread(Protocol):
    """The keeper's thread, its clock, and the mutex of its state."""

    looks: bool
    """True while the next check of `LongLeases`, for leases held for more than a second, is scheduled."""

    @property
    def mutex(self) -> AbstractContextManager[object]: ...

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call ``what`` in the keeper thread after ``seconds`` seconds."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``. If it raises an exception, log it and return False, so that other leases are not affected."""
