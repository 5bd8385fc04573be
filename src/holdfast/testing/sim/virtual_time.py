"""The virtual time of a simulated world: where it begins, what an event to come looks like, and random delays."""

from __future__ import annotations

import random
from typing import Any

EPOCH = 1e9
"""Virtual time at which every history begins, in seconds; larger than any duration, so that the two cannot be confused."""

Entry = list[Any]
"""A planned event: [when, number, function (None: called off), its arguments]."""


class Stuck(Exception):
    """Raised when no step is possible while a worker still waits."""


class Weather:
    """A source of random delays, in seconds, for messages and for threads that wake up.

    Most delays are about ``scale`` seconds. The share ``slow_share`` of the delays is up to ``slow`` times as long.
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
