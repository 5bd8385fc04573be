"""Asking again where a server has only not answered in time: what a command that is told to wait does about that.

Under a load with which nothing is in time, a server that is there looks as if it were not. A refused connection, a wrong
password and an unknown host look different, and end a command at once.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from holdfast._local.guardian import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import HoldfastError

PAUSE = 0.25
"""Seconds between two tries."""


class Patience:
    """The time for which a command waits: ``wait`` seconds, None for ever. ``tell`` is told once that there is no answer."""

    def __init__(self, wait: float | None, tell: Callable[[str], None]) -> None:
        self._end = math.inf if wait is None else program.clock() + wait
        self._tell: Callable[[str], None] | None = tell

    def left(self) -> float | None:
        """Seconds that are left, for a next try; None for ever."""
        return None if self._end == math.inf else max(self._end - program.clock(), 0.0)

    def outlasts(self, error: HoldfastError) -> bool:
        """Whether to try again after this error: only no answer came in time, and some time is left. Pauses before that."""
        if not getattr(error.__cause__, "silent", False) or self.left() == 0:
            return False
        if self._tell is not None:
            self._tell(f"{error}; asking again")
            self._tell = None
        time.sleep(PAUSE)
        return True
