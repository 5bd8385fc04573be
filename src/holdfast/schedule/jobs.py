"""What a job is, what is told about it, and what the faces of `Schedule` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from holdfast.schedule.timetable import Cron, Every, Timetable

F = TypeVar("F", bound=Callable[..., Any])

Overlap = Literal["skip", "queue", "allow"]
Misfire = Literal["skip", "once", "all"]
OnCrash = Literal["leave", "again"]


@dataclass(frozen=True)
class Options:
    """How the runs of a job go, times in seconds."""

    ttl: float = 30.0
    """The lease of a run, renewed while it runs: for so long a crashed runner blocks the next."""
    keep: float = 0.0
    """From its start a run counts as running for so long at least."""
    overlap: Overlap = "skip"
    """A tick that falls due while the job runs is skipped, waits in a queue, or runs beside."""
    misfire: Misfire = "once"
    """Of the ticks that are later than `grace`: none is run, the latest, or all (the latest hundred at most)."""
    grace: float = 10.0
    """A tick that is at most so late runs as if nothing had happened."""
    on_crash: OnCrash = "leave"
    """A run whose process dies is left at that, or begun again elsewhere, up to three times."""
    max_runtime: float | None = None
    """After so long a run is ended: a coroutine is cancelled, a command terminated, a function told."""
    on: tuple[str, ...] = ()
    """Labels: it runs only where the schedule has one of them."""
    history: int = 50
    """Runs that are remembered."""


@dataclass(frozen=True)
class Job:
    """A job of this process. ``function`` is None for one that others serve."""

    name: str
    function: Callable[..., Any]
    when: Timetable
    options: Options


@dataclass(frozen=True)
class Record:
    """A run as the history has it; ticks that were not run are there too. Times in Unix seconds by the server's clock."""

    status: Literal["ok", "error", "timed out", "cancelled", "crashed", "skipped", "missed"]
    scheduled: float
    count: int = 1
    """For how many ticks this stands (those skipped or missed one after the other)."""
    until: float = 0.0
    """The last of them."""
    started: float = 0.0
    ended: float = 0.0
    host: str = ""
    """``host:pid (label)``"""
    attempt: int = 1
    fence: int = 0
    result: str = ""
    """What the job returned, as a short text."""
    error: str = ""
    """What it raised, or why it did not run."""

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
    """Seconds until its lease ends unless it is renewed."""


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
    """Runs that wait for that."""
    last: Record | None
    options: Options


class BaseSchedule:
    """What the faces share: the jobs, and how they are declared."""

    def __init__(self, client: object, name: str, *, labels: Iterable[str], limit: int) -> None:
        self.name = name
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that were declared here."""
        return tuple(self._jobs.values())

    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, jitter: float = 0.0, **options: Any
    ) -> Callable[[F], F]:
        """Decorator: run the function when a cron expression says so, by the clock of time zone ``tz``.

        ``name``: of the job, by default the function's; ``options``: those of `Options`. Raises ConfigError.
        """

        def declare(function: F) -> F:
            self.add(function, Cron(expression, tz, jitter=jitter, salt=name or function.__name__), name=name, **options)
            return function

        return declare

    def every(self, seconds: float, *, name: str | None = None, jitter: float = 0.0, **options: Any) -> Callable[[F], F]:
        """Decorator: run the function at all multiples of so many seconds since 1970, by the server's clock. See `cron`."""

        def declare(function: F) -> F:
            self.add(function, Every(seconds, jitter=jitter, salt=name or function.__name__), name=name, **options)
            return function

        return declare

    def add(self, function: Callable[..., Any], when: Timetable, *, name: str | None = None, **options: Any) -> Job:
        """The same without a decorator. Before the schedule is started only. A second job of a name is refused."""
        job = Job(name or function.__name__, function, when, Options(**options))
        self._jobs[job.name] = job
        return job
