"""Measure hand-over: the time from the start of a release until the only waiting process holds the lock.

Both processes read the machine's monotonic clock. The lower bound is a bare PUBLISH that wakes a process blocked in recv().
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from multiprocessing.connection import Connection
from typing import Protocol

from holdfast_lab.bench.bare import Bare, pack
from holdfast_lab.bench.plan import PREFIX, Plan
from holdfast_lab.bench.report import Figure, Result, quantile, times
from holdfast_lab.bench.rivals import OURS, PYTHON_REDIS_LOCK, REDIS_PY, AnyLock, Threads
from holdfast_lab.bench.wiretap import Wiretap
from holdfast_lab.bench.workers import BenchWorker, workers

WAKE = "bare PUBLISH to a process blocked in recv()"
CHANNEL = f"{PREFIX}wake"

SLOW = {REDIS_PY, PYTHON_REDIS_LOCK}
"""Contenders that run only in every third round. Each hand-over follows a longer pause.

The Lock of redis-py polls ten times a second, so its hand-over takes up to 0.1 s. python-redis-lock does not poll, but is
treated the same way.
"""


class Makers(Protocol):
    """Functions that create locks for threads, by contender."""

    @property
    def make(self) -> Mapping[str, Callable[[str], AnyLock]]: ...


def measure(plan: Plan) -> Result:
    result = Result("hand-over to one waiting process", chart="p50_ms")
    with workers(1, follow, plan.url, Threads) as (follower,), Threads(plan.url) as makers, closing(Bare(plan.url)) as server:
        follower.hear()
        leader = Leader(plan.url, follower, makers, server)
        found: dict[str, list[float]] = {name: [] for name in (*makers.make, WAKE)}
        for number in range(max(3, int(30 * plan.seconds)) + 1):
            for name, noted in found.items():
                if name not in SLOW or number % 3 == 0:
                    taken = leader.hand_over(name)
                    if number:  # the first round opens connections, so it is not counted
                        noted.append(taken)
        result.rows = [times(name, noted) for name, noted in found.items() if noted]
        for row in result.rows:
            if row.contender != WAKE:
                row.values["idle_commands"] = leader.watch(row.contender, plan)
    medians = {name: quantile(noted, 0.5) for name, noted in found.items() if noted}
    result.compare(f"{OURS} / bare wake, p50", medians[OURS], medians[WAKE], "≤", 1.5)
    result.compare(f"{REDIS_PY} / {OURS}, p50", medians.get(REDIS_PY), medians[OURS])
    idle = result.value(OURS, "idle_commands") or 0.0
    result.figures.append(Figure(f"{OURS}: commands while one process waits", idle, "/s", "≤", 1.1))
    return result


class Leader:
    """The holder in this process, which hands each lock over to the waiting process."""

    def __init__(self, url: str, follower: BenchWorker, makers: Makers, server: Bare) -> None:
        self._url, self._follower = url, follower
        self._locks = {name: make(_key(name)) for name, make in makers.make.items()}
        self._bare = server

    def hand_over(self, name: str) -> float:
        """Release the lock of contender ``name``; for `WAKE`, publish a message. Return the seconds until the waiter woke."""
        self._await_follower(name)
        # Long enough that the follower waits. A fixed pause would make a polling lock look better or worse.
        time.sleep(0.02 + random.uniform(0, 0.1 if name in SLOW else 0.01))
        lock = self._locks.get(name)
        publish = pack("PUBLISH", CHANNEL, "x")
        start = time.monotonic()
        if lock is None:
            self._bare.exchange(publish)
        else:
            lock.release()
        woken: float = self._follower.hear()
        self._follower.hear()
        return woken - start

    def watch(self, name: str, plan: Plan) -> float:
        """Return the number of requests per second that name the lock, while the other process waits for it."""
        self._await_follower(name)
        time.sleep(min(1.2, plan.watch))  # let the follower join the queue and open its inbox
        with Wiretap(self._url) as tap:
            time.sleep(plan.watch)
        self._locks[name].release()
        self._follower.hear()
        self._follower.hear()
        return sum(any(_key(name) in argument for argument in seen.arguments) for seen in tap.from_clients) / plan.watch

    def _await_follower(self, name: str) -> None:
        lock = self._locks.get(name)
        if lock is not None:
            assert lock.acquire() is not False
        self._follower.ask(name)


def _key(name: str) -> str:
    return f"{PREFIX}handover:{name}"


def follow(pipe: Connection, url: str, locks_of: Callable[[str], AbstractContextManager[Makers]]) -> None:
    """Run the waiting process. It waits for each lock, or for the message `WAKE`, that the pipe names.

    It reports three times: that it begins to wait, the time at which it woke, and that it has released the lock.
    """
    with closing(Bare(url)) as bare, locks_of(url) as makers:
        bare("SUBSCRIBE", CHANNEL)
        locks = {name: make(_key(name)) for name, make in makers.make.items()}
        pipe.send(None)
        while True:
            name = pipe.recv()
            pipe.send(None)
            if name == WAKE:
                bare.read()
                woken = time.monotonic()
            else:
                lock = locks[name]
                lock.acquire()
                woken = time.monotonic()
                lock.release()
            pipe.send(woken)
            pipe.send(None)
