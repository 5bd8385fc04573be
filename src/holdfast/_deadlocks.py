"""What `find_deadlocks` of both faces shares: a cycle of waiters as users see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from holdfast._core import deadlocks
from holdfast._core.deadlocks import Circle, Link


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


def cycle(circle: Circle) -> Cycle:
    """A circle, for users."""
    return Cycle(tuple(_waiter(link, before) for link, before in zip(circle, (circle[-1], *circle[:-1]), strict=True)))


def _waiter(link: Link, before: Link) -> Waiter:
    # Whoever can write a record chooses these characters, and a terminal may obey some of them.
    host, label, thread, lock, holds = (
        "".join(c if c.isprintable() else "?" for c in text[:300])
        for text in (link.host, link.label, link.who, link.lock, before.lock)
    )
    return Waiter(lock, holds, host, link.pid, label, thread, link.since)


async def find(waiting: list[Link]) -> list[Cycle]:
    """Operation behind `find_deadlocks`: the cycles among these that stand."""
    return [cycle(circle) for circle in await deadlocks.confirmed(deadlocks.circles(waiting))]
