"""Seeded histories of a schedule, with faults: several processes serve the same jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from holdfast._core.requests import Sleep, WireError
from holdfast._core.schedule.commands import JobFacts, order, overview
from holdfast._core.schedule.job import BESIDE, JOBS, Options, ScheduleKeys
from holdfast.schedule.timetable import Every
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.judge.schedule_rules import ServedSchedule, judge
from holdfast_lab.sim.faults import FAULTS
from holdfast_lab.sim.leftovers import leftovers
from holdfast_lab.sim.schedule_client import ANSWER_WITHIN, Service
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.virtual_time import EPOCH, Stuck
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Process
from holdfast_lab.swarms.swarm import History, Swarm

KINDS = ("cut", "silence", "pause", "crash", "restart", "hang", "refuse", "full", "deaf", "unplug", "slay")
"""Kinds of faults that a history may have. "slay" kills every process that runs a job."""

STEPS = 5_000
"""If the stop of all processes at the end of a history takes more events than this, it counts as an endless loop."""

CALLS = 5000
"""Number of requests after which a history is ended as an endless loop."""

SKEW = 5.0
"""Maximum difference in seconds between the clock of a process and virtual time."""


OLD, NEW = b"{}", b'{"on_crash": "opposite"}'
"""The definition of the jobs at the start, and the definition with which a theme replaces it."""


def opposite(jobs: dict[str, tuple[Every, Options]]) -> dict[str, tuple[Every, Options]]:
    """Return the jobs, with ``on_crash="again"`` instead of "leave", and "leave" instead of "again"."""
    other: dict[str, Literal["leave", "again"]] = {"leave": "again", "again": "leave"}
    return {name: (when, replace(options, on_crash=other[options.on_crash])) for name, (when, options) in jobs.items()}


@dataclass(slots=True)
class Profile:
    """The parameters of a history, drawn from its seed. A moment is a number of seconds since the start of the history."""

    lasts: float
    latency: float
    slow_share: float
    mishaps: float
    jobs: dict[str, tuple[Every, Options]]
    takes: dict[str, tuple[float, float]]
    """Shortest and longest duration of a run, by job."""
    arrivals: list[float]
    """Moments at which the processes begin to serve the schedule."""
    limit: int
    faults: list[tuple[float, str, float]] = field(default_factory=list)
    """For each fault: its moment, its kind, and its duration."""
    commands: list[tuple[float, str, str]] = field(default_factory=list)
    """Commands of an operator: moment, job, and "pause", "resume", "run" or "cancel"."""
    redefined_at: float | None = None
    """Moment at which a process arrives that redefines the jobs with the opposite ``on_crash=``."""
    stubborn: float = 0.0
    """Seconds for which a run continues after it was told to end."""
    stops: list[tuple[float, int]] = field(default_factory=list)
    """Orderly stops of processes: moment, and index of the process."""

    @property
    def calm(self) -> bool:
        """True if there are no faults, and no message is slow or lost."""
        return not (self.faults or self.mishaps or self.slow_share)

    @property
    def settles(self) -> float:
        """Every due run must begin, or be skipped, within this many seconds after the last fault."""
        return self.stubborn + 1.5 + max(options.ttl + options.min_runtime for _, options in self.jobs.values())


def draw(rng: random.Random) -> Profile:
    choice, uniform = rng.choice, rng.random
    jobs: dict[str, tuple[Every, Options]] = {}
    takes: dict[str, tuple[float, float]] = {}
    for name in "abc"[: choice((1, 2, 2, 3))]:
        period = choice((0.5, 1.0, 1.0, 1.7))
        options = Options(
            ttl=choice((0.5, 1.0, 2.0)),
            min_runtime=choice((0.0, 0.0, 0.0, 0.3, 0.7)),
            overlap=choice(("skip", "queue", "allow")),
            misfire=choice(("skip", "once", "all")),
            grace=choice((0.3, 1.0, 10.0)),
            on_crash=choice(("leave", "again")),
            max_runtime=choice((None, None, None, 0.4)),
            history=1000,
        )
        jobs[name] = Every(period), options
        longest = period * (0.8 if options.overlap != "queue" else 0.4)
        takes[name] = choice(((0.0, 0.0), (0.0, longest), (0.0, longest), (0.0, 2 * period)))
    profile = Profile(
        lasts=choice((2.0, 3.0, 4.0, 6.0)),
        latency=choice((0.0003, 0.0003, 0.003, 0.02)),
        slow_share=choice((0.0, 0.0, 0.0, 0.02)),
        mishaps=choice((0.0, 0.0, 0.01, 0.05, 0.2)),
        jobs=jobs,
        takes=takes,
        arrivals=[choice((0.0, 0.0, 1.0, 2.0)) * uniform() for _ in range(choice((1, 2, 3, 3)))],
        limit=choice((32, 32, 32, 1)),
    )
    for kind in rng.sample(KINDS, choice((0, 0, 1, 1, 2))):
        for _ in range(choice((1, 1, 2)) if kind != "slay" else 6):
            profile.faults.append((profile.lasts * uniform(), kind, choice((0.05, 0.3, 1.0, 3.0)) * uniform()))
    if uniform() < 0.3:
        for _ in range(choice((1, 2, 3))):
            what = choice(("pause", "resume", "run", "run", "cancel"))
            profile.commands.append((profile.lasts * uniform(), choice(sorted(jobs)), what))
        profile.commands.append((profile.lasts, choice(sorted(jobs)), "resume"))
    if uniform() < 0.3:
        profile.stops.append((profile.lasts * uniform(), rng.randrange(len(profile.arrivals))))
    return profile


class ScheduleHistory(History[Profile]):
    """A history of a schedule."""

    hangs, fails = "S6", "S0"
    keys = ScheduleKeys.of("s")

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        profile = draw(rng := random.Random(f"schedule {seed}"))
        theme.redraw(seed, profile, lambda share: profile.lasts * share)
        super().__init__(seed, rng, profile, trace=trace)
        world = self.world
        self.server = Server(world, rate=1 + rng.choice((0.0, 0.002, -0.002)))
        self.services: list[Service] = []
        self.last = EPOCH + profile.lasts
        """Virtual time after which no fault happens any more."""
        for number, after in enumerate(profile.arrivals):
            world.at(EPOCH + after, self._arrive, number)
        for at, kind, lasts in profile.faults:
            world.at(EPOCH + at, self._strike, kind, lasts)
            self.last = max(self.last, EPOCH + at + lasts)
        self.redefined = False
        if profile.redefined_at is not None:
            world.at(EPOCH + profile.redefined_at, self._redefine)
        for at, job, what in profile.commands:
            world.at(EPOCH + at, self._order, job, what)
        for at, number in profile.stops:
            world.at(EPOCH + at, self._stop_one, number)
        theme.begin(seed, world)

    def _process(self, name: str) -> Process:
        rng = self.rng
        return Process(
            self.world,
            self.server,
            name,
            api=rng.choice(("threads", "asyncio")),
            offset=SKEW * (2 * rng.random() - 1),
            rate=1 + rng.choice((0.0, 0.002, -0.002)),
        )

    def _arrive(self, number: int) -> None:
        takes: dict[str, Callable[[random.Random], float]] = {
            name: partial(_between, low, high) for name, (low, high) in self.profile.takes.items()
        }
        process = self._process(f"c{number + 1}{len(self.services)}")
        definition = NEW if self.redefined else OLD
        definitions = {OLD: self.profile.jobs, NEW: opposite(self.profile.jobs)}
        jobs = definitions[definition]
        service = Service(process, self.keys, jobs, takes, self.profile.limit, definitions=definitions, definition=definition)
        service.stubborn = self.profile.stubborn
        self.services.append(service)

    def _redefine(self) -> None:
        """Start a process that redefines the jobs. Later processes use the new definitions, too."""
        self.redefined = True
        self._arrive(7)

    def new_since(self, job: str) -> float | None:
        """Return the server time in microseconds at which a job got its new definition; infinity: never.

        Return None if the definition has changed more than once, because a late copy of a request registered the old one again.
        """
        execute = self.server.keyspace.execute
        key = self.keys.job(job).job
        revision, new = int(execute("HGET", key, "rev") or 0), execute("HGET", key, "def") == NEW
        registered = [service.registered.get(job) for service in self.services if service.definition == NEW]
        first = min((number for number in registered if number), default=None)
        if first is None and not new:
            return float("inf")
        return float(revision) if new and first == revision else None

    def _strike(self, kind: str, lasts: float) -> None:
        if kind == "slay":
            self._slay()
        else:
            FAULTS[kind](self.world, self.rng, lasts)
        if kind in {"crash", "slay"}:
            self.world.at(self.world.now + lasts, self._arrive, 9)

    def _slay(self) -> None:
        for service in self.services:
            if service.process.here and service.state.runs:
                self.world.note("fault", service.process.name, note="crash")
                service.process.crash()

    def _order(self, job: str, what: str) -> None:
        worker = Worker(self._process(f"d{len(self.world.processes)}"), "order")

        async def ask() -> None:
            for _ in range(20):
                try:
                    await order(self.keys, job, what, ANSWER_WITHIN)
                except WireError:
                    await Sleep(0.5)
                else:
                    return

        worker.start(ask())

    def _stop_one(self, number: int) -> None:
        if len(self.services) > number + 1:  # otherwise no process might be left
            service = self.services[number]
            service.process.soon(service.state.stop, self.rng.choice((0.0, 0.5)))

    # The course of the history

    def go(self) -> None:
        self._run_phases()
        world, profile, jobs = self.world, self.profile, self.facts()
        served = ServedSchedule(
            world.history,
            jobs,
            {name: (when.seconds, options) for name, (when, options) in profile.jobs.items()},
            new_since={name: self.new_since(name) for name in profile.jobs} if self.redefined else None,
            now=world.now,
            shown=self.server.shown,
            steady=not profile.slow_share,
            calm=profile.calm,
            roomy=profile.limit > 1,
            slack=0.0,
            prompt=0.1 + 20 * profile.latency if profile.limit > 1 else float("inf"),
        )
        self.found += judge(served)
        served.docket.decide("S8")
        self.docket = served.docket
        counts = self.counts
        counts.update(f"tick {entry.status}" for known in jobs for entry in known.entries for _ in range(entry.ticks))
        counts["schedule abandoned"] += sum(service.abandoned for service in self.services)
        counts["schedule redefined"] += self.redefined
        counts.update(["tick attempts" for known in jobs for entry in known.entries if entry.attempt > 1])
        self.found += [Violation("S8", f"left behind: {what}") for what in self.end()]

    def stuck(self) -> str:
        return f"{self.server.calls} requests: a process sends requests in a busy loop"

    def _run_phases(self) -> None:
        """Run the history until its faults are healed, and then for `Profile.settles` seconds.

        Raises Stuck if the processes send too many requests.
        """
        world, profile = self.world, self.profile
        self._pass(self.last - EPOCH)
        world.calm_down()
        if not any(s.process.here and not s.worker.done for s in self.services):
            self._arrive(8)
        self._pass(profile.settles)

    def _pass(self, seconds: float) -> None:
        until, world = self.world.now + seconds, self.world
        while world.now < until:
            world.pass_time(min(0.5, until - world.now))
            if self.server.calls > CALLS:
                raise Stuck

    def facts(self) -> list[JobFacts]:
        """Return the data that the server stores for each job."""
        names = sorted(self.profile.jobs)
        jobs = (key for name in names for key in self.keys.job(name).looking())
        self.server.keyspace.now = int(self.server.wall() * 1e6)
        return overview(names, self.server.keyspace.run(JOBS, (self.keys.base, self.keys.serving, *jobs), (BESIDE, 1000))).jobs

    def end(self) -> list[str]:
        """Stop all processes in an orderly way, and describe the leftovers."""
        world = self.world
        for service in self.services:
            if service.process.here:
                service.state.stop(0.0)
        if not world.work(world.now + 60.0, world.steps + STEPS):
            return [f"not finished: {', '.join(sorted(worker.name for worker in world.working))}"]
        world.pass_time(1.0 + self.server.set_back)
        left = [what for what in leftovers(world) if "at:" not in what]
        for key, kind, _, _ in self.server.keyspace.dump():
            if kind == b"string" and b":run:" in key and not any(o.min_runtime for _, o in self.profile.jobs.values()):
                left.append(f"{key.decode()} is held")
        return left


def _between(low: float, high: float, rng: random.Random) -> float:
    return low + (high - low) * rng.random()


ENOUGH = {
    "script schedule/serve": 10_000,
    "script lock/renew": 1_000,
    "tick ok": 3_000,
    "tick cancelled": 30,
    "tick crashed": 50,
    "tick skipped": 300,
    "tick missed": 100,
    "tick timed-out": 100,
    "tick attempts": 50,
}
"""Minimum counts in 1,000 histories of schedules. They count runs of scripts, and ticks by their outcome."""

SWARM = Swarm(
    ScheduleHistory, ENOUGH, ("S1", "S2", "S3", "S4", "S4 counted", "S5", "S6", "S6 prompt", "S7", "S7 peace", "S8", "S9")
)
