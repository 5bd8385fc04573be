"""Measure locks that never contend: 200 tasks, or 16 threads, with one lock each. Fences and renewal are on."""

from __future__ import annotations

import asyncio

from holdfast_lab.bench.bare import SCRIPTS, AsyncBare, AsyncBareLock, Bare, BareLock
from holdfast_lab.bench.plan import PREFIX, Plan, in_turns, tasks_in_turns
from holdfast_lab.bench.report import Result, Row, rates
from holdfast_lab.bench.rivals import (
    OURS,
    OURS_AIO,
    REDIS_AIO,
    REDIS_PY,
    AnyAsyncLock,
    AnyLock,
    Tasks,
    Threads,
)
from holdfast_lab.bench.throughput import by_tasks, by_threads

TASKS, THREADS = 200, 16


def measure_tasks(plan: Plan) -> Result:
    count = plan.many(TASKS, TASKS)
    result = Result(f"{count} tasks of one process on {count} different locks")
    with asyncio.Runner() as runner:
        result.rows = runner.run(_tasks(plan, count))
    _judge(result, OURS_AIO, REDIS_AIO, 8)
    return result


def measure_threads(plan: Plan) -> Result:
    result = Result(f"{THREADS} threads of one process on {THREADS} different locks")
    bares = [Bare(plan.url) for _ in range(THREADS)]
    with Threads(plan.url) as threads:
        locks: dict[str, list[AnyLock]] = {
            name: [make(f"{PREFIX}threads:{name}:{number}") for number in range(THREADS)] for name, make in threads.make.items()
        }
        locks[SCRIPTS] = [BareLock(bare, SCRIPTS, f"{PREFIX}threads:bare:{number}") for number, bare in enumerate(bares)]
        for each in locks.values():
            by_threads(each, 0.05)
        found = in_turns(list(locks), plan.rounds, lambda name: by_threads(locks[name], plan.slice))
    for bare in bares:
        bare.close()
    result.rows = [rates(name, each) for name, each in found.items()]
    _judge(result, OURS, REDIS_PY, 4)
    return result


def _judge(result: Result, ours: str, theirs: str, target: float) -> None:
    mine = result.value(ours, "per_second")
    result.compare(f"{ours} / {theirs}, per second", mine, result.value(theirs, "per_second"), "≥", target)
    result.compare(f"{ours} / {SCRIPTS}, per second", mine, result.value(SCRIPTS, "per_second"))


async def _tasks(plan: Plan, count: int) -> list[Row]:
    bare = await AsyncBare.connect(plan.url)
    async with Tasks(plan.url) as tasks:
        locks: dict[str, list[AnyAsyncLock]] = {
            name: [make(f"{PREFIX}tasks:{name}:{number}") for number in range(count)] for name, make in tasks.make.items()
        }
        floor = [AsyncBareLock(bare, SCRIPTS, f"{PREFIX}tasks:bare:{number}") for number in range(count)]
        await floor[0].load()
        locks[SCRIPTS] = list(floor)
        for each in locks.values():
            await by_tasks(each, 0.05)
        found = await tasks_in_turns(list(locks), plan.rounds, lambda name: by_tasks(locks[name], plan.slice))
    bare.close()
    return [rates(name, each) for name, each in found.items()]
