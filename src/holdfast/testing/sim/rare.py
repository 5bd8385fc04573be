"""Rare themes: what may happen all through a history, besides what its seed has drawn.

A theme is a fault that no plain history has, or has too seldom to show what it does. It is drawn apart: the same seed
without it is the history that it always was. `campaign.swarm_of` runs a swarm under a theme, as ``election+forgetful``.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast._core.lock.replies import RELEASE
from holdfast._core.names import PREFIX, guard_key, lock_keys
from holdfast._core.requests import Run
from holdfast.testing.sim.faults import mishaps
from holdfast.testing.sim.network import Push
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.world import EPOCH, World

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

    histories = 12
    """So many are done whenever the tests are run."""
    resets = False
    """What somebody waits for is set back now and then."""

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
        name: {"rare forged": 2000}
        for name in ("lock", "several", "quorum", "permits", "ticket", "break", "election", "meetings", "flight", "schedule")
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
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare refused": 3000} for name in ("lock", "several", "permits", "ticket", "break", "election")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        _strike(self._rng(seed), profile, moment, ("unplug",), (4, 6, 8))
        profile.slow_share = 0.0  # or an inbox is away for longer than the order of waiters excuses

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - so it is in all of them
        for server in world.servers:
            server.keyspace.forbid("pubsub")

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare refused": sum(server.keyspace.forbidden for server in world.servers)})


class Reset(Theme):
    """A barrier, a latch or an event is reset while others wait for it."""

    name = "reset"
    resets = True
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"meetings": {"rare reset while awaited": 300}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        profile.mishaps = self._rng(seed).choice((profile.mishaps, 0.2))  # as a reset may come twice, and late

    def counts(self, world: World) -> Counter[str]:
        waiting: set[str] = set()
        found: Counter[str] = Counter()
        for event in world.history:
            if event.kind == "await":
                waiting.add(event.attempt)
            waiting.discard(event.attempt if event.kind in {"released", "unreleased", "ended"} else "")
            found["rare reset while awaited"] += event.kind == "cleared" and bool(waiting)
        return found


class Laden(Theme):
    """The server has too much to do: many answers come seconds late, or too late."""

    name = "laden"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare late": 10_000} for name in ("election", "meetings", "flight", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        profile.mishaps = self._share(seed)

    def begin(self, seed: int, world: World) -> None:
        world.mishap = mishaps(world, self._share(seed), ("slow",))

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare late": sum(event.kind == "fault" and event.note == "slow" for event in world.history)})

    def _share(self, seed: int) -> float:
        return self._rng(seed).choice((0.2, 0.4, 0.6))


class Unrenewed(Theme):
    """Leases that nobody renews: the keeper of a process hangs, while its workers go on, until the process is killed."""

    name = "unrenewed"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare hung": 600}
        for name in ("lock", "several", "quorum", "permits", "ticket", "break", "election", "meetings", "flight", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - by its own time
        profile.mishaps = profile.mishaps or 0.001  # nothing is calm here
        if hasattr(profile, "lasts"):
            profile.lasts = max(profile.lasts, self._lives(seed))

    def begin(self, seed: int, world: World) -> None:
        rng = self._rng(seed)
        at = world.now + rng.choice((0.1, 3.0)) * rng.random()
        number = rng.randrange(10)
        world.at(at, self._hang, world, number)
        world.at(world.now + self._lives(seed), self._kill, world)

    def _lives(self, seed: int) -> float:
        """Seconds after which the process is killed."""
        return self._rng(seed, "lives").uniform(4.0, 8.5)

    def _hang(self, world: World, number: int) -> None:
        alive = [process for process in world.processes if process.here]
        if alive:
            alive[number % len(alive)].hang_keeper()
            world.rare["rare hung"] += 1

    @staticmethod
    def _kill(world: World) -> None:
        for process in world.processes:
            if process.keeper_hangs and process.here:
                world.note("fault", process.name, note="crash")
                process.crash()

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Revoked(Theme):
    """On each key, more than a hundred tokens were declared dead, and others are all the time."""

    name = "revoked"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare revoked": 20_000} for name in ("lock", "several", "ticket", "break")
    }

    def begin(self, seed: int, world: World) -> None:
        rng, span = self._rng(seed), 10 ** self._rng(seed, "span").uniform(-1, 1)
        (server,) = world.servers
        tokens = (f"ef.{number:04x}" for number in itertools.count())
        server.keyspace.now = int(1e6 * server.wall())
        for name in "xyz":
            for _ in range(rng.choice((90, 99, 100, 130))):
                server.keyspace.run(RELEASE, lock_keys(name, PREFIX.decode(), None), (next(tokens), "bury"))
        if server.keyspace.execute("EXISTS", guard_key(PREFIX)):
            return  # whoever gives up says that the lock has quarantine=, or what the server may have forgotten is handed over
        for _ in range(40):
            world.at(world.now + span * rng.random(), self._revoke, server, rng.choice("xxyz"), next(tokens))

    @staticmethod
    def _revoke(server: Server, name: str, token: str) -> None:
        if server.reachable and not (server.hung or server.refusing):
            server.visit(Run(RELEASE, lock_keys(name, PREFIX.decode(), None), (token, "bury"), 1.0))
            server.world.rare["rare revoked"] += 1

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Long(Theme):
    """Hours pass: in waits, holds and pauses, so that whatever the server keeps for minutes ends meanwhile."""

    name = "long"
    unjudged: ClassVar[frozenset[str]] = PEACE
    histories = 4
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {name: {"rare hours": 100} for name in ("lock", "meetings")}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - as drawn
        rng = self._rng(seed)
        if hasattr(profile, "pace"):  # meetings
            profile.pace, profile.keep_ms = 40.0, 1_000_000
            profile.ttl *= profile.pace
            profile.count = rng.choice((profile.count, 30)) if profile.what == "latch" else profile.count
            profile.faults = [(profile.pace * at, kind, lasts) for at, kind, lasts in profile.faults]
            return
        profile.horizon = 60_000.0
        scale = rng.choice((30.0, 300.0, 600.0)) / profile.ttl
        profile.ttl *= scale
        profile.max_hold = profile.max_hold and scale * profile.max_hold
        profile.renew = profile.renew and rng.random() < 0.5
        profile.linger = profile.linger if profile.renew else 0.0
        profile.workers = profile.workers[:7]
        profile.odd = min(profile.odd, len(profile.workers) - 1)
        for planned in (planned for _, rounds in profile.workers for planned in rounds[:2]):
            planned.hold = rng.choice((0.0, 1.0, profile.ttl, 3000.0)) * rng.random()
            planned.gap = rng.choice((0.0, 10.0, 2000.0)) * rng.random()

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare hours": world.now > EPOCH + 3600})


THEMES: Mapping[str, Theme] = {
    theme.name: theme
    for theme in (
        Forgetful(), Jumping(), Stranger(), Forbidden(), Reset(), Laden(), Unrenewed(), Revoked(), Long(),
    )
}  # fmt: skip
"""By name."""
