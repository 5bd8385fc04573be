"""Seeded histories of several locks at once, like those of the `lock` swarm: each worker wants some of three locks.

Each of the locks is judged as it is alone, and besides:

M1  A worker that has acquired them holds all of them; one that has not holds none.

Workers that name the locks in different orders must not wait for each other for ever (R7).
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from holdfast._core.lock.records import Spec
from holdfast.testing.judge.coverage import Coverage
from holdfast.testing.judge.safety_rules import Violation
from holdfast.testing.sim.lock_client import Lock
from holdfast.testing.sim.multilock_client import MultiLock
from holdfast.testing.sim.rare import PLAIN, Theme
from holdfast.testing.sim.worker import Worker
from holdfast.testing.swarms import lock as lock_swarm
from holdfast.testing.swarms.lock import Profile
from holdfast.testing.swarms.result import Run

ORDERS = ("xy", "yx", "xyz", "zyx", "zx", "yz", "x", "z")
"""The locks that a worker wants, in the order in which it names them."""


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    """Simulate one history and judge it. Its events are counted in ``coverage``."""
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
