"""`Schedule` for threads and for asyncio, and the classes of jobs, their status and their history that users see."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, Self, TypeVar

from holdfast._api.caller import AioCaller, BaseCaller, Caller
from holdfast._api.flow import InTasks, InThreads, Steps, complete, hides_frames, of_asyncio
from holdfast._api.foreign_words import ASYNC_WITH, SCHEDULE_METHODS, WITH, ForeignMethods
from holdfast._api.functions import is_async, refuse_bare, refuse_generator
from holdfast._api.options import refuse_mistaken, seconds
from holdfast._core.schedule import commands
from holdfast._core.schedule.commands import Entry, JobFacts
from holdfast._core.schedule.job import Full, Obeyed, Options, ScheduleKeys, UnknownJob, Unusable
from holdfast._core.schedule.misfire import following
from holdfast._core.schedule.records import ServedJob
from holdfast._core.schedule.state import ScheduleState
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Client, SyncClient
from holdfast._net.redaction import hides_client
from holdfast._runtime.process import current, describe
from holdfast._usage import shows_usage
from holdfast.errors import ConfigError
from holdfast.schedule.definition import checked, fit_for, parse, write
from holdfast.schedule.engine import PATIENCE, log
from holdfast.schedule.origin import origin_of
from holdfast.schedule.service import AioService, Service
from holdfast.schedule.stopping import Stopping
from holdfast.schedule.timetable import Cron, Every, Timetable

__all__ = [
    "AioSchedule",
    "BaseSchedule",
    "Job",
    "JobStatus",
    "Options",
    "Overview",
    "Record",
    "Runner",
    "Running",
    "Schedule",
    "overview",
    "record",
    "status",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

ANSWER_WITHIN = 2.0
"""Maximum number of seconds to wait for one reply of the server."""

IDLE = "called as a job it would do nothing; declare a function that iterates over it"
"""Error text for a generator function that is declared as a job."""


@dataclass(frozen=True)
class Job:
    """A job that was declared in this process, with its function, timetable and options."""

    name: str
    function: Callable[..., Any]
    when: Timetable
    options: Options


@dataclass(frozen=True)
class Record:
    """An entry in a job's history, such as the outcome of a run. Times are in Unix seconds, by the server's clock."""

    status: Literal["ok", "error", "timed out", "cancelled", "crashed", "skipped", "missed"]
    scheduled: float
    count: int = 1
    """Number of consecutive ticks of this entry. It is above 1 only if they were skipped or missed; at most 1,000 missed ticks
    are counted."""
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
    """Exception that the job raised, or reason why the run was ended, or why the job did not run."""

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
    """Seconds until the run's lease expires unless it is renewed; 0.0 if the lease has expired."""


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
    """The job's function, as ``module:name``, or its command. It is from the process that declared the job last."""
    served: bool = True
    """True if a process serves the job now. If none does, `next` may be in the past."""


@dataclass(frozen=True)
class Runner:
    """A process that serves a schedule."""

    host: str
    """The process, as ``host:pid (label)``."""
    since: float
    """Unix time, in seconds by the server's clock, at which the process began to serve the schedule."""


@dataclass(frozen=True)
class Overview:
    """A schedule as its server knows it: the processes that serve it, and its jobs."""

    exists: bool
    """True if the schedule has ever been served, as far as the server knows."""
    runners: list[Runner]
    jobs: list[JobStatus]


class BaseSchedule(ForeignMethods, Steps, Generic[Client]):
    """The jobs of a `Schedule`, and the flows of its methods. Base class for threads and for asyncio."""

    _foreign = SCHEDULE_METHODS

    _caller_type: type[BaseCaller]
    _service_type: Callable[..., Any]
    """Class of a `BaseService` of this API."""

    @hides_client("Schedule.__init__")
    def __init__(
        self,
        client: Client,
        name: str,
        *,
        features: Iterable[str] = (),
        concurrency: int = 32,
        prefix: str = "hf:",
        strict: bool = False,
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, "Schedule")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency must be a whole number, at least 1, not {concurrency!r}", parameter="concurrency")
        self.name = name
        self._keys = ScheduleKeys.of(name, prefix)
        self._features = fit_for(features, "features")
        self._concurrency = concurrency
        self._strict = strict
        self._jobs: dict[str, Job] = {}
        self._caller = self._caller_type(client)
        self._mutex = threading.Lock()
        """Locked while the schedule is being started."""
        self._service: Any = None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that were declared in this process, in order."""
        return tuple(self._jobs.values())

    def __repr__(self) -> str:
        return f"<holdfast schedule {self.name!r}, {len(self._jobs)} jobs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a schedule cannot be pickled: create another one, with the same name, in the other process")

    @shows_usage('@schedule.cron("0 3 * * *")')
    def cron(
        self, expression: str, *, tz: str = "UTC", name: str | None = None, jitter: Seconds = 0.0, **options: Any
    ) -> Callable[[F], F]:
        """Return a decorator that makes a function a job, which runs at the times of a cron expression in time zone ``tz``.

        ``name``: the job's name, by default the function's. ``jitter``: maximum delay of a tick in seconds; all processes
        compute the same delay. ``options``: those of `Options`. Raises ConfigError if an option is invalid.
        """
        refuse_bare(expression, '@schedule.cron("@daily")', "expression")

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Cron(expression, tz, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    @shows_usage('@schedule.every("5m")')
    def every(self, seconds: Seconds, *, name: str | None = None, jitter: Seconds = 0.0, **options: Any) -> Callable[[F], F]:
        """Return a decorator that makes a function a job, which runs at each multiple of ``seconds`` since 1970.

        The server's clock counts. The other parameters are those of `cron`.
        """
        refuse_bare(seconds, '@schedule.every("5m")', "seconds")

        def declare(function: F) -> F:
            named = _named(function) if name is None else name
            self.add(function, Every(seconds, jitter=jitter, salt=named), name=named, **options)
            return function

        return declare

    @shows_usage("schedule.add(function, Every(300)) or schedule.add(function, Cron('0 3 * * *'))")
    def add(self, function: Callable[..., Any], when: Timetable, *, name: str | None = None, **options: Any) -> Job:
        """Declare a job without a decorator, from any callable and any `Timetable`. Call this before the schedule is started.

        Raises ConfigError if an option is invalid, if a job of this name was declared before, or if the method ``after(t)`` of
        the timetable returns a time that is not later than ``t``.
        """
        named = _named(function) if name is None else name
        if not callable(function):
            raise ConfigError(f"job {named!r}: {function!r} is not callable", parameter="function")
        if not callable(getattr(when, "after", None)):
            how = "pass Every(300) or Cron('0 3 * * *') of holdfast.schedule"
            raise ConfigError(f"job {named!r}: when must be a timetable, not {when!r}: {how}", parameter="when")
        if named in self._jobs:
            raise ConfigError(f"schedule {self.name!r} has a job {named!r} already; pass another name=", parameter="name")
        if self._serving or self._mutex.locked():
            raise ConfigError(
                f"schedule {self.name!r} is being served: declare job {named!r} before it starts", parameter="function"
            )
        refuse_generator(function, IDLE)
        self._check(named, function)
        self._keys.job(named)
        if not isinstance(when, Cron | Every):
            first = following(when, 0)
            if first is not None:
                following(when, first)  # raises an error now, not when the schedule is served, if the timetable stands still
        self._jobs[named] = job = Job(named, function, when, checked(named, options))
        return job

    @property
    def _serving(self) -> bool:
        service = self._service
        return service is not None and service.here and not service.over.is_set()

    def _check(self, name: str, function: Callable[..., Any]) -> None:
        """Raise ConfigError for a function that this API (sync or asyncio) cannot run as a job."""

    def _new_state(self, timeout: float) -> ScheduleState:
        """Return a new `ScheduleState`, the state of the schedule in this process, with the jobs that this process may run.

        ``timeout``: seconds to wait for each reply.
        """
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

    @property
    def _what(self) -> str:
        return f"schedule {self.name!r}"

    # Flows

    @hides_frames
    async def _start(self) -> None:
        # Do not wait for a busy mutex: a signal handler that calls this may have interrupted the very thread that holds it.
        if not self._mutex.acquire(blocking=False):
            raise RuntimeError(f"schedule {self.name!r} is being started by this process already")
        try:
            if self._serving:
                raise RuntimeError(f"schedule {self.name!r} is being served by this process already")
            functions = {job.name: job.function for job in self._jobs.values()}
            service = self._service_type(
                self._caller, self._keys.base, self._what, self._new_state(self._caller.timeout), functions
            )
            await service.begin()
            self._service = service
        finally:
            self._mutex.release()

    async def _stop(self, finish_within: Seconds) -> None:
        left = seconds(finish_within, "finish_within", 0.0)
        service = self._service
        if service is not None and service.here:
            service.stop(left)
            if not await service.ended(left + PATIENCE):
                log.warning("schedule %r: some runs did not end when told to; they go on in this process", self.name)

    async def _overview(self) -> Overview:
        return overview(await self._ask(commands.survey(self._keys, self._caller.timeout)))

    async def _history(self, job: str, last: int) -> list[Record]:
        found = (await self._ask(commands.read_jobs(self._keys, [job], last, self._caller.timeout))).jobs
        if not found:
            self._obeyed(job, UnknownJob())
        (facts,) = found
        return [record(entry) for entry in facts.entries]

    async def _order(self, job: str, what: str) -> None:
        self._obeyed(job, await self._ask(commands.order(self._keys, job, what, self._caller.timeout)))

    @hides_frames
    async def _ask(self, operation: Coroutine[Any, Any, T]) -> T:
        return await self._caller.run(operation, self._keys.base, self._what)

    def _obeyed(self, job: str, answer: Obeyed | UnknownJob | Full | Unusable) -> None:
        if isinstance(answer, UnknownJob):
            known = "the server knows a job once a process has served it"
            raise ConfigError(f"schedule {self.name!r} has no job {job!r}; {known}", parameter="job")
        if isinstance(answer, Full):
            raise ConfigError(f"job {job!r}: too many of its runs wait already", parameter="job")
        if isinstance(answer, Unusable):
            raise ConfigError(f"job {job!r} cannot be used: {answer.why}", parameter="job")


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise ConfigError(f"{function!r} has no name: pass name=", parameter="name")
    return str(name)


def record(entry: Entry) -> Record:
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
    runners = [Runner(runner.host, runner.since / 1e6) for runner in found.runners]
    return Overview(found.exists, runners, [status(facts) for facts in found.jobs])


class Schedule(InThreads, BaseSchedule[SyncClient]):
    """Jobs that run once per tick (scheduled time), in one of the processes that serve the schedule.

    Args:
        client: a redis.Redis or valkey.Valkey client, or a URL.
        name: the name of the schedule. Processes that serve the same name share its jobs, so each application needs its own
            name.
        features: names of what this process offers, such as "gpu". A job declared with ``on=`` runs only in processes that have
            a feature named there.
        concurrency: maximum number of runs at the same time in this process.
        prefix: start of the keys on the server.
        strict: True: refuse to start if another process serves a different function under the name of one of the jobs. False:
            log a warning then, and use the definition that was declared last.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    if not TYPE_CHECKING:
        __aenter__ = ASYNC_WITH

    _caller_type = Caller
    _service_type = Service

    def _check(self, name: str, function: Callable[..., Any]) -> None:
        if is_async(function):
            raise ConfigError(f"job {name!r} is a coroutine function: use holdfast.aio.Schedule", parameter="function")

    def run(self, finish_within: Seconds = 10.0, **mistaken: Never) -> None:
        """Serve the jobs until `stop` is called or, in the main thread, until SIGTERM, SIGINT or SIGHUP arrives.

        A signal stops the schedule as ``stop(finish_within)`` does. After a second SIGTERM or SIGINT, the runs are cancelled
        at once.
        """
        refuse_mistaken(mistaken, "Schedule.run")
        left = seconds(finish_within, "finish_within", 0.0)
        self.start()
        service = self._service
        assert service is not None
        stopping = Stopping(service.stop, left)
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, stopping.heard) for number in stopping.signals()}
        try:
            # A second signal may arrive in another thread. Python handles it in this thread, which must wake up from time to
            # time.
            while not service.over.wait(0.5):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Register the jobs, and serve them in the background until `stop` is called.

        Raises ServerError if the server is unreachable, and ConfigError if ``strict`` forbids the start.
        """
        complete(self._start())

    def stop(self, finish_within: Seconds = 10.0, **mistaken: Never) -> None:
        """Start no more runs, and wait until the runs that this process has begun have ended.

        Runs have ``finish_within`` seconds to finish. After that they are cancelled, and this method waits up to five more
        seconds for them. A run that goes on nevertheless keeps its lease until it ends.
        """
        refuse_mistaken(mistaken, "Schedule.stop")
        complete(self._stop(finish_within))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def status(self) -> list[JobStatus]:
        """Return all jobs of the schedule that the server knows, sorted by name, even if no process serves them."""
        return complete(self._overview()).jobs

    def runners(self) -> list[Runner]:
        """Return the processes that serve the schedule, the longest-serving first. A killed process stays listed for 30 s."""
        return complete(self._overview()).runners

    def history(self, job: str, last: int = 50, **mistaken: Never) -> list[Record]:
        """Return the newest ``last`` entries of a job's history, newest first. Raises ConfigError for an unknown job."""
        refuse_mistaken(mistaken, "Schedule.history")
        return complete(self._history(job, last))

    def pause(self, job: str) -> None:
        """Stop running a job, in all processes, until `resume` is called.

        Ticks (scheduled times) in between are skipped. A run that has begun goes on.
        """
        complete(self._order(job, "pause"))

    def resume(self, job: str) -> None:
        """Resume a paused job, so that it runs again from its next tick (scheduled time) on."""
        complete(self._order(job, "resume"))

    def run_now(self, job: str) -> None:
        """Run a job once, now, in one of the processes that serve it.

        If a run of the job is under way, the new run begins when that run has ended. If the job was declared with
        ``overlap="allow"``, the new run begins at once.
        """
        complete(self._order(job, "run"))

    def cancel(self, job: str) -> None:
        """Cancel all runs of a job that have begun, in all processes. Raises ConfigError for an unknown job."""
        complete(self._order(job, "cancel"))

    def remove(self, job: str) -> None:
        """Delete a job and its history from the server. Call this when no process declares the job any more."""
        complete(self._order(job, "remove"))


@of_asyncio
class AioSchedule(InTasks, BaseSchedule[AsyncClient]):
    """Jobs that run once per tick (scheduled time), in one of the processes that serve the schedule.

    Coroutine functions run in the event loop, plain functions in threads.

    Args:
        client: a redis.asyncio.Redis or valkey.asyncio.Valkey client, or a URL.
        name: the name of the schedule. Processes that serve the same name share its jobs, so each application needs its own
            name.
        features: names of what this process offers, such as "gpu". A job declared with ``on=`` runs only in processes that have
            a feature named there.
        concurrency: maximum number of runs at the same time in this process.
        prefix: start of the keys on the server.
        strict: True: refuse to start if another process serves a different function under the name of one of the jobs. False:
            log a warning then, and use the definition that was declared last.

    Raises:
        ConfigError: an option is out of range; nothing was sent.
    """

    if not TYPE_CHECKING:
        __enter__ = WITH

    _caller_type = AioCaller
    _service_type = AioService

    async def run(self, finish_within: Seconds = 10.0, **mistaken: Never) -> None:
        """Serve the jobs until `stop` is called or, in the main thread, until SIGTERM, SIGINT or SIGHUP arrives.

        A signal stops the schedule as ``stop(finish_within)`` does. After a second SIGTERM or SIGINT, the runs are cancelled
        at once.
        """
        refuse_mistaken(mistaken, "Schedule.run")
        import asyncio  # Imported late: programs of threads need no asyncio.

        left = seconds(finish_within, "finish_within", 0.0)
        await self.start()
        service = self._service
        assert service is not None
        stopping = Stopping(service.stop, left)
        loop = asyncio.get_running_loop()
        numbers = stopping.signals() if threading.current_thread() is threading.main_thread() else ()
        for number in numbers:
            loop.add_signal_handler(number, stopping.heard, number)
        try:
            await service.over.wait()
        except asyncio.CancelledError:
            await self.stop(left)
            raise
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def start(self) -> None:
        """Register the jobs, and serve them in the background until `stop` is called.

        Raises ServerError if the server is unreachable, and ConfigError if ``strict`` forbids the start.
        """
        await self._start()

    async def stop(self, finish_within: Seconds = 10.0, **mistaken: Never) -> None:
        """Start no more runs, and wait until the runs that this process has begun have ended.

        Runs have ``finish_within`` seconds to finish. After that they are cancelled, and this method waits up to five more
        seconds for them. A run that goes on nevertheless keeps its lease until it ends.
        """
        refuse_mistaken(mistaken, "Schedule.stop")
        await self._stop(finish_within)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def status(self) -> list[JobStatus]:
        """Return all jobs of the schedule that the server knows, sorted by name, even if no process serves them."""
        return (await self._overview()).jobs

    async def runners(self) -> list[Runner]:
        """Return the processes that serve the schedule, the longest-serving first. A killed process stays listed for 30 s."""
        return (await self._overview()).runners

    async def history(self, job: str, last: int = 50, **mistaken: Never) -> list[Record]:
        """Return the newest ``last`` entries of a job's history, newest first. Raises ConfigError for an unknown job."""
        refuse_mistaken(mistaken, "Schedule.history")
        return await self._history(job, last)

    async def pause(self, job: str) -> None:
        """Stop running a job, in all processes, until `resume` is called.

        Ticks (scheduled times) in between are skipped. A run that has begun goes on.
        """
        await self._order(job, "pause")

    async def resume(self, job: str) -> None:
        """Resume a paused job, so that it runs again from its next tick (scheduled time) on."""
        await self._order(job, "resume")

    async def run_now(self, job: str) -> None:
        """Run a job once, now, in one of the processes that serve it.

        If a run of the job is under way, the new run begins when that run has ended. If the job was declared with
        ``overlap="allow"``, the new run begins at once.
        """
        await self._order(job, "run")

    async def cancel(self, job: str) -> None:
        """Cancel all runs of a job that have begun, in all processes. Raises ConfigError for an unknown job."""
        await self._order(job, "cancel")

    async def remove(self, job: str) -> None:
        """Delete a job and its history from the server. Call this when no process declares the job any more."""
        await self._order(job, "remove")
