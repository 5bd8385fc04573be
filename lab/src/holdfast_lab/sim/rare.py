"""The themes of simulated histories.

A theme has its own random numbers. So a change of a theme does not change the histories without a theme.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from holdfast._core.inspect.break_lock import BREAK_PERMITS
from holdfast._core.lock.replies import ACQUIRE, RELEASE
from holdfast._core.names import PREFIX, lock_keys, quarantine_key
from holdfast._core.requests import Call, RunScript
from holdfast_lab.sim.faults import mishaps, move, turn_away
from holdfast_lab.sim.network import PublishedMessage, Wire
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PEACE, Moment, Theme, strike
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import World
from holdfast_lab.wired.themes import Closing, Foreign, Objects, Polling, Redirecting, Stalling, Voting


class Forgetful(Theme):
    """The server loses all its data, or the last writes."""

    name = "forgetful"
    unjudged: ClassVar[frozenset[str]] = PEACE | {"S4"}  # a loss of data excuses the waits that S4 forbids
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare forgotten": 300} for name in ("election", "rendezvous", "single_flight", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        strike(self._rng(seed), profile, moment, ("amnesia", "amnesia", "flush"), (1, 1, 2, 3))

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - the faults have their own seed
        for server in world.servers:
            server.keep_past(once=False)

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare forgotten": sum(server.lost > 0 for server in world.servers)})


class Jumping(Theme):
    """The server's clock is set forward and back."""

    name = "jumping"
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare set forward": 500, "rare set back": 500} for name in ("election", "rendezvous", "schedule")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        strike(self._rng(seed), profile, moment, ("clock",), (1, 2, 3))

    def counts(self, world: World) -> Counter[str]:
        return Counter(
            f"rare set {event.note.split()[1]}"
            for event in world.history
            if event.kind == "fault" and event.note[:5] == "clock"
        )


class Stranger(Theme):
    """A foreign client publishes forged messages to the inboxes of processes. It knows no token."""

    name = "stranger"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare forged": 2000}
        for name in (
            "lock",
            "multilock",
            "quorum",
            "permit",
            "ticket",
            "break_lock",
            "election",
            "rendezvous",
            "single_flight",
            "schedule",
        )
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
            wire.down.send(PublishedMessage(min(wire.channels), forged(rng, rng.choice(world.processes).name)))
            world.rare["rare forged"] += 1


def forged(rng: random.Random, process: str) -> bytes:
    """Return a random message without a valid token. It is malformed, or looks like a message of the library."""
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
    """The server forbids PUBSUB, so scripts cannot count subscribers. Connections for notifications break now and then."""

    name = "forbidden"
    unjudged: ClassVar[frozenset[str]] = frozenset(("E7",))
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare refused": 3000} for name in ("lock", "multilock", "permit", "ticket", "break_lock", "election")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        strike(self._rng(seed), profile, moment, ("unplug",), (4, 6, 8))
        profile.slow_share = 0.0  # otherwise an inbox may be cut too long for the excuse in the rule about the waiters' order

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - the same for all seeds
        for server in world.servers:
            server.keyspace.forbid("pubsub")

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare refused": sum(server.keyspace.forbidden for server in world.servers)})


class Reset(Theme):
    """A barrier, a latch or an event is reset while workers wait for it."""

    name = "reset"
    resets = True
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"rendezvous": {"rare reset while awaited": 300}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        profile.mishaps = self._rng(seed).choice((profile.mishaps, 0.2))  # so that requests to reset come twice, and late

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
    """The server is overloaded: many replies come seconds late, often after the client has stopped waiting."""

    name = "laden"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare late": 10_000} for name in ("election", "rendezvous", "single_flight", "schedule")
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
    """The keeper of one process hangs, and renews no lease. Some seconds later, the process is killed."""

    name = "unrenewed"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare hung": 600}
        for name in (
            "lock",
            "multilock",
            "quorum",
            "permit",
            "ticket",
            "break_lock",
            "election",
            "rendezvous",
            "single_flight",
            "schedule",
        )
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - by its own time
        profile.mishaps = profile.mishaps or 0.001  # above 0, so that the rules for calm histories do not judge this history
        if hasattr(profile, "lasts"):
            profile.lasts = max(profile.lasts, self._lives(seed))

    def begin(self, seed: int, world: World) -> None:
        rng = self._rng(seed)
        at = world.now + rng.choice((0.1, 3.0)) * rng.random()
        number = rng.randrange(10)
        world.at(at, self._hang, world, number)
        world.at(world.now + self._lives(seed), self._kill, world)

    def _lives(self, seed: int) -> float:
        """Return when the process is killed, in seconds since the start of the history."""
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


class RevokedTokens(Theme):
    """Each lock has about a hundred revoked tokens, and further tokens are revoked at random times."""

    name = "revoked"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare revoked": 20_000} for name in ("lock", "multilock", "ticket", "break_lock")
    }

    def begin(self, seed: int, world: World) -> None:
        rng, span = self._rng(seed), 10 ** self._rng(seed, "span").uniform(-1, 1)
        (server,) = world.servers
        tokens = (f"ef.{number:04x}" for number in itertools.count())
        server.keyspace.now = int(1e6 * server.wall())
        for name in "xyz":
            for _ in range(rng.choice((90, 99, 100, 130))):
                server.keyspace.run(RELEASE, lock_keys(name, PREFIX.decode(), None), (next(tokens), "bury"))
        if server.keyspace.execute("EXISTS", quarantine_key(PREFIX)):
            return  # a revocation without quarantine= could hand over a lock whose lease the server has lost
        for _ in range(40):
            world.at(world.now + span * rng.random(), self._revoke, world, server, rng.choice("xxyz"), next(tokens))

    @staticmethod
    def _revoke(world: World, server: Server, name: str, token: str) -> None:
        if server.reachable and not (server.hung or server.refusing):
            server.visit(RunScript(RELEASE, lock_keys(name, PREFIX.decode(), None), (token, "bury"), 1.0))
            world.rare["rare revoked"] += 1

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Long(Theme):
    """Workers hold locks and pause for many minutes, so that keys expire that a server keeps for minutes."""

    name = "long"
    unjudged: ClassVar[frozenset[str]] = PEACE
    histories = 4
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {name: {"rare hours": 100} for name in ("lock", "rendezvous")}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - as drawn
        rng = self._rng(seed)
        if hasattr(profile, "pace"):  # rendezvous
            profile.pace, profile.keep_ms = 40.0, 1_000_000
            profile.ttl *= profile.pace
            profile.count = rng.choice((profile.count, 30)) if profile.what == "latch" else profile.count
            profile.faults = [(profile.pace * at, kind, lasts) for at, kind, lasts in profile.faults]
            return
        profile.time_limit = 60_000.0
        scale = rng.choice((30.0, 300.0, 600.0)) / profile.ttl
        profile.ttl *= scale
        profile.max_hold = profile.max_hold and scale * profile.max_hold
        profile.renew = profile.renew and rng.random() < 0.5
        profile.linger = profile.linger if profile.renew else 0.0
        profile.workers = profile.workers[:7]
        profile.odd = frozenset(min(number, len(profile.workers) - 1) for number in profile.odd)
        for planned in (planned for _, rounds in profile.workers for planned in rounds[:2]):
            planned.hold = rng.choice((0.0, 1.0, profile.ttl, 3000.0)) * rng.random()
            planned.gap = rng.choice((0.0, 10.0, 2000.0)) * rng.random()

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare hours": world.now > EPOCH + 3600})


class Unequal(Theme):
    """The workers of a process ask for leases of different lengths, and often wait only briefly.

    Many notifications are lost. So a worker may inherit a position in the queue just when the server grants the lock to it.
    """

    name = "unequal"
    unjudged: ClassVar[frozenset[str]] = PEACE | {"R6", "R16 refused"}
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"lock": {"rare unequal": 800}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.mishaps, profile.latency, profile.slow_share = 0.2, rng.choice((0.003, 0.02)), 0.2
        profile.odd = frozenset(number for number in range(len(profile.workers)) if rng.random() < 0.5)
        profile.fair = [False] * len(profile.fair)
        profile.faults += [(rng.randrange(400), rng.choice(("unplug", "deaf")), 2 * rng.random()) for _ in range(6)]
        profile.workers = [
            (process, [self._changed(rng, planned, profile.ttl) for planned in (4 * rounds)[:12]])
            for process, rounds in profile.workers
        ]

    @staticmethod
    def _changed(rng: random.Random, planned: Any, ttl: float) -> Any:
        return replace(planned, wait=rng.choice((None, 0.3, 1.0, 2.0)), hold=ttl * rng.choice((0.5, 1.5)) * rng.random())

    def begin(self, seed: int, world: World) -> None:
        world.mishap = mishaps(world, self._rng(seed, "mishaps").choice((0.2, 0.4)), ("slow",))

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare unequal": len({event.until - event.at for event in world.history if event.kind == "taken"}) > 1})


class Mixed(Theme):
    """The workers of a process use the same lock with different options. Some workers use a FairLock."""

    name = "mixed"
    histories = 30
    unjudged: ClassVar[frozenset[str]] = PEACE | {"R6", "R16 refused"}
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare handed on to other options": 100} for name in ("lock", "multilock", "ticket", "break_lock")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.mixed = {number: self._options(rng, profile) for number in range(len(profile.workers))}
        profile.workers = [
            (process, [replace(planned, hold=rng.choice((0.1, 1.0)) * planned.hold) for planned in (3 * rounds)[:9]])
            for process, rounds in profile.workers
        ]
        for number, (_, rounds) in enumerate(profile.workers):
            bound = profile.mixed[number]["max_hold"] or profile.mixed[number]["progress_within"]
            for planned in rounds if bound else ():  # sometimes, the holder does not notice that its time is up
                planned.hold = rng.choice((0.3 * bound, bound + 2.5, bound + 6.5))
        self._forget_to_renew(seed, profile)
        # A reply in a quarantine has a very high fence. A forged notification with this fence would look like a grant.
        profile.faults = [fault for fault in profile.faults if fault[1] != "stale"]
        options = list(profile.mixed.values())
        # The rules use one limit for all workers: that of the worker with the most generous options.
        profile.linger = max(one["linger"] for one in options)
        profile.max_passes = max(one["max_passes"] for one in options)
        profile.renew = all(one["renew"] for one in options)
        profile.max_hold = next((one["max_hold"] for one in options if one["max_hold"] is not None), None)
        if rng.random() < 0.4:
            profile.odd = frozenset(number for number in range(len(profile.workers)) if rng.random() < 0.5)
        if rng.random() < 0.3:  # workers inherit places, and learn of grants when they refresh them
            profile.mishaps, profile.latency, profile.slow_share = 0.1, rng.choice((0.003, 0.02)), 0.2
            profile.faults += [(rng.randrange(200), rng.choice(("unplug", "deaf")), 2 * rng.random()) for _ in range(4)]
            for planned in (planned for _, rounds in profile.workers for planned in rounds):
                planned.wait = rng.choice((None, 0.3, 1.0, 2.0))

    def _forget_to_renew(self, seed: int, profile: Any) -> None:
        """Let some holders with ``renew=False`` hold their locks for longer than their leases."""
        rng = self._rng(seed, "unrenewed")
        for number, (_, rounds) in enumerate(profile.workers):
            for planned in rounds if not profile.mixed[number]["renew"] else ():
                if rng.random() < 0.5:
                    planned.hold = profile.ttl + rng.choice((2.5, 6.5))

    @staticmethod
    def _options(rng: random.Random, profile: Any) -> dict[str, Any]:
        choice, uniform = rng.choice, rng.random
        renew = uniform() < 0.9
        max_hold = profile.ttl * choice((0.5, 2.0)) if uniform() < 0.1 else None
        within = profile.ttl * choice((0.5, 1.0, 2.0)) if renew and uniform() < 0.1 else None
        plain = renew and max_hold is None and within is None
        options: dict[str, Any] = {
            "renew": renew,
            "max_hold": max_hold,
            "progress_within": within,
            "linger": choice((0.0, 0.0, 0.03, 0.4)) if plain else 0.0,
            "max_passes": choice((32, 32, 32, 3, 1)),
            "max_pass_time": choice((0.0, profile.max_pass_time, profile.max_pass_time)),
            "label": choice((None, "one", "other")),
            "fair": uniform() < 0.15,
        }
        if uniform() < 0.3:
            options["quarantine"] = 0.0
        return options

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Lowered(Theme):
    """The limit of a semaphore changes all the time, and an operator revokes the permits of several holders.

    The limit may become lower than the number of permits that clients hold or want.
    """

    name = "lowered"
    unjudged: ClassVar[frozenset[str]] = frozenset()
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"permit": {"rare lowered": 1000, "rare broken together": 300}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        rng = self._rng(seed)
        if rng.random() < 0.5:  # the leases of all holders in a process end at about the same time
            profile.faults.append((moment(rng.random()), "crash", 0.0))
            for planned in (planned for _, rounds in profile.workers for planned in rounds):
                planned.hold = profile.ttl * rng.random()
        profile.workers = [
            (process, [replace(planned, lock=rng.choice("xxxy")) for planned in (2 * rounds)[:6]])
            for process, rounds in profile.workers
        ]

    def use(self, seed: int, users: Any) -> None:
        rng = self._rng(seed, "users")
        users.limit, users.least, users.changes = rng.choice((3, 5, 8)), 1, 0.5
        users.most = rng.choice((1, 2, users.limit))

    def begin(self, seed: int, world: World) -> None:
        rng, span = self._rng(seed, "breaks"), 10 ** self._rng(seed, "span").uniform(-1, 0.5)
        for _ in range(6):
            world.at(world.now + span * rng.random(), self._break, world, rng)

    @staticmethod
    def _break(world: World, rng: random.Random) -> None:
        (server,) = world.servers
        name = rng.choice("xxy")
        keys = lock_keys(name, PREFIX.decode(), None)
        holders = server.keyspace.execute("ZRANGE", keys[0], 0, -1)
        if not isinstance(holders, list) or not server.reachable or server.hung or server.refusing:
            return
        found = rng.sample(sorted(holders), min(len(holders), rng.choice((1, 2, 2, 3))))
        if not found:
            return
        leases = " ".join(server.whose(token) for token in found)
        marks = [hashlib.sha1(token, usedforsecurity=False).hexdigest()[:16] for token in found]
        world.note("fault", server.name, keys[0].decode(), until=world.now, note="foreign break", lease=leases)
        server.visit(RunScript(BREAK_PERMITS, keys, ("ops", *marks), 1.0))
        world.rare["rare broken together"] += len(found) > 1

    def counts(self, world: World) -> Counter[str]:
        found = world.rare.copy()
        limits: dict[str, int] = {}
        for event in world.history:
            if event.kind == "limit":
                found["rare lowered"] += event.last < limits.get(event.lock, 0)
                limits[event.lock] = event.last
        return found


class SetBack(Jumping):
    """The server's clock is set forward and back while a cached value is loaded and invalidated."""

    name = "set-back"
    unjudged: ClassVar[frozenset[str]] = PEACE | {"S1 old", "S3", "S4"}  # these rules rely on a clock that is not set
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"single_flight": {"rare set back": 1000, "flight voided": 1000}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:
        rng = self._rng(seed)
        strike(rng, profile, moment, ("clock",), (2, 3, 4))
        how = rng.choice(("tag", "tag", "all", "drop"))
        planned = [planned for _, rounds in profile.workers for planned in rounds]
        if not any(one.write == "store" for one in planned):  # if a worker stores values, it must be the only writer
            for one in planned:
                one.write = how if rng.random() < 0.35 else ""
        profile.ttl = rng.choice((profile.ttl, 30.0))


class Failing(Theme):
    """Loads of a cached value have long leases and often fail, and many requests and replies are lost."""

    name = "failing"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"single_flight": {"flight aborted": 1000, "rare lost": 5000}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.lease, profile.bound, profile.mishaps = 60.0, 12.0, 0.3
        profile.slow_share, profile.faults, profile.stale = 0.0, [], 0.0
        for planned in (planned for _, rounds in profile.workers for planned in rounds):
            planned.fails, planned.takes = rng.random() < 0.7, min(planned.takes, 1.0)

    def begin(self, seed: int, world: World) -> None:  # noqa: ARG002 - with the numbers of the world
        world.mishap = mishaps(world, 0.3, ("lost-request", "lost-reply"))

    def counts(self, world: World) -> Counter[str]:
        return Counter({"rare lost": sum(event.kind == "fault" and event.note[:5] == "lost-" for event in world.history)})


class Putting(Theme):
    """Several workers put, delete and invalidate cached values. Many requests arrive late or twice."""

    name = "putting"
    unjudged: ClassVar[frozenset[str]] = PEACE | {"S3", "S4"}  # a late copy of any write may end a load or delete a value
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"single_flight": {"flight voided": 2000, "rare late": 500}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.mishaps = 0.2
        profile.lease, profile.ttl = rng.choice((0.3, 1.0, 5.0)), rng.choice((3.0, 30.0))
        for planned in (planned for _, rounds in profile.workers for planned in rounds):
            planned.write = rng.choice(("store", "store", "drop", "tag")) if rng.random() < 0.5 else ""
            planned.gap *= rng.choice((0.1, 1.0))

    def begin(self, seed: int, world: World) -> None:
        world.mishap = mishaps(world, self._rng(seed).choice((0.1, 0.3)), ("lost-reply", "duplicate", "slow"))

    def counts(self, world: World) -> Counter[str]:
        return Counter(
            {"rare late": sum(event.kind == "fault" and event.note in {"duplicate", "slow"} for event in world.history)}
        )


class Redefined(Theme):
    """Runs crash around the time at which a process redefines the jobs with the opposite ``on_crash=``.

    Other processes still serve the jobs by the old definition.
    """

    name = "redefined"
    unjudged: ClassVar[frozenset[str]] = PEACE
    more_rules: ClassVar[tuple[str, ...]] = ("S1 crashed",)
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "schedule": {"schedule redefined": 900, "tick crashed": 500, "tick attempts": 200}
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - around the new definition
        rng = self._rng(seed)
        at = profile.lasts * rng.uniform(0.1, 0.6)
        profile.redefined_at = at
        profile.stops, profile.mishaps = [], max(profile.mishaps, 0.001)
        kinds = ("crash", "slay", "slay", "unplug", "deaf")
        profile.faults += [(at + rng.uniform(-0.5, 1.0), rng.choice(kinds), rng.choice((0.3, 1.0))) for _ in range(4)]
        profile.faults = [(max(0.0, when), kind, lasts) for when, kind, lasts in profile.faults]


class Stubborn(Theme):
    """Runs do not end in time after they were told to end, so that their processes abandon them."""

    name = "stubborn"
    histories = 20
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"schedule": {"schedule abandoned": 200}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.stubborn = rng.choice((3.0, 12.0, 15.0))
        profile.mishaps = max(profile.mishaps, 0.001)
        profile.jobs = {
            name: (when, replace(options, max_runtime=rng.choice((0.3, 0.4, options.max_runtime))))
            for name, (when, options) in profile.jobs.items()
        }
        profile.takes = dict.fromkeys(profile.takes, (0.2, 2.0))


class Crowded(Theme):
    """The server has reached its limit of connections.

    A process that loses a connection cannot open a new one for a moment. So after a request without a reply, the next requests
    are not sent.
    """

    name = "crowded"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare turned away": 1000} for name in ("lock", "multilock", "ticket")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        profile.mishaps = self._share(seed)

    def begin(self, seed: int, world: World) -> None:
        rng, mishap = self._rng(seed), mishaps(world, self._share(seed), ("lost-reply", "lost-reply", "lost-request"))

        def crowded(wire: Wire, call: Call) -> bool:
            hit = mishap(wire, call)
            if hit:
                process = next(process for process in world.processes if process is wire.process)
                turn_away(world, process, rng.choice((0.01, 0.03, 0.05)))
                world.rare["rare turned away"] += 1
            return hit

        world.mishap = crowded

    def counts(self, world: World) -> Counter[str]:
        return world.rare

    def _share(self, seed: int) -> float:
        return self._rng(seed).choice((0.03, 0.1, 0.2))


class Moving(Theme):
    """The Cluster slot of all locks is moved to another server again and again.

    During a move, leases are renewed and released by scripts with a single key, and everything else is refused. The network
    duplicates some of these requests. Each copy arrives before the move ends: after that, a real server would redirect it.
    """

    name = "moving"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {"rare moved": 2000, "rare twice": 1000} for name in ("lock", "permit")
    }

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - by its own time
        rng = self._rng(seed, "renewals")
        profile.mishaps, profile.slow_share = 0.05, 0.0
        for planned in (planned for _, rounds in profile.workers for planned in rounds):
            planned.by_hand = rng.choice((planned.by_hand, 0.3, 1.0, 2.0))

    def begin(self, seed: int, world: World) -> None:
        rng, span = self._rng(seed), 10 ** self._rng(seed, "span").uniform(-1, 1)
        (server,) = world.servers
        for _ in range(6):
            world.at(world.now + span * rng.random(), self._move, world, server, rng.choice((0.03, 0.3, 1.0)) * rng.random())
        lost = mishaps(world, 0.05, ("lost-reply",))

        def mishap(wire: Wire, call: Call) -> bool:
            if not server.moving or rng.random() > 0.5:
                return lost(wire, call)
            world.at(world.now + rng.choice((0.001, 0.3)) * rng.random(), self._again, world, server, wire, call, server.moves)
            return False

        world.mishap = mishap

    @staticmethod
    def _move(world: World, server: Server, lasts: float) -> None:
        if server.reachable and not server.moving:
            move(world, server, lasts)
            world.rare["rare moved"] += 1

    @staticmethod
    def _again(world: World, server: Server, wire: Wire, call: Call, moves: int) -> None:
        if server.moving and server.moves == moves:
            server.again(wire, call)
            world.rare["rare twice"] += 1

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Overtaken(Theme):
    """The reply that grants a lock is late. It arrives after the notification that another client waits for the lock.

    Without this notification, the new holder's process would hand the lock on among its workers for long. There are no other
    faults.
    """

    name = "overtaken"
    histories = 30
    unjudged: ClassVar[frozenset[str]] = PEACE | {
        "R4", "R6", "R6 end", "R6 told", "R7", "R7 claim", "R8 place", "R14", "R15 resent", "R16 refused",
    }  # fmt: skip
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"lock": {"rare trailing": 5000}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - all the time
        rng = self._rng(seed)
        profile.mishaps, profile.latency, profile.slow_share, profile.faults = 0.0, 0.0003, 0.0, []
        profile.ttl, profile.renew, profile.max_hold, profile.linger = 10.0, True, None, 0.0
        profile.odd, profile.fair = frozenset(), [False] * len(profile.fair)
        profile.max_passes, profile.max_pass_time = rng.choice((32, 3, 1)), rng.choice((0.01, 0.0))
        pattern = profile.workers[0][1][0]

        def rounds(longest: float) -> list[Any]:
            return [
                replace(
                    pattern, lock="x", wait=None, hold=longest * rng.random(), gap=rng.choice((0.0, 0.3)) * rng.random(),
                    by_hand=0.0, twice=False,
                )
                for _ in range(8)
            ]  # fmt: skip

        profile.workers = [(0, rounds(0.2)) for _ in range(3)] + [(1, rounds(0.02)) for _ in range(rng.choice((1, 2)))]

    def begin(self, seed: int, world: World) -> None:
        rng = self._rng(seed, "replies")

        def trail(wire: Wire, call: Call) -> bool:
            if isinstance(call, RunScript) and call.script is ACQUIRE:
                late = rng.choice((0.0, 0.04)) * rng.random()
                wire.down.stalled = world.now + late
                world.rare["rare trailing"] += late > 0
            return False

        world.mishap = trail

    def counts(self, world: World) -> Counter[str]:
        return world.rare


class Hurried(Theme):
    """Threads are interrupted during a request, and once more while they clean up, as by a user who presses Ctrl-C twice.

    The request is carried out or lost. In either case, a thread that is interrupted only once leaves nothing behind. A clean-up
    that is interrupted may leave a lock on the server until its lease ends.
    """

    name = "hurried"
    unjudged: ClassVar[frozenset[str]] = PEACE
    swarms: ClassVar[Mapping[str, Mapping[str, int]]] = {"lock": {"rare interrupted": 1500, "rare hurried": 150}}

    def redraw(self, seed: int, profile: Any, moment: Moment) -> None:  # noqa: ARG002 - at random requests
        rng = self._rng(seed, "waits")
        profile.mishaps, profile.slow_share, profile.faults = 0.01, 0.0, []
        for planned in (planned for _, rounds in profile.workers for planned in rounds):
            planned.wait = rng.choice((planned.wait, 0.3, 0.0))

    def begin(self, seed: int, world: World) -> None:
        rng = self._rng(seed)
        share, before = rng.choice((0.05, 0.2)), set[str]()
        for process in world.processes:
            process.api = "threads"

        def interrupted(wire: Wire, call: Call) -> bool:  # noqa: ARG001 - any request
            workers = [one for process in world.processes for one in process.workers if isinstance(one, Worker)]
            worker = next((one for one in workers if one.name == wire.label), None)
            if worker is None or not worker.inside or rng.random() >= share:
                return False
            world.rare["rare interrupted"] += 1
            once_more = worker.acquisition in before
            before.add(worker.acquisition)
            self._interrupt(world, worker, once_more=once_more)
            if rng.random() < 0.5:
                world.at(world.now + 0.003 * rng.random(), self._again, world, worker, worker.acquisition)
                return False
            return rng.random() < 0.5

        world.mishap = interrupted

    def _again(self, world: World, worker: Worker, attempt: str) -> None:
        if worker.inside and worker.asked is not None and worker.acquisition == attempt:
            self._interrupt(world, worker, once_more=True)
            world.rare["rare hurried"] += 1

    @staticmethod
    def _interrupt(world: World, worker: Worker, *, once_more: bool) -> None:
        world.note("fault", worker.name, note="cancel: once more" if once_more else "cancel", until=world.now)
        worker.cancel()

    def counts(self, world: World) -> Counter[str]:
        return world.rare


THEMES: Mapping[str, Theme] = {
    theme.name: theme
    for theme in (
        Forgetful(), Jumping(), Stranger(), Forbidden(), Reset(), Laden(), Unrenewed(), RevokedTokens(), Long(),
        Unequal(), Mixed(), Lowered(), SetBack(), Failing(), Putting(), Redefined(), Stubborn(), Crowded(), Moving(), Voting(),
        Polling(), Foreign(), Closing(), Redirecting(), Objects(),
        Overtaken(), Hurried(), Stalling(),
    )
}  # fmt: skip
