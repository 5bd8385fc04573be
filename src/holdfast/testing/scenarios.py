"""Small scenarios for the exhaustive search: who does what, and what may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast._core.mutex import CLAIM
from holdfast._core.requests import Sleep
from holdfast.testing.explore import Report, explore, replay
from holdfast.testing.history import Event
from holdfast.testing.judge.rules import Violation
from holdfast.testing.sim.ending import told_at_once, write_the_end
from holdfast.testing.sim.lock import Lease, Lock, spec
from holdfast.testing.sim.process import Face, Process
from holdfast.testing.sim.server import Server
from holdfast.testing.sim.stepwise import Stepwise
from holdfast.testing.sim.worker import Cancelled, Worker
from holdfast.testing.sim.world import Stuck

Program = Callable[[Worker, Lock], Coroutine[Any, Any, None]]

TTL = 2.0


def once(wait: float | None = None, hold: float = 0.0, *, by_hand: bool = False) -> Program:
    """Take the lock, hold it, write to what it protects, and give it back."""

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
        except Cancelled:
            if lease is not None:
                await lock.release(lease)

    return program


@dataclass(frozen=True)
class Scenario:
    """One worker a program, each in a process of its own unless ``together``; at most ``budget`` of these faults."""

    name: str
    about: str
    programs: tuple[Program, ...]
    faults: tuple[str, ...] = ()
    budget: int = 1
    face: Face = "threads"
    together: bool = False
    ttl: float = TTL
    renew: bool = True

    def build(self, *, trace: bool = False) -> Stepwise:
        """Its world, before anything has happened."""
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=self.ttl, trace=trace)
        server = Server(world)
        described = spec(ttl=self.ttl, renew=self.renew)
        for number, program in enumerate(self.programs):
            if not world.processes or not self.together:
                Process(world, server, f"c{number + 1}", face=self.face)
            worker = Worker(world.processes[-1], str(number + 1))
            worker.start(program(worker, Lock(worker, described)))
        return world

    def settle(self, world: Stepwise) -> None:
        """What is still under way arrives, and the leases run out."""
        world.budget = 0
        while steps := world.steps_now():
            steps[0].do()
        told_at_once(world)
        until = world.now + self.ttl + CLAIM + 3.0
        try:
            while (options := world.options()) and world.now <= until:
                options[0].do()
        except Stuck:
            world.now = max(world.now, until)
        write_the_end(world)

    def explore(self, *, most: int = 1_000_000, stop_at: int = 1, progress: Callable[[Report], None] | None = None) -> Report:
        """Search all its schedules, see `explore.explore`."""
        return explore(self.build, self.settle, most=most, stop_at=stop_at, progress=progress)

    def replay(self, choices: list[int], *, trace: bool = False) -> tuple[list[Event], list[Violation]]:
        """The history of one schedule, judged."""
        return replay(lambda: self.build(trace=trace), self.settle, choices)


ALL_FAULTS = ("lost-request", "lost-reply", "slow", "duplicate", "crash", "pause", "cancel", "deaf", "restart")

BOTH = (once(), once())
LIMITED = (once(hold=1.5), once(wait=0.7))
HELD = (once(hold=1.5), once())


def _each(name: str, about: str, programs: tuple[Program, ...], faults: Iterable[str], **options: Any) -> list[Scenario]:
    return [Scenario(f"{name}-{fault}", f"{about}; {fault}", programs, (fault,), **options) for fault in faults]


QUICK: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("two", "two clients take the lock once", BOTH),
        Scenario("two-limited", "two clients, one gives up after a while", LIMITED),
        Scenario("two-held", "two clients, one waits while the other renews and is refreshed", HELD),
        Scenario("two-long", "two clients, one holds the lock for longer than a lease", (once(hold=3.0), once())),
        Scenario("two-by-hand", "two clients, one renews by hand", (once(hold=0.5, by_hand=True), once()), renew=False),
        Scenario("two-together", "two threads of one process", BOTH, together=True),
        *_each("two", "two clients take the lock once", BOTH, ALL_FAULTS[:-1]),
        *_each("two-limited", "two clients, one gives up", LIMITED, ALL_FAULTS[:-1]),
        *_each("two-tasks", "two clients on asyncio", BOTH, ("cancel", "lost-reply"), face="asyncio"),
    )
}
"""By name: about 30,000 schedules."""

LONG: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("three", "three clients take the lock once", (once(), once(), once())),
        Scenario("two-restart", "two clients take the lock once; restart", BOTH, ("restart",)),
        Scenario("two-limited-restart", "two clients, one gives up; restart", LIMITED, ("restart",)),
        *_each("two-held", "two clients, one waits while the other renews", HELD, ALL_FAULTS),
        *_each("two-together", "two threads of one process", BOTH, ALL_FAULTS, together=True),
        *_each("two-tasks-held", "two clients on asyncio", HELD, ("cancel", "slow", "lost-request"), face="asyncio"),
        Scenario("two-faults", "two clients, a lost answer and a crash", BOTH, ("lost-reply", "crash"), budget=2),
    )
}
"""By name: more than a minute each, some of them."""

SCENARIOS = {**QUICK, **LONG}
