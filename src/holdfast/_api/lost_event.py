"""The event in the ``lost`` attribute of an asyncio lease. Only programs that use asyncio import this module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LostEvent(asyncio.Event):
    """An event that is set when the lease is lost. `is_set` also checks whether the lease has expired."""

    def __init__(self, expired: Callable[[], bool]) -> None:
        super().__init__()
        self._expired = expired

    def is_set(self) -> bool:
        return super().is_set() or self._expired()

    def __bool__(self) -> bool:
        """Return `is_set`. Without this method, ``if lease.lost:`` would be true for every lease."""
        return self.is_set()
