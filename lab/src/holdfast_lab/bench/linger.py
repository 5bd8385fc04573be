"""Measure a task that acquires the same lock in a loop. ``linger=`` saves most of its requests, but delays other processes.

Another process waits for the same lock, and its delay is measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from multiprocessing.connection import Connection

import holdfast
import holdfast.aio
from holdfast_lab.bench.plan import PREFIX, TTL, Plan, tasks_in_turns
from holdfast_lab.bench.report import Result, Row, rates, times
from holdfast_lab.bench.rivals import OURS_AIO, REDIS_AIO, AnyAsyncLock, Tasks
from holdfast_lab.bench.throughput import by_tasks
from holdfast_lab.bench.workers import BenchWorker, workers

LINGER = 0.05
"""Option ``linger`` of the measured lock, in seconds."""
LINGERING = f"{OURS_AIO}, linger={LINGER:g}"
LOOP, ASKS = "a loop of one task", "another process asks"
NORMAL = "hand-over by a holder that releases"


def measure(plan: Plan) -> Result:
    result = Result("one task acquires the same lock in a loop")
    with workers(1, _ask, plan.url) as (other,), asyncio.Runner() as runner:
        other.hear()
        result.rows = runner.run(_loop(plan)) + runner.run(_asked(plan, other))
    mine, theirs = result.value(LINGERING, "per_second", LOOP), result.value(REDIS_AIO, "per_second", LOOP)
    result.compare(f"{LINGERING} / {REDIS_AIO}, per second", mine, theirs, "≥", 50)
    asked, normal = result.value(LINGERING, "p50_ms", ASKS), result.value(NORMAL, "p50_ms", ASKS)
    result.compare("asking a process that lingers / normal hand-over, p50", asked, normal, "≤", 2)
    return result


async def _loop(plan: Plan) -> list[Row]:
    async with Tasks(plan.url) as tasks:
        locks: dict[str, AnyAsyncLock] = {name: tasks.make[name](f"{PREFIX}loop:{name}") for name in (OURS_AIO, REDIS_AIO)}
        locks[LINGERING] = holdfast.aio.Lock(plan.url, f"{PREFIX}loop:linger", ttl=TTL, linger=LINGER)
        found = await tasks_in_turns(list(locks), plan.rounds, lambda name: by_tasks([locks[name]], plan.slice))
        return [rates(name, each, LOOP) for name, each in found.items()]


async def _asked(plan: Plan, other: BenchWorker) -> list[Row]:
    lock = holdfast.aio.Lock(plan.url, f"{PREFIX}asked", ttl=TTL, linger=LINGER)
    found: list[float] = []
    normal: list[float] = []
    plain = holdfast.aio.Lock(plan.url, f"{PREFIX}asked", ttl=TTL)
    for number in range(max(3, int(20 * plan.seconds)) + 1):
        asked, got = await _while_looping(lock, other)
        await plain.acquire()
        other.tell(0.0)
        await asyncio.sleep(0.02 + random.uniform(0, 0.01))
        start = time.monotonic()
        await plain.release()
        _, woken = await asyncio.to_thread(other.hear)
        if number:  # the first round opens connections, so it is not counted
            found.append(got - asked)
            normal.append(woken - start)
    await holdfast.aio.close()
    return [times(LINGERING, found, ASKS), times(NORMAL, normal, ASKS)]


async def _while_looping(lock: holdfast.aio.Lock, other: BenchWorker) -> tuple[float, float]:
    """Acquire the lock in a loop until the process ``other`` gets it. Return when ``other`` asked, and when it got the lock."""
    other.tell(0.01 + random.uniform(0, 0.01))
    answer = asyncio.ensure_future(asyncio.to_thread(other.hear))
    while not answer.done():
        async with lock:
            pass
        await asyncio.sleep(0)
    asked, got = await answer
    return float(asked), float(got)


def _ask(pipe: Connection, url: str) -> None:
    """Run the other process. For each number of seconds from the pipe, it sleeps that long, and then acquires the lock.

    It reports the times at which it asked for the lock and got it.
    """
    lock = holdfast.Lock(url, f"{PREFIX}asked", ttl=TTL)
    lock.acquire()
    lock.release()
    pipe.send(None)
    while True:
        time.sleep(pipe.recv())
        asked = time.monotonic()
        lock.acquire()
        got = time.monotonic()
        lock.release()
        pipe.send((asked, got))
