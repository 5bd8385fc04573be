"""Exhaustive search: every schedule of a small scenario, each state continued once.

A schedule is a list of choices. The search runs the scenario from its start for each, follows the choices, and beyond them
always takes the first; at each new state it notes the other choices for later. A state that was met before ends the run: what
can follow from it is searched already. When nothing is noted any more, all that can happen in the scenario has happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from holdfast.testing import checkers
from holdfast.testing.checkers import Limits, Violation
from holdfast.testing.history import Event
from holdfast.testing.sim.state import Fingerprint
from holdfast.testing.sim.stepwise import Stepwise
from holdfast.testing.sim.virtual_time import Stuck

LIMITS = Limits(handover=0.1)
"""Messages take no time here: a free lock is handed over at once."""

DEPTH = 3000
"""Steps after which a schedule is held to be endless."""

STUCK = Violation("R7", "nobody can make a step, and somebody waits")

Build = Callable[[], Stepwise]
"""Makes the world of a scenario, before anything has happened in it."""

Settle = Callable[[Stepwise], None]
"""Ends a history whose workers have all ended: lets the leases run out, and writes down what is left."""

Judge = Callable[[list[Event]], list[Violation]]
"""Says what is wrong in a history, where that is not about locks."""


@dataclass(slots=True)
class Found:
    """A schedule that violates something."""

    choices: list[int]
    violations: list[Violation]
    history: list[Event]


@dataclass(slots=True)
class Report:
    """The extent of a search."""

    states: int = 0
    schedules: int = 0
    """Runs: each ended at an end, or in a state known before."""
    ended: int = 0
    """Runs that came to the end of the scenario."""
    steps: int = 0
    deepest: int = 0
    covered: bool = False
    """Nothing is left to search."""
    found: list[Found] = field(default_factory=list)


def explore(
    build: Build,
    settle: Settle,
    limits: Limits = LIMITS,
    *,
    most: int = 1_000_000,
    stop_at: int = 1,
    broad: bool = False,
    progress: Callable[[Report], None] | None = None,
    judge: Judge | None = None,
) -> Report:
    """Search until all is covered, ``most`` schedules were run, or ``stop_at`` violations were found. ``broad``: try first what
    differs early, instead of what differs late."""
    report = Report()
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
    report: Report,
) -> None:
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
    except Exception as error:  # noqa: BLE001 - whatever it is, the schedule has to be told
        found.append(Violation("R0", f"it raises {error!r}"))
    finally:
        world.close()
    report.deepest = max(report.deepest, len(choices))
    found += judge(world.history)
    if found:
        report.found.append(Found(choices, found, world.history))


def replay(
    build: Build, settle: Settle, choices: list[int], limits: Limits = LIMITS, *, judge: Judge | None = None
) -> tuple[list[Event], list[Violation]]:
    """The history of one schedule, judged. It may end before the scenario does: a search stops where it has been before."""
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
    except Exception as error:  # noqa: BLE001 - whatever it is, the schedule has to be told
        found.append(Violation("R0", f"it raises {error!r}"))
    finally:
        world.close()
    return world.history, found + (judge or partial(checkers.check, limits=limits))(world.history)
