"""Rare themes: what may happen all through a history, besides what its seed has drawn.

A theme is a fault that no plain history has, or has too seldom to show what it does. It is drawn apart: the same seed
without it is the history that it always was. `campaign.swarm_of` runs a swarm under a theme, as ``election+forgetful``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.testing.sim.world import World

Moment = Callable[[float], float]
"""When a fault happens, as a swarm counts that (in seconds or in steps), for a number from 0 to 1."""


PEACE = frozenset(("B1 left", "B4", "B4 told", "E7", "L3", "S3 lost", "S6 prompt", "S7 peace"))
"""Rules for histories in which next to nothing goes wrong."""


class Theme:
    """One of them. This one is none: a plain history."""

    name = ""
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """The swarms in which it means something, each with what has to come of it in 1,000 histories."""
    unjudged: frozenset[str] = PEACE
    """Rules that have nothing to judge under it."""

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        """Change what a seed has drawn, before its world is built."""

    def begin(self, seed: int, world: World) -> None:
        """Change a world in which nothing has happened yet."""

    def counts(self, world: World) -> Counter[str]:  # noqa: ARG002 - nothing comes of none
        """What came of it, in the end."""
        return Counter()

    def _rng(self, seed: int, part: str = "") -> random.Random:
        return random.Random(f"{self.name}{part} {seed}")


PLAIN = Theme()


def _strike(rng: random.Random, profile: Any, moment: Moment, kinds: tuple[str, ...], times: tuple[int, ...]) -> None:
    """Some of these faults, at some moments, besides those that were drawn."""
    for _ in range(rng.choice(times)):
        lasts = rng.choice((0.05, 0.3, 1.0, 3.0)) * rng.random()
        profile.faults.append((moment(rng.random()), rng.choice(kinds), lasts))


class Forgetful(Theme):
    """The server loses its memory: all of it, or the last of it."""

    name = "forgetful"
    unjudged = PEACE | {"S4"}  # nobody is to wait in vain, but for a server that forgets it
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare forgotten": 300} for name in ("election", "meetings", "flight", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        _strike(self._rng(seed), profile, moment, ("amnesia", "amnesia", "flush"), (1, 1, 2, 3))

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - that of the faults decides
        for server in world.servers:
            server.keep_past(once=False)

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare forgotten": sum(server.lost > 0 for server in world.servers)})


class Jumping(Theme):
    """The server's clock is set, forward and back."""

    name = "jumping"
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare set forward": 500, "rare set back": 500} for name in ("election", "meetings", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        _strike(self._rng(seed), profile, moment, ("clock",), (1, 2, 3))

    def counts(self, world: World) -> Counter[str]:
        return Counter(
            f"rare set {event.note.split()[1]}"
            for event in world.history
            if event.kind == "fault" and event.note[:5] == "clock"
        )


THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (Forgetful(), Jumping())}
"""By name."""
