"""The classes of jobs, their status and their history that users see, and the base class of the sync and asyncio `Schedule`."""

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
from holdfast._core.schedule.misfire import following
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
"""Maximum number of seconds to wait for one reply of the server."""

IDLE = "called as a job it would do nothing; declare a function that iterates over it"
"""Text of the error for a generator function that is declared as a job."""


@dataclass(frozen=True)
class Job:
    """A job that was declared in this process, with its function, timetable and options."""

    name: str
    function: Callable[..., Any]
    when: Timetable
    options: Options


@dataclass(frozen=True)
class Record:
    """An entry in a job's history, such as the outcome of a run. Times in Unix seconds by the server's clock."""

    status: Literal["ok", "error", "timed out", "cancelled", "crashed", "skipped", "missed"]
    scheduled: float
    count: int = 1
    """Number of consecutive ticks that this entry stands for. It is above 1 only if the ticks were skipped or missed; of missed
    ticks, at most 1,000 are counted."""
    until: float = 0.0
    """Scheduled time of the last tick that the entry stands for."""
    started: float = 0.0
    ended: float = 0.0
    host: str = ""
    """Process that ran the job, as ``host:pid (label)``."""
    attempt: int = 1
    fence: int = 0
    result: str = ""
    """Return value of the job, shortened, as text."""
    error: str = ""
    """Exception that the job raised, or reason why it did not run."""

    @property
    def duration(self) -> float:
        """Duration of the run in seconds; 0.0 if it did not run."""
        return max(0.0, self.ended - self.started)


@dataclass(frozen=True)
class Running:
    """A run of a job that is going on."""

    scheduled: float
    started: float
    host: str
    attempt: int
    fence: int
    remaining: float
    """Seconds until the run's lease expires unless it is renewed; 0.0: the lease has expired, because the process that ran the
    job is gone."""


@dataclass(frozen=True)
class JobStatus:
    """A job as the server knows it: definition, state, and last outcome."""

    name: str
    when: str
    """Timetable of the job as readable text."""
    next: float | None
    """Time of the next tick, in Unix seconds; None if there is none."""
    paused: bool
    running: tuple[Running, ...]
    queued: int
    """Number of runs that wait to begin, whether scheduled or started by hand."""
    last: Record | None
    options: Options
    origin: str = ""
    """The job's function, as ``module:name``, or its command, as declared by the process that declared the job last."""
    served: bool = True
    """True if a process serves the job now. If none does, `next` may be in the past."""


@dataclass(frozen=True)
class Runner:
    """A process that serves a schedule."""

    host: str
    """The process, as ``host:pid (label)``."""
    since: float
    """Time since which the process serves the schedule, in Unix seconds by the server's clock."""


@dataclass(frozen=True)
class Overview:
    """A schedule as its server knows it: the processes that serve it, and its jobs."""

    exists: bool
    """True if the schedule has ever been served, as far as the server knows."""
    runners: list[Runner]
    jobs: list[JobStatus]


def _refuse_mistaken(mistaken: dict[str, Any]) -> None:
    """Raise TypeError for an unknown option of `Schedule`; for ``timeout=``, the message names the options to use instead."""
    if "timeout" in mistaken:
        raise TypeError(
            "Schedule() has no timeout=: pass max_runtime= of a job for how long a run may take, ttl= of a job for how long "
            "the lease of a run outlives a crashed process, or finish_within= of run() and stop() for how long runs may go on"
        )
    refuse_mistaken(mistaken, "Schedule")


class BaseSchedule:
    """The base class of the sync and asyncio `Schedule`: it has the jobs, and the methods that declare jobs."""

    def __init__(
        self, name: str, features: Iterable[str], concurrency: int, prefix: str, mistaken: dict[str, Any], *, strict: bool
    ) -> None:
        _refuse_mistaken(mistaken)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be a whole number, at least 1, not {concurrency!r}", parameter="concurrency")
        self.name = name
        self._keys = Keys.of(name, prefix)
        self._features = fit_for(features, "features")
        self._concurrency = concurrency
        self._strict = strict
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that were declared in this process, in order."""
        return tuple(self._jobs.values())

    def __repr__(self) -> str:
        return f"<holdfast schedule {self.name!r}, {len(self._jobs)} jobs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a schedule cannot be pickled: create another one, with the same name, in the other process")

    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, jitter: float = 0.0, **options: Any
    ) -> Callable[[F], F]:
        """Decorator: run the function at the times of a cron expression, by the clock of time zone ``tz``.

        ``name``: the job's name, by default the function's. ``jitter``: maximum delay of a tick in seconds; all processes
        compute the same delay. ``options``: those of `Options`. Raises ConfigError if an option is invalid.
        """

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Cron(expression, tz, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    def every(self, seconds: float, *, name: str | None = None, jitter: float = 0.0, **options: Any) -> Callable[[F], F]:
        """Decorator: run the function at each multiple of ``seconds`` since 1970, by the server's clock. See `cron`."""

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Every(seconds, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    def add(self, function: Callable[..., Any], when: Timetable, *, name: str | None = None, **options: Any) -> Job:
        """Declare a job without a decorator: any callable, with any `Timetable`. Call this before the schedule is started.

        Raises ConfigError for a timetable whose ``after`` returns a time that is not later.
        """
        named = _named(function) if name is None else name
        if not callable(function):
            raise ConfigError(f"job {named!r}: {function!r} is not callable", parameter="function")
        if named in self._jobs:
            raise ConfigError(f"schedule {self.name!r} has a job {named!r} already; pass another name=", parameter="name")
        if self._serving:
            raise ConfigError(
                f"schedule {self.name!r} is being served: declare job {named!r} before that", parameter="function"
            )
        refuse_generator(function, IDLE)
        self._check(named, function)
        self._keys.job(named)
        if not isinstance(when, Cron | Every):
            first = following(when, 0)
            if first is not None:
                following(when, first)  # refuses a timetable that stands still before it is served
        self._jobs[named] = job = Job(named, function, when, checked(named, options))
        return job

    @property
    def _serving(self) -> bool:
        raise NotImplementedError

    def _check(self, name: str, function: Callable[..., Any]) -> None:
        """Raise ConfigError for a function that this API (sync or asyncio) cannot run as a job."""

    def _new_state(self, timeout: float) -> ScheduleState:
        """Return a new `ScheduleState`, the state of the schedule in this process, with the declared jobs that this process may
        run. ``timeout``: seconds to wait for each reply."""
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
        """Raise ConfigError if the server has not carried out a command about the job; ``answer`` is its reply."""
        if isinstance(answer, UnknownJob):
            raise ConfigError(f"schedule {self.name!r} has no job {job!r}", parameter="job")
        if isinstance(answer, Full):
            raise ConfigError(f"job {job!r}: too many of its runs wait already", parameter="job")
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
        raise ConfigError(f"{function!r} has no name: pass name=", parameter="name")
    return str(name)


def record(entry: Entry) -> Record:
    """Return a history entry from the server as the `Record` that users see."""
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
    """Return a job's facts from the server as the `JobStatus` that users see."""
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
    """Return a schedule's facts from the server as the `Overview` that users see."""
    runners = [Runner(runner.host, runner.since / 1e6) for runner in found.runners]
    return Overview(found.exists, runners, [status(facts) for facts in found.jobs])
