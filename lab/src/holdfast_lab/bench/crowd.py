"""Measure many users of one lock: two processes, each with eight threads or tasks that use it in a loop.

The lock is held for no time, or for a millisecond. Each user records how long it waits. In a separate run, MONITOR shows how
many commands reach the server, and in which order it serves the waiters.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from array import array
from collections.abc import Sequence
from multiprocessing.connection import Connection
from statistics import median
from typing import NamedTuple

from holdfast._core.names import lock_keys
from holdfast_lab.bench.plan import PREFIX, Plan, in_turns
from holdfast_lab.bench.report import Figure, Result, Row, jain, quantile
from holdfast_lab.bench.rivals import (
    FAIR,
    FAIR_AIO,
    OURS,
    OURS_AIO,
    PYTHON_REDIS_LOCK,
    REDIS_PY,
    AnyAsyncLock,
    AnyLock,
    Tasks,
    Threads,
    fence,
)
from holdfast_lab.bench.wiretap import SeenCommand, Wiretap
from holdfast_lab.bench.workers import BenchWorker, workers

PROCESSES, EACH = 2, 8
WARM_UP = 0.1
"""Seconds at the start of a round that are not counted, because connections are opened and users still arrive."""
TAPPED = 0.3
"""Seconds of the run in which MONITOR records the commands."""
SLACK = 0.02
"""Seconds that a client may take to join the queue.

A waiter counts as overtaken only if the other client asked more than this time later.
"""
BODIES = {"empty body": 0.0, "1 ms inside": 0.001}

_clock = time.monotonic


class Turn(NamedTuple):
    """An acquisition: when it was asked for, when it succeeded (by the monotonic clock), and its fence."""

    asked: float
    got: float
    fence: int


class Slice(NamedTuple):
    """The results of a contender in one round."""

    per_second: float
    jain: float
    waits: list[float]
    overtaken: int


class _Order(NamedTuple):
    """An order to the processes: use this contender from ``start`` to ``end``."""

    contender: str
    key: str
    work: float
    start: float
    end: float


def measure(plan: Plan) -> Result:
    result = Result(f"{PROCESSES} processes x {EACH} threads, or tasks, on one lock")
    for api, target in (("threads", _serve_threads), ("tasks", _serve_tasks)):
        with workers(PROCESSES, target, plan.url) as crowd:
            contenders: list[str] = max(worker.hear() for worker in crowd)
            for body, work in list(BODIES.items())[plan.smoke :]:  # in a smoke test, one of them is enough
                group = f"{PROCESSES} x {EACH} {api}, {body}"
                found = in_turns(contenders, plan.rounds, functools.partial(_round, crowd, work, plan.slice))
                for name, slices in found.items():
                    with Wiretap(plan.url) as tap:
                        tapped = _round(crowd, work, min(TAPPED, plan.slice), name)
                    commands = len(tap.from_clients) / max(1, len(tapped.waits))
                    result.rows.append(_row(group, name, slices, commands))
                _judge(result, group, bool(work), found)
            strict = next((name for name in (FAIR, FAIR_AIO) if name in contenders), contenders[0])
            result.figures.append(_order(plan.url, crowd, strict))
    result.notes.append(
        "a wait lasts from the request until the lock is held; commands are counted in a separate run, because counting slows "
        "the server"
    )
    return result


def _round(crowd: Sequence[BenchWorker], work: float, seconds: float, contender: str) -> Slice:
    begin = _clock() + 0.02
    start, end = begin + WARM_UP, begin + WARM_UP + seconds
    order = _Order(contender, f"{PREFIX}crowd:{contender}", work, begin, end)
    for worker in crowd:
        worker.tell(order)
    everyone = [_turns(packed, start, end) for worker in crowd for packed in worker.hear()]
    all_turns = [turn for each in everyone for turn in each]
    waits = [turn.got - turn.asked for turn in all_turns]
    late = overtakings(all_turns, SLACK) if all_turns and all_turns[0].fence else 0
    return Slice(sum(1 for turn in all_turns if turn.got < end) / seconds, jain([len(each) for each in everyone]), waits, late)


def _turns(packed: tuple[bytes, bytes, bytes], start: float, end: float) -> list[Turn]:
    """Decode the acquisitions of a thread or task that belong to the round from ``start`` to ``end``.

    An acquisition belongs to the round if it was asked for before ``end`` and succeeded after ``start``. So the longest waits
    are included.
    """
    asked, got, fences = array("d"), array("d"), array("q")
    asked.frombytes(packed[0])
    got.frombytes(packed[1])
    fences.frombytes(packed[2])
    return [Turn(*turn) for turn in zip(asked, got, fences, strict=True) if turn[1] >= start and turn[0] < end]


def _row(group: str, name: str, slices: Sequence[Slice], commands: float) -> Row:
    waits = [wait for each in slices for wait in each.waits] or [float("inf")]
    middle = quantile(waits, 0.5)
    values = {
        "per_second": median(each.per_second for each in slices),
        "p50_ms": 1000 * middle,
        "p999_ms": 1000 * quantile(waits, 0.999),
        "longest_ms": 1000 * max(waits),
        "tail": quantile(waits, 0.999) / middle,
        "jain": median(each.jain for each in slices),
        "commands": commands,
        "n": float(len(waits)),
    }
    return Row(name, values, group, [each.per_second for each in slices])


def _judge(result: Result, group: str, work: bool, found: dict[str, list[Slice]]) -> None:
    ours, fair = (OURS, FAIR) if OURS in found else (OURS_AIO, FAIR_AIO)
    rates = {name: result.value(name, "per_second", group) or 0.0 for name in found}
    best = max((name for name in found if not name.startswith("holdfast")), key=lambda name: rates[name])
    result.compare(f"{group}: {ours} / {best}, per second", rates[ours], rates[best], "≥", 1.0)
    longest = result.value(ours, "longest_ms", group)
    theirs = result.value(PYTHON_REDIS_LOCK, "longest_ms", group)
    result.compare(f"{group}: {ours} / {PYTHON_REDIS_LOCK}, longest wait", longest, theirs, "≤", 0.5)
    if REDIS_PY in found:
        result.compare(f"{group}: {REDIS_PY} / {ours}, longest wait", result.value(REDIS_PY, "longest_ms", group), longest)
    result.figures.append(Figure(f"{group}: {ours}, Jain index", result.value(ours, "jain", group) or 0.0, "", "≥", 0.98))
    tail = result.value(fair, "tail", group)
    if tail is not None:
        name = f"{group}: {fair}, p99.9 / median wait"
        result.figures.append(Figure(name, tail, "", "≤", 1.5) if work else Figure(name, tail))
        late = sum(each.overtaken for each in found[fair])
        result.figures.append(Figure(f"{group}: {fair}, granted before a request that came {1000 * SLACK:g} ms earlier", late))


def overtakings(turns: Sequence[Turn], slack: float = 0.0) -> int:
    """Return how many acquisitions were overtaken.

    Fences show the order in which the server grants the lock. Acquisition A was overtaken by acquisition B if B has a lower
    fence, although B was requested more than ``slack`` seconds after A.
    """
    found = 0
    latest_ask = float("-inf")  # of the acquisitions with a lower fence than this one
    for turn in sorted(turns, key=lambda turn: turn.fence):
        if turn.asked + slack < latest_ask:
            found += 1
        latest_ask = max(latest_ask, turn.asked)
    return found


def _order(url: str, crowd: Sequence[BenchWorker], name: str) -> Figure:
    with Wiretap(url) as tap:
        _round(crowd, 0.0, TAPPED, name)
    arrivals, wrong = replay(tap.seen, f"{PREFIX}crowd:{name}")
    return Figure(f"{name}: {arrivals} arrivals in the server's queue; served out of turn", wrong, "", "=", 0)


def replay(seen: Sequence[SeenCommand], name: str) -> tuple[int, int]:
    """Reconstruct a lock's queue from recorded commands.

    Return how many waiters joined the queue, and how often a client got the lock although another one was first.
    """
    lock, _, queue = (key.decode() for key in lock_keys(name, "hf:", None))
    line: list[str] = []
    arrivals = wrong = 0
    for command in seen:
        if command.source != "lua" or not command.arguments:
            continue
        if command.name == "ZADD" and command.arguments[0] == queue and command.arguments[-1] not in line:
            line.append(command.arguments[-1])
            arrivals += 1
        elif command.name == "SET" and command.arguments[0] == lock:
            token = command.arguments[1]
            wrong += bool(line) and line[0] != token
            if token in line:
                line.remove(token)
    return arrivals, wrong


# The processes of the crowd, which only record their acquisitions.


class _Notes:
    """The acquisitions of a thread or task."""

    def __init__(self) -> None:
        self.asked, self.got, self.fences = array("d"), array("d"), array("q")

    def note(self, asked: float, got: float, lock: object) -> None:
        self.asked.append(asked)
        self.got.append(got)
        self.fences.append(fence(lock) or 0)

    def packed(self) -> tuple[bytes, bytes, bytes]:
        return self.asked.tobytes(), self.got.tobytes(), self.fences.tobytes()


def _serve_threads(pipe: Connection, url: str) -> None:
    def take(lock: AnyLock, order: _Order, notes: _Notes) -> None:
        time.sleep(max(0.0, order.start - _clock()))
        while (asked := _clock()) < order.end:
            lock.acquire()
            notes.note(asked, _clock(), lock)
            if order.work:
                time.sleep(order.work)
            lock.release()

    with Threads(url) as makers:
        pipe.send(list(makers.make))
        while True:
            order: _Order = pipe.recv()
            notes = [_Notes() for _ in range(EACH)]
            locks = [makers.make[order.contender](order.key) for _ in notes]
            crowd = [threading.Thread(target=take, args=(lock, order, each)) for lock, each in zip(locks, notes, strict=True)]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
            pipe.send([each.packed() for each in notes])


def _serve_tasks(pipe: Connection, url: str) -> None:
    async def take(lock: AnyAsyncLock, order: _Order, notes: _Notes) -> None:
        await asyncio.sleep(max(0.0, order.start - _clock()))
        while (asked := _clock()) < order.end:
            await lock.acquire()
            notes.note(asked, _clock(), lock)
            if order.work:
                await asyncio.sleep(order.work)
            await lock.release()

    async def serve() -> None:
        async with Tasks(url) as makers:
            pipe.send(list(makers.make))
            while True:
                order: _Order = pipe.recv()  # this blocks the event loop, but nobody uses a lock between two rounds
                notes = [_Notes() for _ in range(EACH)]
                locks = [makers.make[order.contender](order.key) for _ in notes]
                await asyncio.gather(*(take(lock, order, each) for lock, each in zip(locks, notes, strict=True)))
                pipe.send([each.packed() for each in notes])

    asyncio.run(serve())
