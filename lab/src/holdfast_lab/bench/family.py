"""Measure the other kinds of locks next to the plain `Lock`: a free lock, a repeated acquisition, and a hand-over.

The other kinds should cost little more than `Lock`. So each is compared with it in the same run, in turns of a few
milliseconds. Hand-over is measured between two processes, because only `Lock` and `RLock` are handed on inside a process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Self

import holdfast
import holdfast.aio
from holdfast_lab.bench.bare import Bare
from holdfast_lab.bench.handover import Leader, follow
from holdfast_lab.bench.pairs import pairs, pairs_in_tasks
from holdfast_lab.bench.plan import PREFIX, TTL, Plan, in_turns
from holdfast_lab.bench.report import Figure, Result, Row, quantile, times
from holdfast_lab.bench.rivals import FAIR, FAIR_AIO, OURS, OURS_AIO, AnyAsyncLock, AnyLock
from holdfast_lab.bench.wiretap import SeenCommand, Wiretap
from holdfast_lab.bench.workers import BenchWorker, workers

FREE, FREE_AIO, OVER = "free, sync", "free, asyncio", "hand-over"
READERS, TWO = 50, "holdfast.MultiLock of two"
TO_READERS = f"RWLock.write to the first of {READERS} readers"
TO_LAST_READER = f"RWLock.write to the last of {READERS} readers"

TURN = 10
"""A contender acquires and releases its lock this many times before the next contender is measured."""

FREE_TARGETS = {"RLock": 1.05, "FairLock": 1.05, "RWLock.read": 1.3, "RWLock.write": 1.3, "Semaphore": 1.3}
OVER_TARGET = 1.3
"""Highest accepted ratio of a hand-over of these locks to that of `Lock`. `FREE_TARGETS` has the ratios for free locks."""

_clock = time.perf_counter


class Family:
    """Functions that create locks for threads, one for each kind of lock."""

    def __init__(self, url: str) -> None:
        self.make: dict[str, Callable[[str], AnyLock]] = {
            OURS: lambda name: holdfast.Lock(url, name, ttl=TTL),
            "holdfast.RLock": lambda name: holdfast.RLock(url, name, ttl=TTL),
            FAIR: lambda name: holdfast.FairLock(url, name, ttl=TTL),
            "holdfast.RWLock.write": lambda name: holdfast.RWLock(url, name, ttl=TTL).write,
            "holdfast.RWLock.read": lambda name: holdfast.RWLock(url, name, ttl=TTL).read,
            "holdfast.Semaphore": lambda name: holdfast.Semaphore(url, name, 1, ttl=TTL),
            "holdfast.MultiLock of one": lambda name: holdfast.MultiLock(url, [name], ttl=TTL),
            TWO: lambda name: holdfast.MultiLock(url, _two(name), ttl=TTL),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing: the locks use connections that their process shares."""


class Exclusive(Family):
    """Functions that create locks for threads, one for each kind of lock with a single holder."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        del self.make["holdfast.RWLock.read"]


def _aio_family(url: str) -> dict[str, Callable[[str], AnyAsyncLock]]:
    return {
        OURS_AIO: lambda name: holdfast.aio.Lock(url, name, ttl=TTL),
        "holdfast.aio.RLock": lambda name: holdfast.aio.RLock(url, name, ttl=TTL),
        FAIR_AIO: lambda name: holdfast.aio.FairLock(url, name, ttl=TTL),
        "holdfast.aio.RWLock.write": lambda name: holdfast.aio.RWLock(url, name, ttl=TTL).write,
        "holdfast.aio.RWLock.read": lambda name: holdfast.aio.RWLock(url, name, ttl=TTL).read,
        "holdfast.aio.Semaphore": lambda name: holdfast.aio.Semaphore(url, name, 1, ttl=TTL),
        "holdfast.aio.MultiLock of one": lambda name: holdfast.aio.MultiLock(url, [name], ttl=TTL),
        "holdfast.aio.MultiLock of two": lambda name: holdfast.aio.MultiLock(url, _two(name), ttl=TTL),
    }


def _two(name: str) -> list[str]:
    return [f"{name}:{half}" for half in ("a", "b")]


def measure(plan: Plan) -> Result:
    result = Result("the other kinds of locks, beside the plain one", chart="p50_ms")
    result.rows = _threads(plan)
    with asyncio.Runner() as runner:
        result.rows += runner.run(_tasks(plan))
    result.rows += _handovers(plan)
    readers, runs = _to_readers(plan)
    result.rows += readers
    for group, ours in ((FREE, OURS), (FREE_AIO, OURS_AIO)):
        for row in [row for row in result.rows if row.group == group and row.contender != ours]:
            target = FREE_TARGETS.get(row.contender.removeprefix("holdfast.").removeprefix("aio."), 0.0)
            terms = ("≤", target) if target else ("", 0.0)
            result.compare(
                f"{row.contender} / {ours}, free, p50", row.values["p50_ms"], result.value(ours, "p50_ms", group), *terms
            )
    plain = result.value(OURS, "p50_ms", OVER)
    for row in [row for row in result.rows if row.group == OVER and row.contender != OURS]:
        one_to_one = row.contender not in {TO_READERS, TO_LAST_READER, TWO}
        terms = ("≤", OVER_TARGET) if one_to_one else ("", 0.0)
        result.compare(f"{row.contender} / {OURS}, hand-over, p50", row.values["p50_ms"], plain, *terms)
    result.figures.append(Figure(f"a writer leaves: script runs that let {READERS} readers in", runs, "", "=", 1))
    result.figures += _taken_again(plan)
    return result


def _rounds(plan: Plan) -> int:
    """Return how many rounds fit into the planned time, if a pair takes 0.3 ms."""
    return max(2, int(plan.seconds / (TURN * 0.0003)))


def _threads(plan: Plan) -> list[Row]:
    with Family(plan.url) as family:
        locks = {name: make(f"{PREFIX}family:{name}") for name, make in family.make.items()}
    return pairs(locks, _rounds(plan), TURN, FREE)


async def _tasks(plan: Plan) -> list[Row]:
    locks = {name: make(f"{PREFIX}family:{name}") for name, make in _aio_family(plan.url).items()}
    rows = await pairs_in_tasks(locks, _rounds(plan), TURN, FREE_AIO)
    await holdfast.aio.close()
    return rows


def _handovers(plan: Plan) -> list[Row]:
    with (
        workers(1, follow, plan.url, Exclusive) as (follower,),
        Exclusive(plan.url) as makers,
        closing(Bare(plan.url)) as server,
    ):
        follower.hear()
        leader = Leader(plan.url, follower, makers, server)
        names = list(makers.make)
        for name in names:  # the first hand-over opens connections, so it is not counted
            leader.hand_over(name)
        found = in_turns(names, max(3, int(20 * plan.seconds)), leader.hand_over)
    return [times(name, noted, OVER) for name, noted in found.items()]


def _to_readers(plan: Plan) -> tuple[list[Row], int]:
    """Measure the time from a writer's release until the first and the last of fifty readers hold the lock.

    Also return in how many runs of a script the server granted the lock to these readers.
    """
    writer = holdfast.RWLock(plan.url, _READ, ttl=TTL).write
    with workers(1, _read, plan.url) as (other,):
        other.hear()
        found = [_let_in(writer, other) for _ in range(max(3, int(10 * plan.seconds)) + 1)][1:]
        with Wiretap(plan.url) as tap:
            _let_in(writer, other)
    first, last = ([taken[at] for taken in found] for at in (0, 1))
    return [times(TO_READERS, first, OVER), times(TO_LAST_READER, last, OVER)], _granting(tap.seen)


def _let_in(writer: AnyLock, other: BenchWorker) -> tuple[float, float]:
    writer.acquire()
    other.ask(None)
    time.sleep(random.uniform(0, 0.01))
    start = time.monotonic()
    writer.release()
    awake: list[float] = other.hear()
    assert len(awake) == READERS
    other.hear()
    return min(awake) - start, max(awake) - start


def _granting(seen: list[SeenCommand]) -> int:
    """Count the requests in which the server notified at least one waiter of a grant."""
    runs, number = set(), 0
    for each in seen:
        number += each.source != "lua"
        if each.source == "lua" and each.name in {"PUBLISH", "SPUBLISH"} and each.arguments[1].startswith("1 "):
            runs.add(number)
    return len(runs)


_READ = f"{PREFIX}family:readers"


def _read(pipe: Connection, url: str) -> None:
    """Run the process of the readers. It reports that all are queued, and later the time at which each acquired the lock."""
    with closing(Bare(url)) as bare, asyncio.Runner() as runner:
        pipe.send(None)
        while True:
            pipe.recv()
            pipe.send(runner.run(_read_together(pipe, url, bare)))
            pipe.send(None)


async def _read_together(pipe: Connection, url: str, bare: Bare) -> list[float]:
    all_inside = asyncio.Barrier(READERS)

    async def one() -> float:
        async with holdfast.aio.RWLock(url, _READ, ttl=TTL).read:
            awake = time.monotonic()
            await all_inside.wait()
        return awake

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one()) for _ in range(READERS)]
        while bare("ZCARD", f"hf:{{{_READ}}}:queue") < READERS:  # noqa: ASYNC110 (only the server knows)
            await asyncio.sleep(0.005)
        pipe.send(None)
    return [task.result() for task in tasks]


def _taken_again(plan: Plan, times_each: int = 1000) -> list[Figure]:
    """Measure how a holder acquires its RLock once more: the time, and the number of commands that this sends."""
    lock = holdfast.RLock(plan.url, f"{PREFIX}family:again", ttl=TTL)
    taken = []
    with lock:
        for _ in range(max(3, int(20 * plan.seconds))):
            start = _clock()
            for _ in range(times_each):
                lock.acquire()
                lock.release()
            taken.append((_clock() - start) / times_each)
        with Wiretap(plan.url) as tap:
            for _ in range(times_each):
                lock.acquire()
                lock.release()
        asked = sum(any("family:again" in argument for argument in seen.arguments) for seen in tap.from_clients)
    return [
        Figure("holdfast.RLock, taken again by who has it, p50", 1e6 * quantile(taken, 0.5), "µs"),
        Figure(f"holdfast.RLock, taken again {times_each:,} times: commands", asked, "", "=", 0),
    ]
