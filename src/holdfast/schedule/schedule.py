"""Jobs, the facts about them, and the common part of both APIs of `Schedule`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from holdfast._api.functions import refuse_generator
from holdfast._api.options import refuse_mistaken
from holdfast._core.schedule import commands
from holdfast._core.schedule.commands import Entry, JobFacts
from holdfast._core.schedule.job import Full, Keys, Obeyed, Options, UnknownJob, Unusable
from holdfast._core.schedule.records import ServedJob
from holdfast._core.schedule.state import ScheduleState
from holdfast._runtime.process import current, describe
from holdfast.errors import ConfigError
from holdfast.schedule.definition import checked, fit_for, parse, write
from holdfast.schedule.origin import origin_of
from holdfast.schedule.timetable import Cron, Every, Timetable

__all__ = [
    "BaseSchedule",
    "Job",
    "JobStatus",
    "Options",
    "Overview",
    "Record",
    "Runner",
    "Running",
    "overview",
    "record",
    "status",
]

F = TypeVar("F", bound=Callable[..., Any])

ANSWER_WITHIN = 2.0
"""Seconds to wait for one answer, at most."""

IDLE = "called as a job it would do nothing; write a function that goes through it"
"""Why a generator function is refused."""


@dataclass(frozen=True)
class Job:
    """A job that was declared here."""

    name: str
    function: Callable[..., Any]
    when: Timetable
    options: Options


@dataclass(frozen=True)
class Record:
    """The outcome of a tick, as the history has it. Times in Unix seconds by the server's clock."""

    status: Literal["ok", "error", "timed out", "cancelled", "crashed", "skipped", "missed"]
    scheduled: float
    count: int = 1
    """Number of ticks that the entry stands for: consecutive ticks that were skipped, or missed (of those 1,000 at most)."""
    until: float = 0.0
    """The last of these ticks."""
    started: float = 0.0
    ended: float = 0.0
    host: str = ""
    """``host:pid (label)``"""
    attempt: int = 1
    fence: int = 0
    result: str = ""
    """The return value of the job, as a short text."""
    error: str = ""
    """The exception that it raised, or the reason why it did not run."""

    @property
    def duration(self) -> float:
        """Seconds."""
        return max(0.0, self.ended - self.started)


@dataclass(frozen=True)
class Running:
    """A run that goes on."""

    scheduled: float
    started: float
    host: str
    attempt: int
    fence: int
    remaining: float
    """Seconds until its lease ends unless it is renewed; 0.0: it has ended, its process is gone."""


@dataclass(frozen=True)
class JobStatus:
    """A job as the server knows it."""

    name: str
    when: str
    """The timetable, for people."""
    next: float | None
    """The next tick, in Unix seconds; None if there is none."""
    paused: bool
    running: tuple[Running, ...]
    queued: int
    """The number of runs that wait to begin, of ticks and those begun by hand."""
    last: Record | None
    options: Options
    origin: str = ""
    """The function or command that runs: ``module:name``, as the process says that has declared the job last."""
    served: bool = True
    """Whether a process serves the job now. If none does, `next` may be in the past."""


@dataclass(frozen=True)
class Runner:
    """A process that serves a schedule."""

    host: str
    """``host:pid (label)``"""
    since: float
    """Time since which the process serves the schedule, in Unix seconds by the server's clock."""


@dataclass(frozen=True)
class Overview:
    """A schedule as its server knows it."""

    exists: bool
    """Whether it has ever been served, as far as the server knows."""
    runners: list[Runner]
    jobs: list[JobStatus]


def _refuse_mistaken(mistaken: dict[str, Any]) -> None:
    """Explain ``timeout=``; refuse any other unknown option."""
    if "timeout" in mistaken:
        raise TypeError(
            "Schedule() has no timeout=: pass max_runtime= of a job for how long a run may take, ttl= of a job for how long "
            "the lease of a run outlives a crashed process, or finish_within= of run() and stop() for runs that go on then"
        )
    refuse_mistaken(mistaken, "Schedule")


class BaseSchedule:
    """The common part of both APIs: the jobs, and how they are declared."""

    def __init__(
        self, name: str, features: Iterable[str], concurrency: int, prefix: str, mistaken: dict[str, Any], *, strict: bool
    ) -> None:
        _refuse_mistaken(mistaken)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be a whole number from 1, not {concurrency!r}", parameter="concurrency")
        self.name = name
        self._keys = Keys.of(name, prefix)
        self._features = fit_for(features, "features")
        self._concurrency = concurrency
        self._strict = strict
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that were declared here."""
        return tuple(self._jobs.values())

    def __repr__(self) -> str:
        return f"<holdfast schedule {self.name!r}, {len(self._jobs)} jobs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a schedule cannot be pickled: another process makes its own, with the same name")

    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, jitter: float = 0.0, **options: Any
    ) -> Callable[[F], F]:
        """Decorator: run the function when a cron expression says so, by the clock of time zone ``tz``.

        ``name``: of the job, by default the function's; ``jitter``: seconds by which each tick is delayed at most, in all
        processes by as much; ``options``: those of `Options`. Raises ConfigError.
        """

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Cron(expression, tz, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    def every(self, seconds: float, *, name: str | None = None, jitter: float = 0.0, **options: Any) -> Callable[[F], F]:
        """Decorator: run the function at all multiples of so many seconds since 1970, by the server's clock. See `cron`."""

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Every(seconds, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    def add(self, function: Callable[..., Any], when: Timetable, *, name: str | None = None, **options: Any) -> Job:
        """The same without a decorator: anything that can be called, at any `Timetable`. Before the schedule is started."""
        named = _named(function) if name is None else name
        if not callable(function):
            raise ConfigError(f"job {named!r}: {function!r} cannot be called", parameter="function")
        if named in self._jobs:
            raise ConfigError(f"schedule {self.name!r} has a job {named!r} already; say name= for another", parameter="name")
        if self._serving:
            raise ConfigError(
                f"schedule {self.name!r} is being served: declare job {named!r} before that", parameter="function"
            )
        refuse_generator(function, IDLE)
        self._check(named, function)
        self._keys.job(named)
        self._jobs[named] = job = Job(named, function, when, checked(named, options))
        return job

    @property
    def _serving(self) -> bool:
        raise NotImplementedError

    def _check(self, name: str, function: Callable[..., Any]) -> None:
        """Raises ConfigError for a function that this face cannot run."""

    def _new_state(self, timeout: float) -> ScheduleState:
        """Return the declared jobs that this process serves."""
        mine = [job for job in self._jobs.values() if not job.options.on or self._features & set(job.options.on)]
        seats = [
            ServedJob(
                job.name,
                self._keys.job(job.name),
                job.when,
                job.options,
                write(job.when, job.options),
                job.when.text.encode(),
                origin_of(job.function),
            )
            for job in mine
        ]
        process = current()
        import json

        host = describe(json.dumps(process.facts()).encode(), process.id) or process.id
        timeout = min(timeout, ANSWER_WITHIN)
        return ScheduleState(self._keys, seats, host=host, timeout=timeout, limit=self._concurrency, strict=self._strict)

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {job.name: job.function for job in self._jobs.values()}

    @property
    def _what(self) -> str:
        return f"schedule {self.name!r}"

    def _obeyed(self, job: str, answer: Obeyed | UnknownJob | Full | Unusable) -> None:
        """Raises ConfigError if an order could not be carried out."""
        if isinstance(answer, UnknownJob):
            raise ConfigError(f"schedule {self.name!r} has no job {job!r}", parameter="job")
        if isinstance(answer, Full):
            raise ConfigError(f"job {job!r}: too many runs of it wait already", parameter="job")
        if isinstance(answer, Unusable):
            raise ConfigError(f"job {job!r} cannot be used: {answer.why}", parameter="job")

    def _history(self, job: str, found: list[JobFacts]) -> list[Record]:
        if not found:
            self._obeyed(job, UnknownJob())
        (facts,) = found
        return [record(entry) for entry in facts.entries]


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise ConfigError(f"{function!r} has no name: say name=", parameter="name")
    return str(name)


def record(entry: Entry) -> Record:
    """An entry of the log, for users."""
    ok = entry.status == "ok"
    return Record(
        status=entry.status.replace("-", " "),  # type: ignore[arg-type]
        scheduled=entry.scheduled / 1e6,
        count=entry.ticks,
        until=entry.until / 1e6,
        started=entry.started / 1e6,
        ended=entry.ended / 1e6,
        host=entry.host,
        attempt=entry.attempt or 1,
        fence=entry.fence,
        result=entry.text if ok else "",
        error="" if ok else entry.text,
    )


def status(facts: JobFacts) -> JobStatus:
    """Return the facts about a job, for users."""
    try:
        when, options = parse(facts.definition)
        text, following = str(when), when.after(facts.last / 1e6)
    except ConfigError:
        text, following, options = facts.definition.decode(errors="replace"), math.inf, Options()
    running = tuple(
        Running(run.scheduled / 1e6, run.started / 1e6, run.host, run.attempt, run.fence, max(0, run.left) / 1000)
        for run in facts.running
    )
    return JobStatus(
        name=facts.name,
        when=text,
        next=None if following == math.inf else following,
        paused=facts.paused,
        running=running,
        queued=facts.queued,
        last=record(facts.entries[0]) if facts.entries else None,
        options=options,
        origin=facts.origin,
        served=facts.served,
    )


def overview(found: commands.Overview) -> Overview:
    """Return the facts about a schedule, for users."""
    runners = [Runner(runner.host, runner.since / 1e6) for runner in found.runners]
    return Overview(found.exists, runners, [status(facts) for facts in found.jobs])
