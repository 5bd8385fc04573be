"""A job of a schedule on the server: its options, its keys, and the replies of the scripts about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from holdfast._core.lock.records import Spec, answer_within, milliseconds
from holdfast._core.names import encoded, side_key, start
from holdfast._core.requests import in_the_way
from holdfast._lua import Script, codes

BESIDE = 10
"""Maximum number of runs of a job that may overlap, with ``overlap="allow"``."""

ATTEMPTS = 3
"""Maximum number of times that the run of a tick (scheduled time) is begun if each run crashes, with ``on_crash="again"``."""

QUEUE = 100
"""Maximum number of runs of one job that may wait to begin."""


class When(Protocol):
    """A timetable, which names the ticks (scheduled times) of a job."""

    def after(self, t: float, /) -> float:
        """Return the first tick (scheduled time) later than ``t``, both in Unix seconds; infinity if there is none."""


@dataclass(frozen=True)
class Options:
    """The options of a job that decide how its runs go; times in seconds."""

    ttl: float = 30.0
    """Lease of a run, renewed while it runs. If its process crashes, the next run is blocked until the lease expires."""
    min_runtime: float = 0.0
    """Minimum time, from its start, for which a run counts as running, even if it ends earlier."""
    overlap: Literal["skip", "queue", "allow"] = "skip"
    """A tick (scheduled time) that is due while the job runs is skipped, queued, or run at the same time (at most ten
    runs)."""
    misfire: Literal["skip", "once", "all"] = "once"
    """Treatment of ticks (scheduled times) that were due while no process could run them.
    "skip": run the latest unless it is later than `grace`; "once": run the latest; "all": run all, up to the latest hundred.
    """
    grace: float = 10.0
    """Maximum delay with which a tick may begin, with ``misfire="skip"``."""
    on_crash: Literal["leave", "again"] = "leave"
    """Treatment of a run whose process dies.
    "leave": end the run; "again": begin it again elsewhere, up to three times in all."""
    max_runtime: float | None = None
    """Time after which a run is ended: a coroutine is cancelled, a command terminated, a function notified; None: never."""
    on: tuple[str, ...] = ()
    """Only a process with at least one of these features runs the job; empty: any process runs it."""
    history: int = 50
    """Number of past runs that the server keeps."""

    @property
    def slots(self) -> int:
        """Maximum number of runs that may go on at the same time."""
        return BESIDE if self.overlap == "allow" else 1

    @property
    def policy(self) -> str:
        """Options that the server's script needs, as one text."""
        again, grace, keep = int(self.on_crash == "again"), int(self.grace * 1000), int(self.min_runtime * 1000)
        return f"{self.overlap} {self.misfire} {grace} {again} {keep} {milliseconds(self.ttl)} {self.history}"


@dataclass(frozen=True)
class Keys:
    """The keys of a schedule on the server, all in one slot of a Cluster."""

    base: bytes
    serving: bytes
    jobs: bytes

    @classmethod
    def of(cls, schedule: str | bytes, prefix: str = "hf:") -> Keys:
        """Return the keys of the named schedule. Raises ConfigError for an invalid name or prefix."""
        base = start(prefix) + b"schedule:{" + encoded(schedule, "name") + b"}"
        return cls(base, base + b":serving", base + b":jobs")

    def job(self, name: str) -> JobKeys:
        """Return the keys of one job. Raises ConfigError for an invalid name."""
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
        """Return the keys of the lock that a run holds: lock, state, queue.

        ``slot``: index of the run among overlapping runs.
        """
        run = self.base + b":run:" + self.name + (b":%d" % slot if slot else b"")
        return run, side_key(run, b"state"), side_key(run, b"queue")

    def serving(self, slots: int) -> tuple[bytes, ...]:
        """Return the job's keys that `_lua/schedule/serve.lua` expects."""
        return (self.job, self.log, *(key for slot in range(slots) for key in self.run(slot)))

    def looking(self) -> tuple[bytes, ...]:
        """Return the job's keys that `_lua/schedule/jobs.lua` expects."""
        return (self.job, self.log, *(self.run(slot)[0] for slot in range(BESIDE)))


class Answered(NamedTuple):
    """Reply of `_lua/schedule/serve.lua` about one job, including the run that it granted, if any."""

    last: int
    """The last tick (scheduled time) that was run or skipped, in microseconds of the server's clock."""
    left: int
    """Milliseconds until the lease of a run under way expires; -1: no run is under way."""
    queued: int
    cancel: str
    """Fences of the runs that are to be cancelled, separated by spaces."""
    taken_down: bool
    """True if the server has recorded the end of a run that the request reported."""
    slot: int = -1
    """Index of the granted run among overlapping runs of the job; -1: no run was granted."""
    fence: int = 0
    scheduled: int = 0
    attempt: int = 1
    by_hand: bool = False


class Changed(NamedTuple):
    """Reply: another process redefined the job; the reply has the new definition."""

    revision: int
    definition: bytes
    last: int
    origin: str = ""
    """Name of the code that the job runs in the process that redefined it."""


class UnknownJob(NamedTuple):
    """Reply: the server knows no job of this name."""


class Obeyed(NamedTuple):
    """Reply: a command about a job was carried out."""

    ended: int
    """Number of runs that are to be ended because of the command."""


class Full(NamedTuple):
    """Reply: too many runs of the job wait already."""


class Unusable(NamedTuple):
    """Reply: the job's keys hold data of another application, or of an incompatible release."""

    why: str


class Late(NamedTuple):
    """Reply: the request came late, after a newer request of the same process, and was ignored."""

    now: int


class Registered(NamedTuple):
    revision: int
    last: int
    before: bytes
    """The former definition of the job, if it was another one; empty otherwise."""
    other: str = ""
    """Name of other code under which another process serves the job now; empty if there is none."""
    who: str = ""
    """The process that serves the other code."""


class Rival(NamedTuple):
    """Reply: nothing was registered, because another process serves other code under the name of one of the jobs."""

    job: int
    """Index, in the request, of the job that the other process serves, too."""
    other: str
    who: str


@dataclass
class Served:
    """Reply of `_lua/schedule/serve.lua`: server time in microseconds, number of changes made by commands, and each job's
    state."""

    now: int
    changes: int
    answers: list[Answered | Changed | UnknownJob | Unusable] = field(default_factory=list)


def _refusal(raw: list[object]) -> Unusable:
    return Unusable(in_the_way(raw, ", nothing of a schedule").why)


def _read_one(raw: list[object]) -> Answered | Changed | UnknownJob | Unusable:
    match raw:
        case [1, int(last), int(left), int(queued), bytes(cancel), int(taken), int(slot), *run]:
            fence, scheduled, attempt, by_hand = run
            return Answered(
                last, left, queued, cancel.decode(), taken == 1, slot,
                int(str(fence)), int(str(scheduled)), int(str(attempt)), by_hand == 1,
            )  # fmt: skip
        case [codes.REDEFINED, int(revision), bytes(definition), int(last), bytes(origin)]:
            return Changed(revision, definition, last, origin.decode(errors="replace"))
        case [codes.NO_JOB]:
            return UnknownJob()
    return _refusal(raw)


def _read_serve(raw: object) -> Served | Late | Unusable:
    assert isinstance(raw, list)
    match raw:
        case [1, int(now), int(changes), *answers]:
            return Served(now, changes, [_read_one(answer) for answer in answers])
        case [0, int(now)]:
            return Late(now)
    return _refusal(raw)


def _read_register(raw: object) -> tuple[int, list[Registered | Unusable] | Rival]:
    assert isinstance(raw, list)
    now, *answers = raw
    read: list[Registered | Unusable] = []
    for answer in answers:
        match answer:
            case [1, int(revision), int(last), bytes(before), bytes(other), bytes(who)]:
                read.append(Registered(revision, last, before, other.decode(errors="replace"), who.decode(errors="replace")))
            case [codes.OTHER_CODE, int(job), bytes(other), bytes(who)]:
                return now, Rival(job, other.decode(errors="replace"), who.decode(errors="replace"))
            case _:
                read.append(_refusal(answer))
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
REGISTER: Script[tuple[int, list[Registered | Unusable] | Rival]] = Script("schedule/register", _read_register)
COMMAND: Script[Obeyed | UnknownJob | Full | Unusable] = Script("schedule/command", _read_command)
JOBS: Script[list[object]] = Script("schedule/jobs", _read_list)


def run_spec(job: str, keys: tuple[bytes, bytes, bytes], options: Options, longest_answer: float, patience: float) -> Spec:
    """Return the specification of the lock that a run holds. ``patience``: seconds added to `Options.max_runtime`."""
    limit = None if options.max_runtime is None else options.max_runtime + patience
    timeout = min(longest_answer, answer_within(options.ttl))
    return Spec(name=job, keys=keys, ttl=options.ttl, renew=True, max_hold=limit, timeout=timeout)
