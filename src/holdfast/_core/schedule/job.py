"""A job of a schedule on its server: its options, its keys, and what the scripts answer about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from holdfast._core.lock.records import Spec, answer_within, milliseconds
from holdfast._core.names import encoded, side_key, start
from holdfast._core.requests import in_the_way
from holdfast._lua import Script, codes

BESIDE = 10
"""Runs of a job that may overlap, where it allows that at all."""

ATTEMPTS = 3
"""Times that a tick is run, where each run of it crashes."""

QUEUE = 100
"""Runs of one job that may wait to begin, at most."""


class When(Protocol):
    """A timetable."""

    def after(self, t: float, /) -> float:
        """The first tick later than ``t``, both in Unix seconds; inf if there is none."""


@dataclass(frozen=True)
class Options:
    """How the runs of a job go; times in seconds."""

    ttl: float = 30.0
    """The lease of a run, renewed while it runs: for so long a crashed runner blocks the next."""
    min_runtime: float = 0.0
    """From its start, a run counts as running for so long at least."""
    overlap: Literal["skip", "queue", "allow"] = "skip"
    """A tick that falls due while the job runs is skipped, waits in a queue, or runs beside (ten at most)."""
    misfire: Literal["skip", "once", "all"] = "once"
    """Of the ticks that fell due while nobody could run them, run the latest unless it is later than `grace` ("skip"), the
    latest in any case ("once"), or all, up to the latest hundred."""
    grace: float = 10.0
    """How late a tick may begin, with ``misfire="skip"``."""
    on_crash: Literal["leave", "again"] = "leave"
    """A run whose process dies is left at that, or begun again elsewhere, three times in all."""
    max_runtime: float | None = None
    """After so long a run is ended: a coroutine is cancelled, a command terminated, a function told."""
    on: tuple[str, ...] = ()
    """Features: the job runs only where the schedule has one of these."""
    history: int = 50
    """Number of past runs that the server keeps."""

    @property
    def slots(self) -> int:
        """Runs that may go on at the same time."""
        return BESIDE if self.overlap == "allow" else 1

    @property
    def policy(self) -> str:
        """The options that the script needs."""
        again, grace, keep = int(self.on_crash == "again"), int(self.grace * 1000), int(self.min_runtime * 1000)
        return f"{self.overlap} {self.misfire} {grace} {again} {keep} {milliseconds(self.ttl)} {self.history}"


@dataclass(frozen=True)
class Keys:
    """The keys of a schedule, all in one slot of a Cluster."""

    base: bytes
    serving: bytes
    jobs: bytes

    @classmethod
    def of(cls, schedule: str | bytes, prefix: str = "hf:") -> Keys:
        """Raises ConfigError for a name or a prefix that cannot be one."""
        base = start(prefix) + b"schedule:{" + encoded(schedule, "name") + b"}"
        return cls(base, base + b":serving", base + b":jobs")

    def job(self, name: str) -> JobKeys:
        """Those of a job. Raises ConfigError."""
        return JobKeys(self.base, encoded(name, "name of a job").replace(b":", b"%3A"))


@dataclass(frozen=True)
class JobKeys:
    """The keys of a job."""

    base: bytes
    name: bytes

    @property
    def job(self) -> bytes:
        return self.base + b":job:" + self.name

    @property
    def log(self) -> bytes:
        return self.base + b":log:" + self.name

    def run(self, slot: int) -> tuple[bytes, bytes, bytes]:
        """The lease of a run: as those of a lock."""
        run = self.base + b":run:" + self.name + (b":%d" % slot if slot else b"")
        return run, side_key(run, b"state"), side_key(run, b"queue")

    def serving(self, slots: int) -> tuple[bytes, ...]:
        """Those that `_lua/schedule/serve.lua` wants."""
        return (self.job, self.log, *(key for slot in range(slots) for key in self.run(slot)))

    def looking(self) -> tuple[bytes, ...]:
        """Those that `_lua/schedule/jobs.lua` wants."""
        return (self.job, self.log, *(self.run(slot)[0] for slot in range(BESIDE)))


class Answered(NamedTuple):
    """The answer of `_lua/schedule/serve.lua` about a job."""

    last: int
    """The last tick that was dealt with (server us)."""
    left: int
    """The lease of a run that goes on, in ms; -1: none does."""
    queued: int
    cancel: str
    """Fences of the runs that are to be ended."""
    taken_down: bool
    """The end of a run is written down."""
    slot: int = -1
    """Of the run that was granted."""
    fence: int = 0
    scheduled: int = 0
    attempt: int = 1
    by_hand: bool = False


class Changed(NamedTuple):
    """The job is something else by now."""

    revision: int
    definition: bytes
    last: int
    origin: str = ""
    """The code that runs where it was declared so."""


class UnknownJob(NamedTuple):
    """The server knows no such job."""


class Obeyed(NamedTuple):
    """A command about a job is carried out."""

    ended: int
    """Number of runs that are to be ended."""


class Full(NamedTuple):
    """Too many runs of the job wait already."""


class Unusable(NamedTuple):
    """Something else is where the job should be."""

    why: str


class Late(NamedTuple):
    """The server has seen a later request of this process: this one was a copy of an earlier one."""

    now: int


class Registered(NamedTuple):
    revision: int
    last: int
    before: bytes
    """Definition of the job before, if it was another one."""
    other: str = ""
    """Another origin under which it is served now."""
    who: str = ""
    """A process that does."""


class Rival(NamedTuple):
    """Nothing was registered: other code is served under the name of one of the jobs."""

    job: int
    """Its number in the request."""
    other: str
    who: str


@dataclass
class Served:
    """The answer of `_lua/schedule/serve.lua`: the server's time (us), a number that differs after a change by hand, and the
    state of each job."""

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
    """The lock that a run of a job is, for whom renews it. ``patience``: seconds beyond `Options.max_runtime`."""
    limit = None if options.max_runtime is None else options.max_runtime + patience
    timeout = min(longest_answer, answer_within(options.ttl))
    return Spec(name=job, keys=keys, ttl=options.ttl, renew=True, max_hold=limit, timeout=timeout)
