"""Cycles of waiters: each holds what the one before waits for, so that none of them ever gets on.

What processes say of themselves (`_core.wait_graph`) may be out of date. So what looks like a cycle is looked at twice, and
what the servers say of the holders has to agree with it both times. (Wait-for graphs: E. G. Coffman, M. Elphick, A. Shoshani,
"System Deadlocks", ACM Computing Surveys 3, 1971.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from holdfast._core.insist import insist
from holdfast._core.names import PROCESS, RECORDS, record_key, side_key
from holdfast._core.requests import Command, Sleep

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
    # Whoever can write a record chooses these characters, and a terminal may obey some of them.
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
    """Who waits in a process, from its record. Whoever can write that writes what he likes: what cannot be read is left out."""
    try:
        facts = json.loads(record) if isinstance(record, bytes | str) else {}
        told = facts.get("waits", [])
        host, pid, label = str(facts.get("host")), int(facts.get("pid", 0)), str(facts.get("label") or "")
        return [_link(process, host, pid, label, wait) for wait in told[: LONGEST * 2]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _link(process: str, host: str, pid: int, label: str, wait: dict[str, Any]) -> Link:
    return Link(
        float(wait["since"]),
        process,
        str(wait["id"]),
        str(wait["who"]),
        host,
        pid,
        label,
        str(wait["lock"]),
        tuple(str(key) for key in wait["holds"]),
        wait.get("yields") is True,
    )


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
    """Whose wait is to be ended: who began to wait last, of those who allow it."""
    return max((link for link in cycle if link.yields), default=None)


async def everybody() -> list[Link]:
    """All who wait while holding something, as this server knows them."""
    found: list[Link] = []
    cursor: object = 0
    while True:
        step = await insist(Command(("SCAN", str(cursor), "MATCH", f"{RECORDS}*", "COUNT", 1000), ANSWER_WITHIN))
        cursor, keys = int(step.value[0]), step.value[1]
        for key in keys:
            process = bytes(key).decode("ascii", "replace").removeprefix(RECORDS)
            found += await waiters(process)
        if cursor == 0:
            return found


async def waiters(process: str) -> list[Link]:
    """Those of one process."""
    if not process:
        return []
    record = await insist(Command(("GET", record_key(process)), ANSWER_WITHIN))
    return links(process, record.value)


async def holder(key: str) -> tuple[str, bytes]:
    """Who holds a lock: the name of its process's inbox (empty if that is unknown), and the last fence."""
    lock = key.encode()
    token = bytes((await insist(Command(("GET", lock), ANSWER_WITHIN))).value or b"")
    fence = bytes((await insist(Command(("HGET", side_key(lock, b"state"), "fence"), ANSWER_WITHIN))).value or b"")
    public, dot, _ = token.partition(b".")
    return public.decode("ascii", "replace") if dot else "", fence


async def listens(inbox: str) -> bool:
    """A process is there: one that was killed says for a while that it waits. In a Cluster another server may know it."""
    if len(inbox) > PROCESS:
        return True
    return int((await insist(Command(("PUBSUB", "NUMSUB", f"hf:inbox:{inbox}"), ANSWER_WITHIN))).value[1]) > 0


async def evidence(cycle: Chain) -> Evidence | None:
    """What the server says of the locks of a cycle; None where it says that this is none."""
    found = []
    for link, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        inbox, fence = await holder(link.lock)
        if inbox[:PROCESS] != following.process or not await listens(inbox):
            return None
        found.append((inbox.encode(), fence))
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
    for link in cycle:
        if link not in await waiters(link.process):
            return False
    return True


async def around(first: Link) -> Chain | None:
    """The cycle that one who waits is in, if there is one: from each lock to its holder, and to what that one waits for."""
    path: Chain = (first,)
    while len(path) < LONGEST:
        inbox, _ = await holder(path[-1].lock)
        holds = [link for link in await waiters(inbox[:PROCESS]) if path[-1].lock in link.holds]
        if first in holds:
            return path
        if not holds or holds[0] in path:
            return None
        path = (*path, holds[0])
    return None


async def suspected(first: Link) -> tuple[Chain, Evidence] | None:
    """One look at the cycle that one who waits is in."""
    cycle = await around(first)
    seen = None if cycle is None else await evidence(cycle)
    return None if cycle is None or seen is None else (cycle, seen)
