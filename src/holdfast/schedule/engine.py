"""The part of `Schedule` that both APIs share: it does what `loop` wants done. Runs begin, are told to end, and end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from holdfast._api.lease import Home
from holdfast._core.schedule.job import Changed
from holdfast._core.schedule.records import AbandonRun, ActiveRun, CancelRun, ForgetRun, Log, Redefine, ServedJob, Start, Todo
from holdfast._core.schedule.state import ScheduleState
from holdfast._log import logger
from holdfast.schedule.command import JobFailed
from holdfast.schedule.definition import read
from holdfast.schedule.run import Cancelled, Run, RunLease, enter

log = logger("holdfast.schedule")

PATIENCE = 5.0
"""Seconds that `Schedule.stop` waits for runs to end that were told to."""

TEXT = 500
"""Characters of a result or an error that are kept."""


class Launch(Protocol):
    def __call__(self, active_run: ActiveRun, run: Run, /) -> Callable[[], object]:
        """Begin a run; what it answers tells it to end, besides `Run.cancelled`. Called in the thread of `Engine.do`."""


class Engine:
    """The runs of one process."""

    def __init__(self, state: ScheduleState, functions: dict[str, Callable[..., Any]], launch: Launch) -> None:
        self.state = state
        self.home: tuple[Home, object] | None = None
        """The process, and the server that has the schedule now."""
        self._functions = functions
        self._launch = launch
        self._runs: dict[ActiveRun, Run] = {}
        self._halts: dict[ActiveRun, Callable[[], object]] = {}
        """Function that `_launch` returned for each run, until it is called."""

    def do(self, todo: Todo) -> None:
        match todo:
            case Start(active_run):
                self._start(active_run)
            case CancelRun(active_run):
                self._tell(active_run, active_run.why)
            case AbandonRun(active_run):
                log.warning(
                    "job %r: %s, and it goes on: its lease is given back, see its Run.lease",
                    active_run.job.name,
                    active_run.why,
                )
                self._runs[active_run].lease.lose(active_run.why)
            case ForgetRun(active_run):
                self._halts.pop(active_run, None)
                run = self._runs.pop(active_run, None)
                if run is not None:
                    run.lease.end()
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
        """The state is done. A lease that could not be released expires."""
        self._halts.clear()
        while self._runs:
            self._runs.popitem()[1].lease.end()

    @staticmethod
    def _adopt(job: ServedJob, change: Changed, mine: bool, who: str) -> None:
        definition = change.definition
        if change.origin not in ("", job.origin, job.agreed):
            log.warning(
                "job %r is served by two programs: as %s here, and as %s by %s; %s was declared last, and counts. Each tick "
                "runs in one of them: unless they are two releases of one program, give each a schedule with a name of its own",
                job.name,
                job.origin,
                change.origin,
                who or "another process",
                "the one here" if mine else "the other",
            )
        if definition == job.definition:
            return  # the server has forgotten it, and another process was the first to tell
        if mine:
            log.warning(
                "job %r was declared otherwise before, as %s; from now on it is %s",
                job.name,
                _s(definition),
                _s(job.definition),
            )
        else:
            log.warning(
                "job %r was declared anew by another process, as %s, and that is what counts; here it is declared as %s",
                job.name, _s(definition), _s(job.definition),
            )  # fmt: skip

    def _start(self, active_run: ActiveRun) -> None:
        assert self.home is not None

        def lost() -> None:
            if active_run in self._runs:
                self._tell(active_run, f"its lease is lost: {run.lease.why}")

        lease = RunLease(*self.home, active_run, lost)
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
        except RuntimeError as error:  # no more threads; or the interpreter is shutting down
            self.state.end(active_run, "error", f"it could not be started: {error}")
        if lease.lost.is_set():
            lost()
        if run.cancelled.is_set():  # before there was anything to halt it with
            self._halt(active_run)

    def _tell(self, active_run: ActiveRun, why: str) -> None:
        """Tell a run to end. In any thread."""
        run = self._runs.get(active_run)
        if run is not None and not run.cancelled.is_set():
            run.reason = why
            run.cancelled.set()
            self._halt(active_run)

    def _halt(self, active_run: ActiveRun) -> None:
        """Halt a run that was told to end, once: a second cancellation would interrupt the task's own cleanup."""
        halt = self._halts.pop(active_run, None)
        if halt is not None:
            halt()

    # A run, in its own thread or task

    def call(self, active_run: ActiveRun, run: Run) -> Any:
        """Call the function of a job: what it returns, or a coroutine. In its thread or task."""
        enter(run)
        function = self._functions[active_run.job.name]
        return function(**({"run": run} if takes_run(function) else {}))

    def returned(self, active_run: ActiveRun, result: Any) -> None:
        self.state.end(active_run, "ok", "" if result is None else _told(result))

    def raised(self, active_run: ActiveRun, run: Run, error: BaseException) -> None:
        """It has ended with an exception: as it was told, or by itself."""
        if run.lease.lost.is_set():
            self.state.end(active_run, "lost", f"its lease was lost: {run.lease.why}")
        elif isinstance(error, Cancelled) or (run.cancelled.is_set() and not isinstance(error, Exception)):
            self.state.end(active_run, "cancelled", _told(error))
        else:
            log.error("job %r failed", active_run.job.name, exc_info=error)
            kind = "" if isinstance(error, JobFailed) else f"{type(error).__name__}: "
            self.state.end(active_run, "error", (kind + _told(error))[:TEXT])


def _told(what: object) -> str:
    """The text of a result or an error, whatever a job has made of it: its run has to end, and the text to be sent."""
    try:
        text = str(what)[:TEXT]
    except Exception as error:  # noqa: BLE001 - a __str__ of somebody else's
        return f"<a {type(what).__name__}, whose text could not be had: {type(error).__name__}>"
    return text.encode(errors="backslashreplace").decode()[:TEXT]  # as a name of a file that is not UTF-8


def _s(definition: bytes) -> str:
    return definition.decode(errors="replace")


def takes_run(function: Callable[..., Any]) -> bool:
    """It has a parameter named ``run``."""
    try:
        return "run" in inspect.signature(function).parameters
    except ValueError:  # some that are written in C do not tell
        return False
