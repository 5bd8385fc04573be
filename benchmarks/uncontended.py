"""A free lock: what one caller pays to take it and give it back."""

from __future__ import annotations

import asyncio
import gc
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import redis
import redis.asyncio

import holdfast
import holdfast.aio
from benchmarks.bare import COMPARE_AND_DELETE, Bare, pack
from benchmarks.report import Figure, Section, Times, quantile
from benchmarks.wiretap import Wiretap
from holdfast._core.mutex import ACQUIRE, RELEASE
from holdfast._core.names import lock_keys

TTL_MS = 30_000
Pair = Callable[[], None]


def measure(url: str, *, rounds: int, per_round: int = 20) -> Section:
    """Interleaved in small rounds, each starting with another contestant, so that a drift of the machine hits all alike."""
    names = ("holdfast", "bare socket, our two scripts", "bare socket, SET NX PX + compare-and-delete", "redis-py Lock")
    with _contestants(url) as pairs:
        times = _interleaved(pairs, rounds, per_round)
    medians = [quantile(found, 0.5) for found in times]
    section = Section("1. A free lock: acquire + release, one caller")
    section.times = [Times.of(name, found) for name, found in zip(names, times, strict=True)]
    section.times += _asyncio(url, rounds, per_round)
    section.figures = [
        Figure("holdfast / bare, our two scripts (median)", medians[0] / medians[1], "", "≤", 1.4),
        Figure("holdfast / bare, SET + compare-and-delete", medians[0] / medians[2]),
        Figure("holdfast / redis-py Lock (median)", medians[0] / medians[3], "", "≤", 1.05),
        Figure("commands per pair", _commands_per_pair(url), "", "=", 2),
    ]
    section.notes.append(f"{rounds} rounds of {per_round} pairs each, contestants interleaved")
    return section


@contextmanager
def _contestants(url: str) -> Iterator[list[Pair]]:
    bare = Bare(url)
    client = redis.Redis.from_url(url)
    lock = holdfast.Lock(url, "bench:free", ttl=TTL_MS / 1000)
    theirs = client.lock("bench:free:redis-py", timeout=TTL_MS / 1000)

    def ours() -> None:
        lock.acquire()
        lock.release()

    def redis_py() -> None:
        theirs.acquire()
        theirs.release()

    try:
        yield [ours, _same_scripts(bare), _set_and_delete(bare), redis_py]
    finally:
        bare.close()
        client.close()


def _same_scripts(bare: Bare) -> Pair:
    keys = lock_keys("bench:free:bare", "hf:", None)
    for script in (ACQUIRE, RELEASE):
        bare("SCRIPT", "LOAD", script.body)
    exchange = bare.exchange

    def pair() -> None:
        token = secrets.token_hex(22)
        assert exchange(pack("EVALSHA", ACQUIRE.sha, 3, *keys, token, TTL_MS, 0))[0] == 1
        assert exchange(pack("EVALSHA", RELEASE.sha, 3, *keys, token, "release")) == 1

    return pair


def _set_and_delete(bare: Bare) -> Pair:
    sha: bytes = bare("SCRIPT", "LOAD", COMPARE_AND_DELETE)
    exchange = bare.exchange

    def pair() -> None:
        token = secrets.token_hex(22)
        assert exchange(pack("SET", "bench:free:set", token, "NX", "PX", TTL_MS)) == b"OK"
        assert exchange(pack("EVALSHA", sha, 1, "bench:free:set", token)) == 1

    return pair


def _interleaved(pairs: list[Pair], rounds: int, per_round: int) -> list[list[float]]:
    clock = time.perf_counter
    times: list[list[float]] = [[] for _ in pairs]
    for pair in pairs:
        for _ in range(50):
            pair()
    gc.collect()
    for number in range(rounds):
        for shift in range(len(pairs)):
            which = (number + shift) % len(pairs)
            pair, found = pairs[which], times[which]
            for _ in range(per_round):
                start = clock()
                pair()
                found.append(clock() - start)
    return times


def _asyncio(url: str, rounds: int, per_round: int) -> list[Times]:
    """For information: the same from one task."""
    clock = time.perf_counter

    async def run() -> list[Times]:
        client = redis.asyncio.Redis.from_url(url)
        lock = holdfast.aio.Lock(url, "bench:free:aio", ttl=TTL_MS / 1000)
        theirs = client.lock("bench:free:aio:redis-py", timeout=TTL_MS / 1000)

        async def ours() -> None:
            await lock.acquire()
            await lock.release()

        async def redis_py() -> None:
            await theirs.acquire()
            await theirs.release()

        pairs: list[Callable[[], Awaitable[None]]] = [ours, redis_py]
        times: list[list[float]] = [[], []]
        for number in range(max(2, rounds // 4)):
            for shift in range(2):
                which = (number + shift) % 2
                for _ in range(per_round):
                    start = clock()
                    await pairs[which]()
                    times[which].append(clock() - start)
        await client.aclose()
        return [Times.of("holdfast.aio", times[0][50:]), Times.of("redis.asyncio Lock", times[1][50:])]

    return asyncio.run(run())


def _commands_per_pair(url: str, pairs: int = 100) -> float:
    """Everything that reaches the server while one process takes and gives back, without the process record (a SET each
    20 s, whatever the number of locks)."""
    lock = holdfast.Lock(url, "bench:count", ttl=TTL_MS / 1000)
    lock.acquire()
    lock.release()
    with Wiretap(url) as tap:
        for _ in range(pairs):
            lock.acquire()
            lock.release()
    return sum(n for name, n in tap.from_clients().items() if name != "SET") / pairs
