"""Measure ten thousand tasks that wait for a hundred locks: their connections, requests and memory."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import ExitStack
from multiprocessing.connection import Connection

import redis

import holdfast
from holdfast_lab.bench.bare import Bare
from holdfast_lab.bench.machine import resident
from holdfast_lab.bench.plan import PREFIX, Plan
from holdfast_lab.bench.report import Figure, Result, Row
from holdfast_lab.bench.rivals import OURS_AIO, REDIS_AIO, Tasks
from holdfast_lab.bench.wiretap import Wiretap
from holdfast_lab.bench.workers import BenchWorker, workers

PROCESSES, LOCKS = 2, 100
EVENT = "asyncio.Event (no lock)"
"""Lower bound for the comparison: tasks that wait for an event of their own process."""

HELD = 600.0
"""Lease time of the locks in seconds, so long that no lease is renewed while requests are counted."""


def measure(plan: Plan) -> Result:
    """Measure waiters of holdfast and of asyncio.Event, and a tenth as many of redis.asyncio, which poll ten times a second."""
    count = plan.many(10_000, 10_000)
    result = Result(f"{count:,} tasks in {PROCESSES} processes wait for {LOCKS} locks, and nothing changes", chart="bytes")
    for name, many in ((OURS_AIO, count), (REDIS_AIO, count // 10), (EVENT, count)):
        result.rows.append(_row(plan, name, many))
    ours = result.rows[0].values
    result.figures = [
        Figure(f"{OURS_AIO}: connections per process", ours["connections"], "", "≤", 4),
        Figure(f"{OURS_AIO}: requests of all processes", ours["idle_commands"], "/s", "≤", 50),
        Figure(f"{OURS_AIO}: memory per waiter, task and lock object included", ours["bytes"], "B", "≤", 3000),
    ]
    result.notes.append(f"{REDIS_AIO} with a tenth of the waiters: more of them would keep the server from answering anybody")
    return result


def _row(plan: Plan, name: str, count: int) -> Row:
    server = Bare(plan.url)
    with ExitStack() as stack:
        stack.callback(server.close)
        for lock in range(LOCKS):
            _hold(stack, plan.url, name, f"{PREFIX}waiters:{name}:{lock}")
        before = _clients(server)
        crowd = stack.enter_context(workers(PROCESSES, _wait, plan.url, name, count // PROCESSES))
        for worker in crowd:
            worker.hear()
        _all(crowd, "wait")
        connections = (_clients(server) - before) / PROCESSES
        with Wiretap(plan.url) as tap:
            time.sleep(plan.watch)
        commands = len([seen for seen in tap.from_clients if seen.name not in {"MONITOR", "ECHO"}]) / plan.watch
        grown = _all(crowd, "memory")
        _all(crowd, "stop")
    values = {"bytes": sum(grown) / count, "connections": connections, "idle_commands": commands, "n": float(count)}
    return Row(name, values)


def _hold(stack: ExitStack, url: str, name: str, key: str) -> None:
    """Hold a lock until the exit stack is closed."""
    if name == OURS_AIO:
        lock = holdfast.Lock(url, key, ttl=HELD)
        lock.acquire()
        stack.callback(lock.release)
    elif name == REDIS_AIO:
        client = redis.Redis.from_url(url)
        theirs = client.lock(key, timeout=HELD)
        theirs.acquire()
        stack.callback(client.close)
        stack.callback(theirs.release)


def _clients(server: Bare) -> int:
    return int(server.info("clients")["connected_clients"])


def _all(crowd: list[BenchWorker], order: str) -> list[int]:
    for worker in crowd:
        worker.tell(order)
    return [worker.hear() for worker in crowd]


# The waiting processes


def _wait(pipe: Connection, url: str, name: str, count: int) -> None:
    asyncio.run(_serve(pipe, url, name, count))


async def _serve(pipe: Connection, url: str, name: str, count: int) -> None:
    async with Tasks(url) as makers:
        waiter = _waiter(makers, name)
        if name != EVENT:  # memory that a process needs only once is not counted
            first = makers.make[name](f"{PREFIX}waiters:first")
            await first.acquire()
            await first.release()
        pipe.send(None)
        await _order(pipe, "wait")
        gc.collect()
        before = resident()
        tasks = [asyncio.create_task(waiter(number)) for number in range(count)]
        await _settled(10.0 if name == OURS_AIO else 2.0)
        pipe.send(0)
        await _order(pipe, "memory")
        gc.collect()
        pipe.send(resident() - before)
        await _order(pipe, "stop")
        await _cancelled(tasks)
        pipe.send(0)


def _waiter(makers: Tasks, name: str) -> Callable[[int], Coroutine[None, None, None]]:
    event = asyncio.Event()

    async def for_event(_: int) -> None:
        await event.wait()

    async def for_lock(number: int) -> None:
        lock = makers.make[name](f"{PREFIX}waiters:{name}:{number % LOCKS}")
        await lock.acquire()

    return for_event if name == EVENT else for_lock


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks until all have ended. Some locks swallow a cancellation during a request."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)


async def _order(pipe: Connection, expected: str) -> None:
    assert await asyncio.to_thread(pipe.recv) == expected


async def _settled(patience: float) -> None:
    """Wait until this process uses almost no processor time, because all its waiters are queued.

    Return after ``patience`` seconds in any case.
    """
    deadline = time.monotonic() + patience
    share = 1.0
    while share > 0.1 and time.monotonic() < deadline:
        spent = time.process_time()
        await asyncio.sleep(0.3)
        share = (time.process_time() - spent) / 0.3
