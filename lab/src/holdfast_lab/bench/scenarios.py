"""The table of all scenarios."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast_lab.bench import (
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
from holdfast_lab.bench.plan import Plan
from holdfast_lab.bench.report import Result


class Scenario(NamedTuple):
    measure: Callable[[Plan], Result]
    summary: str


SCENARIOS = {
    "uncontended": Scenario(uncontended.measure, "time to acquire and release a free lock, in a thread or task"),
    "tasks": Scenario(different.measure_tasks, "acquisitions per second of 200 tasks on 200 locks"),
    "threads": Scenario(different.measure_threads, "acquisitions per second of 16 threads on 16 locks"),
    "one-lock": Scenario(one_lock.measure, "acquisitions per second of 16 tasks, or threads, on one lock"),
    "crowd": Scenario(crowd.measure, "speed and fairness of 2 processes x 8 threads, or tasks, on one lock"),
    "handover": Scenario(handover.measure, "time from a release until a waiting process holds the lock"),
    "family": Scenario(family.measure, "the other kinds of locks, such as RLock and Semaphore, next to Lock"),
    "linger": Scenario(linger.measure, "a task that acquires the same lock in a loop, with linger="),
    "waiters": Scenario(waiters.measure, "connections, requests and memory of 10,000 tasks that wait for locks"),
    "leases": Scenario(leases.measure, "cost of renewing 100,000 leases held by one process"),
    "quorum": Scenario(quorum.measure, "a Redlock on five servers: free, with servers stopped, and contended"),
    "cache": Scenario(cache.measure, "a cache: a hit, a notified waiter, and a crowd that loads one value"),
    "start": Scenario(start.measure, "time and memory of `holdfast run x -- true`"),
    "capacity": Scenario(capacity.measure, "memory and processor time of one server"),
}


def run(name: str, plan: Plan) -> Result:
    started = time.monotonic()
    result = SCENARIOS[name].measure(plan)
    result.name, result.seconds = name, time.monotonic() - started
    return result
