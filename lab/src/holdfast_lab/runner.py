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
from typing import Any, NamedTuple

from holdfast.testing.history import FAULTS
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.sim.rare import THEMES
from holdfast_lab.sim.theme import Theme
from holdfast_lab.swarms import break_lock as break_lock_swarm
from holdfast_lab.swarms import election as election_swarm
from holdfast_lab.swarms import lock as lock_swarm
from holdfast_lab.swarms import multilock as multilock_swarm
from holdfast_lab.swarms import permit as permit_swarm
from holdfast_lab.swarms import quorum as quorum_swarm
from holdfast_lab.swarms import rendezvous as rendezvous_swarm
from holdfast_lab.swarms import schedule as schedule_swarm
from holdfast_lab.swarms import single_flight as single_flight_swarm
from holdfast_lab.swarms import ticket as ticket_swarm
from holdfast_lab.swarms.result import Run
from holdfast_lab.wired import seeds as wired
from holdfast_lab.wired.histories import FAULTS as FAULTS_OF_DRIVERS

BATCH = 100
"""Number of seeds that a process simulates before it reports its results."""

ENOUGH = {
    "contended": 100,
    "handed_over": 100,
    "again": 100,
    "renewed": 100,
    "expired": 20,
    "lost": 20,
    "refused": 10,
    "died_holding": 10,
    **{f"fault {kind} while held": 5 for kind in sorted(FAULTS)},
}
"""Minimum counts of events in 1,000 histories of the lock swarm. With lower counts, the histories prove nothing."""

ENOUGH_OF_SCHEDULES = {
    "script schedule/serve": 10_000,
    "script lock/renew": 1_000,
    "tick ok": 3_000,
    "tick cancelled": 30,
    "tick crashed": 50,
    "tick skipped": 300,
    "tick missed": 100,
    "tick timed-out": 100,
    "tick attempts": 50,
}
"""Minimum counts in 1,000 histories of schedules. They count runs of scripts, and ticks by their outcome."""

ENOUGH_OF_QUORUM = {
    **{name: count for name, count in ENOUGH.items() if name != "handed_over"},
    "died_holding": 3,
    "passed": 50,
    "script quorum/confirm": 500,
    "script lock/renew": 500,
}
"""Minimum counts of events in 1,000 histories of a lock on several servers."""

ENOUGH_OF_FLIGHTS = {
    "flight found": 2000,
    "flight load": 1000,
    "flight waited": 200,
    "flight stale": 20,
    "flight refused land": 100,
    "flight aborted": 200,
    "flight voided": 200,
    "flight died loading": 10,
    **{f"script single_flight/{name}": 200 for name in ("get_or_lease", "store", "cancel_load")},
    **{f"script single_flight/{name}": 50 for name in ("delete", "invalidate")},
}
"""Minimum counts of events in 1,000 histories of single flight."""

ENOUGH_OF_ELECTIONS = {
    "election seen": 4000,
    "election seen nobody": 1500,
    "election elected": 2500,
    "election not elected": 400,
    "election handed": 150,
    "election kept": 400,
    "election cancelled": 5,
    **{f"script election/{name}": 200 for name in ("join", "proclaim", "observe", "transfer", "notify_observers")},
}
"""Minimum counts of events in 1,000 histories of elections."""

ENOUGH_OF_MEETINGS = {
    "script rendezvous/barrier": 15_000,
    "script rendezvous/latch": 5_000,
    **{f"meeting {kind}": 500 for kind in ("through", "acted", "released", "unreleased", "counted", "opened", "closed")},
    **{f"meeting {why}": 50 for why in ("timeout", "abort", "reset", "action", "died", "away")},
    "meeting crashed": 100,
    "meeting cancelled": 20,
    "meeting uncounted": 20,
}
"""Minimum counts of events in 1,000 histories of barriers, latches and events."""

ENOUGH_OF_BREAKING = {
    "contended": 100,
    "break done": 300,
    "break told": 150,
    "break handed over": 100,
    "break refused": 50,
    "script inspect/break_lock": 300,
}
"""Minimum counts of events in 1,000 histories in which an operator breaks locks."""

ENOUGH_OF_PERMITS = {
    "contended": 1000,
    "handed_over": 300,
    "renewed": 300,
    "expired": 30,
    "lost": 30,
    "died_holding": 10,
    "permits shared": 500,
    "permits downgraded": 20,
    "permits limit": 300,
    "permits refused": 100,
    **{f"script permit/{name}": 300 for name in ("acquire", "refresh", "release", "renew")},
    **{f"script permit/{name}": 20 for name in ("change", "limit")},
}
"""Minimum counts of events in 1,000 histories of semaphores and read-write locks."""

ENOUGH_OF_TICKETS = {
    "contended": 100,
    "renewed": 100,
    "lost": 20,
    "died_holding": 5,
    "ticket issued": 2000,
    "ticket redeemed": 1500,
    "ticket used": 500,
    "ticket lost": 300,
    "ticket expired": 100,
    "script lock/exchange_token": 5000,
}
"""Minimum counts of events in 1,000 histories of locks that are handed over by tickets."""

ENOUGH_OF_SEVERAL_LOCKS = {
    **{name: count for name, count in ENOUGH.items() if name != "again" and not name.startswith("fault ")},
    "several taken": 1000,
    "several not taken": 200,
    "script lock/multi_acquire": 2000,
    "script lock/multi_release": 500,
}
"""Minimum counts of events in 1,000 histories of MultiLocks."""


ENOUGH_OF_DRIVERS = {
    **{f"wired {fault}": 500 for fault in FAULTS_OF_DRIVERS},
    "wired closed": 100,
    "wired taken": 1000,
    "wired renewed": 500,
    "wired released": 500,
    "wired answered": 2000,
    "wired answered by link": 2000,
    "wired cancelled": 50,
    "script EVAL": 1000,
    "script EVALSHA": 5000,
    "script SUBSCRIBE": 500,
}
"""Minimum counts of events and of commands in 1,000 histories of the real drivers over scripted sockets."""


OF_ANY_LOCK = ("R2", "R3", "R5", "R6", "R6 end", "R7 end", "R9", "R12", "R14")
"""Rules of every lock, with one or several holders, on one or several servers. "R6 end" names a part of rule R6."""

OF_ONE_SERVER = (*OF_ANY_LOCK, "R6 told", "R8", "R8 place", "R13", "R15")
"""Rules of a lock that one server grants in the order of its queue."""

OF_A_LOCK = (*OF_ONE_SERVER, "R1", "R4", "R7", "R7 claim", "R8 line", "R8 pass", "R16", "R16 refused")
"""Rules of a lock on one server that a process may hand on among its workers."""


class Swarm(NamedTuple):
    simulate: Callable[..., Run[Any]]
    enough: Mapping[str, int]
    """Minimum counts of events in 1,000 histories."""
    rules: tuple[str, ...]
    """Rules that must judge some cases. A rule that excuses every case proves nothing."""


SWARMS = {
    "lock": Swarm(lock_swarm.simulate, ENOUGH, (*OF_A_LOCK, "R15 resent", "R19")),
    "multilock": Swarm(multilock_swarm.simulate, ENOUGH_OF_SEVERAL_LOCKS, (*OF_A_LOCK, "R15 resent", "M1")),
    "quorum": Swarm(quorum_swarm.simulate, ENOUGH_OF_QUORUM, (*OF_ANY_LOCK, "R1", "R4", "R7", "R19")),
    "single_flight": Swarm(
        single_flight_swarm.simulate, ENOUGH_OF_FLIGHTS, ("S1", "S1 old", "S2", "S3", "S3 lost", "S4", "S5")
    ),
    "schedule": Swarm(
        schedule_swarm.simulate,
        ENOUGH_OF_SCHEDULES,
        ("S1", "S2", "S3", "S4", "S5", "S6", "S6 prompt", "S7", "S7 peace", "S8", "S9"),
    ),
    "election": Swarm(election_swarm.simulate, ENOUGH_OF_ELECTIONS, ("E1", "E2", "E3", "E4", "E5", "E6", "E7")),
    "rendezvous": Swarm(
        rendezvous_swarm.simulate,
        ENOUGH_OF_MEETINGS,
        ("B0", "B1", "B1 left", "B2", "B3", "B4", "B4 told", "B9", "L1", "L2", "L3", "L4"),
    ),
    "permit": Swarm(permit_swarm.simulate, ENOUGH_OF_PERMITS, (*OF_ONE_SERVER, "R17", "R18")),
    "ticket": Swarm(ticket_swarm.simulate, ENOUGH_OF_TICKETS, (*OF_A_LOCK, "T1", "T3")),
    "break_lock": Swarm(break_lock_swarm.simulate, ENOUGH_OF_BREAKING, (*OF_A_LOCK, "R19", "K1", "K2", "K3")),
    "wired": Swarm(wired.simulate, ENOUGH_OF_DRIVERS, ("T1", "T2", "T3", "T4")),
}

JUDGED_IN = 2000
"""Number of histories of a swarm after which every rule must have judged at least one case."""


def enough(of: str) -> Mapping[str, int]:
    """Return the minimum counts of a swarm. ``of`` is its name, such as ``election`` or, with a theme,
    ``election+forgetful``."""
    return swarm_of(of).enough


def swarm_of(name: str) -> Swarm:
    """Return a swarm by its name, such as ``election`` or, with a theme, ``election+forgetful``.

    Raises KeyError if there is no such swarm or theme.
    """
    of, _, theme = name.partition("+")
    return _themed(SWARMS[of], THEMES[theme], of) if theme else SWARMS[of]


def _themed(swarm: Swarm, theme: Theme, of: str) -> Swarm:
    def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None) -> Run[Any]:
        run = swarm.simulate(seed, trace=trace, coverage=coverage, theme=theme)
        run.counts += theme.counts(run.world)
        return run

    rules = (*(rule for rule in swarm.rules if rule not in theme.unjudged), *theme.more_rules)
    return Swarm(simulate, theme.swarms[of], rules)


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
    """Seeds that violate a rule, each with its first violation."""

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

    ``jobs`` is the number of processes (None: one per core). If ``histories`` fit into one batch, no process is started. The
    run ends after ``histories`` histories or ``seconds`` seconds, whichever comes first (None: no such limit). ``progress`` is
    called after each batch, with the results so far.
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
