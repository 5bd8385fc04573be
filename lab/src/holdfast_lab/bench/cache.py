"""Measure a cache: a hit, the time until waiters get a loaded value, and how often many readers load one value."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import redis
import redis.asyncio

import holdfast
import holdfast.aio
from holdfast_lab.bench.bare import AsyncBare, Bare, pack
from holdfast_lab.bench.plan import PREFIX, TTL, Plan, in_turns, tasks_in_turns
from holdfast_lab.bench.report import Figure, Result, Row, times
from holdfast_lab.bench.workers import BenchWorker, workers

OURS, OURS_AIO, BARE = "holdfast.Cache, a hit", "holdfast.aio.Cache, a hit", "bare GET"
REDIS_PY, REDIS_AIO = "redis-py, GET", "redis.asyncio, GET"
TOLD, LOCK = "holdfast.Cache: loaded, until a waiter gets it", "holdfast.Lock: released, until a waiter holds it"
SYNC, AIO, WAITING = "sync", "asyncio", "a waiting process"
NAME, PLAIN = f"{PREFIX}cache", f"{PREFIX}plain"
VALUE = "x" * 100

WARM_UP, TURN = 50, 20
"""Number of unmeasured reads at the start, and number of reads after which the next contender gets its turn."""

PROCESSES, EACH, LOADING = 4, 50, 0.1
"""Number of reader processes, number of threads in each, and seconds that a load takes."""

_clock = time.perf_counter


def measure(plan: Plan) -> Result:
    result = Result("a value in the cache", chart="p50_ms")
    holdfast.Cache(plan.url, NAME, ttl=3600).set("hit", VALUE)
    result.rows = _hits(plan)
    with asyncio.Runner() as runner:
        result.rows += runner.run(_hits_aio(plan))
    result.rows += _told(plan)
    for group, ours, theirs in ((SYNC, OURS, REDIS_PY), (AIO, OURS_AIO, REDIS_AIO)):
        mine = result.value(ours, "p50_ms", group)
        result.compare(f"{ours} / {BARE}, p50", mine, result.value(BARE, "p50_ms", group), "≤", 1.3)
        result.compare(f"{ours} / {theirs}, p50", mine, result.value(theirs, "p50_ms", group), "≤", 1.3)
    told, lock = (result.value(contender, "p50_ms", WAITING) for contender in (TOLD, LOCK))
    result.compare(f"{TOLD} / the same of holdfast.Lock, p50", told, lock, "≤", 2.0)
    result.figures += _crowds(plan)
    return result


def _rounds(plan: Plan) -> int:
    """Return how many rounds fit into the planned time, if a read takes 0.1 ms."""
    return max(2, int(plan.seconds / (TURN * 0.0001)))


def _hits(plan: Plan) -> list[Row]:
    cache, get = holdfast.Cache(plan.url, NAME), pack("GET", PLAIN)
    with closing(Bare(plan.url)) as bare, redis.Redis.from_url(plan.url) as client:
        bare("SET", PLAIN, VALUE, "PX", 3_600_000)
        read: dict[str, Callable[[], Any]] = {
            OURS: lambda: cache.get_or_load("hit", str),
            REDIS_PY: lambda: client.get(PLAIN),
            BARE: lambda: bare.exchange(get),
        }
        found: dict[str, list[float]] = {name: [] for name in read}

        def turn(name: str, reads: int = TURN) -> None:
            call, noted = read[name], found[name]
            for _ in range(reads):
                start = _clock()
                call()
                noted.append(_clock() - start)

        for name in read:
            turn(name, WARM_UP)
        gc.collect()
        in_turns(list(read), _rounds(plan), turn)
    return [times(name, noted[WARM_UP:], SYNC) for name, noted in found.items()]


async def _hits_aio(plan: Plan) -> list[Row]:
    cache, get = holdfast.aio.Cache(plan.url, NAME), pack("GET", PLAIN)
    bare = await AsyncBare.connect(plan.url)

    async def load() -> str:
        return VALUE

    async with redis.asyncio.Redis.from_url(plan.url) as client:
        read: dict[str, Callable[[], Any]] = {
            OURS_AIO: lambda: cache.get_or_load("hit", load),
            REDIS_AIO: lambda: client.get(PLAIN),
            BARE: lambda: bare.exchange(get),
        }
        found: dict[str, list[float]] = {name: [] for name in read}

        async def turn(name: str, reads: int = TURN) -> None:
            call, noted = read[name], found[name]
            for _ in range(reads):
                start = _clock()
                await call()
                noted.append(_clock() - start)

        for name in read:
            await turn(name, WARM_UP)
        gc.collect()
        await tasks_in_turns(list(read), _rounds(plan), turn)
    bare.close()
    await holdfast.aio.close()
    return [times(name, noted[WARM_UP:], AIO) for name, noted in found.items()]


# The time until a waiter has the value


def _told(plan: Plan) -> list[Row]:
    """Measure the time from the end of a load until a waiting process has the value.

    For comparison, also measure the time from the release of a lock until a waiting process has the lock. Both processes read
    the machine's monotonic clock.
    """
    cache, lock = holdfast.Cache(plan.url, NAME), holdfast.Lock(plan.url, f"{PREFIX}cache-lock", ttl=TTL)
    found: dict[str, list[float]] = {TOLD: [], LOCK: []}
    with workers(1, _wait, plan.url) as (follower,):
        follower.hear()
        for number in range(max(3, int(30 * plan.seconds)) + 1):
            for name, noted in found.items():
                if name == TOLD:
                    ended = cache.get_or_load(f"told-{number}", partial(_load, follower, number), ttl=60)
                else:
                    lock.acquire()
                    ended = _load(follower, -1)
                    lock.release()
                woken = follower.hear()
                follower.hear()
                if number:  # the first round opens connections, so it is not counted
                    noted.append(woken - ended)
    return [times(name, noted, WAITING) for name, noted in found.items()]


def _load(follower: BenchWorker, number: int) -> float:
    """Tell the waiting process to wait for the value ``number`` (-1: for the lock), and sleep until it waits.

    Return the time then, by the monotonic clock.
    """
    follower.ask(number)
    time.sleep(0.02 + random.uniform(0, 0.01))  # long enough that the other process waits
    return time.monotonic()


def _wait(pipe: Connection, url: str) -> None:
    """Run the waiting process. For each number from the pipe, it waits for that value (-1: for the lock).

    It reports the time at which it got the value or the lock.
    """
    cache, lock = holdfast.Cache(url, NAME), holdfast.Lock(url, f"{PREFIX}cache-lock", ttl=TTL)
    pipe.send(None)
    while True:
        number = pipe.recv()
        pipe.send(None)
        if number >= 0:
            cache.get_or_load(f"told-{number}", time.monotonic)
            woken = time.monotonic()
        else:
            lock.acquire()
            woken = time.monotonic()
            lock.release()
        pipe.send(woken)
        pipe.send(None)


# A crowd


def _crowds(plan: Plan) -> list[Figure]:
    """Count how often many readers load one missing value: with the cache, and with plain GET and SET."""
    size = f"{PROCESSES} processes x {EACH} threads, a value that takes {LOADING:g} s: loads"
    with workers(PROCESSES, _crowd, plan.url) as crowd, closing(Bare(plan.url)) as bare:
        for worker in crowd:
            worker.hear()
        loads = {}
        for way in ("cache", "naive"):
            for worker in crowd:
                worker.tell((way, time.monotonic() + 0.1))
            for worker in crowd:
                worker.hear()
            loads[way] = int(bare("GET", f"{PREFIX}loads:{way}"))
    return [
        Figure(f"{size}, holdfast.Cache", loads["cache"], "", "=", 1),
        Figure(f"{size}, GET and SET", loads["naive"]),
    ]


def _crowd(pipe: Connection, url: str) -> None:
    cache = holdfast.Cache(url, NAME)
    with redis.Redis.from_url(url, max_connections=EACH) as client:

        def load(way: str) -> str:
            client.incr(f"{PREFIX}loads:{way}")
            client.pexpire(f"{PREFIX}loads:{way}", 60_000)
            time.sleep(LOADING)
            return VALUE

        def naive() -> None:
            if client.get(f"{PREFIX}crowd") is None:
                client.set(f"{PREFIX}crowd", load("naive"), ex=60)

        call = {"cache": lambda: cache.get_or_load("crowd", lambda: load("cache")), "naive": naive}
        client.ping()
        pipe.send(None)
        while True:
            way, start = pipe.recv()
            threads = [threading.Thread(target=call[way]) for _ in range(EACH)]
            time.sleep(max(0.0, start - time.monotonic()))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            pipe.send(None)
