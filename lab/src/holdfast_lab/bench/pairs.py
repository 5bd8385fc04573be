"""Measure the time to acquire and release a free lock. The contenders take turns after a few measurements each."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

from holdfast_lab.bench.plan import in_turns, tasks_in_turns
from holdfast_lab.bench.report import Row, times
from holdfast_lab.bench.rivals import AnyAsyncLock, AnyLock

WARM_UP = 50
"""Number of pairs at the start that are not measured, because they open the connections."""

_clock = time.perf_counter


def pairs(locks: Mapping[str, AnyLock], rounds: int, at_a_time: int, group: str) -> list[Row]:
    """Measure ``rounds * at_a_time`` pairs of acquire and release of each lock, ``at_a_time`` of them in one turn.

    The returned rows belong to the group ``group`` of the report.
    """
    found: dict[str, list[float]] = {name: [] for name in locks}

    def turn(name: str, many: int = at_a_time) -> None:
        lock, noted = locks[name], found[name]
        for _ in range(many):
            start = _clock()
            lock.acquire()
            lock.release()
            noted.append(_clock() - start)

    for name in locks:
        turn(name, WARM_UP)
    gc.collect()
    in_turns(list(locks), rounds, turn)
    return [times(name, noted[WARM_UP:], group) for name, noted in found.items()]


async def pairs_in_tasks(locks: Mapping[str, AnyAsyncLock], rounds: int, at_a_time: int, group: str) -> list[Row]:
    """Measure ``rounds * at_a_time`` pairs of acquire and release of each lock, ``at_a_time`` of them in one turn.

    The returned rows belong to the group ``group`` of the report.
    """
    found: dict[str, list[float]] = {name: [] for name in locks}

    async def turn(name: str, many: int = at_a_time) -> None:
        lock, noted = locks[name], found[name]
        for _ in range(many):
            start = _clock()
            await lock.acquire()
            await lock.release()
            noted.append(_clock() - start)

    for name in locks:
        await turn(name, WARM_UP)
    gc.collect()
    await tasks_in_turns(list(locks), rounds, turn)
    return [times(name, noted[WARM_UP:], group) for name, noted in found.items()]
