"""The state of each job and run in a process that serves a schedule, and the tasks that result for the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core.lock.records import Grant
from holdfast._core.schedule.job import Changed, JobKeys, Options, When
from holdfast._core.schedule.misfire import Due

INFINITY = float("inf")


@dataclass(eq=False)
class ServedJob:
    """A job that this process serves, with its planned ticks (scheduled times)."""

    name: str
    keys: JobKeys
    when: When
    options: Options
    definition: bytes
    """Definition of the job as the server stores it, for every process that looks at it."""
    timetable: bytes
    origin: str = ""
    """Name of the code that the job runs in this process: module and function, or command."""
    agreed: str = ""
    """Name of the code in the job's current definition on the server; empty if it is `origin`."""
    revision: int = 0
    """Revision of the definition, increased with each change; 0: the server does not know the job yet."""
    last: int = 0
    """The last tick (scheduled time) that was run or skipped, in microseconds of the server's clock."""
    next: int | None = None
    """The next tick (scheduled time), in microseconds of the server's clock; None if none is planned."""
    look_at: float = INFINITY
    """Monotonic time, in seconds, at which to ask the server whether another process's run has ended."""
    runs: int = 0
    """Number of the job's runs in this process."""
    widest: int = 1
    """Maximum number of slots (overlapping runs) under earlier definitions; runs that began then may still use them."""
    _served: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Number of slots on the server that overlapping runs of the job may use."""
        return max(self.widest, self.options.slots)

    @property
    def served(self) -> tuple[bytes, ...]:
        """The job's keys that `_lua/schedule/serve.lua` expects."""
        slots = self.slots
        if slots not in self._served:
            self._served[slots] = self.keys.serving(slots)
        return self._served[slots]


@dataclass(eq=False)
class ActiveRun:
    """A run in this process, which may have ended already."""

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
    """Reason why the run was told to end; "" if it was not."""
    verdict: str = ""
    """Status that is recorded when a run that was told to end has ended."""
    told_at: float = INFINITY
    over: bool = False


class Start(NamedTuple):
    """A task for the caller: begin a run."""

    run: ActiveRun


class CancelRun(NamedTuple):
    """A task for the caller: tell a run to end, for the reason in `ActiveRun.why`."""

    run: ActiveRun


class AbandonRun(NamedTuple):
    """A task for the caller: stop waiting for a run that was told to end and goes on, without a lease."""

    run: ActiveRun


class ForgetRun(NamedTuple):
    """A task for the caller: forget a run, whose end was recorded and whose lease was released."""

    run: ActiveRun


class Redefine(NamedTuple):
    """A task for the caller: read a job's new definition, and call `ScheduleState.redefine`.
    ``mine``: True if this process redefined the job; ``change`` then has the former definition."""

    job: ServedJob
    change: Changed
    mine: bool = False
    who: str = ""
    """The process that serves other code under the job's name; empty if there is none."""


class Log(NamedTuple):
    """A task for the caller: log a message."""

    what: str
    bad: bool = True


Todo = Start | CancelRun | AbandonRun | ForgetRun | Redefine | Log


class End(NamedTuple):
    """The end of a run, to be reported to the server: its status, and a text such as the error."""

    run: ActiveRun
    status: str
    text: str


@dataclass(eq=False)
class JobReport:
    """The part of one request to the server that is about one job: an ended run, a claim of ticks, a token for a new run."""

    job: ServedJob
    end: End | None = None
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
