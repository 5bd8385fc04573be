"""Seeded histories of MultiLocks: each worker acquires some of three locks at once.

Each lock is judged by the rules of a single lock. One more rule is M1: a worker holds all its locks if its acquisition
succeeds, and none if it fails. By rule R7, workers that name the locks in different orders do not wait for each other forever.
The world is that of the `lock` swarm.
"""

from __future__ import annotations

import random
from typing import Any

from holdfast._core.lock.spec import Spec
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.multilock_client import MultiLock
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.worker import Worker
from holdfast_lab.swarms.lock import ENOUGH, OF_A_LOCK, LockHistory, Profile
from holdfast_lab.swarms.swarm import Swarm

ORDERS = ("xy", "yx", "xyz", "zyx", "zx", "yz", "x", "z")
"""The sets of locks that a worker may acquire at once. Each letter is a lock. The worker names the locks in this order."""


class MultilockHistory(LockHistory):
    """A history in which each worker acquires several locks at once."""

    nests = False

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        self.made: list[MultiLock] = []
        super().__init__(seed, trace=trace, theme=theme)

    def redraw(self, seed: int, profile: Profile) -> None:
        rng = random.Random(f"several {seed}")
        for _, rounds in profile.workers:
            for planned in rounds:
                planned.lock = rng.choice(ORDERS)
                planned.by_hand = 0.0

    def lock(self, worker: Worker, specs: dict[str, Spec], name: str, *, fair: bool) -> Any:
        """Return the lock that ``name`` names, or a MultiLock of several locks, one for each letter."""
        if len(name) == 1:
            return super().lock(worker, specs, name, fair=fair)
        self.made.append(MultiLock(worker, [specs[each] for each in name], fair=fair))
        return self.made[-1]

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        found = super().judge(coverage)
        if coverage is not None:
            coverage.docket.judged["M1"] += sum(lock.taken + lock.missed for lock in self.made)
        self.counts["several taken"] = sum(lock.taken for lock in self.made)
        self.counts["several not taken"] = sum(lock.missed for lock in self.made)
        return found + [Violation("M1", what) for lock in self.made for what in lock.half]


ENOUGH_OF_SEVERAL = {
    **{name: count for name, count in ENOUGH.items() if name != "again" and not name.startswith("fault ")},
    "several taken": 1000,
    "several not taken": 200,
    "script lock/multi_acquire": 2000,
    "script lock/multi_release": 500,
}
"""Minimum counts of events in 1,000 histories of MultiLocks."""

SWARM = Swarm(MultilockHistory, ENOUGH_OF_SEVERAL, (*OF_A_LOCK, "R15 resent", "M1"))
