"""Cycles of waiters: each holds what the one before waits for, so that none of them ever gets on.

The records of processes (`_core.deadlock.wait_graph`) may be out of date. So what looks like a cycle is looked at
twice, and what the servers say of the holders has to agree with it both times. (Wait-for graphs: E. G. Coffman, M. Elphick, A.
Shoshani, "System Deadlocks", ACM Computing Surveys 3, 1971.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from holdfast._core import control_records
from holdfast._core.names import PROCESS, channel, home, literal, record_key, records, side_key
from holdfast._core.requests import Command, Refused, Sleep
from holdfast._core.retry import retry_idempotent

LONGEST = 50
"""Waiters in a cycle that is looked for, at most."""

STEPS = 100_000
"""From waiter to waiter, at most: a lock has one holder, but a record may say anything."""

BETWEEN = 0.25
"""Seconds between the two looks: a wait that has ended is told within this time."""

ANSWER_WITHIN = 2.0


class Link(NamedTuple):
    """One who waits, as its process says it."""

    since: float
    """Unix time, as that process's machine shows it."""
    process: str
    owner: str
    """Tells threads and tasks of a process apart."""
    who: str
    """Name of the thread or task."""
    host: str
    pid: int
    label: str
    lock: str
    """Key of the lock that it waits for."""
    holds: tuple[str, ...]
    """Keys of those that it holds."""
    yields: bool
    """Its wait may be ended."""

    def among(self, others: Iterable[Link]) -> bool:
        """One of these is the same wait, by whatever label: the record in each prefix shows the labels of its own locks."""
        return any(other._replace(label=self.label) == self for other in others)


@dataclass(frozen=True)
class Waiter:
    """One of a cycle: a thread or task that waits for a lock, and holds one that another of them waits for."""

    lock: str
    """Key of the lock that it waits for."""
    holds: str
    """Key of the lock that it holds, and that the one before it waits for."""
    host: str
    pid: int
    label: str
    """As its locks' ``label=``; empty if it has none."""
    thread: str
    """Name of the thread or task."""
    since: float
    """When it began to wait (Unix time of its machine)."""

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"{self.host}:{self.pid}{label} {self.thread} holds {self.holds} and waits for {self.lock}"


@dataclass(frozen=True)
class Cycle:
    """Waiters none of whom can ever get on: each waits for what the next one holds, and the last one for what the first one
    holds. The one who has waited for longest comes first."""

    waiters: tuple[Waiter, ...]

    def __str__(self) -> str:
        return "deadlock: " + "; ".join(map(str, self.waiters))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def shown(cycle: Chain) -> Cycle:
    """A cycle, for users."""
    return Cycle(tuple(_waiter(link, before) for link, before in zip(cycle, (cycle[-1], *cycle[:-1]), strict=True)))


def _waiter(link: Link, before: Link) -> Waiter:
    # A client that can write a record chooses these characters, and a terminal may obey some of them.
    host, label, thread, lock, holds = (
        "".join(c if c.isprintable() else "?" for c in text[:300])
        for text in (link.host, link.label, link.who, link.lock, before.lock)
    )
    return Waiter(lock, holds, host, link.pid, label, thread, link.since)


Chain = tuple[Link, ...]
"""Each one waits for what the next one holds; in a cycle, also the last one for what the first one holds."""

Evidence = tuple[tuple[bytes, bytes], ...]
"""Of each lock that is waited for: its holder's process, and the last fence."""


def links(process: str, record: object) -> list[Link]:
    """Return who waits in a process, from its record. A record that cannot be read counts as empty: anybody may write one."""
    said = control_records.read(record)
    if said is None:
        return []
    return [
        Link(w.since, process, w.owner, w.who, said.host, said.pid, _label(said, w.holds), w.lock, w.holds, w.yields)
        for w in said.waits
    ]


def _label(said: control_records.Record, holds: tuple[str, ...]) -> str:
    """Return the label of a held lock, which its waiters are shown."""
    return next((label for key in holds if (label := said.label_of(key.encode()))), "")


def cycles(waiting: Iterable[Link]) -> list[Chain]:
    """All cycles in which each one waits for what another one holds, each once, the one who has waited for longest first."""
    waiting = sorted(waiting)
    holders: dict[str, list[Link]] = {}
    for link in waiting:
        for key in link.holds:
            holders.setdefault(key, []).append(link)
    found: dict[frozenset[Link], Chain] = {}
    steps = iter(range(STEPS))
    for first in waiting:
        for cycle in _from(first, (first,), holders, steps):
            found.setdefault(frozenset(cycle), cycle)
    return list(found.values())


def _from(first: Link, path: Chain, holders: dict[str, list[Link]], steps: Iterator[int]) -> Iterator[Chain]:
    for holder in holders.get(path[-1].lock, ()):
        if next(steps, None) is None:
            return
        if holder is first:
            yield path
        elif holder > first and holder not in path and len(path) < LONGEST:
            yield from _from(first, (*path, holder), holders, steps)


def youngest(cycle: Chain) -> Link | None:
    """Return the wait to end: the one that began last, of those that allow it."""
    return max((link for link in cycle if link.yields), default=None)


async def everybody(prefix: bytes) -> list[Link]:
    """All who wait while holding something, as this server knows them by the records in this prefix."""
    found: list[Link] = []
    start, pattern = records(prefix), literal(records(prefix)) + b"*"
    cursor: object = 0
    while True:
        step = await retry_idempotent(Command(("SCAN", str(cursor), "MATCH", pattern, "COUNT", 1000), ANSWER_WITHIN))
        cursor, keys = int(step.value[0]), step.value[1]
        for key in keys:
            process = bytes(key).removeprefix(start).decode("ascii", "replace")
            found += await waiters(process, prefix)
        if cursor == 0:
            return found


async def waiters(process: str, prefix: bytes) -> list[Link]:
    """Those of one process, as its record in this prefix says."""
    if not process:
        return []
    try:
        record = await retry_idempotent(control_records.fetch(record_key(prefix, process), ANSWER_WITHIN))
    except Refused as error:
        if error.code != "WRONGTYPE":
            raise
        return []  # somebody has put something else there
    return links(process, record.value)


async def holder(key: str) -> tuple[str, bytes]:
    """The holder of a lock: the public part of its token (empty if that is unknown), and the last fence."""
    lock = key.encode()
    token = bytes((await retry_idempotent(Command(("GETRANGE", lock, 0, control_records.LONGEST), ANSWER_WITHIN))).value)
    state = side_key(lock, b"state")
    if (await retry_idempotent(Command(("HSTRLEN", state, "fence"), ANSWER_WITHIN))).value > control_records.DIGITS:
        return "", b""
    fence = bytes((await retry_idempotent(Command(("HGET", state, "fence"), ANSWER_WITHIN))).value or b"")
    public, dot, _ = token.partition(b".")
    return public.decode("ascii", "replace") if dot else "", fence


async def listens(public: str, key: str) -> bool:
    """Whether the process that holds this lock is there: the record of one that was killed stays for a while. In a Cluster
    another server may know it."""
    if "{" in public:
        return True
    inbox = channel(home(public, key.encode()), public.partition("@")[0])
    return int((await retry_idempotent(Command(("PUBSUB", "NUMSUB", inbox), ANSWER_WITHIN))).value[1]) > 0


async def waiters_of_holder(key: str) -> list[Link]:
    """Return the waiters in the process that holds this lock."""
    public, _ = await holder(key)
    return await waiters(public[:PROCESS], home(public, key.encode()))


async def evidence(cycle: Chain) -> Evidence | None:
    """Return the server's facts about the locks of a cycle; None where they show that it is none."""
    found = []
    for link, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        public, fence = await holder(link.lock)
        if public[:PROCESS] != following.process or not await listens(public, link.lock):
            return None
        found.append((public.encode(), fence))
    return tuple(found)


async def find(waiting: Iterable[Link]) -> list[Cycle]:
    """Operation behind `find_deadlocks`: the cycles among these that stand at two looks."""
    return [shown(cycle) for cycle in await confirmed(cycles(waiting))]


async def confirmed(suspected: Iterable[Chain]) -> list[Chain]:
    """Those cycles that stand at two looks."""
    first = [(cycle, await evidence(cycle)) for cycle in suspected]
    if not any(seen for _, seen in first):
        return []
    await Sleep(BETWEEN)
    found = []
    for cycle, seen in first:
        if seen is not None and await still(cycle) and await evidence(cycle) == seen:
            found.append(cycle)
    return found


async def still(cycle: Chain) -> bool:
    """All of them say that they wait as before."""
    for link, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        if not following.among(await waiters_of_holder(link.lock)):
            return False
    return True


async def around(first: Link) -> Chain | None:
    """The cycle that one who waits is in, if there is one: from each lock to its holder, and to what that one waits for."""
    path: Chain = (first,)
    while len(path) < LONGEST:
        holds = [link for link in await waiters_of_holder(path[-1].lock) if path[-1].lock in link.holds]
        if first.among(holds):
            return path
        if not holds or holds[0].among(path):
            return None
        path = (*path, holds[0])
    return None


async def suspected(first: Link) -> tuple[Chain, Evidence] | None:
    """One look at the cycle that one who waits is in."""
    cycle = await around(first)
    seen = None if cycle is None else await evidence(cycle)
    return None if cycle is None or seen is None else (cycle, seen)
