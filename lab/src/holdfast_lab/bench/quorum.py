"""Measure a Redlock on five private servers: free, with some servers stopped, and with twenty threads that compete."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

import holdfast
import holdfast.aio
from holdfast._local.server import private
from holdfast._local.server.process import PrivateServer
from holdfast_lab.bench.bare import SET_DELETE, Bare, Requests
from holdfast_lab.bench.pairs import pairs, pairs_in_tasks
from holdfast_lab.bench.plan import PREFIX, TTL, Plan, in_turns
from holdfast_lab.bench.report import Figure, Result, Row, jain, times
from holdfast_lab.bench.workers import workers

SERVERS, STOPPED = 5, 2
PROCESSES, EACH = 4, 5
OURS, OURS_AIO, REDLOCK_PY = "holdfast.Redlock", "holdfast.aio.Redlock", "redlock-py"
FLOOR = f"{SET_DELETE}, to all at once"
TURN = 20
LIMIT = 0.2
"""Default of ``answer_within=``, in seconds."""
THREADS, TASKS = "free, threads", "free, asyncio"

_clock = time.perf_counter


def measure(plan: Plan) -> Result:
    result = Result(f"a lock over {SERVERS} servers", chart="p50_ms")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(private(port=True, password="")) for _ in range(SERVERS)]
        urls = [server.url for server in servers]
        holdfast.declare_new(urls)
        result.rows += _free(plan, urls)
        with asyncio.Runner() as runner:
            result.rows += runner.run(_free_aio(plan, urls))
        _judge_free(result)
        result.rows += _crowds(plan, urls, result)
        _with_servers_stopped(plan, servers, urls, result)
    return result


class _Broadcast:
    """A bare lock, as a lower bound. It sends each command to all servers before it reads any reply."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._servers = [Bare(url) for url in urls]
        self._requests = Requests(SET_DELETE, f"{PREFIX}quorum:bare")
        for server in self._servers:
            for packed in self._requests.load:
                server.exchange(packed)
        self._release = b""

    def _all(self, packed: bytes) -> list[Any]:
        for server in self._servers:
            server.sock.sendall(packed)
        return [server.read() for server in self._servers]

    def acquire(self) -> None:
        acquire, self._release = self._requests.pair()
        assert all(map(self._requests.taken, self._all(acquire)))

    def release(self) -> None:
        assert set(self._all(self._release)) == {1}

    def close(self) -> None:
        for server in self._servers:
            server.close()


class _RedlockPy:
    """A lock of redlock-py with default settings, which tries again until it is acquired."""

    def __init__(self, urls: Sequence[str], name: str) -> None:
        self._manager = importlib.import_module("redlock").Redlock(list(urls))
        self._name = name
        self._held: Any = None

    def acquire(self) -> None:
        while not self._held:
            self._held = self._manager.lock(self._name, int(1000 * TTL))

    def release(self) -> None:
        held, self._held = self._held, None
        self._manager.unlock(held)


def _pairs(plan: Plan) -> int:
    return max(2, int(plan.seconds / (TURN * 0.001)))


def _free(plan: Plan, urls: Sequence[str]) -> list[Row]:
    bare = _Broadcast(urls)
    locks: dict[str, Any] = {OURS: holdfast.Redlock(urls, f"{PREFIX}quorum", ttl=TTL), FLOOR: bare}
    if find_spec("redlock") is not None:
        locks[REDLOCK_PY] = _RedlockPy(urls, f"{PREFIX}quorum:redlock-py")
    rows = pairs(locks, _pairs(plan), TURN, THREADS)
    bare.close()
    return rows


async def _free_aio(plan: Plan, urls: Sequence[str]) -> list[Row]:
    lock = holdfast.aio.Redlock(urls, f"{PREFIX}quorum:aio", ttl=TTL)
    rows = await pairs_in_tasks({OURS_AIO: lock}, _pairs(plan), TURN, TASKS)
    await holdfast.aio.close()
    return rows


def _judge_free(result: Result) -> None:
    ours, floor, theirs = (result.value(name, "p50_ms", THREADS) for name in (OURS, FLOOR, REDLOCK_PY))
    result.compare(f"{OURS} / {FLOOR}, p50", ours, floor, "≤", 2.5)
    result.compare(f"{OURS_AIO} / {FLOOR}, p50", result.value(OURS_AIO, "p50_ms", TASKS), floor)
    result.compare(f"{OURS} / {REDLOCK_PY}, p50", ours, theirs, "≤", 0.5)


# Servers that hang


def _some(lock: Any, seconds: float) -> list[float]:
    """Acquire and release the lock for ``seconds``. Return the duration of each pair."""
    noted, end = [], _clock() + seconds
    while (start := _clock()) < end:
        lock.acquire()
        lock.release()
        noted.append(_clock() - start)
    return noted


@contextlib.contextmanager
def _paused(servers: Sequence[PrivateServer]) -> Iterator[None]:
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


def _with_servers_stopped(plan: Plan, servers: Sequence[PrivateServer], urls: Sequence[str], result: Result) -> None:
    lock = holdfast.Redlock(urls, f"{PREFIX}quorum:hang", ttl=TTL)
    _some(lock, 0.1)
    healthy: list[float] = []
    limping: list[float] = []
    for _ in range(plan.rounds):
        healthy += _some(lock, plan.slice)
        with _paused(servers[:STOPPED]):
            limping += _some(lock, plan.slice)
    stopped = f"{STOPPED} of {SERVERS} stopped"
    rows = [times(OURS, healthy, "all servers up, in turns with:"), times(OURS, limping, stopped)]
    result.rows += rows
    before, after = (row.values["p99_ms"] for row in rows)
    result.compare(f"{OURS}, p99 with {stopped} / p99 with all up", after, before, "≤", 1.5)
    with _paused(servers[: SERVERS // 2 + 1]):
        start = _clock()
        with contextlib.suppress(holdfast.QuorumError):
            lock.acquire()
            raise RuntimeError("the lock was acquired although a majority of the servers was stopped")
        took = _clock() - start
    name = f"{SERVERS // 2 + 1} of {SERVERS} stopped: QuorumError after"
    result.figures.append(Figure(name, 1000 * took, "ms", "≤", 1000 * (LIMIT + 0.05)))


# Many users of the lock


class _QuorumOrder(NamedTuple):
    contender: str
    seconds: float


def _crowds(plan: Plan, urls: Sequence[str], result: Result) -> list[Row]:
    group = f"{PROCESSES} processes x {EACH} threads, one lock"
    contenders = [OURS, *([REDLOCK_PY] if find_spec("redlock") is not None else [])]
    rows = []
    with workers(PROCESSES, _serve, tuple(urls)) as crowd:
        for contender, rounds in in_turns(contenders, plan.rounds, lambda name: _crowd(crowd, name, plan.slice)).items():
            counts = [sum(counts) for counts in zip(*(counts for counts, _ in rounds), strict=True)]
            waits = [wait for _, each in rounds for wait in each] or [float("inf")]
            values = {
                "per_second": median(sum(counts) / plan.slice for counts, _ in rounds),
                "p50_ms": 1000 * median(waits),
                "longest_ms": 1000 * max(waits),
                "jain": jain(counts),
                "n": float(len(waits)),
            }
            rows.append(Row(contender, values, group))
    rates = {row.contender: row.values["per_second"] for row in rows}
    result.compare(f"{group}: {OURS} / {REDLOCK_PY}, per second", rates[OURS], rates.get(REDLOCK_PY), "≥", 3)
    result.figures.append(Figure(f"{group}: {OURS}, Jain index", rows[0].values["jain"], "", "≥", 0.9))
    return rows


def _crowd(crowd: Sequence[Any], contender: str, seconds: float) -> tuple[list[int], list[float]]:
    for worker in crowd:
        worker.tell(_QuorumOrder(contender, seconds))
    counts: list[int] = []
    waits: list[float] = []
    for worker in crowd:
        for each in worker.hear():
            counts.append(len(each))
            waits += each
    return counts, waits


def _serve(pipe: Connection, urls: tuple[str, ...]) -> None:
    name = f"{PREFIX}quorum:crowd"
    while True:
        order: _QuorumOrder = pipe.recv()
        noted: list[list[float]] = [[] for _ in range(EACH)]
        locks = [
            holdfast.Redlock(urls, name, ttl=TTL) if order.contender == OURS else _RedlockPy(urls, f"{name}:{REDLOCK_PY}")
            for _ in noted
        ]
        ready = threading.Barrier(EACH)

        def work(lock: Any, waits: list[float], order: _QuorumOrder = order, ready: threading.Barrier = ready) -> None:
            ready.wait()
            time.sleep(0.05 * random.random())
            end = _clock() + order.seconds
            while (start := _clock()) < end:
                lock.acquire()
                waits.append(_clock() - start)
                lock.release()

        threads = [threading.Thread(target=work, args=pair) for pair in zip(locks, noted, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send(noted)
