"""Small scenarios of a lock, a semaphore and a read-write lock. The search runs every schedule of each scenario.

A scenario consists of the programs of its workers, and of the faults that may happen.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._core.lock.spec import Permits
from holdfast._core.permit import READING, WRITING, semaphore
from holdfast._core.requests import Sleep
from holdfast.testing.history import Event
from holdfast_lab import checkers
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.scenarios.scenario import Scenario, let_pass
from holdfast_lab.sim.leftovers import told_at_once, write_the_end
from holdfast_lab.sim.lock_client import Lease, Lock, spec
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import TaskCancelled, Worker

Program = Callable[[Worker, Lock], Coroutine[Any, Any, None]]

TTL = 2.0
"""Lease time of the locks, in seconds."""


def once(wait: float | None = None, hold: float = 0.0, *, by_hand: bool = False) -> Program:
    """Return a program that acquires the lock once, holds it for ``hold`` seconds, and releases it.

    It waits at most ``wait`` seconds (None: without limit). If ``by_hand`` is True, it also renews the lease explicitly.
    """

    async def program(_worker: Worker, lock: Lock) -> None:
        lease: Lease | None = None
        try:
            lease = await lock.acquire(wait)
            if lease is None:
                return
            lock.write(lease)
            if hold:
                await Sleep(hold)
                lock.write(lease)
            if by_hand:
                await lock.renew(lease)
            held, lease = lease, None
            await lock.release(held)
        except TaskCancelled:
            if lease is not None:
                await lock.release(lease)

    return program


def lowered() -> Program:
    """Return a program that acquires a read-write lock for writing, downgrades to reading, and releases the lock."""

    async def program(_worker: Worker, lock: Lock) -> None:
        lease: Lease | None = None
        try:
            lease = await lock.acquire(None)
            if lease is None:
                return
            await lock.downgrade(lease)
            held, lease = lease, None
            await lock.release(held)
        except TaskCancelled:
            if lease is not None:
                await lock.release(lease)

    return program


@dataclass(frozen=True)
class LockScenario(Scenario):
    """A scenario of a lock. Each program is run by a worker of its own, and each process has ``together`` workers."""

    together: int = 1
    ttl: float = TTL
    renew: bool = True
    brisk: bool = False
    """If True, the search tries fewer orders of steps (see `Stepwise.brisk`)."""
    warm: bool = False
    """True if each process is subscribed to notifications, and has its process record, when the scenario begins."""
    fair: bool = False
    """True if the lock is a FairLock, which is never handed on inside a process."""
    linger: float = 0.0
    max_passes: int = 32
    max_pass_time: float = 0.01
    permits: tuple[Permits, ...] = ()
    """The permits that each program acquires, in the order of the programs. Empty if the scenario is about a lock."""

    @property
    def limits(self) -> Limits:
        """The time limits of the rules. They are short, because messages take no time."""
        return Limits(
            handover=0.1,
            linger=self.linger,
            passes=self.max_passes,
            pass_time=self.max_pass_time,
            recall=not self.faults,
            permits=bool(self.permits),
        )

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(self.ttl, trace=trace, brisk=self.brisk)
        world.in_turn = self.api == "asyncio" and self.together > 1
        self.add_processes(world, Server(world), -(-len(self.programs) // self.together), warm=self.warm)
        sharing: dict[str, Any] = {"linger": self.linger, "max_passes": self.max_passes, "max_pass_time": self.max_pass_time}
        described = spec(ttl=self.ttl, renew=self.renew, **sharing)
        for number, program in enumerate(self.programs):
            worker = Worker(world.processes[number // self.together], str(number + 1))
            wanted = described._replace(permits=self.permits[number]) if self.permits else described
            worker.start(program(worker, Lock(worker, wanted, fair=self.fair or bool(self.permits))))
        return world

    def settle(self, world: Stepwise) -> None:
        """End a history whose workers have finished. Deliver messages, let the leases expire, and record leftovers."""
        world.budget = 0
        while steps := world.steps_now():
            steps[0].do()
        kept = world.now + self.linger + 0.001
        while world.due_by(kept) and (steps := world.options()):
            steps[0].do()
        told_at_once(world)
        let_pass(world, self.ttl + CLAIM_WINDOW_S + 3.0)
        write_the_end(world)

    def judge(self, history: list[Event]) -> list[Violation]:
        return checkers.check(history, limits=self.limits)


ALL_FAULTS = ("lost-request", "lost-reply", "slow", "duplicate", "crash", "pause", "cancel", "deaf", "restart")

TWICE = ("lost-request", "lost-reply", "crash", "deaf")
PAIR_FAULTS = ("cancel", "lost-request", "lost-reply", "crash", "pause", "deaf")

BOTH = (once(), once())
LIMITED = (once(hold=1.5), once(wait=0.7))
HELD = (once(hold=1.5), once())
THREE = (once(), once(), once())
FOUR = (once(), once(), once(), once())
WAITING = (once(hold=1.5), once(wait=0.5), once(wait=0.7), once(hold=0.3))
ASKED = (once(), once(wait=0.0))


PAIRS: dict[str, Any] = {"together": 2, "api": "asyncio", "warm": True}
"""Options of scenarios with two tasks in each process, between which the process hands the lock on."""

KEPT: dict[str, Any] = {"linger": 0.3, "warm": True}


def _each(name: str, about: str, programs: tuple[Program, ...], faults: Iterable[str], **options: Any) -> list[LockScenario]:
    return [LockScenario(f"{name}-{fault}", f"{about}; {fault}", programs, (fault,), **options) for fault in faults]


QUICK: dict[str, LockScenario] = {
    scenario.name: scenario
    for scenario in (
        LockScenario("two", "two clients acquire the lock once", BOTH),
        LockScenario("two-limited", "two clients, one waits for a limited time", LIMITED),
        LockScenario("two-held", "two clients, one renews the lock, the other waits and refreshes its place", HELD),
        LockScenario("two-long", "two clients, one holds the lock for longer than a lease", (once(hold=3.0), once())),
        LockScenario("two-by-hand", "two clients, one renews explicitly", (once(hold=0.5, by_hand=True), once()), renew=False),
        LockScenario("two-together", "two threads of one process", BOTH, together=2),
        *_each("two", "two clients acquire the lock once", BOTH, ALL_FAULTS[:-1]),
        *_each("two-limited", "two clients, one waits for a limited time", LIMITED, (*ALL_FAULTS[:-3], "deaf")),
        LockScenario("pairs", "two processes with two tasks each", FOUR, brisk=True, **PAIRS),
        *_each("pairs", "two processes with two tasks each", FOUR, ("pause",), brisk=True, **PAIRS),
        *_each("pairs-kept", "two processes, two tasks each; leases linger", FOUR, ("pause",), brisk=True, linger=0.3, **PAIRS),
        LockScenario("pairs-kept", "two processes with two tasks each; leases linger", FOUR, brisk=True, linger=0.3, **PAIRS),
        LockScenario("pairs-bound", "two processes, two tasks each; no handing on", FOUR, brisk=True, max_passes=0, **PAIRS),
        *_each("pairs-limited", "two processes with two tasks each, some give up", WAITING, PAIR_FAULTS, brisk=True, **PAIRS),
        *_each("pairs", "two processes with two tasks each", FOUR, TWICE, budget=2, brisk=True, **PAIRS),
        *_each(
            "pairs-kept", "two processes, two tasks each; leases linger", FOUR, TWICE, budget=2, brisk=True, linger=0.3, **PAIRS
        ),
        LockScenario("kept", "one client lingers after use, one tries the lock without waiting", ASKED, **KEPT),
        *_each("pair", "two tasks of one process", BOTH, ("cancel", "lost-reply", "pause"), **PAIRS),
        *_each("kept", "one client lingers after use, one tries", ASKED, ("lost-request", "crash", "pause"), **KEPT),
    )
}
"""The scenarios of a lock that are searched quickly. They have more than 46,000 schedules in all."""

LONG: dict[str, LockScenario] = {
    scenario.name: scenario
    for scenario in (
        LockScenario("three", "three clients acquire the lock once", THREE),
        LockScenario("pair-and-one", "two tasks of one process, and another process", THREE, **PAIRS),
        *_each("pair-and-one", "two tasks of one process, and another process", THREE, PAIR_FAULTS, **PAIRS),
        *_each("pair-and-one-kept", "two tasks, another process; leases linger", THREE, PAIR_FAULTS, linger=0.3, **PAIRS),
        *_each("two-limited", "two clients, one waits for a limited time", LIMITED, ("cancel",)),
        *_each("pairs", "two processes with two tasks each", FOUR, ("cancel",), budget=2, brisk=True, **PAIRS),
        *_each(
            "pairs-kept",
            "two processes, two tasks each; leases linger",
            FOUR,
            ("cancel",),
            budget=2,
            brisk=True,
            linger=0.3,
            **PAIRS,
        ),
        *_each("kept", "one client lingers after use, one tries", ASKED, ("cancel",), **KEPT),
        *_each("two-tasks", "two clients on asyncio", BOTH, ("cancel", "lost-reply"), api="asyncio"),
        LockScenario("two-restart", "two clients acquire the lock once; restart", BOTH, ("restart",)),
        LockScenario("two-limited-restart", "two clients, one waits for a limited time; restart", LIMITED, ("restart",)),
        *_each("two-held", "two clients, one waits while the other renews", HELD, ALL_FAULTS),
        *_each("two-together", "two threads of one process", BOTH, ALL_FAULTS, together=2),
        *_each("two-tasks-held", "two clients on asyncio", HELD, ("cancel", "slow", "lost-request"), api="asyncio"),
        LockScenario("two-faults", "two clients, a lost reply and a crash", BOTH, ("lost-reply", "crash"), budget=2),
    )
}
"""The scenarios of a lock whose search takes long, sometimes more than a minute."""


def _share(*weights: int) -> tuple[Permits, ...]:
    return tuple(semaphore(weight, 2) for weight in weights)


PERMIT_FAULTS = ("cancel", "lost-request", "lost-reply", "duplicate", "crash", "pause")
SHARED: dict[str, Any] = {"brisk": True, "warm": True}
LOWERED = (lowered(), once())

PERMITS: dict[str, LockScenario] = {
    scenario.name: scenario
    for scenario in (
        LockScenario("permits", "two clients, one acquires both permits", BOTH, permits=_share(2, 1), **SHARED),
        *_each("permits", "two clients, one acquires both permits", BOTH, PERMIT_FAULTS, permits=_share(2, 1), **SHARED),
        *_each("lowered", "a writer downgrades to a reader", LOWERED, PERMIT_FAULTS, permits=(WRITING, READING), **SHARED),
        LockScenario("readers", "two readers and a writer", THREE, permits=(READING, READING, WRITING), **SHARED),
    )
}

SCENARIOS: dict[str, LockScenario] = {**QUICK, **LONG, **PERMITS}
