"""The table of all that can be measured, and how it is run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.bench import (
    cache,
    capacity,
    crowd,
    different,
    family,
    handover,
    leases,
    linger,
    one_lock,
    quorum,
    start,
    uncontended,
    waiters,
)
from holdfast.bench.plan import Plan
from holdfast.bench.report import Result


class Scenario(NamedTuple):
    """``measure`` runs it, ``summary`` says in one line what it is."""

    measure: Callable[[Plan], Result]
    summary: str


SCENARIOS = {
    "uncontended": Scenario(uncontended.measure, "a free lock, one thread or task"),
    "tasks": Scenario(different.measure_tasks, "200 tasks on 200 locks"),
    "threads": Scenario(different.measure_threads, "16 threads on 16 locks"),
    "one-lock": Scenario(one_lock.measure, "16 tasks, and 16 threads, of one process on one lock"),
    "crowd": Scenario(crowd.measure, "2 processes x 8 threads, or tasks, on one lock"),
    "handover": Scenario(handover.measure, "from release to the next holder"),
    "family": Scenario(family.measure, "RLock, FairLock, RWLock, Semaphore, MultiLock, beside Lock"),
    "linger": Scenario(linger.measure, "one task takes the same lock in a loop"),
    "waiters": Scenario(waiters.measure, "10,000 tasks wait for 100 locks"),
    "leases": Scenario(leases.measure, "100,000 leases held by one process"),
    "quorum": Scenario(quorum.measure, "five servers: a free lock, servers stopped, 20 who want it"),
    "cache": Scenario(cache.measure, "a hit, being told of a new value, and a crowd that wants one"),
    "start": Scenario(start.measure, "holdfast run x -- true"),
    "capacity": Scenario(capacity.measure, "memory and work on the server"),
}


def run(name: str, plan: Plan) -> Result:
    """Measure one of them."""
    started = time.monotonic()
    result = SCENARIOS[name].measure(plan)
    result.name, result.seconds = name, time.monotonic() - started
    return result
