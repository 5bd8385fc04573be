"""Which faults happen when: drawn from a seed before anything starts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Planned(NamedTuple):
    pause: float
    """Seconds after the one before is over."""
    name: str
    seed: int
    """For what it draws itself: whom it hits, how hard."""
    seconds: float


def plan(seed: int, kinds: Sequence[tuple[str, tuple[float, float]]], every: tuple[float, float]) -> Iterator[Planned]:
    """Faults without end, ``kinds`` being their names and how long they last. Each comes once before any comes again; from
    the start of one to that of the next it is ``every`` seconds; longer, if it lasts so long."""
    rng = random.Random(seed)
    before = 0.0
    while True:
        for name, lasts in rng.sample(list(kinds), len(kinds)):
            seconds = rng.uniform(*lasts)
            yield Planned(max(every[0] / 4, rng.uniform(*every) - before), name, rng.randrange(1 << 32), seconds)
            before = seconds
