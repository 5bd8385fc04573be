"""Virtual time: its beginning, the form of planned events, and random delays."""

from __future__ import annotations

import random
from typing import Any

EPOCH = 1e9
"""Virtual time in seconds at which every history begins.

It is larger than any duration, so that a time cannot be confused with a duration.
"""

Entry = list[Any]
"""A planned event: a list of its time, its number, its function (None: called off), and the function's arguments."""


class Stuck(Exception):
    """Raised when no step is possible and a worker still waits."""


class Weather:
    """A source of random delays, in seconds, for messages and for threads that wake up.

    A delay is 0.5 to 1.5 times ``scale``. The share ``slow_share`` of the delays is multiplied by a random number from 0 to
    ``slow``.
    """

    __slots__ = ("_draw", "scale", "slow", "slow_share")

    def __init__(self, rng: random.Random, scale: float = 0.0003, slow: float = 1.0, slow_share: float = 0.0) -> None:
        self._draw = rng.random
        self.scale = scale
        self.slow = slow
        self.slow_share = slow_share

    def delay(self) -> float:
        draw = self._draw
        delay = self.scale * (0.5 + draw())
        if self.slow_share and draw() < self.slow_share:
            delay *= self.slow * draw()
        return delay
