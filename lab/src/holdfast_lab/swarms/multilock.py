"""Seeded histories of MultiLocks: each worker acquires some of three locks at once.

Each lock is judged by the rules of a single lock. One more rule, M1, says that a worker whose acquisition succeeds holds all
its locks, and otherwise none. Rule R7 says that workers that name the locks in different orders do not wait for each other
forever. The world is that of the `lock` swarm.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from holdfast._core.lock.spec import Spec
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.lock_client import Lock
from holdfast_lab.sim.multilock_client import MultiLock
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.worker import Worker
from holdfast_lab.swarms import lock as lock_swarm
from holdfast_lab.swarms.lock import Profile
from holdfast_lab.swarms.result import Run

ORDERS = ("xy", "yx", "xyz", "zyx", "zx", "yz", "x", "z")
"""Locks that a worker acquires at once, one for each letter, in the order in which it names them."""


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    made: list[MultiLock] = []
    rng = random.Random(f"several {seed}")
    run = lock_swarm.judged(
        seed,
        *lock_swarm.build(seed, trace=trace, redraw=partial(_redraw, rng), lock_of=partial(_lock_of, made), theme=theme),
        coverage,
    )
    run.violations += [Violation("M1", what) for lock in made for what in lock.half]
    if coverage is not None:
        coverage.docket.judged["M1"] += sum(lock.taken + lock.missed for lock in made)
    run.counts["several taken"] = sum(lock.taken for lock in made)
    run.counts["several not taken"] = sum(lock.missed for lock in made)
    return run


def _redraw(rng: random.Random, profile: Profile) -> None:
    for _, rounds in profile.workers:
        for planned in rounds:
            planned.lock = rng.choice(ORDERS)
            planned.by_hand = 0.0


def _lock_of(made: list[MultiLock], worker: Worker, specs: dict[str, Spec], names: str, *, fair: bool) -> Any:
    if len(names) == 1:
        return Lock(worker, specs[names], fair=fair)
    made.append(MultiLock(worker, [specs[name] for name in names], fair=fair))
    return made[-1]
