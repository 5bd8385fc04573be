"""Seeded histories of a barrier, a latch or an event, with faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from holdfast._core.rendezvous import barrier, latch
from holdfast._core.requests import RunScript as Call
from holdfast._core.requests import Sleep
from holdfast_lab.judge import rendezvous_rules as rules_of
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.rendezvous_rules import RendezvousHistory
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.faults import FAULTS
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.rendezvous_client import KEEP_MS, Rendezvous, RendezvousClient, flag, meeting
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH, Stuck
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Api, Process
from holdfast_lab.swarms.swarm import History, Swarm

TIME_LIMIT = 900.0
"""Seconds of virtual time within which every worker must finish, as a multiple of `Profile.pace`."""
STEPS = 60_000

END = 200.0
"""Seconds after which all waits are ended. Then, every 20 s, a barrier is aborted, and a latch or event is opened."""

KINDS = sorted(FAULTS.keys() - {"amnesia", "flush", "clock", "foreign", "stale"})
"""Kinds of faults that a history may have.

A participant's position expires by the server's clock, and a loss of data deletes the state of the barrier. So the clock is not
set, and no data is lost, except under the themes `jumping` and `forgetful`.
"""

APIS: tuple[Api, ...] = ("threads", "asyncio")
TIMEOUT = 0.5
"""Maximum seconds to wait for the reply to a request."""


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. Times are in seconds."""

    what: str
    """"barrier", "latch" or "event"."""
    count: int
    ttl: float
    acts: bool
    latency: float
    slow_share: float
    mishaps: float
    processes: list[int]
    """Number of workers of each process."""
    faults: list[tuple[float, str, float]] = field(default_factory=list)
    """For each fault: its time since the start of the history, its kind, and its duration."""
    pace: float = 1.0
    """Factor by which all pauses of the workers are multiplied."""
    keep_ms: int = KEEP_MS

    @property
    def calm(self) -> bool:
        """True if there are no faults, and no message is slow or lost."""
        return not (self.faults or self.mishaps or self.slow_share)


def draw(rng: random.Random) -> Profile:
    choice = rng.choice
    what = choice(("barrier", "barrier", "latch", "event"))
    processes = [choice((1, 1, 2, 3)) for _ in range(choice((2, 3, 3)))]
    profile = Profile(
        what=what,
        count=choice((2, 3, sum(processes), sum(processes))) if what == "barrier" else choice((1, 3, 6)),
        ttl=choice((0.5, 2.0, 5.0)),
        acts=choice((False, True)),
        latency=choice((0.0003, 0.003, 0.02)),
        slow_share=choice((0.0, 0.0, 0.0, 0.02)),
        mishaps=choice((0.0, 0.0, 0.02, 0.1)),
        processes=processes,
    )
    for kind in rng.sample(KINDS, choice((0, 0, 1, 1, 2))):
        for _ in range(choice((1, 2, 3))):
            profile.faults.append((8 * rng.random() ** 2, kind, choice((0.05, 0.3, 1.0, 3.0)) * rng.random()))
    if rng.random() < 0.1:
        profile.slow_share = profile.mishaps = 0.0
        profile.faults = [(1 + 5 * rng.random(), "crash", 0.0)]
    return profile


class MeetingHistory(History[Profile]):
    """A history of a barrier, a latch or an event."""

    hangs, fails = "B0", "B0"

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        profile = draw(rng := random.Random(f"meetings {seed}"))
        theme.redraw(seed, profile, lambda share: 8.0 * share**2)
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        self.rendezvous = Rendezvous(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
        self.barrier_spec = meeting(profile.count, profile.ttl, min(TIMEOUT, profile.ttl / 3), profile.keep_ms)
        self.flag = flag(profile.what, profile.count if profile.what == "latch" else 1, TIMEOUT, profile.keep_ms)
        for number, workers in enumerate(profile.processes):
            api, rate = rng.choice(APIS), 1 + rng.choice((0.0, 0.002))
            process = Process(world, self.rendezvous, f"c{number + 1}", api=api, offset=1000 * rng.random(), rate=rate)
            for name in range(workers):
                worker = Worker(process, str(name + 1))
                worker.start({"barrier": self._meets, "latch": self._counts, "event": self._flags}[profile.what](worker))
        for at, kind, lasts in profile.faults:
            world.at(EPOCH + at, FAULTS[kind], world, rng, lasts)
        for late in range(30):
            world.at(EPOCH + profile.pace * END + 20.0 * late, self._end_it, late)
        if theme.resets:
            worker = Worker(Process(world, self.rendezvous, "ff"), "1")
            worker.start(self._sets_back(worker, random.Random(f"reset {seed}")))
        theme.begin(seed, world)

    # The workers

    async def _meets(self, worker: Worker) -> None:
        rng, profile, client = self.rng, self.profile, RendezvousClient(worker)
        for _ in range(rng.choice((2, 4, 4))):
            try:
                await Sleep(profile.pace * rng.choice((0.0, 0.01, 1.0)) * rng.random())
                wait = rng.choice((None, None, None, 3.0, 0.5))
                takes = rng.choice((0.0, 0.1, 1.5)) * profile.ttl * rng.random() if profile.acts else None
                if not await client.meet(self.barrier_spec, wait, takes, fails=rng.random() < 0.05) and rng.random() < 0.6:
                    await client.change(self.barrier_spec, "reset")
            except TaskCancelled:
                pass
        try:
            await client.change(self.barrier_spec, "abort")
        except TaskCancelled:
            pass

    async def _counts(self, worker: Worker) -> None:
        rng, client = self.rng, RendezvousClient(worker)
        waits = rng.random() < 0.5
        for number in range(rng.choice((1, 2, 3))):
            try:
                await Sleep(self.profile.pace * rng.choice((0.0, 0.1, 5.0)) * rng.random())
                if waits:
                    await client.wait(self.flag, rng.choice((None, None, 3.0, 0.0)))
                else:
                    name = rng.choice(("", "", f"thing {number}"))
                    await client.count(self.flag, 1 if name else rng.choice((1, 1, 2)), name)
            except TaskCancelled:
                pass

    async def _flags(self, worker: Worker) -> None:
        rng, client = self.rng, RendezvousClient(worker)
        waits = rng.random() < 0.6
        for _ in range(rng.choice((2, 4))):
            try:
                await Sleep(self.profile.pace * rng.choice((0.0, 0.1, 5.0)) * rng.random())
                if waits:
                    await client.wait(self.flag, rng.choice((None, None, 8.0, 0.0)))
                else:
                    await client.count(self.flag)
                    await Sleep(rng.choice((0.0, 0.0, 1.0)) * rng.random())
                    await client.clear(self.flag)
            except TaskCancelled:
                pass

    async def _sets_back(self, worker: Worker, rng: random.Random) -> None:
        """Run a worker that resets the barrier, latch or event while other workers wait for it."""
        client = RendezvousClient(worker)
        for _ in range(rng.choice((2, 4, 8))):
            try:
                await Sleep(rng.choice((0.1, 1.0, 5.0)) * rng.random())
                if self.profile.what == "barrier":
                    await client.change(self.barrier_spec, "reset")
                else:
                    await client.clear(self.flag)
            except TaskCancelled:
                pass

    def _end_it(self, late: int) -> None:
        token, barrier_spec, flag = f"e.{late:04x}", self.barrier_spec, self.flag
        if self.profile.what == "barrier":
            keys = (*barrier_spec.keys, barrier_spec.spec.keys[0])
            ms = barrier_spec.spec.first_ms
            self.rendezvous.visit(
                Call(barrier.BARRIER, keys, (barrier_spec.parties, ms, barrier_spec.keep_ms, token, "abort"), TIMEOUT)
            )
        else:
            self.world.note("count", "end", "m", f"end#{late}", last=flag.count)
            args = (flag.format, flag.count, flag.keep_ms, "down", token, flag.count, "")
            self.rendezvous.visit(Call(latch.LATCH, flag.keys, args, TIMEOUT))

    # The course of the history

    def go(self) -> None:
        world, profile = self.world, self.profile
        try:
            ended = world.work(EPOCH + profile.pace * TIME_LIMIT, int(profile.pace * STEPS))
        except Stuck:
            ended = False
        self.docket.decide("B0")
        if not ended:
            who = ", ".join(sorted(worker.name for worker in world.working))
            self.found.append(Violation("B0", f"never finished: {who}"))
        else:
            world.mishap = None
            world.pass_time(60.0)
            self.docket.decide("B9")
            self.found += [Violation("B9", f"left behind: {what}") for what in leftovers(world)]
        kinds = {kind for _, kind, _ in profile.faults}
        only = set() if profile.mishaps or profile.slow_share else kinds
        case = RendezvousHistory(world.history, profile.count, profile.ttl, profile.acts, profile.calm, only, self.docket)
        rules = {"barrier": rules_of.barrier, "latch": rules_of.latch, "event": rules_of.event}
        self.found += rules[profile.what](case)

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        history = self.world.history
        self.counts.update(f"meeting {event.kind}" for event in history)
        self.counts.update(f"meeting {event.note}" for event in history if event.kind == "parted")
        return super().judge(coverage)


ENOUGH = {
    "script rendezvous/barrier": 15_000,
    "script rendezvous/latch": 5_000,
    **{f"meeting {kind}": 500 for kind in ("through", "acted", "released", "unreleased", "counted", "opened", "closed")},
    **{f"meeting {why}": 50 for why in ("timeout", "abort", "reset", "action", "died", "away")},
    "meeting crashed": 100,
    "meeting cancelled": 20,
    "meeting uncounted": 20,
}
"""Minimum counts of events in 1,000 histories of barriers, latches and events."""

SWARM = Swarm(MeetingHistory, ENOUGH, ("B0", "B1", "B1 left", "B2", "B3", "B4", "B4 told", "B9", "L1", "L2", "L3", "L4"))
