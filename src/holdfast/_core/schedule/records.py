"""The state of each job and run in a process that serves a schedule, and the work that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core.lock.records import Grant
from holdfast._core.schedule.job import Changed, JobKeys, Options, When
from holdfast._core.schedule.misfire import Due

INFINITY = float("inf")


@dataclass(eq=False)
class ServedJob:
    """A job that this process serves."""

    name: str
    keys: JobKeys
    when: When
    options: Options
    definition: bytes
    """Definition of the job on the server, for every process that looks at it."""
    timetable: bytes
    origin: str = ""
    """The code that it runs here: the name of a module and of a function in it, or of a command."""
    agreed: str = ""
    """The origin that counts, if that is another: of who has declared the job last."""
    revision: int = 0
    """When that was changed last; 0: the server does not know the job yet."""
    last: int = 0
    """The last tick that was dealt with (server us)."""
    next: int | None = None
    """The one after that, where it is planned."""
    look_at: float = INFINITY
    """Local time at which to see what has become of somebody else's run."""
    runs: int = 0
    """Of this process."""
    widest: int = 1
    """Slots that it had when it was something else: there may be runs in them."""
    _served: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """The places where it may have runs."""
        return max(self.widest, self.options.slots)

    @property
    def served(self) -> tuple[bytes, ...]:
        """Its keys, for `_lua/schedule/serve.lua`."""
        slots = self.slots
        if slots not in self._served:
            self._served[slots] = self.keys.serving(slots)
        return self._served[slots]


@dataclass(eq=False)
class ActiveRun:
    """A run of this process."""

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
    """Reason why the run was told to end; "" while it was not."""
    verdict: str = ""
    """Result that is recorded then."""
    told_at: float = INFINITY
    over: bool = False


class Start(NamedTuple):
    """To do: begin a run."""

    run: ActiveRun


class CancelRun(NamedTuple):
    """To do: tell a run to end; `ActiveRun.why`."""

    run: ActiveRun


class AbandonRun(NamedTuple):
    """To do: stop waiting for a run that was told to end and goes on. It goes on without a lease."""

    run: ActiveRun


class ForgetRun(NamedTuple):
    """To do: forget a run. Its end is written down, and its lease given back."""

    run: ActiveRun


class Redefine(NamedTuple):
    """To do: read what a job is by now, and say `ScheduleState.redefine`. ``mine``: it was changed by this process, from
    that."""

    job: ServedJob
    change: Changed
    mine: bool = False
    who: str = ""
    """A process that serves the other origin, where this one has declared the job last."""


class Log(NamedTuple):
    """To do: tell the user."""

    what: str
    bad: bool = True


Todo = Start | CancelRun | AbandonRun | ForgetRun | Redefine | Log


class End(NamedTuple):
    """A run has ended: how, and with what."""

    run: ActiveRun
    status: str
    text: str


@dataclass(eq=False)
class JobReport:
    """The part of one request about a job."""

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
