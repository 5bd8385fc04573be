"""The part of `Schedule` that both APIs share: it does what `loop` wants done. Runs begin, are told to end, and end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from holdfast._api.lease import Home
from holdfast._core.schedule.job import Changed
from holdfast._core.schedule.records import Adopt, Closed, Going, Halt, Over, Say, Seat, Start, Todo
from holdfast._core.schedule.state import Book
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
    def __call__(self, going: Going, run: Run, /) -> Callable[[], object]:
        """Begin a run; what it answers tells it to end, besides `Run.cancelled`. Called in the thread of `Engine.do`."""


class Engine:
    """The runs of one process."""

    def __init__(self, book: Book, functions: dict[str, Callable[..., Any]], launch: Launch) -> None:
        self.book = book
        self.home: tuple[Home, object] | None = None
        """The process, and the server that has the schedule now."""
        self._functions = functions
        self._launch = launch
        self._runs: dict[Going, tuple[Run, Callable[[], object]]] = {}

    def do(self, todo: Todo) -> None:
        match todo:
            case Start(going):
                self._start(going)
            case Halt(going):
                self._tell(going, going.why)
            case Over(going):
                log.warning(
                    "job %r: %s, and it goes on: its lease is given back, see its Run.lease", going.seat.name, going.why
                )
                self._runs[going][0].lease.lose(going.why)
            case Closed(going):
                run = self._runs.pop(going, None)
                if run is not None:
                    run[0].lease.end()
            case Adopt(seat, change, mine, who):
                self._adopt(seat, change, mine, who)
                when, options = read(change.definition, seat)
                if mine:
                    seat.widest = max(seat.widest, options.slots)
                else:
                    self.book.adopt(seat, when, options, change)
            case Say(what, bad):
                (log.warning if bad else log.info)("schedule: %s", what)

    def close(self) -> None:
        """The book is done. A lease that could not be released expires."""
        while self._runs:
            self._runs.popitem()[1][0].lease.end()

    @staticmethod
    def _adopt(seat: Seat, change: Changed, mine: bool, who: str) -> None:
        definition = change.definition
        if change.origin not in ("", seat.origin, seat.agreed):
            log.warning(
                "job %r is served by two programs: as %s here, and as %s by %s; %s was declared last, and counts. Each tick "
                "runs in one of them: unless they are two releases of one program, give each a schedule with a name of its own",
                seat.name,
                seat.origin,
                change.origin,
                who or "another process",
                "the one here" if mine else "the other",
            )
        if definition == seat.definition:
            return  # the server has forgotten it, and another process was the first to tell
        if mine:
            log.warning(
                "job %r was declared otherwise before, as %s; from now on it is %s",
                seat.name,
                _s(definition),
                _s(seat.definition),
            )
        else:
            log.warning(
                "job %r was declared anew by another process, as %s, and that is what counts; here it is declared as %s",
                seat.name, _s(definition), _s(seat.definition),
            )  # fmt: skip

    def _start(self, going: Going) -> None:
        assert self.home is not None

        def lost() -> None:
            if going in self._runs:
                self._tell(going, f"its lease is lost: {run.lease.why}")

        lease = RunLease(*self.home, going, lost)
        run = Run(going.seat.name, going.scheduled / 1e6, going.attempt, going.fence, lease, by_hand=going.by_hand)
        self._runs[going] = run, lambda: None
        try:
            self._runs[going] = run, self._launch(going, run)
        except RuntimeError as error:  # no more threads; or the interpreter is shutting down
            self.book.end(going, "error", f"it could not be started: {error}")
        if lease.lost.is_set():
            lost()

    def _tell(self, going: Going, why: str) -> None:
        """Tell a run to end. In any thread."""
        run, halt = self._runs.get(going, (None, None))
        if run is not None and halt is not None and not run.cancelled.is_set():
            run.reason = why
            run.cancelled.set()
            halt()

    # A run, in its own thread or task

    def call(self, going: Going, run: Run) -> Any:
        """Call the function of a job: what it returns, or a coroutine. In its thread or task."""
        enter(run)
        function = self._functions[going.seat.name]
        return function(**({"run": run} if takes_run(function) else {}))

    def returned(self, going: Going, result: Any) -> None:
        self.book.end(going, "ok", "" if result is None else _told(result))

    def raised(self, going: Going, run: Run, error: BaseException) -> None:
        """It has ended with an exception: as it was told, or by itself."""
        if run.lease.lost.is_set():
            self.book.end(going, "lost", f"its lease was lost: {run.lease.why}")
        elif isinstance(error, Cancelled) or (run.cancelled.is_set() and not isinstance(error, Exception)):
            self.book.end(going, "cancelled", _told(error))
        else:
            log.error("job %r failed", going.seat.name, exc_info=error)
            kind = "" if isinstance(error, JobFailed) else f"{type(error).__name__}: "
            self.book.end(going, "error", (kind + _told(error))[:TEXT])


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
