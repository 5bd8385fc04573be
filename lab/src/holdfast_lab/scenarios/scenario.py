"""The base class of all small scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.testing.history import Event
from holdfast_lab.explore import SearchReport, explore, replay
from holdfast_lab.judge.safety_rules import Violation
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.virtual_time import Stuck
from holdfast_lab.sim.world import Api, Process


@dataclass(frozen=True)
class Scenario:
    """The programs of some workers, and the faults that may happen: up to ``budget``, of the kinds in ``faults``."""

    name: str
    about: str
    programs: tuple[Any, ...]
    faults: tuple[str, ...] = ()
    budget: int = 1
    api: Api = "threads"

    broad: ClassVar[bool] = False
    """True if the search is breadth first: it tries the schedules that differ in an early step before all others."""

    def build(self, *, trace: bool = False) -> Stepwise:
        """Build the world and its workers. No program has run yet."""
        raise NotImplementedError

    def settle(self, world: Stepwise) -> None:
        """End a history whose workers have finished: let the leases expire, and record leftovers."""
        raise NotImplementedError

    def judge(self, history: list[Event]) -> list[Violation]:
        """Return the violations in a history."""
        raise NotImplementedError

    def empty_world(self, ttl: float, *, trace: bool, brisk: bool = True) -> Stepwise:
        """Return a world without servers and processes, in which the faults of the scenario may happen.

        ``ttl`` is the lease time in seconds. If ``brisk`` is True, the search tries fewer orders of steps (`Stepwise.brisk`).
        """
        world = Stepwise(faults=self.faults, budget=self.budget if self.faults else 0, ttl=ttl, trace=trace)
        world.brisk = brisk
        return world

    def add_processes(self, world: Stepwise, server: Server, number: int, *, warm: bool = True) -> None:
        """Add ``number`` processes that use ``server``.

        If ``warm`` is True, each has already subscribed to notifications, and stored its process record.
        """
        for each in range(number):
            process = Process(world, server, f"c{each + 1}", api=self.api)
            if warm:
                process.warm_up()
        while warm and (steps := world.steps_now()):
            steps[0].do()

    def explore(
        self,
        *,
        most: int = 1_000_000,
        stop_at: int = 1,
        broad: bool | None = None,
        progress: Callable[[SearchReport], None] | None = None,
    ) -> SearchReport:
        """Run schedules until all are covered, ``most`` were run, or ``stop_at`` of them violated a rule.

        ``progress`` is called with the report after every 200 schedules. If ``broad`` is None, that of the scenario applies.
        """
        broad = self.broad if broad is None else broad
        return explore(self.build, self.settle, most=most, stop_at=stop_at, broad=broad, progress=progress, judge=self.judge)

    def replay(self, choices: list[int], *, trace: bool = False) -> tuple[list[Event], list[Violation]]:
        """Run one schedule, and return its history and violations.

        ``choices`` has the index of the chosen option at each step. If ``trace`` is True, the history has each request, too.
        """
        return replay(lambda: self.build(trace=trace), self.settle, choices, judge=self.judge)


def let_pass(world: Stepwise, seconds: float) -> None:
    """Run the events of the next ``seconds`` seconds of virtual time."""
    until = world.now + seconds
    try:
        while (options := world.options()) and world.now <= until:
            options[0].do()
    except Stuck:
        world.now = max(world.now, until)
