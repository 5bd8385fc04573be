"""The keeper, as those see it who do something for it in its thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class KeeperThread(Protocol):
    """The thread, and the mutex of what it looks after."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards the books of the keeper."""

    def clock(self) -> float:
        """Local time in seconds."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Have the keeper thread call this after so many seconds."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Do something of which nobody else's lease may depend. False if it failed."""
