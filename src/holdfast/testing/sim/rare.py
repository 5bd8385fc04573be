"""Rare themes: what may happen all through a history, besides what its seed has drawn.

A theme is a fault that no plain history has, or has too seldom to show what it does. It is drawn apart: the same seed
without it is the history that it always was. `campaign.swarm_of` runs a swarm under a theme, as ``election+forgetful``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.testing.sim.wire import Push
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
    unjudged: ClassVar[frozenset[str]] = PEACE
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
    unjudged: ClassVar[frozenset[str]] = PEACE | {"S4"}  # nobody is to wait in vain, but for a server that forgets it
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


class Stranger(Theme):
    """Somebody who knows no token publishes forged messages to the inboxes."""

    name = "stranger"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare forged": 2000} for name in ("lock", "election", "meetings", "flight", "schedule")
    }

    def begin(self, seed: int, world: World) -> None:
        rng, span = self._rng(seed), 10 ** self._rng(seed, "span").uniform(-1, 1)
        for _ in range(40):
            world.at(world.now + span * rng.random(), self._forge, world, rng)

    def counts(self, world: World) -> Counter[str]:
        return world.rare

    @staticmethod
    def _forge(world: World, rng: random.Random) -> None:
        inboxes = [wire for server in world.servers for wire in server.wires if wire.channels and wire.open]
        if inboxes:
            wire = rng.choice(inboxes)
            wire.down.send(Push(min(wire.channels), forged(rng, rng.choice(world.processes).name)))
            world.rare["rare forged"] += 1


def forged(rng: random.Random, process: str) -> bytes:
    """A message as somebody may make it up who knows how ours look, and what processes are called, but no token."""
    token = f"{process}.{rng.getrandbits(64):016x}"
    number = rng.choice(("0", "1", "1700000000000001", "9" * 18, "-1", "1.5", "x", ""))
    shapes = (
        f"{rng.choice('01234')} {token} {number}",
        f"{rng.choice('123')} {token}",
        f"1 {process} {number}",
        rng.choice(("", " ", "1", "2 ", "3  ", "1 2 3 4", "4 " + "x" * 300)),
    )
    return rng.choice((*(shape.encode() for shape in shapes), rng.randbytes(20), "1 ² ²".encode()))


class Forbidden(Theme):
    """The user of the server may not run PUBSUB: no script learns whether anybody listens. Inboxes lose their connections."""

    name = "forbidden"
    unjudged: ClassVar[frozenset[str]] = frozenset(("E7",))
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {name: {"rare refused": 3000} for name in ("lock", "election")}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        _strike(self._rng(seed), profile, moment, ("unplug",), (4, 6, 8))
        profile.slow_share = 0.0  # or an inbox is away for longer than the order of waiters excuses

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - so it is in all of them
        for server in world.servers:
            server.keyspace.forbid("pubsub")

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare refused": sum(server.keyspace.forbidden for server in world.servers)})


THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (Forgetful(), Jumping(), Stranger(), Forbidden())}
"""By name."""
