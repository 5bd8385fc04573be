"""Simulate many seeds on all cores. Count the histories and their events, and list the seeds that violate a rule."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.sim.rare import THEMES
from holdfast_lab.swarms import (
    break_lock,
    election,
    lock,
    multilock,
    permit,
    quorum,
    rendezvous,
    schedule,
    single_flight,
    ticket,
)
from holdfast_lab.swarms.swarm import Swarm
from holdfast_lab.wired import seeds as wired

BATCH = 100
"""Number of seeds that a process simulates before it reports its results."""

SWARMS = {
    "lock": lock.SWARM,
    "multilock": multilock.SWARM,
    "quorum": quorum.SWARM,
    "single_flight": single_flight.SWARM,
    "schedule": schedule.SWARM,
    "election": election.SWARM,
    "rendezvous": rendezvous.SWARM,
    "permit": permit.SWARM,
    "ticket": ticket.SWARM,
    "break_lock": break_lock.SWARM,
    "wired": wired.SWARM,
}

JUDGED_IN = 2000
"""In this many histories of a swarm, every rule must have judged at least one case."""


def enough(of: str) -> Mapping[str, int]:
    """Return the minimum counts of events in 1,000 histories of a swarm.

    ``of`` is the name of the swarm, such as ``election`` or, with a theme, ``election+forgetful``.
    """
    return swarm_of(of).enough


def swarm_of(name: str) -> Swarm:
    """Return a swarm by its name, such as ``election`` or, with a theme, ``election+forgetful``.

    Raises KeyError if there is no such swarm or theme.
    """
    of, _, theme = name.partition("+")
    return SWARMS[of].under(THEMES[theme], of) if theme else SWARMS[of]


@dataclass(slots=True)
class RunnerTotals:
    """The results of many simulated seeds, added up."""

    histories: int = 0
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Processor time of all processes of the run, in seconds."""
    coverage: Coverage = field(default_factory=Coverage)
    counts: Counter[str] = field(default_factory=Counter)
    """Counts by name. "script lock/renew" counts calls of a script, and "tick ok" counts runs of jobs that succeeded."""
    failed: list[tuple[int, str]] = field(default_factory=list)
    """The seeds whose histories violate a rule, each with the first violation."""

    def add(self, other: RunnerTotals) -> None:
        self.histories += other.histories
        self.calls += other.calls
        self.steps += other.steps
        self.seconds += other.seconds
        self.coverage += other.coverage
        self.counts += other.counts
        self.failed += other.failed

    def missing(self, of: str = "lock") -> list[str]:
        """Describe each event that was too rare for the histories to prove anything.

        If at least `JUDGED_IN` histories were simulated, also describe each rule that judged no case.
        """
        share = min(1.0, self.histories / 1000)
        least = {name: max(1, int(count * share)) for name, count in enough(of).items()}
        counted = {name: count for name, count in least.items() if " " in name and not name.startswith("fault ")}
        rare = [f"{name}: {self.counts[name]} of {count}" for name, count in counted.items() if self.counts[name] < count]
        rare += [f"{rule} has judged nothing" for rule in self.unjudged(of)]
        return self.coverage.missing({name: count for name, count in least.items() if name not in counted}) + rare

    def unjudged(self, of: str) -> list[str]:
        """Return the rules that judged no case. After fewer than `JUDGED_IN` histories, the list is empty."""
        judged = self.coverage.docket.judged
        return [rule for rule in swarm_of(of).rules if not judged[rule]] if self.histories >= JUDGED_IN else []


def batch(first: int, count: int, of: str = "lock") -> RunnerTotals:
    """Simulate ``count`` seeds of the swarm ``of``, from ``first`` on."""
    tally = RunnerTotals()
    simulate = swarm_of(of).simulate
    gc.freeze()  # after this, garbage collections skip the imported modules
    started = time.process_time()
    for seed in range(first, first + count):
        run = simulate(seed, coverage=tally.coverage)
        for server in run.world.servers:
            tally.calls += server.calls
            tally.counts.update({f"script {name}": count for name, count in server.asked_for.items()})
        tally.steps += run.world.steps
        tally.counts += run.counts
        if run.violations:
            tally.failed.append((seed, str(run.violations[0])))
    tally.histories = count
    tally.seconds = time.process_time() - started
    return tally


def run_seeds(
    *,
    first: int = 0,
    histories: int | None = None,
    seconds: float | None = None,
    jobs: int | None = None,
    progress: Callable[[RunnerTotals], None] | None = None,
    of: str = "lock",
) -> RunnerTotals:
    """Simulate the seeds of the swarm ``of``, from ``first`` on.

    ``jobs`` is the number of processes (None: one per core). No process is started if ``jobs`` is 1, or if ``histories`` fit
    into one batch. The run ends after ``histories`` histories (None: no limit). No batch begins after ``seconds`` seconds
    (None: no limit). ``progress`` is called after each batch, with the results so far.
    """
    jobs = jobs or os.cpu_count() or 1
    total = RunnerTotals()
    deadline = time.monotonic() + (seconds if seconds is not None else float("inf"))
    todo = _batches(first, histories)
    if jobs == 1 or (histories is not None and histories <= BATCH):
        for following in todo:
            if time.monotonic() >= deadline:
                break
            total.add(batch(*following, of))
            if progress is not None:
                progress(total)
        total.failed.sort()
        return total
    # Processes are spawned: a forked child would inherit the caller's sockets, and locks of its threads.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[RunnerTotals]] = set()
        more = True
        while running or more:
            while more and len(running) < jobs + 1:
                next_batch = next(todo, None)
                more = next_batch is not None and time.monotonic() < deadline
                if next_batch is not None and more:
                    running.add(pool.submit(batch, *next_batch, of))
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
