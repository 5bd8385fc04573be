"""Fleets of clients that use one lock, each in its own way: as deployed, `TimestampLock`, `Migrating`, and `Lock`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from holdfast._core import timestamp
from holdfast._core.requests import Command, Now, Sleep, UnixTime, WireError
from holdfast._core.timestamp import Stamp, TimestampState
from holdfast.errors import LeaseLost, LockTimeout
from holdfast.legacy import _migrating
from holdfast_lab.judge import evidence
from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.sim import faults
from holdfast_lab.sim.lock_client import Lease, Lock, spec
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.virtual_time import EPOCH, Stuck, Weather
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Process, World

KEY = "lock.foo"
TTL = 2.0
OVERSTAY = 1.3
"""Work takes up to so many leases: some believe to hold it to the very end."""

DIES = 0.05
"""Share of the turns in which the holder is killed; others are hit by faults."""

TIME_LIMIT = 400.0
STEPS = 60_000

CRASH, TROUBLE = ("crash",), ("crash", "crash", "cancel", "cut", "restart", "pause")
"""The faults that clients of the deployed algorithm tolerate, and those that ours tolerate."""


def stamp(*, unit: int = 1000, server: bool = False, ttl: float = TTL) -> Stamp:
    return Stamp(KEY.encode(), ttl, unit, server, 0.2)


class Old:
    """The timestamp lock, as the APIs use the operations; what is believed is written down."""

    def __init__(self, worker: Worker, described: Stamp, core: ModuleType = timestamp) -> None:
        self.stays = OVERSTAY * described.ttl / TTL
        self.worker = worker
        self.stamp = described
        self.core = core
        self.taken = 0

    def note(self, kind: str, until: float = 0.0) -> None:
        attempt = f"{self.worker.name}@{self.taken}"
        self.worker.process.world.note(kind, self.worker.name, KEY, attempt, until=until)

    async def take(self, wait: float | None) -> TimestampState:
        hold = self.core.TimestampState()
        with self.worker.operation():
            try:
                if await self.core.acquire(self.stamp, hold, wait):
                    raise LockTimeout("busy")
            except BaseException:
                if hold.values:
                    await self.core.release(self.stamp, hold)
                raise
        self.taken += 1
        process = self.worker.process
        self.note("taken", min(process.true(hold.until), EPOCH + (hold.ends - EPOCH) - process.ahead))
        return hold  # type: ignore[no-any-return]

    async def give_back(self, hold: TimestampState) -> None:
        self.note("release")
        with self.worker.operation():
            if not await self.core.release(self.stamp, hold):
                raise LeaseLost("lost")

    def holds(self, hold: TimestampState) -> bool:
        return hold.until > self.worker.process.clock()


class Deployed(Old):
    """The algorithm of the field, to the letter: a client of another make. It gives back in time, because its DEL, sent at the
    last moment, would delete the next one's lock."""

    def __init__(self, worker: Worker, described: Stamp) -> None:
        super().__init__(worker, described)
        self.stays = 0.8

    async def take(self, wait: float | None) -> TimestampState:
        now = units = 0.0
        while True:
            units, now = await UnixTime() * self.stamp.unit, await Now()
            mine = b"%d" % (int(units) + int(self.stamp.ttl * self.stamp.unit) + 1)
            if await self.ask("SETNX", KEY, mine):
                break
            seen = await self.ask("GET", KEY)
            if seen and float(seen) < units and await self.ask("GETSET", KEY, mine) == seen:
                break
            await Sleep(0.1)
        self.taken += 1
        self.note("taken", self.worker.process.true(now + self.stamp.ttl))
        return TimestampState((mine,), now + self.stamp.ttl, float("inf"))

    async def give_back(self, hold: TimestampState) -> None:
        self.note("release")
        if await Now() < hold.until:
            await self.ask("DEL", KEY)

    async def ask(self, *args: str | bytes) -> Any:
        return (await Command(args, 5.0)).value


class New:
    """`holdfast.Lock`."""

    stays = OVERSTAY

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.lock = Lock(worker, spec("x", ttl=TTL))

    async def take(self, wait: float | None) -> Lease:
        lease = await self.lock.acquire(wait)
        if lease is None:
            raise LockTimeout("busy, or not to be had")
        return lease

    async def give_back(self, lease: Lease) -> None:
        await self.lock.release(lease)

    def holds(self, lease: Lease) -> bool:
        return bool(lease.remaining())


class Both:
    """`Migrating`."""

    stays = OVERSTAY

    def __init__(self, worker: Worker) -> None:
        self.halves = New(worker), Old(worker, stamp())
        self.worker = worker

    async def take(self, wait: float | None) -> Any:
        return await _migrating.take(*self.halves, wait, self.worker.process.clock)

    async def give_back(self, both: Any) -> None:
        await _migrating.give_back(*self.halves, both)


KINDS: dict[str, Any] = {
    "deployed": lambda worker: Deployed(worker, stamp()),
    "ours": lambda worker: Old(worker, stamp()),
    "ours, in seconds": lambda worker: Old(worker, stamp(unit=1)),
    "ours, for less": lambda worker: Old(worker, stamp(ttl=TTL / 4)),
    "ours, by the server's clock": lambda worker: Old(worker, stamp(server=True)),
    "migrating": Both,
    "new": New,
}


@dataclass
class Fleet:
    """The users of the lock, and the possible faults."""

    kinds: tuple[str, ...]
    faults: tuple[str, ...] = CRASH
    core: ModuleType = timestamp
    ahead: float = 0.0
    """Seconds by which clocks may be ahead."""


class Overlap(NamedTuple):
    one: str
    other: str
    at: float


@dataclass
class Outcome:
    """The result of one seed."""

    kinds: dict[str, str]
    """By worker."""
    overlaps: list[Overlap] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Kinds of those who had the lock."""
    turns: int = 0
    took_over: int = 0
    """How often it was taken after somebody had not given it back."""
    wrong: str = ""


async def use(kind: Any, rng: random.Random) -> None:
    """Take the lock a few times, work, give it back."""
    for _ in range(3):
        held = None
        try:
            held = await kind.take(rng.choice((None, None, 3.0)))
            await Sleep(rng.random() * TTL * kind.stays)
            if rng.random() < DIES:
                kind.worker.process.crash()
                return
            mine, held = held, None
            await kind.give_back(mine)
        except TaskCancelled:
            if held is not None:
                await _quietly(kind, held)
        except (LockTimeout, LeaseLost, WireError):
            pass
        await Sleep(rng.choice((0.0, 0.1, 1.0)) * rng.random())


async def _quietly(kind: Any, held: Any) -> None:
    try:
        await kind.give_back(held)
    except (LeaseLost, WireError):
        pass


def simulate(seed: int, fleet: Fleet) -> Outcome:
    """One history, judged."""
    rng = random.Random(f"{seed} {fleet.kinds}")
    latency = rng.choice((0.0003, 0.003))
    world = World(rng, Weather(rng, latency))
    server = Server(world)
    outcome = Outcome({})
    lost = rng.choice((0.0, 0.02)) if "cut" in fleet.faults else 0.0
    if lost:
        world.mishap = lambda wire, call: _lost(world, wire, call, lost)
    for number in range(rng.choice((2, 3, 4, 5))):
        kind = fleet.kinds[number % len(fleet.kinds)]
        ahead = fleet.ahead * rng.random()
        process = Process(
            world, server, f"c{number + 1}", offset=1000 * rng.random(), api=rng.choice(("threads", "asyncio")), ahead=ahead
        )
        worker = Worker(process, "1")
        outcome.kinds[worker.name] = kind
        made = KINDS[kind](worker)
        if isinstance(made, Old):
            made.core = fleet.core
        worker.start(use(made, rng))
    for name in rng.choices(fleet.faults, k=rng.choice((0, 1, 2, 2))):
        lasts = rng.choice((0.05, 0.5, 3.0)) * rng.random()
        fault = faults.FAULTS[name]
        world.plan(rng.randrange(5, 80), lambda fault=fault, lasts=lasts: fault(world, rng, lasts))  # type: ignore[misc]
    try:
        if not world.work(EPOCH + TIME_LIMIT, STEPS):
            outcome.wrong = f"still waiting after {world.now - EPOCH:.0f} s: {[w.name for w in world.working]}"
    except Stuck:
        outcome.wrong = "nobody can make a step, and somebody waits"
    except Exception as error:
        outcome.wrong = f"it raises {error!r}"
    world.close()
    judge(Evidence(world.history), outcome)
    return outcome


def _lost(world: World, wire: Any, call: Any, share: float) -> bool:
    """An answer gets lost, or a request."""
    if world.rng.random() >= share:
        return False
    world.note("fault", wire.process.name, note="lost-reply", until=world.now)
    if world.rng.random() < 0.7:
        wire.server.serve(wire, call)
    wire.cut(requests_arrive=False)
    return True


def judge(case: Evidence, outcome: Outcome) -> None:
    """Return the holders and their times; for `Migrating`, both halves count."""
    told: dict[str, dict[str, list[evidence.Hold]]] = {}
    for lock, scene in case.scenes.items():
        for hold in scene.holds:
            told.setdefault(hold.who, {}).setdefault(lock, []).append(hold)
    spans = sorted(
        (since, until, who)
        for who, by_lock in told.items()
        for since, until in _spans(by_lock, 2 if outcome.kinds[who] == "migrating" else 1)
    )
    ended: tuple[float, str] = (0.0, "")
    for since, until, who in spans:
        outcome.turns += 1
        outcome.used.add(outcome.kinds[who])
        if ended[0] > since and ended[1] != who:
            outcome.overlaps.append(Overlap(ended[1], who, since - EPOCH))
        ended = max(ended, (until, who))
    outcome.took_over = sum(hold.how != "release" for scene in case.scenes.values() for hold in scene.holds[:-1])


def _spans(by_lock: dict[str, list[evidence.Hold]], halves: int) -> Iterator[tuple[float, float]]:
    locks = list(by_lock.values())
    if halves == 1:
        yield from ((hold.taken.at, hold.end) for hold in locks[0] if hold.end > hold.taken.at)
    elif len(locks) == 2:
        for one in locks[0]:
            for other in locks[1]:
                since, until = max(one.taken.at, other.taken.at), min(one.end, other.end)
                if until > since:
                    yield since, until
