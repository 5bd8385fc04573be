"""Many seeds on all cores: how many histories a second, what happened in them, and which seeds violate something."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from holdfast.testing import swarm
from holdfast.testing.history import FAULTS
from holdfast.testing.judge.coverage import Coverage

BATCH = 100
"""Seeds that one process does before it reports."""

ENOUGH = {
    "contended": 100,
    "handed_over": 100,
    "renewed": 100,
    "expired": 20,
    "lost": 20,
    "refused": 10,
    "died_holding": 10,
    **{f"fault {kind} while held": 5 for kind in sorted(FAULTS)},
}
"""Rule R11: what has to happen in 1,000 histories at least, or they have proved nothing."""


@dataclass(slots=True)
class Tally:
    """What came of some seeds."""

    histories: int = 0
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Of a processor, added up: other programs that want it too do not count."""
    coverage: Coverage = field(default_factory=Coverage)
    failed: list[tuple[int, str]] = field(default_factory=list)
    """Seeds with what they violate."""

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.calls += other.calls
        self.steps += other.steps
        self.seconds += other.seconds
        self.coverage += other.coverage
        self.failed += other.failed

    def missing(self) -> list[str]:
        """What has happened too rarely for the verdict to mean anything (R11)."""
        share = min(1.0, self.histories / 1000)
        return self.coverage.missing({name: max(1, int(count * share)) for name, count in ENOUGH.items()})


def batch(first: int, count: int) -> Tally:
    """Some seeds, one after the other."""
    tally = Tally()
    gc.freeze()  # what was imported is not looked at again and again
    started = time.process_time()
    for seed in range(first, first + count):
        run = swarm.simulate(seed, coverage=tally.coverage)
        tally.calls += sum(server.calls for server in run.world.servers)
        tally.steps += run.world.steps
        if run.violations:
            tally.failed.append((seed, str(run.violations[0])))
    tally.histories = count
    tally.seconds = time.process_time() - started
    return tally


def campaign(
    *,
    first: int = 0,
    histories: int | None = None,
    seconds: float | None = None,
    jobs: int | None = None,
    progress: Callable[[Tally], None] | None = None,
) -> Tally:
    """Seeds from ``first`` on, until so many histories or seconds (whichever comes first), on ``jobs`` processes."""
    jobs = jobs or os.cpu_count() or 1
    total = Tally()
    deadline = time.monotonic() + (seconds if seconds is not None else float("inf"))
    todo = _batches(first, histories)
    # Not by fork: a forked child would inherit whatever threads and sockets the caller has.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Tally]] = set()
        more = True
        while running or more:
            while more and len(running) < jobs + 1:
                following = next(todo, None)
                more = following is not None and time.monotonic() < deadline
                if following is not None and more:
                    running.add(pool.submit(batch, *following))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            if done and progress is not None:
                progress(total)
    total.failed.sort()
    return total


def _batches(first: int, histories: int | None) -> Iterator[tuple[int, int]]:
    end = None if histories is None else first + histories
    while end is None or first < end:
        yield first, BATCH if end is None else min(BATCH, end - first)
        first += BATCH
