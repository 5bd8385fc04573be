"""Measure 16 tasks, or 16 threads, of one process that acquire the same lock."""

from __future__ import annotations

import asyncio
import threading

from holdfast_lab.bench.plan import PREFIX, Plan, in_turns, tasks_in_turns
from holdfast_lab.bench.report import Figure, Result, Row, rates
from holdfast_lab.bench.rivals import OURS, OURS_AIO, REDIS_AIO, REDIS_PY, AnyAsyncLock, AnyLock, Tasks, Threads
from holdfast_lab.bench.throughput import Witness, by_tasks, by_threads

CROWD = 16
TASKS, THREADS = f"{CROWD} tasks", f"{CROWD} threads"

LOCAL, LOCAL_AIO = "threading.Lock (no server)", "asyncio.Lock (no server)"
"""Lower bounds: locks inside the process, without a server."""


def measure(plan: Plan) -> Result:
    result = Result(f"{TASKS}, and {THREADS}, of one process on one lock")
    with asyncio.Runner() as runner:
        result.rows = runner.run(_tasks(plan)) + _threads(plan)
    for group, ours, theirs, target in ((TASKS, OURS_AIO, REDIS_AIO, 30), (THREADS, OURS, REDIS_PY, 8)):
        mine, other = result.value(ours, "per_second", group), result.value(theirs, "per_second", group)
        result.compare(f"{ours} / {theirs}, per second", mine, other, "≥", target)
    wrong = sum(row.values["wrong"] for row in result.rows if row.contender.startswith("holdfast"))
    result.figures.append(Figure("holdfast: two holders at once, or a fence that did not rise", wrong, "", "=", 0))
    return result


def _threads(plan: Plan) -> list[Row]:
    with Threads(plan.url) as threads:
        locks: dict[str, list[AnyLock]] = {
            name: [make(f"{PREFIX}one:{name}") for _ in range(CROWD)] for name, make in threads.make.items()
        }
        locks[LOCAL] = [threading.Lock()] * CROWD
        witnesses = {name: Witness() for name in locks}
        found = in_turns(list(locks), plan.rounds, lambda name: by_threads(locks[name], plan.slice, witnesses[name]))
    return [_row(name, each, witnesses[name], THREADS) for name, each in found.items()]


async def _tasks(plan: Plan) -> list[Row]:
    async with Tasks(plan.url) as tasks:
        locks: dict[str, list[AnyAsyncLock]] = {
            name: [make(f"{PREFIX}one:{name}") for _ in range(CROWD)] for name, make in tasks.make.items()
        }
        locks[LOCAL_AIO] = [_Local()] * CROWD
        witnesses = {name: Witness() for name in locks}
        found = await tasks_in_turns(list(locks), plan.rounds, lambda name: by_tasks(locks[name], plan.slice, witnesses[name]))
    return [_row(name, each, witnesses[name], TASKS) for name, each in found.items()]


def _row(name: str, rounds: list[float], witness: Witness, group: str) -> Row:
    row = rates(name, rounds, group)
    row.values["wrong"] = witness.wrong
    return row


class _Local:
    """An asyncio.Lock whose release lets other tasks run, as the release of a lock on a server does."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def acquire(self) -> bool:
        return await self._lock.acquire()

    async def release(self) -> None:
        self._lock.release()
        await asyncio.sleep(0)
