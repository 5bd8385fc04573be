"""Measure the time to acquire and release a free lock, from one thread and from one task."""

from __future__ import annotations

import asyncio

import holdfast
from holdfast_lab.bench.bare import SCRIPTS, SET_DELETE, AsyncBare, AsyncBareLock, Bare, BareLock
from holdfast_lab.bench.pairs import pairs, pairs_in_tasks
from holdfast_lab.bench.plan import PREFIX, TTL, Plan
from holdfast_lab.bench.report import Figure, Result, Row
from holdfast_lab.bench.rivals import OURS, OURS_AIO, REDIS_AIO, REDIS_PY, AnyAsyncLock, AnyLock, Tasks, Threads
from holdfast_lab.bench.wiretap import Wiretap

TURN = 20
"""A contender acquires and releases its lock this many times before the next contender is measured."""


def measure(plan: Plan) -> Result:
    result = Result("a free lock, one caller: acquire + release", chart="p50_ms")
    result.rows = _threads(plan)
    with asyncio.Runner() as runner:
        result.rows += runner.run(_tasks(plan))
    for group, ours, theirs, limit in (("sync", OURS, REDIS_PY, 1.2), ("asyncio", OURS_AIO, REDIS_AIO, 1.3)):
        mine = result.value(ours, "p50_ms", group)
        result.compare(f"{ours} / {SCRIPTS}, p50", mine, result.value(SCRIPTS, "p50_ms", group), "≤", limit)
        result.compare(f"{ours} / {SET_DELETE}, p50", mine, result.value(SET_DELETE, "p50_ms", group), "≤", 1.3)
        result.compare(f"{ours} / {theirs}, p50", mine, result.value(theirs, "p50_ms", group), "≤", 1.0)
    result.figures.append(Figure("commands per pair", _commands_per_pair(plan.url), "", "=", 2))
    return result


def _rounds(plan: Plan) -> int:
    """Return how many rounds fit into the planned time, if a pair takes 0.3 ms."""
    return max(2, int(plan.seconds / (TURN * 0.0003)))


def _threads(plan: Plan) -> list[Row]:
    bare = Bare(plan.url)
    with Threads(plan.url) as threads:
        locks: dict[str, AnyLock] = {name: make(f"{PREFIX}free:{name}") for name, make in threads.make.items()}
        locks |= {kind: BareLock(bare, kind, f"{PREFIX}free:{kind}") for kind in (SCRIPTS, SET_DELETE)}
        rows = pairs(locks, _rounds(plan), TURN, "sync")
    bare.close()
    return rows


async def _tasks(plan: Plan) -> list[Row]:
    bare = await AsyncBare.connect(plan.url)
    async with Tasks(plan.url) as tasks:
        locks: dict[str, AnyAsyncLock] = {name: make(f"{PREFIX}free:{name}") for name, make in tasks.make.items()}
        for kind in (SCRIPTS, SET_DELETE):
            locks[kind] = lock = AsyncBareLock(bare, kind, f"{PREFIX}free:aio:{kind}")
            await lock.load()
        rows = await pairs_in_tasks(locks, _rounds(plan), TURN, "asyncio")
    bare.close()
    return rows


def _commands_per_pair(url: str, pairs: int = 100) -> float:
    """Return the number of commands that reach the server per acquire and release.

    The process record, a SET every 20 s, is not counted.
    """
    lock = holdfast.Lock(url, f"{PREFIX}free:count", ttl=TTL)
    lock.acquire()
    lock.release()
    with Wiretap(url) as tap:
        for _ in range(pairs):
            lock.acquire()
            lock.release()
    return sum(1 for seen in tap.from_clients if seen.name != "SET") / pairs
