"""Find deadlocks. In a deadlock, each thread or task of a cycle waits for a lock that the next one in the cycle holds.

Each process writes a record on the server that lists its waits (`_core.deadlock.wait_graph`). Such a record may be out of date.
So a cycle that was found in the records is checked twice, and it counts as a deadlock only if the locks have the same holders
both times. Source: E. G. Coffman, M. Elphick, A. Shoshani, "System Deadlocks", ACM Computing Surveys 3, 1971.
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
"""Maximum number of waits in a deadlock; longer cycles are not found."""

STEPS = 100_000
"""Maximum number of steps in one search. A step goes from a wait to the holder of its lock.

Without a maximum, a search of forged records could last too long.
"""

BETWEEN_CHECKS_S = 0.25
"""Seconds between the two checks of a cycle. This is enough time for a process to remove an ended wait from its record."""

ANSWER_WITHIN_S = 2.0
"""Seconds to wait for the reply to one request of a search."""


class Link(NamedTuple):
    """A wait of a thread or task that holds locks. The process of the waiter lists the wait in a record on the server."""

    since: float
    """Unix time, in seconds, at which the wait began, by the clock of the waiter's machine."""
    process: str
    owner: str
    """Id of the waiting thread or task within its process."""
    who: str
    """Name of the waiting thread or task."""
    host: str
    pid: int
    label: str
    lock: str
    """Key of the lock that this thread or task waits for."""
    holds: tuple[str, ...]
    """Keys of the locks that this thread or task holds."""
    yields: bool
    """True if the wait may be ended with Deadlock to break a cycle."""

    def among(self, others: Iterable[Link]) -> bool:
        """Return True if ``others`` contains this wait.

        Labels are not compared, because a process may list a wait with different labels in its records under different
        prefixes.
        """
        return any(other._replace(label=self.label) == self for other in others)


@dataclass(frozen=True)
class CycleWaiter:
    """One thread or task in a deadlock. It waits for one lock of the cycle, and holds another lock of the cycle."""

    lock: str
    """Key of the lock that this thread or task waits for."""
    holds: str
    """Key of the lock in this cycle that this thread or task holds."""
    host: str
    pid: int
    label: str
    """Label (``label=``) of a lock that this thread or task holds, or else of its process; empty if there is none."""
    thread: str
    """Name of the waiting thread or task."""
    since: float
    """Unix time, in seconds, at which the wait began, by the clock of the waiter's machine."""

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"{self.host}:{self.pid}{label} {self.thread} holds {self.holds} and waits for {self.lock}"


@dataclass(frozen=True)
class Cycle:
    """A deadlock: each waiter waits for a lock that the next one holds, and the last one for a lock that the first one holds.

    The first waiter is the one that has waited longest.
    """

    waiters: tuple[CycleWaiter, ...]

    def __str__(self) -> str:
        return "deadlock: " + "; ".join(map(str, self.waiters))

    def as_dict(self) -> dict[str, Any]:
        """Return the cycle as a dict that can be written as JSON."""
        return asdict(self)


def shown(cycle: Chain) -> Cycle:
    """Return the deadlock as a `Cycle`, the object that users get."""
    return Cycle(tuple(_waiter(link, before) for link, before in zip(cycle, (cycle[-1], *cycle[:-1]), strict=True)))


def _waiter(link: Link, before: Link) -> CycleWaiter:
    # Any client that can write a record chooses these characters, and a terminal may obey control characters.
    host, label, thread, lock, holds = (
        "".join(c if c.isprintable() else "?" for c in text[:300])
        for text in (link.host, link.label, link.who, link.lock, before.lock)
    )
    return CycleWaiter(lock, holds, host, link.pid, label, thread, link.since)


Chain = tuple[Link, ...]
"""Waits, each for a lock that the thread or task of the next wait holds.

In a deadlock, the last wait is for a lock that the thread or task of the first wait holds.
"""

Evidence = tuple[tuple[bytes, bytes], ...]
"""For each lock in a cycle, the public id of the process that holds it and the last fence that was issued for it."""


def links(process: str, record: object) -> list[Link]:
    """Return the waits that a process lists in its record; no waits if the record is unreadable.

    An unreadable record is no error, because any client may have written it.
    """
    said = control_records.read(record)
    if said is None:
        return []
    return [
        Link(w.since, process, w.owner, w.who, said.host, said.pid, _label(said, w.holds), w.lock, w.holds, w.yields)
        for w in said.waits
    ]


def _label(said: control_records.ProcessRecord, holds: tuple[str, ...]) -> str:
    """Return the label in a process record for one of these locks, or else the label of the process; empty if there is none."""
    return next((label for key in holds if (label := said.label_of(key.encode()))), "")


def cycles(waiting: Iterable[Link]) -> list[Chain]:
    """Return all deadlocks among these waits. Each is returned once, and begins with the wait that has lasted longest."""
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
    """Return the wait that may be ended to break a deadlock (``yields``). If several may be ended, return the latest one.

    Return None if none of them may be ended.
    """
    return max((link for link in cycle if link.yields), default=None)


async def everybody(prefix: bytes) -> list[Link]:
    """Return the waits in all process records under ``prefix`` on one server."""
    found: list[Link] = []
    start, pattern = records(prefix), literal(records(prefix)) + b"*"
    cursor: object = 0
    while True:
        step = await retry_idempotent(Command(("SCAN", str(cursor), "MATCH", pattern, "COUNT", 1000), ANSWER_WITHIN_S))
        cursor, keys = int(step.value[0]), step.value[1]
        for key in keys:
            process = bytes(key).removeprefix(start).decode("ascii", "replace")
            found += await waiters(process, prefix)
        if cursor == 0:
            return found


async def waiters(process: str, prefix: bytes) -> list[Link]:
    """Return the waits in the record of the process ``process`` under ``prefix``."""
    if not process:
        return []
    try:
        record = await retry_idempotent(control_records.fetch(record_key(prefix, process), ANSWER_WITHIN_S))
    except Refused as error:
        if error.code != "WRONGTYPE":
            raise
        return []  # the key holds data of another application
    return links(process, record.value)


async def holder(key: str) -> tuple[str, bytes]:
    """Return the public id of the process that holds a lock, and the last fence that was issued for the lock.

    The id is empty if nobody, or a client of another library, holds the lock.
    """
    lock = key.encode()
    token = bytes((await retry_idempotent(Command(("GETRANGE", lock, 0, control_records.LONGEST), ANSWER_WITHIN_S))).value)
    state = side_key(lock, b"state")
    if (await retry_idempotent(Command(("HSTRLEN", state, "fence"), ANSWER_WITHIN_S))).value > control_records.DIGITS:
        return "", b""
    fence = bytes((await retry_idempotent(Command(("HGET", state, "fence"), ANSWER_WITHIN_S))).value or b"")
    public, dot, _ = token.partition(b".")
    return public.decode("ascii", "replace") if dot else "", fence


async def listens(public: str, key: str) -> bool:
    """Return True if the process that holds the lock ``key`` is subscribed to its inbox, and so is alive.

    The record of a process does not prove that it is alive, because a killed process's record stays on the server for a while.
    ``public``: public id of the process. In a Cluster with sharded pub/sub, the inbox may be on another server, so the result
    is always True.
    """
    if "{" in public:
        return True
    inbox = channel(home(public, key.encode()), public.partition("@")[0])
    return int((await retry_idempotent(Command(("PUBSUB", "NUMSUB", inbox), ANSWER_WITHIN_S))).value[1]) > 0


async def waiters_of_holder(key: str) -> list[Link]:
    public, _ = await holder(key)
    return await waiters(public[:PROCESS], home(public, key.encode()))


async def evidence(cycle: Chain) -> Evidence | None:
    """Return the holder and the last fence of each lock in a cycle, as the servers report them now.

    Return None if one of the locks is not held by the process that the cycle names, or if that process is dead.
    """
    found = []
    for link, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        public, fence = await holder(link.lock)
        if public[:PROCESS] != following.process or not await listens(public, link.lock):
            return None
        found.append((public.encode(), fence))
    return tuple(found)


async def find(waiting: Iterable[Link]) -> list[Cycle]:
    """Return the deadlocks among the given waits, each confirmed by two checks `BETWEEN_CHECKS_S` seconds apart."""
    return [shown(cycle) for cycle in await confirmed(cycles(waiting))]


async def confirmed(suspected: Iterable[Chain]) -> list[Chain]:
    """Check each suspected cycle twice, `BETWEEN_CHECKS_S` seconds apart. Return the cycles that are deadlocks both times."""
    first = [(cycle, await evidence(cycle)) for cycle in suspected]
    if not any(seen for _, seen in first):
        return []
    await Sleep(BETWEEN_CHECKS_S)
    found = []
    for cycle, seen in first:
        if seen is not None and await still(cycle) and await evidence(cycle) == seen:
            found.append(cycle)
    return found


async def still(cycle: Chain) -> bool:
    """Return True if the processes still list all waits of a cycle in their records."""
    for link, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        if not following.among(await waiters_of_holder(link.lock)):
            return False
    return True


async def around(first: Link) -> Chain | None:
    """Return the cycle of waits that contains the wait ``first``; None if no cycle of fewer than `LONGEST` waits is found.

    The search goes from each lock to the thread or task that holds it, and then to the lock for which this thread or task
    waits.
    """
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
    """Search once for a cycle of waits that contains the wait ``first``.

    Return the cycle, and the holder and last fence of each lock in it. Return None if there is no such cycle, or if the servers
    report other holders than the cycle has.
    """
    cycle = await around(first)
    seen = None if cycle is None else await evidence(cycle)
    return None if cycle is None or seen is None else (cycle, seen)
