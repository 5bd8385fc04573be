"""Threads that acquire one lock again and again. Each acquisition is recorded with its time and its fence."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from support.witness import in_thread


class Turn(NamedTuple):
    """One acquisition. Times in seconds, of one clock for all processes."""

    fence: int
    began: float
    ended: float
    who: object


class Crowd:
    """Threads and tasks of this process on one lock. ``work``: seconds that each of them has it."""

    def __init__(self, make: Callable[[], Any], make_aio: Callable[[], Any] | None = None, work: float = 0.0) -> None:
        self.turns: list[Turn] = []
        self._make = make
        self._make_aio = make_aio
        self._work = work
        self._stop = threading.Event()
        self._futures: list[Future[None]] = []

    def threads(self, count: int, turns: float = float("inf")) -> None:
        """So many of them, until each has had its turns, or `stop` is called."""
        self._futures += [in_thread(self._take_turns, number, turns) for number in range(count)]

    def loop(self, tasks: int, turns: float = float("inf"), then: Callable[[], object] = lambda: None) -> None:
        """The same, as tasks of an event loop. ``then``: what is waited for before that loop ends."""
        self._futures.append(in_thread(asyncio.run, self._loop(tasks, turns, then)))

    def stop(self) -> None:
        self._stop.set()

    def done(self, seconds: float = 20) -> list[Turn]:
        """Wait for all of them; what they had, by fence, which is the order of time: nobody had it while another did."""
        for future in self._futures:
            future.result(seconds)
        in_order(self.turns)
        return sorted(self.turns)

    def _take_turns(self, number: int, turns: float) -> None:
        lock = self._make()
        while turns > 0 and not self._stop.is_set():
            turns -= 1
            with lock as lease:
                began = time.monotonic()
                if self._work:
                    time.sleep(self._work)
                lease.check()
                self.turns.append(Turn(lease.fence, began, time.monotonic(), number))

    async def _loop(self, tasks: int, turns: float, then: Callable[[], object]) -> None:
        assert self._make_aio is not None
        locks = [self._make_aio() for _ in range(tasks)]
        async with asyncio.TaskGroup() as group:
            for lock in locks:
                group.create_task(self._take_turns_in_loop(lock, turns))
        await asyncio.to_thread(then)

    async def _take_turns_in_loop(self, lock: Any, turns: float) -> None:
        while turns > 0 and not self._stop.is_set():
            turns -= 1
            async with lock as lease:
                began = time.monotonic()
                await asyncio.sleep(self._work)
                lease.check()
                self.turns.append(Turn(lease.fence, began, time.monotonic(), lock))


def in_order(turns: list[Turn]) -> None:
    """Fences rise in the order of the turns, and no two turns overlap."""
    turns = sorted(turns)
    for before, after in itertools.pairwise(turns):
        assert before.fence < after.fence
        assert before.ended <= after.began, "two at once"
