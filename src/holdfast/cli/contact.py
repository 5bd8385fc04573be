"""Retries of a subcommand that waits for a lock, if the server does not answer in time.

The answers of a running server may come late on an overloaded machine, so the subcommand tries again. It does not try again
after a refused connection, a wrong password or an unknown host.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from holdfast._clock import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.errors import HoldfastError

PAUSE = 0.25
"""Seconds between two attempts to reach a server that does not answer."""


class Patience:
    """The time limit of a command that waits for a lock, across retries while the server does not answer.

    ``wait``: seconds for all tries together; None: no limit. ``tell``: function that prints a message at the first retry.
    """

    def __init__(self, wait: float | None, tell: Callable[[str], None]) -> None:
        self._end = math.inf if wait is None else clock() + wait
        self._tell: Callable[[str], None] | None = tell

    def left(self) -> float | None:
        """Return the seconds that are left for the next try, or None if the wait has no limit."""
        return None if self._end == math.inf else max(self._end - clock(), 0.0)

    def outlasts(self, error: HoldfastError) -> bool:
        """Return True, after a pause, if another try is worthwhile: the server did not answer in time, and time is left.

        Return False at once after any other error, or if no time is left.
        """
        if not getattr(error, "_silent", False) or self.left() == 0:
            return False
        if self._tell is not None:
            self._tell(f"{error}; asking again")
            self._tell = None
        time.sleep(PAUSE)
        return True
