"""A crowd on one lock: processes that take it, give it back and come again at once, as fast as they can.

Who comes when is known from both ends. Each process notes when it asked, when it stood in the queue, when it had the lock
and with which fence: whoever stood in line before another one asked must get a lower fence. And in a second, shorter run
the server's own record (MONITOR) is replayed, in which every arrival and every grant has its place.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import holdfast
from benchmarks.report import Figure, Section, Times, quantile
from benchmarks.rivals import RIVALS, TTL
from benchmarks.wiretap import Seen, Wiretap
from holdfast._core.names import lock_keys

WARM_UP = 0.5
"""Seconds not counted: opening connections, and processes that start one after the other."""

SPACE = multiprocessing.get_context("spawn")
INFINITY = float("inf")


class Turn(NamedTuple):
    """One acquisition. Times in seconds of the machine's monotonic clock."""

    asked: float
    queued: float
    """When the server's word was here that we stand in line; infinity: never did, the lock was free."""
    got: float
    released: float
    fence: int


def measure(url: str, *, processes: int, seconds: float, rivals: float) -> Section:
    """``seconds`` of holdfast, and ``rivals`` seconds each of the others."""
    section = Section(f"3. {processes} processes for {seconds:g} s on one lock")
    for name in RIVALS:
        turns = _run(url, name, processes, seconds if name == "holdfast" else rivals)
        waits = [turn.got - turn.asked for each in turns for turn in each]
        section.times.append(Times.of(f"wait, {name}", waits))
        section.figures += _figures(name, turns, waits)
    with Wiretap(url) as tap:
        _run(url, "holdfast", processes, min(2.0, seconds))
    arrivals, wrong = replay(tap.seen, "bench:crowd:holdfast")
    section.figures.insert(0, Figure(f"order of {arrivals} arrivals on the server: wrong", wrong, "", "=", 0))
    section.notes.append(
        f"counted after {WARM_UP} s of warm-up; each holds the lock for no longer than it takes to note the time"
    )
    return section


def _figures(name: str, turns: Sequence[Sequence[Turn]], waits: list[float]) -> list[Figure]:
    counts = [len(each) for each in turns]
    everyone = sorted((turn for each in turns for turn in each), key=lambda turn: turn.got)
    span = everyone[-1].got - everyone[0].got
    figures = [
        Figure(f"{name}: acquisitions per second", len(waits) / span, "/s"),
        Figure(f"{name}: Jain index", jain(counts)),
        Figure(f"{name}: p99 / median wait", quantile(waits, 0.99) / quantile(waits, 0.5)),
        Figure(f"{name}: longest wait", 1000 * max(waits), "ms"),
    ]
    if name != "holdfast":
        return figures
    for figure, relation, target in zip(figures[1:], "≥≤≤", (0.99, 3.0, 100.0), strict=True):
        figures[figures.index(figure)] = Figure(figure.name, figure.value, figure.unit, relation, target)
    overlaps = sum(1 for one, two in pairwise(everyone) if two.got < one.released or two.fence <= one.fence)
    figures.append(Figure("holdfast: two holders, or a fence that did not rise", overlaps, "", "=", 0))
    figures.append(Figure("holdfast: somebody who came later was served first", overtakings(everyone), "", "=", 0))
    return figures


def jain(counts: Sequence[int]) -> float:
    """Jain's index of fairness: 1 when all have got the same, 1/n when one has got all."""
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts)) if any(counts) else 0.0


def overtakings(turns: Sequence[Turn]) -> int:
    """How many were served (had a lower fence) before somebody who stood in line already when they asked."""
    found = 0
    latest_ask = -INFINITY  # of all with a lower fence
    for turn in sorted(turns, key=lambda turn: turn.fence):
        if turn.queued < latest_ask:
            found += 1
        latest_ask = max(latest_ask, turn.asked)
    return found


def replay(seen: Sequence[Seen], name: str) -> tuple[int, int]:
    """Arrivals in the queue, and grants out of turn, by the commands that the scripts sent."""
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


def _run(url: str, name: str, processes: int, seconds: float) -> list[list[Turn]]:
    workers: list[tuple[BaseProcess, Connection]] = []
    for _ in range(processes):
        ours, theirs = SPACE.Pipe()
        worker: BaseProcess = SPACE.Process(target=_work, args=(url, name, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers.append((worker, ours))
    for _, pipe in workers:
        pipe.recv()
    start = time.monotonic() + 0.1
    for _, pipe in workers:
        pipe.send((start, start + WARM_UP + seconds))
    found = [[Turn(*turn) for turn in pipe.recv() if turn[0] >= start + WARM_UP] for _, pipe in workers]
    for worker, _ in workers:
        worker.join()
    return found


def _work(url: str, name: str, pipe: Connection) -> None:
    """One of the crowd. Notes everything, judges nothing."""
    queued = [INFINITY]
    key = f"bench:crowd:{name}"
    if name == "holdfast":
        lock = holdfast.Lock(url, key, ttl=TTL)
        _note_queued(queued)
    else:
        lock = RIVALS[name](url, key)  # type: ignore[assignment]
    turns: list[tuple[float, ...]] = []
    clock = time.monotonic
    pipe.send(None)
    start, end = pipe.recv()
    time.sleep(max(0.0, start - clock()))
    while (asked := clock()) < end:
        queued[0] = INFINITY
        lock.acquire()
        got = clock()
        lease = getattr(lock, "lease", None)
        fence = lease.fence if lease is not None else 0
        released = clock()
        lock.release()
        turns.append((asked, queued[0], got, released, fence))
    pipe.send(turns)


def _note_queued(queued: list[float]) -> None:
    """Have the moment noted at which this process learns that it stands in the server's queue."""
    from holdfast._drive.keeper import Keeper

    joined = Keeper.joined

    def noting(self: Keeper, *arguments: object) -> None:
        queued[0] = time.monotonic()
        joined(self, *arguments)  # type: ignore[arg-type]

    Keeper.joined = noting  # type: ignore[method-assign, assignment]
