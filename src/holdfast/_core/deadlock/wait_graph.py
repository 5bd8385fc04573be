"""The waits of this process for a lock while it holds others: its part of the wait-for graph, which the servers are told.

By thread or task: a process in which one thread holds A and another one waits for B is in no cycle. Costs nothing where
nobody waits, and a look at the books twice a second where somebody does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.ports import Wait
from holdfast._core.lock.records import Attempt, Spec

if TYPE_CHECKING:
    from holdfast._core.deadlock.victim import DeadlockDetector
    from holdfast._core.lock.ports import Watched

LONG_WAIT_S = 0.5
"""Seconds of waiting after which it is told; and between two looks, as long as there is nothing to tell."""

LOOK_AFTER_S = 0.1
"""Seconds between two looks when something was told: it shall not stand there for long when it is over."""

MOST = 100
"""So many waits are told at most."""

PER_LOOK = 20_000
"""Leases and waiters that are looked at in a second, at most: with many of them there are fewer looks."""


class WaitGraph:
    """The part of this process: all its waits on one server, or in one Cluster."""

    def __init__(self, node: Watched) -> None:
        self.nodes: list[Watched] = [node]
        self.at = float("inf")
        """When to look next (local seconds)."""
        self.waits: tuple[Wait, ...] = ()
        """As of the last look."""
        self._attempts: dict[Wait, Attempt] = {}
        self.detector: DeadlockDetector | None = None
        self.untold = False
        """They are others than those in the record of the process."""

    def join(self, other: WaitGraph) -> WaitGraph:
        """If both nodes are of one Cluster: one for all."""
        other.nodes += self.nodes
        return other

    def somebody_waits(self, now: float) -> None:
        """Look soon; the keeper's mutex is held."""
        if self.at == float("inf"):
            self.at = now + LONG_WAIT_S
            self.nodes[0].keeper.wake_by(self.at)

    def turn(self, now: float) -> None:
        """Look, if it is time."""
        if now < self.at:
            return
        with self.nodes[0].mutex:
            waiting = self.waiting()
            looked_at = len(waiting) + sum(len(node.renewing) for node in self.nodes)
            self._attempts = standing(self.nodes, waiting, now)
            waits = tuple(sorted(self._attempts)[:MOST])
            self.at = now + max(LOOK_AFTER_S if waits else LONG_WAIT_S, looked_at / PER_LOOK) if waiting else float("inf")
            if waits != self.waits:
                self.waits, self.untold = waits, True
                self.nodes[0].facts_changed(now)
        if self.detector is None and any(wait.yields for wait in self.waits):
            from holdfast._core.deadlock.victim import DeadlockDetector  # here: most never need it

            self.detector = DeadlockDetector()
        if self.detector is not None:
            self.detector.turn(self.nodes[0], {wait: self._attempts[wait] for wait in self.waits}, now)

    def waiting(self) -> list[Attempt]:
        """All who wait, in the queue of a server or in the line of their process."""
        found = [waiter.attempt for node in self.nodes for waiter in node.waiting.waiters()]
        return found + [attempt for node in self.nodes for attempt in node.in_line()]


def standing(nodes: list[Watched], waiting: list[Attempt], now: float) -> dict[Wait, Attempt]:
    """Those who have waited for long, and hold something."""
    late: dict[int, list[Attempt]] = {}
    for attempt in waiting:
        owner, since = getattr(attempt.slot, "waits", None) or (0, now)  # as the drivers write it down when it begins to wait
        if now - since >= LONG_WAIT_S and attempt.spec.permits is None:  # a permit leaves room for others
            late.setdefault(owner, []).append(attempt)
    held: dict[int, list[Spec]] = {}
    for node in nodes if late else ():
        for held_lease in node.renewing.held_leases():
            owner = getattr(held_lease.owner(), "_owner", 0)
            if owner in late and not held_lease.lost and held_lease.spec.permits is None:
                held.setdefault(owner, []).append(held_lease.spec)
    return {_wait(attempt, owner, specs): attempt for owner, specs in held.items() for attempt in late[owner]}


def _wait(attempt: Attempt, owner: int, held: list[Spec]) -> Wait:
    since = attempt.slot.waits[1]  # type: ignore[union-attr]
    keys = tuple(sorted(spec.key for spec in held)[:MOST])
    prefixes = tuple(sorted({attempt.spec.prefix, *(spec.prefix for spec in held)}))
    return Wait(attempt.spec.key, owner, since, keys, attempt.spec.yields, prefixes)
