"""Circles of waiters: each holds what the one before waits for, so that none of them ever gets on.

What processes say of themselves (`_core.tangles`) may be out of date. So what looks like a circle is looked at twice, and what
the servers say of the holders has to agree with it both times. (Wait-for graphs: E. G. Coffman, M. Elphick, A. Shoshani,
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
"""Waiters in a circle that is looked for, at most."""

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


def cycle(circle: tuple[Link, ...]) -> Cycle:
    """A circle, for users."""
    return Cycle(tuple(_waiter(link, before) for link, before in zip(circle, (circle[-1], *circle[:-1]), strict=True)))


def _waiter(link: Link, before: Link) -> Waiter:
    # Whoever can write a record chooses these characters, and a terminal may obey some of them.
    host, label, thread, lock, holds = (
        "".join(c if c.isprintable() else "?" for c in text[:300])
        for text in (link.host, link.label, link.who, link.lock, before.lock)
    )
    return Waiter(lock, holds, host, link.pid, label, thread, link.since)


Circle = tuple[Link, ...]
"""Each one waits for what the next one holds, and the last one for what the first one holds."""

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


def circles(waiting: Iterable[Link]) -> list[Circle]:
    """All circles in which each one waits for what another one holds, each once, the one who has waited for longest first."""
    waiting = sorted(waiting)
    holders: dict[str, list[Link]] = {}
    for link in waiting:
        for key in link.holds:
            holders.setdefault(key, []).append(link)
    found: dict[frozenset[Link], Circle] = {}
    steps = iter(range(STEPS))
    for first in waiting:
        for circle in _from(first, (first,), holders, steps):
            found.setdefault(frozenset(circle), circle)
    return list(found.values())


def _from(first: Link, path: Circle, holders: dict[str, list[Link]], steps: Iterator[int]) -> Iterator[Circle]:
    for holder in holders.get(path[-1].lock, ()):
        if next(steps, None) is None:
            return
        if holder is first:
            yield path
        elif holder > first and holder not in path and len(path) < LONGEST:
            yield from _from(first, (*path, holder), holders, steps)


def youngest(circle: Circle) -> Link | None:
    """Whose wait is to be ended: who began to wait last, of those who allow it."""
    return max((link for link in circle if link.yields), default=None)


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


async def evidence(circle: Circle) -> Evidence | None:
    """What the server says of the locks of a circle; None where it says that this is none."""
    found = []
    for link, following in zip(circle, (*circle[1:], circle[0]), strict=True):
        inbox, fence = await holder(link.lock)
        if inbox[:PROCESS] != following.process or not await listens(inbox):
            return None
        found.append((inbox.encode(), fence))
    return tuple(found)


async def find(waiting: Iterable[Link]) -> list[Cycle]:
    """Operation behind `find_deadlocks`: the cycles among these that stand at two looks."""
    return [cycle(circle) for circle in await confirmed(circles(waiting))]


async def confirmed(suspected: Iterable[Circle]) -> list[Circle]:
    """Those circles that stand at two looks."""
    first = [(circle, await evidence(circle)) for circle in suspected]
    if not any(seen for _, seen in first):
        return []
    await Sleep(BETWEEN)
    found = []
    for circle, seen in first:
        if seen is not None and await still(circle) and await evidence(circle) == seen:
            found.append(circle)
    return found


async def still(circle: Circle) -> bool:
    """All of them say that they wait as before."""
    for link in circle:
        if link not in await waiters(link.process):
            return False
    return True


async def around(first: Link) -> Circle | None:
    """The circle that one who waits is in, if there is one: from each lock to its holder, and to what that one waits for."""
    path: Circle = (first,)
    while len(path) < LONGEST:
        inbox, _ = await holder(path[-1].lock)
        holds = [link for link in await waiters(inbox[:PROCESS]) if path[-1].lock in link.holds]
        if first in holds:
            return path
        if not holds or holds[0] in path:
            return None
        path = (*path, holds[0])
    return None


async def suspected(first: Link) -> tuple[Circle, Evidence] | None:
    """One look at the circle that one who waits is in."""
    circle = await around(first)
    seen = None if circle is None else await evidence(circle)
    return None if circle is None or seen is None else (circle, seen)
