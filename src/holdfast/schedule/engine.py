"""Begin, cancel and end the runs of jobs, as `_core.schedule.loop` decides. Both `Schedule` classes use this module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._api.lease import core_of
from holdfast._core.requests import NotSent
from holdfast._core.schedule.job import DefinitionChanged
from holdfast._core.schedule.records import AbandonRun, ActiveRun, CancelRun, ForgetRun, Log, Redefine, ServedJob, Start, Todo
from holdfast._core.schedule.state import ScheduleState
from holdfast._log import logger
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.process import Process
from holdfast.schedule.command import JobFailed
from holdfast.schedule.definition import read
from holdfast.schedule.run import Cancelled, Run, RunCore, enter

if TYPE_CHECKING:
    from logging import Logger

log: Logger = logger("holdfast.schedule")

PATIENCE = 5.0
"""Seconds that `Schedule.stop` waits for the runs after it has cancelled them."""

TEXT = 500
"""Maximum number of characters of a result or an error that the history keeps."""


class Launch(Protocol):
    def __call__(self, active_run: ActiveRun, run: Run, /) -> Callable[[], object]:
        """Begin a run in its own thread or task, and return a function that the engine calls to end the run.

        The function cancels the task. For a thread it does nothing: `Run.cancelled` is set, and only the job can end the run.
        """


class Engine:
    """All runs of a schedule in this process. The engine begins and cancels runs as the schedule's state requests."""

    def __init__(self, state: ScheduleState, functions: dict[str, Callable[..., Any]], launch: Launch) -> None:
        self.state = state
        self.home: tuple[Process, Endpoint] | None = None
        """The registry of this process, and the server of the schedule; None before the first request."""
        self._functions = functions
        self._launch = launch
        self._runs: dict[ActiveRun, Run] = {}
        self._halts: dict[ActiveRun, Callable[[], object]] = {}
        """For each run, the function that `_launch` returned, until it was called or the run is over."""

    def do(self, todo: Todo) -> None:
        match todo:
            case Start(active_run):
                self._start(active_run)
            case CancelRun(active_run):
                self._tell(active_run, active_run.why)
            case AbandonRun(active_run):
                log.warning(
                    "job %r: %s, but the run goes on; its lease is released, so another run may begin (see Run.lease)",
                    active_run.job.name,
                    active_run.why,
                )
                core_of(self._runs[active_run].lease).lose(active_run.why)
            case ForgetRun(active_run):
                self._halts.pop(active_run, None)
                run = self._runs.pop(active_run, None)
                if run is not None:
                    core_of(run.lease).end()
            case Redefine(job, change, mine, who):
                self._adopt(job, change, mine, who)
                when, options = read(change.definition, job)
                if mine:
                    job.widest = max(job.widest, options.slots)
                else:
                    self.state.redefine(job, when, options, change)
            case Log(what, bad):
                (log.warning if bad else log.info)("schedule: %s", what)

    def close(self) -> None:
        """Stop renewing the leases of all remaining runs. A lease that could not be released expires on the server."""
        self._halts.clear()
        while self._runs:
            core_of(self._runs.popitem()[1].lease).end()

    @staticmethod
    def _adopt(job: ServedJob, change: DefinitionChanged, mine: bool, who: str) -> None:
        definition = change.definition
        if change.origin not in ("", job.origin, job.agreed):
            log.warning(
                "job %r is served by two programs: as %s here, and as %s by %s; %s was declared last, and is used. Each tick "
                "runs in one of the two: unless they are two releases of one program, give each its own schedule name",
                job.name,
                job.origin,
                change.origin,
                who or "another process",
                "the one here" if mine else "the other",
            )
        if definition == job.definition:
            return  # the server had lost the definition, and another process registered it first
        if mine:
            log.warning(
                "job %r had another definition before, %s; it was replaced by %s",
                job.name,
                _s(definition),
                _s(job.definition),
            )
        else:
            log.warning(
                "another process has redefined job %r as %s, which is used from now on; this process defines the job as %s",
                job.name, _s(definition), _s(job.definition),
            )  # fmt: skip

    def _start(self, active_run: ActiveRun) -> None:
        assert self.home is not None

        def lost() -> None:
            if active_run in self._runs:
                self._tell(active_run, f"its lease is lost: {run.lease.why}")

        process, endpoint = self.home
        try:
            lease = RunCore(process, endpoint, process.keeper.node(endpoint), active_run, lost).user_lease()
        except NotSent as error:  # the keeper (background thread) is stopping
            self.state.end(active_run, "error", f"the run could not be started: {error}")
            return
        run = Run(
            active_run.job.name,
            active_run.scheduled / 1e6,
            active_run.attempt,
            active_run.fence,
            lease,
            by_hand=active_run.by_hand,
        )
        self._runs[active_run] = run
        try:
            self._halts[active_run] = self._launch(active_run, run)
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            self.state.end(active_run, "error", f"the run could not be started: {error}")
        if lease.lost.is_set():
            lost()
        if run.cancelled.is_set():  # the run was cancelled before `_launch` returned the function that stops it
            self._halt(active_run)

    def _tell(self, active_run: ActiveRun, why: str) -> None:
        """Tell a run to end, for the reason ``why``, unless it was told before. May be called in any thread."""
        run = self._runs.get(active_run)
        if run is not None and not run.cancelled.is_set():
            run.reason = why
            run.cancelled.set()
            self._halt(active_run)

    def _halt(self, active_run: ActiveRun) -> None:
        """Call the function that ends a run, once: a second cancellation would interrupt the clean-up of the task."""
        halt = self._halts.pop(active_run, None)
        if halt is not None:
            halt()

    # A run, in its own thread or task

    def call(self, active_run: ActiveRun, run: Run) -> Any:
        """Call a job's function in the run's thread or task; return its result, perhaps a coroutine."""
        enter(run)
        function = self._functions[active_run.job.name]
        return function(**({"run": run} if takes_run(function) else {}))

    def returned(self, active_run: ActiveRun, result: Any) -> None:
        self.state.end(active_run, "ok", "" if result is None else _told(result))

    def raised(self, active_run: ActiveRun, run: Run, error: BaseException) -> None:
        """Report the end of a run that raised an exception, because it lost its lease, was cancelled, or failed."""
        if run.lease.lost.is_set():
            self.state.end(active_run, "lost", f"its lease was lost: {run.lease.why}")
        elif isinstance(error, Cancelled) or (run.cancelled.is_set() and not isinstance(error, Exception)):
            self.state.end(active_run, "cancelled", _told(error))
        else:
            log.error("job %r failed", active_run.job.name, exc_info=error)
            kind = "" if isinstance(error, JobFailed) else f"{type(error).__name__}: "
            self.state.end(active_run, "error", (kind + _told(error))[:TEXT])


def _told(what: object) -> str:
    """Return the result or the exception of a job as text for the history, even if its ``__str__`` raises."""
    try:
        text = str(what)[:TEXT]
    except Exception as error:  # noqa: BLE001 - the __str__ of a user's class
        return f"<a {type(what).__name__}, without a text: {type(error).__name__}>"
    return text.encode(errors="backslashreplace").decode()[:TEXT]  # such as a file name that is not valid UTF-8


def _s(definition: bytes) -> str:
    return definition.decode(errors="replace")


def takes_run(function: Callable[..., Any]) -> bool:
    try:
        return "run" in inspect.signature(function).parameters
    except ValueError:  # some functions written in C have no signature
        return False
