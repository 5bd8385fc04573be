"""Seeded histories of a lock. A seed determines the world, its workers and its faults.

Many histories with a few kinds of faults each find more defects than a few histories with all faults (A. Groce et al., "Swarm
Testing", ISSTA 2012). The same seed always gives exactly the same history. Other swarms use parts of this module.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.lock.spec import Spec
from holdfast._core.requests import Sleep
from holdfast.testing.history import FAULTS as JUDGED_FAULTS
from holdfast_lab import checkers
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import UNSETTLING
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.faults import FAULTS
from holdfast_lab.sim.leftovers import told_at_once, write_the_end
from holdfast_lab.sim.lock_client import Lock, spec
from holdfast_lab.sim.rlock_client import RLock
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Process, World
from holdfast_lab.swarms.swarm import History, Swarm

TIME_LIMIT = 600.0
"""Seconds of virtual time within which every worker must finish, whatever faults happen."""

SET_BACK = 10.0
"""Maximum number of seconds by which the server's clock is set back. Keys may live longer by this time."""

ODD = 1.5
"""Lease time of the workers in `Profile.odd`, as a multiple of `Profile.ttl`."""

QUARANTINED = 0.5
"""Share of the histories with ``quarantine=``, among those in which the server restarts or loses data."""

NESTED, NESTED_ROUNDS = 0.25, 0.5
"""Share of the histories with RLocks, and share of the acquisitions in them that the holder repeats while it holds the lock."""

HUNG = 0.12
"""Share of the histories with ``progress_within=``, among those with renewed leases."""

PROMPT = 20
"""Time for the last messages to arrive after all workers have finished, as a multiple of the mean message delay."""

STEPS = 20_000
"""Number of events after which a history is ended as an endless loop."""

ECHO = 3.5
"""Maximum time, in seconds, until a duplicated or delayed request reaches the server."""


@dataclass(slots=True)
class PlannedAcquisition:
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
    """True if the holder acquires the lock, an RLock, once more before it releases the lock."""
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
    workers: list[tuple[int, list[PlannedAcquisition]]] = field(default_factory=list)
    """For each worker: the index of its process, and the acquisitions that it is to make."""
    fair: list[bool] = field(default_factory=list)
    """For each process: True if its locks are FairLocks."""
    odd: frozenset[int] = frozenset()
    """Indexes of the workers with longer leases."""
    linger: float = 0.0
    max_passes: int = 32
    max_pass_time: float = 0.01
    quarantine: float = 0.0
    """Seconds of quarantine; 0: none. If there is a quarantine, the server is declared new at the start of the history."""
    progress_within: float | None = None
    time_limit: float = TIME_LIMIT
    mixed: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Options in which single workers differ from the others, by the worker's index. A theme sets them."""

    @property
    def longest(self) -> float:
        """The longest lease of all workers."""
        return ODD * self.ttl if self.odd else self.ttl

    @property
    def is_quarantined(self) -> bool:
        """True if the locks of all workers have ``quarantine=``."""
        return bool(self.quarantine) and all(options.get("quarantine", self.quarantine) for options in self.mixed.values())

    @property
    def waits(self) -> float:
        """Seconds for which a server that may have lost its data grants no lock."""
        return 1.02 * self.quarantine


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
                PlannedAcquisition(
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
                rounds = [PlannedAcquisition(choice(names), 0.0, 0.0, 0.0, gap=0.1 * uniform()) for _ in range(8)]
            elif uniform() < 0.06:  # one that acquires the lock again and again
                rounds = [PlannedAcquisition(choice(names), None, 0.0, 0.0, gap=choice((0.0, 0.002))) for _ in range(20)]
            profile.workers.append((process, rounds))
    _draw_local_passing(rng, profile)
    kinds = rng.sample(sorted(FAULTS), choice((0, 1, 1, 2)))
    for kind in kinds:
        for _ in range(choice((1, 1, 2))):
            profile.faults.append((int(120 * uniform() ** 2), kind, choice((0.01, 0.3, 1.0, 3.0)) * uniform() * max(1.0, ttl)))
    return profile


def _draw_local_passing(rng: random.Random, profile: Profile) -> None:
    """Draw the options for handing on inside a process, and perhaps one worker with a longer lease."""
    choice, uniform = rng.choice, rng.random
    fair = choice((0.0, 0.0, 0.0, 0.0, 0.5, 1.0))
    profile.fair = [uniform() < fair for _ in range(3)]
    if profile.renew and profile.max_hold is None:
        profile.linger = choice((0.0, 0.0, 0.03, 0.4))
    profile.max_passes = choice((32, 32, 3, 1, 0))
    profile.max_pass_time = choice((0.01, 0.01, 0.1, 0.0))
    if uniform() < 0.1:
        profile.odd = frozenset({rng.randrange(len(profile.workers))})


def progress_within(seed: int, renew: bool, ttl: float, workers: list[tuple[int, list[PlannedAcquisition]]]) -> float | None:
    """Return the locks' ``progress_within=`` (None: not set), and draw which holders report progress.

    The draws have a random generator of their own, so the rest of the history does not depend on them.
    """
    rng = random.Random(f"progress {seed}")
    if not renew or rng.random() >= HUNG:
        return None
    for _, rounds in workers:
        for planned in rounds:
            planned.checks_in = rng.random() < 0.8
    return ttl * rng.choice((0.2, 0.5, 1.0, 2.0))


async def work(rounds: list[PlannedAcquisition], lock_of: Callable[[str], Any]) -> None:
    """Make the planned acquisitions of a worker, one after the other. ``lock_of`` returns the lock of a name."""
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
        except TaskCancelled:
            if lease is not None:
                await lock.release(lease)
        await Sleep(planned.gap)


async def _go_on(planned: PlannedAcquisition, lock: Any, lease: Any) -> None:
    """Hold the lock for the second half of the planned time. If ``planned.nested``, acquire and release it once more."""
    inside = planned.nested and await lock.acquire(planned.wait) is not None
    try:
        await Sleep(planned.hold / 2)
        if planned.checks_in:
            lock.progress(lease)
    except TaskCancelled:
        if inside:
            await lock.release(lease)
        raise
    if inside:
        await lock.release(lease)


def nest(seed: int, rounds: Iterable[PlannedAcquisition]) -> bool:
    """Draw whether the locks are RLocks, and return True if they are. Then also draw which holders acquire their lock again.

    The draws have a random generator of their own, so the rest of the history does not depend on them.
    """
    rng = random.Random(f"nested {seed}")
    if rng.random() >= NESTED:
        return False
    for planned in rounds:
        planned.nested = rng.random() < NESTED_ROUNDS
    return True


def _nested(lock: Callable[..., Lock], worker: Worker, specs: dict[str, Spec], name: str, *, fair: bool) -> RLock:
    return RLock(lock(worker, specs, name, fair=fair))


class LockHistory(History[Profile]):
    """A history of a lock. The swarms of tickets, permits, broken locks and several locks override some of its methods."""

    hangs, fails = "R7", "R0"
    nests = True
    """True if the locks of some histories are RLocks, which their holders acquire again."""

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        rng = self.random_of(seed, theme)
        profile = draw(rng)
        self.redraw(seed, profile)
        theme.redraw(seed, profile, lambda share: int(120 * share**2))
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        server = Server(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
        kinds = {kind for _, kind, _ in profile.faults}
        if "amnesia" in kinds:
            server.keep_past()
        # This draw has random numbers of its own, so that other seeds have the same histories as before.
        if kinds & {"amnesia", "flush", "restart"} and random.Random(f"guard {seed}").random() < QUARANTINED:
            profile.quarantine = max(CLAIM_WINDOW_S, profile.longest)
            server.declare(profile.quarantine)
        profile.progress_within = progress_within(seed, profile.renew, profile.ttl, profile.workers)
        profile.linger = profile.linger if profile.progress_within is None or profile.mixed else 0.0
        for number in range(1 + max(process for process, _ in profile.workers)):
            Process(
                world,
                server,
                f"c{number + 1}",
                api=rng.choice(("threads", "asyncio")),
                offset=1000 * rng.random(),
                rate=1 + rng.choice((0.0, 0.002, -0.002)),
            )
            if profile.slow_share:
                world.note("fault", world.processes[-1].name, note="slow weather", until=world.now)
        self._start_workers()
        for step, kind, lasts in profile.faults:
            world.plan(1 + step, partial(FAULTS[kind], world, rng, lasts))
        theme.begin(seed, world)

    def _start_workers(self) -> None:
        profile = self.profile
        nested = self.nests and nest(self.seed, (planned for _, rounds in profile.workers for planned in rounds))
        make = partial(_nested, self.lock) if nested else self.lock
        specs, odd = self._specs(profile.ttl), self._specs(ODD * profile.ttl)
        for number, (of, rounds) in enumerate(profile.workers):
            worker = Worker(self.world.processes[of], str(number + 1))
            mine = odd if number in profile.odd else specs
            options = profile.mixed.get(number, {})
            fair = options.get("fair", profile.fair[of])
            if options:
                changed = {key: options[key] for key in options if key != "fair"}
                mine = {name: one._replace(**changed) for name, one in mine.items()}
            worker.start(self.work(rounds, partial(make, worker, mine, fair=fair)))

    def _specs(self, ttl: float) -> dict[str, Spec]:
        profile = self.profile
        sharing = {
            "linger": profile.linger,
            "max_passes": profile.max_passes,
            "max_pass_time": profile.max_pass_time,
            "quarantine": profile.quarantine,
            "progress_within": profile.progress_within,
        }
        return {name: spec(name, ttl=ttl, renew=profile.renew, max_hold=profile.max_hold, **sharing) for name in "xyz"}

    # Methods that other swarms override

    def random_of(self, seed: int, theme: Theme) -> random.Random:  # noqa: ARG002 - for permits
        """Return the generator of a seed's random numbers. Some swarms also use the theme."""
        return random.Random(seed)

    def redraw(self, seed: int, profile: Profile) -> None:
        """Change the profile that was drawn. The theme changes it afterwards."""

    def lock(self, worker: Worker, specs: dict[str, Spec], name: str, *, fair: bool) -> Any:
        """Return the lock object of a worker."""
        return Lock(worker, specs[name], fair=fair)

    async def work(self, rounds: list[PlannedAcquisition], lock_of: Callable[[str], Any]) -> None:
        """Make the planned acquisitions of a worker, one after the other. ``lock_of`` returns the lock of a name."""
        await work(rounds, lock_of)

    def limits(self) -> Limits:
        """Return the time limits of the rules."""
        return limits(self.profile)

    def before_end(self) -> None:
        """Let time pass after the last worker has finished. Leftovers are recorded afterwards."""

    # The course of the history

    def go(self) -> None:
        world, profile = self.world, self.profile
        if world.work(EPOCH + profile.time_limit, int(STEPS * profile.time_limit / TIME_LIMIT)):
            self.before_end()
            settle(world, profile)
        else:
            text = f"still waiting after {world.now - EPOCH:.0f} s and {world.steps} steps: {self.waiting()}"
            self.found.append(Violation("R7", text))

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        return self.found + checkers.check(self.world.history, limits=self.limits(), coverage=coverage)


def limits(profile: Profile) -> Limits:
    slow = profile.slow_share > 0
    notice = float("inf") if slow or not profile.renew or profile.max_hold is not None else profile.longest / 3 + 1.0
    # A waiter does not learn that a lease was made shorter or ended early, but asks once a second.
    bounded = profile.progress_within or any(options.get("progress_within") for options in profile.mixed.values())
    lasting = profile.renew and profile.max_hold is None and not bounded
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
        excuses=UNSETTLING - {"amnesia"} if profile.is_quarantined else UNSETTLING,
        outside=frozenset(
            f"c{1 + of}/{1 + number}"
            for number, (of, _) in enumerate(profile.workers)
            if profile.mixed.get(number, {}).get("fair", profile.fair[of])
        ),
    )


def settle(world: World, profile: Profile) -> None:
    """End a history whose workers have finished: let all leases expire, and record leftovers.

    If there are no faults except cancellations, also record what is left before the leases expire.
    """
    world.mishap = None
    world.pass_time(PROMPT * profile.latency + profile.linger)
    told_at_once(world)
    healed = max((lasts for _, _, lasts in profile.faults), default=0.0)
    world.pass_time(healed + profile.longest + profile.waits + CLAIM_WINDOW_S + 3.0 + SET_BACK)
    write_the_end(world)


ENOUGH = {
    "contended": 100,
    "handed_over": 100,
    "again": 100,
    "renewed": 100,
    "expired": 20,
    "lost": 20,
    "refused": 10,
    "died_holding": 10,
    **{f"fault {kind} while held": 5 for kind in sorted(JUDGED_FAULTS)},
}
"""Minimum counts of events in 1,000 histories of the lock swarm. With lower counts, the histories prove nothing."""

OF_ANY_LOCK = ("R2", "R3", "R5", "R6", "R6 end", "R7 end", "R9", "R12", "R14")
"""Rules of every lock, with one or several holders, on one or several servers. "R6 end" is one of the cases of rule R6."""

OF_ONE_SERVER = (*OF_ANY_LOCK, "R6 told", "R8", "R8 place", "R13", "R15")
"""Rules of a lock that one server grants in the order of its queue."""

OF_A_LOCK = (*OF_ONE_SERVER, "R1", "R4", "R7", "R7 claim", "R8 line", "R8 pass", "R16", "R16 refused")
"""Rules of a lock on one server that a process may hand on among its workers."""

SWARM = Swarm(LockHistory, ENOUGH, (*OF_A_LOCK, "R15 resent", "R19"))
