"""A job of a schedule: its options, its keys on the server, and the replies of the scripts about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from holdfast._core.lock.spec import Spec, answer_within, milliseconds
from holdfast._core.names import encoded, side_key, start
from holdfast._core.requests import in_the_way
from holdfast._lua import Script, codes

BESIDE = 10
"""Maximum number of runs of a job at the same time, with ``overlap="allow"``."""

ATTEMPTS = 3
"""Maximum number of times that a job with ``on_crash="again"`` is begun for one tick (scheduled time) if its process
crashes."""

QUEUE = 100
"""Maximum number of runs of a job that wait to begin."""


class When(Protocol):
    """A timetable, which defines the ticks of a job. A tick is a time at which the job is scheduled."""

    def after(self, t: float, /) -> float:
        """Return the first tick (scheduled time) later than Unix time ``t``, in Unix seconds; infinity if there is none."""


@dataclass(frozen=True)
class Options:
    """The options of a job, as the algorithms and scripts use them. All times are in seconds."""

    ttl: float = 30.0
    """Length of a run's lease, which is renewed while the run goes on.

    If the process of a run crashes, the next run begins only when this lease has expired.
    """
    min_runtime: float = 0.0
    """Minimum seconds from the start of a run to the start of the next one. A run that ends earlier still counts as running."""
    overlap: Literal["skip", "queue", "allow"] = "skip"
    """Treatment of a tick (scheduled time) that is due while the job runs.

    With "skip", the job is not run for this tick. With "queue", it is run afterwards. With "allow", another run is begun at the
    same time, up to ten in all.
    """
    misfire: Literal["skip", "once", "all"] = "once"
    """Treatment of ticks (scheduled times) that were due while no process could run the job.

    With "skip", the job is run for the latest tick, unless that is more than `grace` seconds late. With "once", it is run for
    the latest tick. With "all", it is run for each tick, up to the latest hundred.
    """
    grace: float = 10.0
    """Maximum delay, in seconds, with which a run may begin after its scheduled time, with ``misfire="skip"``."""
    on_crash: Literal["leave", "again"] = "leave"
    """Treatment of a run whose process crashes.

    With "leave", the run has ended. With "again", another process begins it again, until it was begun three times.
    """
    max_runtime: float | None = None
    """Seconds after which a run is ended; None: never.

    A coroutine is cancelled, a command is terminated, and a function is notified.
    """
    on: tuple[str, ...] = ()
    """Features of which a process must have at least one to run the job; empty: any process may run it.

    A feature is a name that a process declares when it serves the schedule.
    """
    history: int = 50
    """Number of entries that the server keeps in the job's history, about runs and about ticks without a run."""

    @property
    def slots(self) -> int:
        """Maximum number of runs of the job that go on at the same time."""
        return BESIDE if self.overlap == "allow" else 1

    @property
    def policy(self) -> str:
        """The options that the script on the server needs, as one text."""
        again, grace, keep = int(self.on_crash == "again"), int(self.grace * 1000), int(self.min_runtime * 1000)
        return f"{self.overlap} {self.misfire} {grace} {again} {keep} {milliseconds(self.ttl)} {self.history}"


@dataclass(frozen=True)
class ScheduleKeys:
    """The keys of a schedule on the server, all in one slot of a Cluster."""

    base: bytes
    serving: bytes
    jobs: bytes

    @classmethod
    def of(cls, schedule: str | bytes, prefix: str = "hf:") -> ScheduleKeys:
        """Return the keys of the schedule of this name. Raises ConfigError if the name or the prefix is not valid."""
        base = start(prefix) + b"schedule:{" + encoded(schedule, "name") + b"}"
        return cls(base, base + b":serving", base + b":jobs")

    def job(self, name: str) -> JobKeys:
        """Return the keys of the job of this name. Raises ConfigError if the name is not valid."""
        return JobKeys(self.base, encoded(name, "name of a job").replace(b":", b"%3A"))


@dataclass(frozen=True)
class JobKeys:
    """The keys of one job on the server."""

    base: bytes
    name: bytes

    @property
    def job(self) -> bytes:
        return self.base + b":job:" + self.name

    @property
    def log(self) -> bytes:
        return self.base + b":log:" + self.name

    def run(self, slot: int) -> tuple[bytes, bytes, bytes]:
        """Return the three keys of the lock that a run holds, for the lock itself, its state and its queue.

        ``slot``: index of the run among the runs of the job that go on at the same time.
        """
        run = self.base + b":run:" + self.name + (b":%d" % slot if slot else b"")
        return run, side_key(run, b"state"), side_key(run, b"queue")

    def serving(self, slots: int) -> tuple[bytes, ...]:
        """Return the job's keys in the order in which `_lua/schedule/serve.lua` expects them, for ``slots`` runs at a time."""
        return (self.job, self.log, *(key for slot in range(slots) for key in self.run(slot)))

    def looking(self) -> tuple[bytes, ...]:
        """Return the job's keys in the order in which `_lua/schedule/jobs.lua` expects them."""
        return (self.job, self.log, *(self.run(slot)[0] for slot in range(BESIDE)))


class Answered(NamedTuple):
    """The server's reply to a report about one job, with the run that this process may begin, if any."""

    last: int
    """Last tick (scheduled time) for which the job was run or skipped, in microseconds of the server's clock."""
    left: int
    """Milliseconds until the lease of the present run expires; -1: the job is not running."""
    queued: int
    cancel: str
    """Fences of the runs that are to be ended, separated by spaces."""
    taken_down: bool
    """True if the server has recorded the end of a run that this process has reported."""
    slot: int = -1
    """Index (from 0) of the run to begin, among the concurrent runs of the job; -1: this process may not begin a run."""
    fence: int = 0
    scheduled: int = 0
    attempt: int = 1
    by_hand: bool = False


class DefinitionChanged(NamedTuple):
    """The server's reply that another process has changed the definition of a job."""

    revision: int
    definition: bytes
    last: int
    origin: str = ""
    """Name of the code that the process with the new definition runs for the job: a module and function, or a command."""


class UnknownJob(NamedTuple):
    """The server's reply that the schedule has no job of this name."""


class Obeyed(NamedTuple):
    """The server's reply that it has carried out a command about a job."""

    ended: int
    """Number of runs that have to end because of the command."""


class Full(NamedTuple):
    """The server's reply that a job is not run, because too many of its runs wait to begin already."""


class Unusable(NamedTuple):
    """The server's reply that a key holds data of another application or of an incompatible release. ``why``: text for the
    user."""

    why: str


class Late(NamedTuple):
    """The server's reply that it has ignored a request that arrived too late, or after a later request of the same process.

    ``now``: server time in microseconds.
    """

    now: int


class Registered(NamedTuple):
    """The server's reply that it has registered a job."""

    revision: int
    last: int
    before: bytes
    """Definition that the job had before, if it was different; otherwise empty."""
    other: str = ""
    """Name of the code that another process runs for the job now, if it is different; otherwise empty."""
    who: str = ""
    """Process that runs different code under the name of the job; empty if there is none."""


class Rival(NamedTuple):
    """The server's reply that it has registered no job, because another process serves other code under the name of a job.

    ``other``: name of that code. ``who``: that process.
    """

    job: int
    """Index, in the request, of the job with other code."""
    other: str
    who: str


@dataclass
class Served:
    """The server's reply to a request of `ScheduleState.request`, with a reply about each job in ``answers``.

    ``now``: server time in microseconds. ``changes``: number that rises with each command about the schedule.
    """

    now: int
    changes: int
    answers: list[Answered | DefinitionChanged | UnknownJob | Unusable] = field(default_factory=list)


Declared = Registered | DefinitionChanged | UnknownJob | Unusable
"""The server's reply about one job of a registration.

`DefinitionChanged` and `UnknownJob` mean that an earlier copy of the registration was carried out, and that its reply got lost.
Since then, the job has been changed or removed.
"""


def _refusal(raw: list[object]) -> Unusable:
    return Unusable(in_the_way(raw, ", nothing of a schedule").why)


def _read_changed(raw: list[object]) -> DefinitionChanged | UnknownJob | Unusable:
    match raw:
        case [codes.REDEFINED, int(revision), bytes(definition), int(last), bytes(origin)]:
            return DefinitionChanged(revision, definition, last, origin.decode(errors="replace"))
        case [codes.NO_JOB]:
            return UnknownJob()
    return _refusal(raw)


def _read_one(raw: list[object]) -> Answered | DefinitionChanged | UnknownJob | Unusable:
    match raw:
        case [1, int(last), int(left), int(queued), bytes(cancel), int(taken), int(slot), *run]:
            fence, scheduled, attempt, by_hand = run
            return Answered(
                last, left, queued, cancel.decode(), taken == 1, slot,
                int(str(fence)), int(str(scheduled)), int(str(attempt)), by_hand == 1,
            )  # fmt: skip
    return _read_changed(raw)


def _read_serve(raw: object) -> Served | Late | Unusable:
    assert isinstance(raw, list)
    match raw:
        case [1, int(now), int(changes), *answers]:
            return Served(now, changes, [_read_one(answer) for answer in answers])
        case [0, int(now)]:
            return Late(now)
    return _refusal(raw)


def _read_register(raw: object) -> tuple[int, list[Declared] | Rival]:
    assert isinstance(raw, list)
    now, *answers = raw
    read: list[Declared] = []
    for answer in answers:
        match answer:
            case [1, int(revision), int(last), bytes(before), bytes(other), bytes(who)]:
                read.append(Registered(revision, last, before, other.decode(errors="replace"), who.decode(errors="replace")))
            case [codes.OTHER_CODE, int(job), bytes(other), bytes(who)]:
                return now, Rival(job, other.decode(errors="replace"), who.decode(errors="replace"))
            case _:
                read.append(_read_changed(answer))
    return now, read


def _read_command(raw: object) -> Obeyed | UnknownJob | Full | Unusable:
    assert isinstance(raw, list)
    match raw:
        case [1, int(ended)]:
            return Obeyed(ended)
        case [0]:
            return UnknownJob()
        case [codes.QUEUE_FULL]:
            return Full()
    return _refusal(raw)


def _read_list(raw: object) -> list[object]:
    assert isinstance(raw, list)
    return raw


SERVE: Script[Served | Late | Unusable] = Script("schedule/serve", _read_serve)
REGISTER: Script[tuple[int, list[Declared] | Rival]] = Script("schedule/register", _read_register)
COMMAND: Script[Obeyed | UnknownJob | Full | Unusable] = Script("schedule/command", _read_command)
JOBS: Script[list[object]] = Script("schedule/jobs", _read_list)


def run_spec(job: str, keys: tuple[bytes, bytes, bytes], options: Options, longest_answer: float, patience: float) -> Spec:
    """Return the specification of the lock that a run holds while it goes on.

    ``longest_answer``: maximum seconds to wait for a reply. ``patience``: seconds after ``max_runtime`` for which the run's
    lease is still renewed.
    """
    limit = None if options.max_runtime is None else options.max_runtime + patience
    timeout = min(longest_answer, answer_within(options.ttl))
    return Spec(name=job, keys=keys, ttl=options.ttl, renew=True, max_hold=limit, timeout=timeout)
