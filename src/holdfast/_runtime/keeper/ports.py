"""The interface of the keeper (background thread) for modules whose code runs in the keeper's thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class KeeperThread(Protocol):
    """The keeper's thread, its clock, and the mutex of its state."""

    looks: bool
    """True while a check for long leases is scheduled."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the lock that protects the keeper's state."""

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Call ``what`` in the keeper thread after ``seconds`` seconds."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``; if it fails, log the exception and return False, so that other leases are not affected."""
