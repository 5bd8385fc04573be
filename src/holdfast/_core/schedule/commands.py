"""Queries about a schedule and its jobs, and commands to them, which any process may send."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from holdfast._core.control_records import Malformed, digits
from holdfast._core.requests import Command, NewToken, RunScript
from holdfast._core.retry import retry_idempotent
from holdfast._core.schedule.job import BESIDE, COMMAND, JOBS, Full, Obeyed, ScheduleKeys, UnknownJob, Unusable

T = TypeVar("T")

BATCH = 50
"""Maximum number of jobs in one query, so that one script does not block the server for long."""


class RunFacts(NamedTuple):
    """A run that has begun and not ended, as the server knows it. Times are in microseconds of the server's clock."""

    scheduled: int
    attempt: int
    started: int
    fence: int
    by_hand: bool
    host: str
    left: int
    """Milliseconds until the run's lease expires; -1: it has expired."""


class Entry(NamedTuple):
    """An entry in the history of a job. Times are in microseconds of the server's clock."""

    status: str
    scheduled: int
    ticks: int
    until: int
    started: int
    ended: int
    attempt: int
    fence: int
    host: str
    text: str


@dataclass(frozen=True)
class JobFacts:
    """A job of a schedule, as the server knows it."""

    name: str
    definition: bytes
    last: int
    paused: bool
    queued: int
    running: tuple[RunFacts, ...]
    entries: tuple[Entry, ...]
    origin: str = ""
    """Name of the code of the job in its last definition: a module and function, or a command."""
    served: bool = True
    """True if a process that runs this code for the job serves the schedule now."""


class Runner(NamedTuple):
    """A process that serves a schedule."""

    since: int
    """Server time, in microseconds, at which the process began to serve the schedule."""
    host: str


class Overview(NamedTuple):
    """A schedule, as the server knows it. ``runners`` are the processes that serve it."""

    exists: bool
    runners: list[Runner]
    jobs: list[JobFacts]


def _run(raw: object, left: object) -> RunFacts:
    *numbers, kind, host = _words(_text(raw), " ", 6)
    scheduled, attempt, started, fence = map(digits, numbers)
    return RunFacts(scheduled, attempt, started, fence, kind == "h", host, digits(str(left)))


def _entry(raw: object) -> Entry:
    head, host, text = _words(_text(raw), "\n", 3)
    _, status, *numbers = _words(head, " ", 9)
    scheduled, ticks, until, started, ended, attempt, fence = map(digits, numbers)
    return Entry(status, scheduled, ticks, until, started, ended, attempt, fence, host, text)


def _runner(raw: object) -> Runner:
    since, host = _words(_text(raw), " ", 2)
    return Runner(digits(since), host)


def _words(text: str, between: str, count: int) -> list[str]:
    words = text.split(between, count - 1)
    if len(words) != count:
        raise Malformed(f"the record must have {count} words")
    return words


def _readable(read: Callable[..., T], *raw: Iterable[object]) -> Iterator[T]:
    """Return the results of ``read`` for those records that it can read, and leave out the others.

    Any client may have written a malformed record, which must not hide the other records.
    """
    for one in zip(*raw, strict=True):
        with contextlib.suppress(Malformed):
            yield read(*one)


def _text(raw: object) -> str:
    assert isinstance(raw, bytes)
    return raw.decode(errors="replace")


def facts(name: str, raw: object) -> JobFacts | None:
    match raw:
        case [bytes(definition), int(last), int(paused), int(queued), [*runs], [*entries], bytes(origin), int(served)]:
            running = tuple(_readable(_run, runs[::2], runs[1::2]))
            found = tuple(_readable(_entry, entries))
            return JobFacts(name, definition, last, paused == 1, queued, running, found, _text(origin), served == 1)
    return None


async def jobs_of(keys: ScheduleKeys, timeout: float) -> list[str]:
    """Return the names of all jobs of a schedule, sorted. Raises WireError if the server is unreachable.

    ``timeout``: maximum seconds to wait for the reply.
    """
    found = (await retry_idempotent(Command(("ZRANGE", keys.jobs, 0, -1), timeout))).value
    return sorted(_text(name) if isinstance(name, bytes) else str(name) for name in found)


async def read_jobs(keys: ScheduleKeys, names: list[str], entries: int, timeout: float) -> Overview:
    """Return the state of the named jobs, each with the newest ``entries`` entries of its history.

    ``timeout``: maximum seconds to wait for each reply. Raises WireError if the server is unreachable.
    """
    found = Overview(False, [], [])
    for at in range(0, len(names) or 1, BATCH):
        batch = names[at : at + BATCH]
        wanted = (keys.base, keys.serving, *(key for name in batch for key in keys.job(name).looking()))
        answer = (await retry_idempotent(RunScript(JOBS, wanted, (BESIDE, entries), timeout))).value
        more = overview(batch, answer)
        found = Overview(more.exists, more.runners, [*found.jobs, *more.jobs])
    return found


def overview(names: list[str], answer: list[object]) -> Overview:
    """Return the contents of a reply of `_lua/schedule/jobs.lua`. ``names``: names of the jobs that were asked about."""
    _, exists, who, *jobs = answer
    assert isinstance(who, list)
    runners = sorted(_readable(_runner, who))
    known = [found for name, raw in zip(names, jobs, strict=True) if (found := facts(name, raw)) is not None]
    return Overview(exists == 1, runners, known)


async def survey(keys: ScheduleKeys, timeout: float) -> Overview:
    """Return a schedule with all its jobs, each with the newest entry of its history.

    ``timeout``: maximum seconds to wait for each reply. Raises WireError if the server is unreachable.
    """
    return await read_jobs(keys, await jobs_of(keys, timeout), 1, timeout)


async def order(keys: ScheduleKeys, job: str, what: str, timeout: float) -> Obeyed | UnknownJob | Full | Unusable:
    """Send a command about a job, and return the server's reply. Raises WireError if the server is unreachable.

    ``what``: the command, such as to run, pause or cancel the job. `_lua/schedule/command.lua` lists all commands.
    ``timeout``: maximum seconds to wait for the reply.
    """
    its = keys.job(job)
    request = await NewToken()
    call = RunScript(COMMAND, (keys.base, keys.serving, keys.jobs, its.job, its.log), (what, request, job), timeout)
    return (await retry_idempotent(call)).value
