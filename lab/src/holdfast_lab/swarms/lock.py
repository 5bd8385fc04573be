"""Seeded histories of a lock. A seed determines the world, its workers and its faults.

Many histories with a few kinds of faults each find more defects than a few histories with all faults (A. Groce et al., "Swarm
Testing", ISSTA 2012). The same seed always gives exactly the same history. Other swarms use parts of this module.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.lock.spec import Spec
from holdfast._core.requests import Sleep
from holdfast_lab import checkers
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import UNSETTLING
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.faults import FAULTS, mishaps
from holdfast_lab.sim.leftovers import told_at_once, write_the_end
from holdfast_lab.sim.lock_client import Lock, spec
from holdfast_lab.sim.rlock_client import RLock
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH, Stuck, Weather
from holdfast_lab.sim.worker import Cancelled, Worker
from holdfast_lab.sim.world import Process, World
from holdfast_lab.swarms.result import Run

TIME_LIMIT = 600.0
"""Seconds of virtual time within which every worker must finish, whatever faults happen."""

SET_BACK = 10.0
"""Maximum number of seconds by which the server's clock is set back. Keys may live this much longer."""

ODD = 1.5
"""Factor by which the leases of the workers in `Profile.odd` are longer than `Profile.ttl`."""

GUARDED = 0.5
"""Share of the histories with ``quarantine=``, among those in which the server restarts or loses data."""

NESTED, NESTED_ROUNDS = 0.25, 0.5
"""Share of the histories with RLocks, and share of their acquisitions that the holder repeats."""

HUNG = 0.12
"""Share of the histories with ``progress_within=``, among those with renewed leases."""

PROMPT = 20
"""Time for the last messages to arrive after all workers have finished, as a multiple of the mean message delay."""

STEPS = 20_000
"""Number of events after which a history is ended as an endless loop."""

ECHO = 3.5
"""Seconds for which a duplicated or delayed request may be under way."""


@dataclass(slots=True)
class Round:
    """A planned acquisition of a lock. Times are in seconds."""

    lock: str
    wait: float | None
    hold: float
    by_hand: float
    """Length of the lease that an explicit renewal asks for, as a multiple of ``ttl``; 0: no explicit renewal."""
    gap: float
    twice: bool = False
    """True if the worker releases the lease a second time, which must be refused."""
    nested: bool = False
    """True if the holder acquires the lock, an RLock, once more."""
    checks_in: bool = False
    """True if the holder calls `progress()`."""


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. Times are in seconds."""

    ttl: float
    renew: bool
    max_hold: float | None
    latency: float
    slow_share: float
    mishaps: float
    faults: list[tuple[int, str, float]] = field(default_factory=list)
    """For each fault: the number of events before it, its kind, and its duration."""
    workers: list[tuple[int, list[Round]]] = field(default_factory=list)
    """For each worker: the index of its process, and its rounds."""
    fair: list[bool] = field(default_factory=list)
    """For each process: True if its locks are FairLocks."""
    odd: frozenset[int] = frozenset()
    """Indexes of the workers with longer leases."""
    linger: float = 0.0
    max_passes: int = 32
    max_pass_time: float = 0.01
    guard: float = 0.0
    """Seconds of quarantine; 0: none. With a quarantine, the server was declared new at the start."""
    progress_within: float | None = None
    time_limit: float = TIME_LIMIT
    mixed: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Options that single workers have, by the worker's index. A theme sets them."""

    @property
    def longest(self) -> float:
        """The longest lease of all workers."""
        return ODD * self.ttl if self.odd else self.ttl

    @property
    def guarded(self) -> bool:
        """True if the locks of all workers have ``quarantine=``."""
        return bool(self.guard) and all(options.get("guard", self.guard) for options in self.mixed.values())

    @property
    def waits(self) -> float:
        """Seconds for which a server that may have lost its data grants no lock."""
        return 1.02 * self.guard


def draw(rng: random.Random) -> Profile:
    choice, uniform = rng.choice, rng.random
    ttl = choice((0.3, 1.0, 2.0, 2.0, 10.0))
    renew = uniform() < 0.8
    profile = Profile(
        ttl=ttl,
        renew=renew,
        max_hold=ttl * choice((0.5, 2.0)) if uniform() < 0.1 else None,
        latency=choice((0.0003, 0.0003, 0.003, 0.02)),
        slow_share=choice((0.0, 0.0, 0.02, 0.2)),
        mishaps=choice((0.0, 0.0, 0.01, 0.05, 0.2)),
    )
    names = choice(("x", "x", "x", "x", "x", "xy"))
    longest = choice((0.0, 0.1, 1.0, 1.5)) * ttl
    crowd = choice(((1, 1, 1, 2), (1, 2, 3), (2, 3, 3)))
    for process in range(choice((2, 3))):
        for _ in range(choice(crowd)):
            rounds = [
                Round(
                    lock=choice(names),
                    wait=choice((None, None, 30.0, 2.0, 0.3, 0.0)),
                    hold=uniform() * longest,
                    by_hand=choice((0.5, 1.0, 1.0, 2.0)) if uniform() < 0.15 else 0.0,
                    gap=choice((0.0, 0.0, 0.05)) * uniform(),
                    twice=uniform() < 0.05,
                )
                for _ in range(choice((1, 1, 2)))
            ]
            if uniform() < 0.06:  # one that tries again and again without waiting
                rounds = [Round(choice(names), 0.0, 0.0, 0.0, gap=0.1 * uniform()) for _ in range(8)]
            elif uniform() < 0.06:  # one that acquires the lock again and again
                rounds = [Round(choice(names), None, 0.0, 0.0, gap=choice((0.0, 0.002))) for _ in range(20)]
            profile.workers.append((process, rounds))
    _draw_local_passing(rng, profile)
    kinds = rng.sample(sorted(FAULTS), choice((0, 1, 1, 2)))
    for kind in kinds:
        for _ in range(choice((1, 1, 2))):
            profile.faults.append((int(120 * uniform() ** 2), kind, choice((0.01, 0.3, 1.0, 3.0)) * uniform() * max(1.0, ttl)))
    return profile


def _draw_local_passing(rng: random.Random, profile: Profile) -> None:
    """Draw how processes hand locks on among their workers, and perhaps one longer lease."""
    choice, uniform = rng.choice, rng.random
    fair = choice((0.0, 0.0, 0.0, 0.0, 0.5, 1.0))
    profile.fair = [uniform() < fair for _ in range(3)]
    if profile.renew and profile.max_hold is None:
        profile.linger = choice((0.0, 0.0, 0.03, 0.4))
    profile.max_passes = choice((32, 32, 3, 1, 0))
    profile.max_pass_time = choice((0.01, 0.01, 0.1, 0.0))
    if uniform() < 0.1:
        profile.odd = frozenset({rng.randrange(len(profile.workers))})


def progress_within(seed: int, renew: bool, ttl: float, workers: list[tuple[int, list[Round]]]) -> float | None:
    """Draw the locks' ``progress_within=``, and the rounds in which holders report progress.

    These draws have random numbers of their own, so that the rest of the history does not depend on them.
    """
    rng = random.Random(f"progress {seed}")
    if not renew or rng.random() >= HUNG:
        return None
    for _, rounds in workers:
        for planned in rounds:
            planned.checks_in = rng.random() < 0.8
    return ttl * rng.choice((0.2, 0.5, 1.0, 2.0))


Program = Callable[[list[Round], Callable[[str], Any]], Coroutine[Any, Any, None]]


async def work(rounds: list[Round], lock_of: Callable[[str], Any]) -> None:
    """Run a worker's rounds."""
    for planned in rounds:
        lock = lock_of(planned.lock)
        lease: Any = None
        try:
            lease = await lock.acquire(planned.wait)
            if lease is not None:
                lock.write(lease)
                await Sleep(planned.hold / 2)
                if planned.checks_in:
                    lock.progress(lease)
                if planned.by_hand:
                    await lock.renew(lease, max(0.1, lock.spec.ttl * planned.by_hand))
                lock.write(lease)
                await _go_on(planned, lock, lease)
                lock.write(lease)
                held, lease = lease, None
                await lock.release(held)
                if planned.twice:
                    await lock.release_again(held)
        except Cancelled:
            if lease is not None:
                await lock.release(lease)
        await Sleep(planned.gap)


async def _go_on(planned: Round, lock: Any, lease: Any) -> None:
    """Hold the lock for the second half of its time. In a nested round, acquire and release it once more."""
    inside = planned.nested and await lock.acquire(planned.wait) is not None
    try:
        await Sleep(planned.hold / 2)
        if planned.checks_in:
            lock.progress(lease)
    except Cancelled:
        if inside:
            await lock.release(lease)
        raise
    if inside:
        await lock.release(lease)


def nest(seed: int, rounds: Iterable[Round]) -> bool:
    """Draw whether the locks are RLocks, and in which rounds the holder acquires its lock again.

    These draws have random numbers of their own, so that the rest of the history does not depend on them.
    """
    rng = random.Random(f"nested {seed}")
    if rng.random() >= NESTED:
        return False
    for planned in rounds:
        planned.nested = rng.random() < NESTED_ROUNDS
    return True


def _lock(worker: Worker, specs: dict[str, Spec], name: str, *, fair: bool) -> Any:
    return Lock(worker, specs[name], fair=fair)


def _nested(worker: Worker, specs: dict[str, Spec], name: str, *, fair: bool) -> Any:
    return RLock(_lock(worker, specs, name, fair=fair))


def build(
    seed: int,
    *,
    trace: bool = False,
    rng: random.Random | None = None,
    program: Program = work,
    redraw: Callable[[Profile], object] | None = None,
    lock_of: Callable[..., Any] = _lock,
    theme: Theme = PLAIN,
) -> tuple[World, Profile]:
    """Build the world of a seed, with its workers and faults. Nothing has run yet.

    ``program`` is what each worker runs. ``redraw`` may change the profile. ``lock_of`` makes the lock object of a worker.
    """
    rng = rng or random.Random(seed)
    profile = draw(rng)
    if redraw is not None:
        redraw(profile)
    theme.redraw(seed, profile, lambda share: int(120 * share**2))
    world = World(rng, Weather(rng, profile.latency, 1.0 / profile.latency, profile.slow_share), trace=trace)
    if profile.mishaps:
        world.mishap = mishaps(world, profile.mishaps)
    server = Server(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
    kinds = {kind for _, kind, _ in profile.faults}
    if "amnesia" in kinds:
        server.keep_past()
    # This draw has random numbers of its own, so that other seeds have the same histories as before.
    if kinds & {"amnesia", "flush", "restart"} and random.Random(f"guard {seed}").random() < GUARDED:
        profile.guard = max(CLAIM_WINDOW_S, profile.longest)
        server.declare(profile.guard)
    profile.progress_within = progress_within(seed, profile.renew, profile.ttl, profile.workers)
    profile.linger = profile.linger if profile.progress_within is None or profile.mixed else 0.0
    sharing = {
        "linger": profile.linger,
        "max_passes": profile.max_passes,
        "max_pass_time": profile.max_pass_time,
        "guard": profile.guard,
        "progress_within": profile.progress_within,
    }
    specs, odd = (
        {name: spec(name, ttl=ttl, renew=profile.renew, max_hold=profile.max_hold, **sharing) for name in "xyz"}
        for ttl in (profile.ttl, ODD * profile.ttl)
    )
    for number in range(1 + max(process for process, _ in profile.workers)):
        Process(
            world,
            server,
            f"c{number + 1}",
            face=rng.choice(("threads", "asyncio")),
            offset=1000 * rng.random(),
            rate=1 + rng.choice((0.0, 0.002, -0.002)),
        )
        if profile.slow_share:
            world.note("fault", world.processes[-1].name, note="slow weather", until=world.now)
    plain = program is work and lock_of is _lock
    nested = plain and nest(seed, (planned for _, rounds in profile.workers for planned in rounds))
    make = _nested if nested else lock_of
    for number, (of, rounds) in enumerate(profile.workers):
        worker = Worker(world.processes[of], str(number + 1))
        mine = odd if number in profile.odd else specs
        options = profile.mixed.get(number, {})
        fair = options.get("fair", profile.fair[of])
        if options:
            mine = {name: one._replace(**{key: options[key] for key in options if key != "fair"}) for name, one in mine.items()}
        worker.start(program(rounds, partial(make, worker, mine, fair=fair)))
    for step, kind, lasts in profile.faults:
        world.plan(1 + step, lambda kind=kind, lasts=lasts: FAULTS[kind](world, rng, lasts))  # type: ignore[misc]
    theme.begin(seed, world)
    return world, profile


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    return judged(seed, *build(seed, trace=trace, theme=theme), coverage)


def judged(
    seed: int,
    world: World,
    profile: Profile,
    coverage: Coverage | None,
    *,
    bounds: Limits | None = None,
    before_end: Callable[[World, Profile], object] | None = None,
) -> Run[Profile]:
    """Run a world until its workers have finished, and judge its history by the rules of locks.

    ``bounds`` are the time limits of the rules (None: those of `limits`). ``before_end`` is called before leftovers are
    recorded.
    """
    found: list[Violation] = []
    try:
        if world.work(EPOCH + profile.time_limit, int(STEPS * profile.time_limit / TIME_LIMIT)):
            if before_end is not None:
                before_end(world, profile)
            settle(world, profile)
        else:
            found.append(
                Violation("R7", f"still waiting after {world.now - EPOCH:.0f} s and {world.steps} steps: {waiting(world)}")
            )
    except Stuck:
        found.append(Violation("R7", f"no step is possible, but workers wait: {waiting(world)}"))
    except Exception as error:  # noqa: BLE001 - report any exception with the seed
        found.append(Violation("R0", f"the history raised {error!r}"))
    world.close()
    found += checkers.check(world.history, limits=bounds or limits(profile), coverage=coverage)
    return Run(seed, profile, world, found)


def limits(profile: Profile) -> Limits:
    slow = profile.slow_share > 0
    notice = float("inf") if slow or not profile.renew or profile.max_hold is not None else profile.longest / 3 + 1.0
    # A waiter does not learn that a lease was made shorter, but asks once a second.
    lasting = profile.renew and profile.max_hold is None and profile.progress_within is None
    calm = lasting and not profile.mishaps and all(kind in {"cancel", "unplug"} for _, kind, _ in profile.faults)
    handover = 10.0 if slow else 0.1 + 20 * profile.latency if calm else 3.5
    return Limits(
        notice=notice,
        handover=handover + profile.waits,
        claim=1.01 * max(CLAIM_WINDOW_S, profile.longest) + 0.1,
        echo=ECHO,
        lag=5.0 if slow else 1.2,
        linger=profile.linger,
        passes=profile.max_passes,
        pass_time=profile.max_pass_time,
        recall=calm and not slow and profile.latency < 0.01,
        excuses=UNSETTLING - {"amnesia"} if profile.guarded else UNSETTLING,
        outside=frozenset(
            f"c{1 + of}/{1 + number}"
            for number, (of, _) in enumerate(profile.workers)
            if profile.mixed.get(number, {}).get("fair", profile.fair[of])
        ),
    )


def waiting(world: World) -> str:
    return ", ".join(sorted(f"{worker.name} in {worker.asked}" for worker in world.working))


def settle(world: World, profile: Profile) -> None:
    """End a history whose workers have finished: let all leases expire, and record leftovers.

    Without faults except cancellations, also record what is left before the leases expire.
    """
    world.mishap = None
    world.pass_time(PROMPT * profile.latency + profile.linger)
    told_at_once(world)
    healed = max((lasts for _, _, lasts in profile.faults), default=0.0)
    world.pass_time(healed + profile.longest + profile.waits + CLAIM_WINDOW_S + 3.0 + SET_BACK)
    write_the_end(world)
