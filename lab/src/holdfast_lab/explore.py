"""Exhaustive search: run every schedule of a small scenario.

A schedule is a list of choices, one for each step. The search runs the scenario anew for each schedule. It first makes the
choices of the schedule. Then it always takes the first option, and stores the other options of each new state as schedules for
later runs. A run ends when it reaches a known state, because an earlier run has stored everything that can follow. The scenario
is covered when all stored schedules have been run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.testing.history import Event
from holdfast_lab import checkers
from holdfast_lab.checkers import Limits, Violation
from holdfast_lab.sim.state import Fingerprint
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.virtual_time import Stuck

LIMITS = Limits(handover=0.1)
"""Time limits of the rules during a search. They are short, because messages take no time."""

DEPTH = 3000
"""Number of steps after which a schedule counts as endless, which is a violation."""

STUCK = Violation("R7", "no worker can make a step, and some still wait")

Build = Callable[[], Stepwise]
"""Function that builds the world of a scenario, before its first step."""

Settle = Callable[[Stepwise], None]
"""Function that ends a history whose workers have all finished. It lets the leases expire, and records leftovers."""

Judge = Callable[[list[Event]], list[Violation]]
"""Function that returns the violations in a history. A search without such a function applies the rules of locks."""


@dataclass(slots=True)
class Counterexample:
    """A schedule whose history violates a rule."""

    choices: list[int]
    violations: list[Violation]
    history: list[Event]


@dataclass(slots=True)
class SearchReport:
    """The result of an exhaustive search: how much was searched, and which schedules violate a rule."""

    states: int = 0
    """Number of different states that were stored (see `Stepwise.sparse`)."""
    schedules: int = 0
    """Number of schedules that were run, each to the end of the scenario or to a known state."""
    ended: int = 0
    """Number of runs that reached the end of the scenario."""
    steps: int = 0
    deepest: int = 0
    covered: bool = False
    """True if the search has run all stored schedules."""
    found: list[Counterexample] = field(default_factory=list)


def explore(
    build: Build,
    settle: Settle,
    limits: Limits = LIMITS,
    *,
    most: int = 1_000_000,
    stop_at: int = 1,
    broad: bool = False,
    progress: Callable[[SearchReport], None] | None = None,
    judge: Judge | None = None,
) -> SearchReport:
    """Run schedules until all are covered, ``most`` were run, or ``stop_at`` of them violated a rule.

    If ``broad`` is True, the search is breadth first. If ``judge`` is None, the rules of locks apply, with these ``limits``.
    ``progress`` is called with the report after every 200 schedules.
    """
    report = SearchReport()
    seen: set[int] = set()
    todo: list[list[int]] = [[]]
    while todo and report.schedules < most and len(report.found) < stop_at:
        _schedule(
            build,
            settle,
            judge or partial(checkers.check, limits=limits),
            choices=todo.pop(0 if broad else -1),
            todo=todo,
            seen=seen,
            report=report,
        )
        if progress is not None and report.schedules % 200 == 0:
            progress(report)
    report.states = len(seen)
    report.covered = not todo
    return report


def _schedule(
    build: Build,
    settle: Settle,
    judge: Judge,
    *,
    choices: list[int],
    todo: list[list[int]],
    seen: set[int],
    report: SearchReport,
) -> None:
    """Run one schedule of the search, which begins with ``choices``, and add to ``todo`` the schedules that branch off it.

    The schedule ends early in a state that is in ``seen``. A violation of a rule is added to ``report``.
    """
    given = len(choices)
    world = build()
    found: list[Violation] = []
    report.schedules += 1
    try:
        while world.working:
            depth = world.steps
            if depth < given:
                step = world.option(choices[depth])
            else:
                options = world.options()
                if not world.sparse or len(options) > 1:
                    state = Fingerprint(world).value
                    if state in seen:
                        break
                    seen.add(state)
                    todo.extend([*choices, other] for other in range(1, len(options)))
                choices.append(0)
                step = options[0]
            world.steps += 1
            report.steps += 1
            step.do()
            if depth > DEPTH:
                found.append(Violation("R7", f"no end after {DEPTH} steps"))
                break
        else:
            report.ended += 1
            settle(world)
    except Stuck:
        found.append(STUCK)
    except Exception as error:  # noqa: BLE001 - any error is reported with its schedule
        found.append(Violation("R0", f"the history raised {error!r}"))
    finally:
        world.close()
    report.deepest = max(report.deepest, len(choices))
    found += judge(world.history)
    if found:
        report.found.append(Counterexample(choices, found, world.history))


def replay(
    build: Build, settle: Settle, choices: list[int], limits: Limits = LIMITS, *, judge: Judge | None = None
) -> tuple[list[Event], list[Violation]]:
    """Run one schedule, and return its history and violations.

    The search stops a schedule at a known state, so the history of a schedule that it found may end early.
    """
    world = build()
    found: list[Violation] = []
    try:
        for choice in choices:
            if world.working:
                world.steps += 1
                world.options()[choice].do()
        if not world.working:
            settle(world)
    except Stuck:
        found.append(STUCK)
    except Exception as error:  # noqa: BLE001 - any error is reported with its schedule
        found.append(Violation("R0", f"the history raised {error!r}"))
    finally:
        world.close()
    return world.history, found + (judge or partial(checkers.check, limits=limits))(world.history)
