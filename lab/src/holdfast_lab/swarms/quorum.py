"""Seeded histories of a lock on which three or five servers vote.

The kinds of faults are "partition" and those of the `lock` swarm, except "stale".
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

from holdfast._core.requests import Sleep
from holdfast_lab import checkers
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.faults import QUORUM_FAULTS
from holdfast_lab.sim.leftovers import told_at_once, write_the_end
from holdfast_lab.sim.quorum_client import Redlock, ServerGroup, described
from holdfast_lab.sim.quorum_driver import QuorumWorker
from holdfast_lab.sim.rlock_client import RLock
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Api, Process, World
from holdfast_lab.swarms.lock import (
    ECHO,
    ENOUGH,
    OF_ANY_LOCK,
    PROMPT,
    SET_BACK,
    STEPS,
    TIME_LIMIT,
    PlannedAcquisition,
    nest,
    progress_within,
    work,
)
from holdfast_lab.swarms.swarm import History, Swarm

QUICK = 2e-6
"""Mean delay of messages in the fastest histories, in seconds. It is so short that a clock alone could not make fences rise."""

SHORTEST = 0.3
"""The shortest lease of all histories, in seconds. A server that lost its data casts no vote for at least this time."""

INSISTING = 0.2
"""A client withdraws a vote within this many seconds, even if the connection to the server breaks meanwhile."""

PROBE = 5.0
"""Seconds within which a new client must acquire a free lock after all faults have ended."""


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. Times are in seconds."""

    servers: int
    ttl: float
    longest: float
    """The longest lease that clients may ask for (``max_ttl=``)."""
    renew: bool
    latency: float
    slow_share: float
    mishaps: float
    declared: bool
    """True if the servers were declared new, so that they vote at once. Otherwise, each first waits for `longest` seconds."""
    far: float
    """Share of the connections that are slow."""
    distance: float
    """Additional seconds that each message takes on a slow connection."""
    skews: list[float] = field(default_factory=list)
    """Seconds by which each server's clock is ahead of virtual time."""
    faults: list[tuple[int, str, float]] = field(default_factory=list)
    """For each fault: the number of events before it, its kind, and its duration."""
    workers: list[tuple[int, list[PlannedAcquisition]]] = field(default_factory=list)
    """For each worker: the index of its process, and the acquisitions that it is to make."""
    fair: list[bool] = field(default_factory=list)
    """For each process: True if it never hands a lock on."""
    max_passes: int = 32
    progress_within: float | None = None

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for _, kind, _ in self.faults)


def draw(rng: random.Random) -> Profile:
    choice, uniform = rng.choice, rng.random
    ttl = choice((SHORTEST, 1.0, 2.0, 2.0, 10.0))
    servers = choice((3, 3, 5))
    latency = choice((QUICK, 0.0003, 0.003, 0.02))
    skew = choice((0.0, 0.0, 0.05, 0.05, 1.5, 1.5))
    profile = Profile(
        servers=servers,
        ttl=ttl,
        longest=ttl * choice((1.0, 1.0, 3.0)),
        renew=uniform() < 0.8,
        latency=latency,
        slow_share=choice((0.0, 0.0, 0.02, 0.2)),
        mishaps=choice((0.0, 0.0, 0.01, 0.05, 0.2)),
        declared=uniform() < 0.9,
        far=choice((0.0, 0.0, 0.2, 0.5)),
        distance=choice((0.001, 0.01, 0.04)),
        skews=[skew * uniform() for _ in range(servers)],
    )
    names = choice(("x", "x", "x", "x", "x", "xy"))
    longest = choice((0.0, 0.1, 1.0, 1.5)) * ttl
    crowd = choice(((1,), (1, 1, 2), (2, 3)))
    for process in range(choice((3, 4))):
        for _ in range(choice(crowd)):
            rounds = [
                PlannedAcquisition(
                    lock=choice(names),
                    wait=choice((None, None, 30.0, 2.0, 0.3, 0.0)),
                    hold=uniform() * longest,
                    by_hand=choice((0.5, 1.0, 1.0)) if uniform() < 0.15 else 0.0,
                    gap=choice((0.0, 0.0, 0.05)) * uniform(),
                    twice=uniform() < 0.05,
                )
                for _ in range(choice((1, 2, 3)))
            ]
            profile.workers.append((process, rounds))
    profile.fair = [uniform() < 0.4 for _ in range(4)]
    profile.max_passes = choice((32, 32, 3, 1))
    _draw_faults(rng, profile)
    return profile


def _draw_faults(rng: random.Random, profile: Profile) -> None:
    choice, uniform = rng.choice, rng.random
    times: tuple[int, ...] = (1, 1, 2, 3)
    kinds = rng.sample(sorted(QUORUM_FAULTS.keys() - {"stale"}), choice((0, 1, 1, 2, 3)))
    theme = uniform()
    if theme < 0.15:  # the loss of one server's data matters most if other servers are unreachable
        kinds, times = ["amnesia", "partition"], (2, 3, 4)
    elif theme < 0.3:  # only clean-up matters, so that no other fault excuses leftovers
        kinds, times = choice((["cancel"], ["cut"])), (6, 9)
        profile.mishaps = profile.slow_share = 0.0
    elif theme < 0.4:  # explicit renewals make leases shorter, and reach the servers late
        profile.slow_share = max(profile.slow_share, 0.2)
        for planned in (planned for _, rounds in profile.workers for planned in rounds):
            planned.by_hand = choice((0.0, 0.5))
    elif theme < 0.5:  # each process is paused until the leases that it asked for have expired
        kinds, times = ["pause"], (6, 9)
    for kind in kinds:
        for _ in range(choice(times)):
            lasts = choice((0.01, 0.3, 1.0, 3.0)) * uniform() * max(1.0, profile.ttl)
            profile.faults.append((int(300 * uniform() ** 2), kind, lasts))


class QuorumHistory(History[Profile]):
    """A history of a lock on several servers."""

    hangs, fails = "R7", "R0"

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        rng = random.Random(seed)
        profile = draw(rng)
        theme.redraw(seed, profile, lambda share: int(300 * share**2))
        profile.progress_within = progress_within(seed, profile.renew, profile.ttl, profile.workers)
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        self.server_group = server_group = ServerGroup(world, profile.longest)
        for number, skew in enumerate(profile.skews):
            server = Server(world, f"s{number + 1}", offset=skew, rate=1 + rng.choice((0.0, 0.002, -0.002)))
            if skew > SHORTEST / 2:
                world.note("fault", server.name, note="clock is ahead", until=world.now)
            if profile.has("amnesia"):
                server.keep_past()
            if profile.declared:
                server_group.declare(server)
        for number in range(1 + max(process for process, _ in profile.workers)):
            _process(world, f"c{number + 1}", rng, profile.far, profile.distance)
            if profile.slow_share:
                world.note("fault", world.processes[-1].name, note="slow weather", until=world.now)
        nested = nest(seed, (planned for _, rounds in profile.workers for planned in rounds))
        for number, (of, rounds) in enumerate(profile.workers):
            worker = QuorumWorker(world.processes[of], str(number + 1))
            make = partial(_rlock if nested else _lock, worker, server_group, profile, fair=profile.fair[of])
            worker.start(work(rounds, make))
        for step, kind, lasts in profile.faults:
            world.plan(1 + step, partial(QUORUM_FAULTS[kind], world, rng, lasts))
        theme.begin(seed, world)

    def go(self) -> None:
        world = self.world
        if world.work(EPOCH + TIME_LIMIT, STEPS):
            self.found += settle(world, self.profile, self.server_group)
        else:
            self.found.append(Violation("R7", f"still waiting after {world.now - EPOCH:.0f} s: {self.waiting()}"))

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        return self.found + checkers.check(self.world.history, limits=limits(self.profile), coverage=coverage)


def _process(world: World, name: str, rng: random.Random, far: float, distance: float) -> Process:
    rate = 1 + rng.choice((0.0, 0.002, -0.002))
    api: Api = rng.choice(("threads", "asyncio"))
    process = Process(world, world.servers[0], name, api=api, offset=1000 * rng.random(), rate=rate)
    process.luck = rng
    process.far = {server: distance for server in world.servers if rng.random() < far}
    return process


def _lock(worker: Worker, server_group: ServerGroup, profile: Profile, name: str, *, fair: bool = True) -> Redlock:
    sharing = {"max_passes": profile.max_passes, "progress_within": profile.progress_within}
    spec = described(name, ttl=profile.ttl, renew=profile.renew, **sharing)
    return Redlock(worker, server_group, spec, fair=fair)


def _rlock(worker: Worker, server_group: ServerGroup, profile: Profile, name: str, *, fair: bool) -> RLock:
    return RLock(_lock(worker, server_group, profile, name, fair=fair))


def limits(profile: Profile) -> Limits:
    slow = profile.slow_share > 0
    trip = profile.latency + (profile.distance if profile.far else 0.0)
    calm = not (slow or profile.mishaps or profile.faults or profile.far)
    forgets = not profile.declared or profile.has("amnesia", "flush", "clock", "restart")
    waits = (1.02 * profile.longest if forgets else 0.0) + (SET_BACK if profile.has("clock") else 0.0)
    waits += profile.ttl if profile.progress_within is not None else 0.0  # a hung holder's votes have to expire
    return Limits(
        notice=profile.ttl / 3 + 1.0 if profile.renew and not slow and trip < 0.02 else float("inf"),
        handover=waits + (0.6 + 20 * trip if calm else 10.0 + profile.ttl + 20 * trip),
        echo=ECHO,
        lag=5.0 if slow else 1.2,
        quorum=profile.servers // 2 + 1,
        excuses=frozenset(("clock", "foreign")),
        rewinds="clock",
    )


def settle(world: World, profile: Profile, server_group: ServerGroup) -> list[Violation]:
    """End a history whose workers have finished: let all leases expire, record leftovers, and try each lock with a new client.

    If there are no faults except cancellations and cut connections, also record what is left before the leases expire.
    """
    world.calm_down()
    world.pass_time(PROMPT * (profile.latency + profile.distance) + (INSISTING if profile.has("cut") else 0.0))
    told_at_once(world, "cut")
    healed = max((lasts for _, _, lasts in profile.faults), default=0.0)
    world.pass_time(healed + 2.1 * profile.longest + 3.0 + SET_BACK)
    found = []
    for name in sorted({planned.lock for _, rounds in profile.workers for planned in rounds}):
        process = Process(world, world.servers[0], f"f{ord(name):x}")
        worker = QuorumWorker(process, "1")
        got: list[bool] = []
        patience = PROBE + 1.02 * profile.longest
        worker.start(_probe(_lock(worker, server_group, profile, name), patience, got))
        world.work(world.now + patience + PROBE, world.steps + STEPS)
        if got != [True]:
            found.append(Violation("R7", f"all faults are over, but a new client cannot acquire {name!r}"))
    world.pass_time(profile.longest)
    write_the_end(world)
    return found


async def _probe(lock: Redlock, wait: float, got: list[bool]) -> None:
    lease = await lock.acquire(wait)
    if lease is not None:
        await Sleep(0.01)
        await lock.release(lease)
        got.append(True)


ENOUGH_OF_VOTES = {
    **{name: count for name, count in ENOUGH.items() if name != "handed_over"},
    "died_holding": 3,
    "passed": 50,
    "script quorum/confirm": 500,
    "script lock/renew": 500,
}
"""Minimum counts of events in 1,000 histories of a lock on several servers."""

SWARM = Swarm(QuorumHistory, ENOUGH_OF_VOTES, (*OF_ANY_LOCK, "R1", "R4", "R7", "R19"))
