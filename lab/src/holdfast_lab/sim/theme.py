"""The base class of the themes in `sim.rare`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast_lab.sim.world import World

Moment = Callable[[float], float]
"""A function from a number between 0 and 1 to the time of a fault. A swarm counts this time in seconds or in events."""


PEACE = frozenset(("B1 left", "B4", "B4 told", "E7", "L3", "S3 lost", "S6 prompt", "S7 peace"))
"""Rules that judge only histories with no or almost no faults."""


class Theme:
    """A rare fault that is added to a whole history. This base class adds nothing."""

    name = ""
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """The swarms of the theme, each with the minimum counts of events, by name, in 1,000 histories."""
    unjudged: ClassVar[frozenset[str]] = PEACE
    """Rules that judge no case under the theme, because its faults excuse every case."""
    more_rules: ClassVar[tuple[str, ...]] = ()
    """Rules that are checked only under the theme."""

    histories = 12
    """Number of histories of each swarm that the tests run."""
    resets = False
    """True if barriers, latches and events are reset while workers wait for them."""

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        """Change the parameters drawn from the seed, before the world is built."""

    def begin(self, seed: int, world: World) -> None:
        """Change the world before the history begins, or plan the theme's faults in it."""

    def counts(self, world: Any) -> Counter[str]:  # noqa: ARG002 - this theme adds nothing
        """Return how often each of the theme's faults happened in a history, by its name."""
        return Counter()

    def use(self, seed: int, users: Any) -> None:
        """Change how workers use permits (`swarms.permit.Users`), before the history begins."""

    def _rng(self, seed: int, part: str = "") -> random.Random:
        return random.Random(f"{self.name}{part} {seed}")


PLAIN = Theme()


def strike(rng: random.Random, profile: Any, moment: Moment, kinds: tuple[str, ...], times: tuple[int, ...]) -> None:
    """Add faults of these kinds to the profile at random moments. Their number is drawn from ``times``."""
    for _ in range(rng.choice(times)):
        lasts = rng.choice((0.05, 0.3, 1.0, 3.0)) * rng.random()
        profile.faults.append((moment(rng.random()), rng.choice(kinds), lasts))
