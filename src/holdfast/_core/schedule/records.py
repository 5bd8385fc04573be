"""The state of each job and run in a process that serves a schedule, and the tasks that the process has to carry out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core.lock.records import Grant
from holdfast._core.schedule.job import DefinitionChanged, JobKeys, Options, When
from holdfast._core.schedule.misfire import Due

INFINITY = float("inf")


@dataclass(eq=False)
class ServedJob:
    """A job that this process serves, with the state that it knows of the job."""

    name: str
    keys: JobKeys
    when: When
    options: Options
    definition: bytes
    """Definition of the job (its timetable and options) as the text that the server stores for other processes."""
    timetable: bytes
    origin: str = ""
    """Name of the code that this process runs for the job: a module and function, or a command."""
    agreed: str = ""
    """Name of the code in the definition that is on the server now; empty: it is the same as `origin`."""
    revision: int = 0
    """Revision number of the definition, which rises with each change; 0: this process has not registered the job yet."""
    last: int = 0
    """Last tick (scheduled time) for which the job was run or skipped, in microseconds of the server's clock."""
    next: int | None = None
    """Next tick (scheduled time) to claim, in microseconds of the server's clock; None: no tick is planned."""
    look_at: float = INFINITY
    """Monotonic time, in seconds, at which to ask the server whether a run in another process has ended; infinity: never."""
    runs: int = 0
    """Number of the job's runs in this process."""
    widest: int = 1
    """Highest number of runs at the same time that earlier definitions of the job allowed, because such runs may still go
    on."""
    _served: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Maximum number of runs of the job at the same time, under its present definition and the earlier ones."""
        return max(self.widest, self.options.slots)

    @property
    def served(self) -> tuple[bytes, ...]:
        """The keys of the job, in the order in which `_lua/schedule/serve.lua` expects them."""
        slots = self.slots
        if slots not in self._served:
            self._served[slots] = self.keys.serving(slots)
        return self._served[slots]


@dataclass(eq=False)
class ActiveRun:
    """A run of a job in this process, from its start until the server has recorded its end."""

    job: ServedJob
    slot: int
    token: str = field(repr=False)
    fence: int
    scheduled: int
    attempt: int
    by_hand: bool
    grant: Grant = field(repr=False)
    began: float
    why: str = ""
    """Reason why the run was told to end; empty: it was not told to end."""
    verdict: str = ""
    """Status that the server is to record for the run, if the run was told to end; otherwise empty."""
    told_at: float = INFINITY
    over: bool = False


class Start(NamedTuple):
    """A task for the caller: begin the run."""

    run: ActiveRun


class CancelRun(NamedTuple):
    """A task for the caller: tell the run to end. `ActiveRun.why` is the reason."""

    run: ActiveRun


class AbandonRun(NamedTuple):
    """A task for the caller: wait no longer for a run that was told to end but did not. The run goes on without a lease."""

    run: ActiveRun


class ForgetRun(NamedTuple):
    """A task for the caller: drop the run, because the server has recorded its end and released its lease."""

    run: ActiveRun


class Redefine(NamedTuple):
    """A task for the caller: read the new definition of a job, and then call `ScheduleState.redefine`.

    ``mine``: True if this process has just registered the job. Then ``change`` has the former definition, for a message.
    """

    job: ServedJob
    change: DefinitionChanged
    mine: bool = False
    who: str = ""
    """Process that serves other code under the name of the job; empty if there is none."""


class Log(NamedTuple):
    """A task for the caller: log the message ``what``. ``bad``: True for a warning, False for information."""

    what: str
    bad: bool = True


Todo = Start | CancelRun | AbandonRun | ForgetRun | Redefine | Log


class RunEnd(NamedTuple):
    """The end of a run, which is to be reported to the server. ``text``: text for the history, such as the error."""

    run: ActiveRun
    status: str
    text: str


@dataclass(eq=False)
class JobReport:
    """The part of a request to the server that is about one job.

    ``end``: a run that has ended (None: none). ``due``: claimed ticks, which are scheduled times (None: none). ``token``: token
    of a run that this process can begin now; empty: it can begin none.
    """

    job: ServedJob
    end: RunEnd | None = None
    due: Due | None = None
    token: str = ""

    def args(self) -> tuple[bytes | str | int, ...]:
        job, end, when = self.job, self.end, self.due
        ended = ("", "", "", "") if end is None else (end.run.slot, end.run.token, end.status, end.text)
        claim: tuple[int | str, ...] = ("", "", "", "")
        if when is not None:
            beyond = "" if when.beyond is None else when.beyond
            claim = (job.last, " ".join(map(str, when.missed or ())), " ".join(map(str, when.ticks)), beyond)
        return (job.slots, job.revision, job.options.policy, *ended, *claim, self.token)
