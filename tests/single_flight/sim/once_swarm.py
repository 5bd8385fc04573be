"""Seeded histories of `once`: production's operations under virtual time, with faults, and what must hold in each.

A run stores its own fence as its result, so that whoever gets a result says whose it is.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from holdfast import LeaseLost, Once, ResultNotKept, Running, once
from holdfast._api.once import OnceCall
from holdfast._core import requests as sent
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.requests import Call, Sleep, WireError
from holdfast._core.single_flight import flight
from holdfast._core.single_flight.entry import DELETE
from holdfast._core.single_flight.flight import FoundValue, Load, Loading
from holdfast_lab.sim.faults import FAULTS, mishaps
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.network import Wire
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.virtual_time import EPOCH, Stuck, Weather
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.sim.world import Api, Process, World

TIME_LIMIT = 900.0
STEPS = 50_000

KINDS = sorted(FAULTS.keys() - {"amnesia", "flush", "clock", "foreign", "stale"})
"""Faults by which a server loses its data or its clock, so that the function may run twice: that is expected."""


APIS: tuple[Api, ...] = ("threads", "asyncio")


class Failed(Exception):
    pass


class Declined(Exception):
    """One that is remembered."""


@dataclass(slots=True)
class FunctionRun:
    """One run of the function."""

    about: OnceCall
    worker: Worker
    load: Load
    asked: float
    began: float
    landing: float = 0.0
    """When the result was sent."""
    known: float = 0.0
    """When it was known to be stored."""
    over: bool = False
    """The function has ended."""


@dataclass(slots=True)
class Story:
    """The events, at true times."""

    seed: int
    world: World
    keep: float
    runs: list[FunctionRun] = field(default_factory=list)
    got: list[tuple[OnceCall, int, float, float]] = field(default_factory=list)
    """Results that callers got without running: of what, fence, when they asked, when they got it."""
    dropped: list[tuple[bytes, float]] = field(default_factory=list)
    """When the server forgot which key: perhaps by a late copy of a request."""
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def forgets(self, about: OnceCall, begin: float, end: float) -> bool:
        """It was forgotten in this time."""
        return any(key == about.entry.value and begin <= at <= end for key, at in self.dropped)


class Witness(Server):
    """Tells when it forgets something."""

    story: Story

    def serve(self, wire: Wire, call: Call) -> list[Any]:
        answers = super().serve(wire, call)
        if isinstance(call, sent.RunScript) and call.script is DELETE and not isinstance(answers[0], sent.Refused):
            self.story.dropped.append((call.keys[0], self.world.now))
        return answers


def draw(seed: int) -> Story:
    """A world with workers and faults, before anything has happened in it."""
    rng = random.Random(f"once {seed}")
    choice, uniform = rng.choice, rng.random
    latency, slow = choice((0.0003, 0.003, 0.02)), choice((0.0, 0.0, 0.02, 0.2))
    world = World(rng, Weather(rng, latency, 1.0 / latency, slow))
    share = choice((0.0, 0.0, 0.01, 0.1))
    if share:
        world.mishap = mishaps(world, share)
    server = Witness(world, rate=1 + choice((0.0, 0.002, -0.002)))
    ttl, keep = choice((0.3, 1.0, 2.0, 10.0)), choice((0.2, 5.0, 60.0, 60.0))
    server.story = story = Story(seed, world, keep)
    for number in range(choice((2, 3))):
        api, rate = choice(APIS), 1 + choice((0.0, 0.002))
        process = Process(world, server, f"c{number + 1}", api=api, offset=1000 * uniform(), rate=rate)
        for name in range(choice((1, 2, 3))):
            wait = choice((None, None, 30.0, 0.3, 0.0))
            job = once("redis://nowhere", "{key}", keep=keep, busy="wait", wait=wait, ttl=ttl, errors=Declined)
            worker = Worker(process, str(name + 1))
            worker.start(work(story, worker, job, rng, ttl))
    for kind in rng.sample(KINDS, choice((0, 1, 1, 2))):
        for _ in range(choice((1, 2, 3))):
            lasts = choice((0.01, 0.3, 1.0, 3.0)) * uniform() * max(1.0, ttl)
            what = FAULTS[kind]
            world.plan(1 + int(120 * uniform() ** 2), lambda what=what, lasts=lasts: what(world, rng, lasts))  # type: ignore[misc]
    return story


async def work(story: Story, worker: Worker, job: Once[None], rng: random.Random, ttl: float) -> None:
    """Calls, one after the other."""
    keys = rng.choice(("x", "x", "x", "xy"))
    for _ in range(rng.choice((1, 2, 3, 4))):
        about = job._job(rng.choice(keys))
        hold = rng.choice((0.0, 0.1, 1.0, 1.5)) * rng.random() * ttl
        try:
            if rng.random() < 0.05:
                await flight.delete(about.entry)
                story.counts["forgotten"] += 1
            else:
                await call(story, worker, job, about, hold)
        except TaskCancelled:
            story.counts["cancelled"] += 1
        except WireError:
            story.counts["server away"] += 1
        await Sleep(rng.choice((0.0, 0.01, 1.0)) * rng.random())


def replayed(story: Story, worker: Worker, job: Once[None], about: OnceCall, found: FoundValue, asked: float) -> None:
    """A call finds what an earlier one has come to."""
    world, counts = story.world, story.counts
    try:
        outcome = job._replayed(about, found.record)
    except Declined:
        counts["remembered"] += 1
        return
    except ResultNotKept as error:
        counts["not kept"] += 1
        if not any(run.about == about and run.load.fence == error.fence for run in story.runs):
            story.wrong.append(f"{worker.name} was told of a run that never was: {error}")
        return
    counts["replayed"] += 1
    if outcome.value != outcome.fence:
        story.wrong.append(f"{worker.name} got {outcome}")
    story.got.append((about, outcome.fence, asked, world.now))


async def call(story: Story, worker: Worker, job: Once[None], about: OnceCall, hold: float) -> None:
    """Call the function as both APIs do; it sleeps, and fails at times."""
    world, counts = story.world, story.counts
    asked = world.now
    with worker.operation():
        found = await flight.get_or_lease(about.entry, job._policy, attempt := Attempt(about.entry.spec))
    if isinstance(found, FoundValue):
        replayed(story, worker, job, about, found, asked)
    elif isinstance(found, Loading):
        counts["in progress"] += 1
    elif isinstance(found, Load):
        run = FunctionRun(about, worker, found, asked, world.now)
        process: Any = worker.process
        running = Running(worker, about, attempt, found, process)
        begin(story, run)
        try:
            try:
                await function(hold, world.rng)
            finally:
                run.over = True
            run.landing = world.now
            with worker.operation():
                stored = await job._succeeded(running, found.fence)
            run.known = world.now if stored else 0.0
            counts["stored" if stored else "unknown"] += 1
        except LeaseLost:
            counts["lost"] += 1
        except (Failed, Declined, TaskCancelled) as error:
            with worker.operation():
                await job._failed(running, error)
            counts["failed"] += 1
            if isinstance(error, TaskCancelled):
                raise


async def function(hold: float, rng: random.Random) -> None:
    await Sleep(hold)
    kind = rng.choice((None, None, None, None, None, Failed, Declined))
    if kind is not None:
        raise kind


def begin(story: Story, run: FunctionRun) -> None:
    """A run begins: nobody else believes to have the right to, and no result is kept."""
    for other in story.runs:
        process = other.worker.process
        if other.about != run.about:
            continue
        if story.forgets(run.about, min(run.asked, other.asked), run.began):
            continue
        if not other.over and process.here and other.load.remaining(process.clock()) > 0:
            story.wrong.append(f"{run.worker.name} runs {run.about.name} while {other.worker.name} does")
        kept = other.known and run.asked > other.known and run.began < other.landing + 0.99 * story.keep
        if kept:
            story.wrong.append(f"{run.worker.name} runs {run.about.name} again, whose result {other.worker.name} has stored")
        if run.load.fence <= other.load.fence:
            story.wrong.append(f"{run.worker.name} has no higher fence than {other.worker.name}")
    story.runs.append(run)


def judge(story: Story) -> None:
    """Return the statements about the end of the history."""
    ran = {run.load.fence: run for run in story.runs if run.landing}
    for about, fence, asked, _ in story.got:
        run = ran.get(fence)
        if run is None:
            story.wrong.append(f"a result of {about.name} from nowhere: {fence}")
        elif story.forgets(about, run.began, asked):
            story.wrong.append(f"a result of {about.name} that was forgotten before")
        if any(of == about and came < asked and fence < newer for of, newer, _, came in story.got):
            story.wrong.append(f"a result of {about.name} older than one that somebody had before")


def simulate(seed: int) -> Story:
    """One history, judged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        story = draw(seed)
        world = story.world
        try:
            if not world.work(EPOCH + TIME_LIMIT, STEPS):
                story.wrong.append(f"still waiting: {[(worker.name, worker.asked) for worker in world.working]}")
        except Stuck:
            story.wrong.append(f"stuck: {[(worker.name, worker.asked) for worker in world.working]}")
        except (AssertionError, RuntimeError, TypeError, KeyConflict) as error:
            story.wrong.append(repr(error))
        crashed = [run for run in story.runs if not run.over and not run.worker.process.here]
        story.counts["died running"] += len(crashed)
        world.mishap = None
        world.pass_time(60.0)
        story.wrong += leftovers(world)
        world.close()
    judge(story)
    return story
