"""Publish the waits of this process that may be part of a deadlock, because the waiting thread or task holds other locks.

A wait belongs to a thread or task, not to a process. If one thread of a process holds lock A and another of its threads waits
for lock B, this wait is no part of a deadlock, because the waiting thread holds no lock.

While nobody waits, nothing is checked or sent. While somebody waits, the waits are checked twice a second, or more often if one
of them is published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.ports import LockWait
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.spec import Spec

if TYPE_CHECKING:
    from holdfast._core.deadlock.victim import DeadlockDetector
    from holdfast._core.lock.ports import Watched

LONG_WAIT_S = 0.5
"""Seconds after which a wait is published; also seconds between two checks of the waits while none of them is published."""

LOOK_AFTER_S = 0.1
"""Seconds between two checks of the waits while one is published, so that a wait that has ended is soon removed."""

MOST = 100
"""Maximum number of waits that a process publishes."""

PER_LOOK = 20_000
"""Maximum number of leases and waits that are checked per second. If there are more, the checks become less frequent."""


class WaitGraph:
    """The waits of this process on one server or Cluster, if the waiting thread or task holds other locks there."""

    at: float
    untold: bool

    def __init__(self, node: Watched) -> None:
        self.nodes: list[Watched] = [node]
        self.at = float("inf")
        """Monotonic time, in seconds, of the next check of this process's waits; infinity: nobody waits."""
        self.waits: tuple[LockWait, ...] = ()
        """Waits that the last check found. They have lasted long enough to be published."""
        self._attempts: dict[LockWait, Attempt] = {}
        self.detector: DeadlockDetector | None = None
        self.untold = False
        """True while the record on the server lacks changes in the waits of this process."""

    def join(self, other: WaitGraph) -> WaitGraph:
        """Add the nodes of this graph to the graph ``other`` of the same Cluster, and return ``other``.

        A node is the keeper's state for one server. One graph then has the waits of this process on all these servers.
        """
        other.nodes += self.nodes
        return other

    def somebody_waits(self, now: float) -> None:
        """Schedule a check of the waits, because an attempt begins to wait. The caller holds the mutex."""
        if self.at == float("inf"):
            self.at = now + LONG_WAIT_S
            self.nodes[0].keeper.wake_by(self.at)

    def turn(self, now: float) -> None:
        """Check the waits if a check is due at monotonic time ``now``. Publish changes, and search for deadlocks."""
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
            from holdfast._core.deadlock.victim import DeadlockDetector  # imported here, as most processes never need it

            self.detector = DeadlockDetector()
        if self.detector is not None:
            self.detector.turn(self.nodes[0], {wait: self._attempts[wait] for wait in self.waits}, now)

    def waiting(self) -> list[Attempt]:
        found = [waiter.attempt for node in self.nodes for waiter in node.waiting.waiters()]
        return found + [attempt for node in self.nodes for attempt in node.in_line()]


def standing(nodes: list[Watched], waiting: list[Attempt], now: float) -> dict[LockWait, Attempt]:
    """Return waits that have lasted for `LONG_WAIT_S`, with their attempts, if the thread or task holds another lock.

    Permits are ignored, both those waited for and those held, because a semaphore may have room for further holders.
    """
    late: dict[int, list[Attempt]] = {}
    for attempt in waiting:
        owner, since = getattr(attempt.slot, "waits", None) or (0, now)  # written by the drivers when the wait begins
        if now - since >= LONG_WAIT_S and attempt.spec.permits is None:  # permits leave room for other holders
            late.setdefault(owner, []).append(attempt)
    held: dict[int, list[Spec]] = {}
    for node in nodes if late else ():
        for held_lease in node.renewing.held_leases():
            holder = held_lease.holder()
            owner = 0 if holder is None else holder.owner
            if owner in late and not held_lease.lost and held_lease.spec.permits is None:
                held.setdefault(owner, []).append(held_lease.spec)
    return {_wait(attempt, owner, specs): attempt for owner, specs in held.items() for attempt in late[owner]}


def _wait(attempt: Attempt, owner: int, held: list[Spec]) -> LockWait:
    since = attempt.slot.waits[1]  # type: ignore[union-attr]
    keys = tuple(sorted(spec.key for spec in held)[:MOST])
    prefixes = tuple(sorted({attempt.spec.prefix, *(spec.prefix for spec in held)}))
    return LockWait(attempt.spec.key, owner, since, keys, attempt.spec.yields, prefixes)
