"""The simulator itself: the same seed is the same history, and what it says it covers, it covers."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from holdfast._core.lock.local_queue import RECALL_WITHIN_S
from holdfast._core.lock.server_queue import Waiting
from holdfast_lab.explore import explore
from holdfast_lab.scenarios.lock import SCENARIOS, LockScenario, Program, once
from holdfast_lab.sim import stepwise
from holdfast_lab.sim.lock_client import Lock, spec
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.state import Fingerprint
from holdfast_lab.sim.virtual_time import EPOCH, Stuck
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Process, World
from holdfast_lab.swarms.lock import SWARM, draw

PROGRAM = """
import hashlib
from holdfast_lab.swarms.lock import SWARM
print(hashlib.sha256(repr([SWARM.simulate(seed, trace=True).history for seed in range(40)]).encode()).hexdigest())
"""


@pytest.mark.turns("lab")
def test_two_runs_of_a_seed_are_the_same_to_the_last_event() -> None:
    for seed in range(100):
        assert SWARM.simulate(seed, trace=True).history == SWARM.simulate(seed, trace=True).history


@pytest.mark.turns("lab")
def test_a_seed_is_the_same_in_every_process() -> None:
    """The order of sets, which differs from process to process, does not matter."""
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


@pytest.mark.turns("lab")
def test_watching_changes_nothing() -> None:
    """A replay that shows each request is the same history."""
    for seed in range(50):
        shown = [e for e in SWARM.simulate(seed, trace=True).history if e.kind not in {"sent", "served", "answered"}]
        assert shown == SWARM.simulate(seed).history


def test_seeds_differ() -> None:
    assert len({repr(draw(random.Random(seed))) for seed in range(100)}) == 100


def test_a_world_in_which_somebody_waits_and_nothing_can_happen_is_stuck() -> None:
    world = World(random.Random(1))
    worker = Worker(Process(world, Server(world), "c1"), "1")
    with pytest.raises(Stuck):
        world.work(EPOCH + 1, 100)
    assert worker in world.working


def test_a_worker_in_the_line_of_its_process_looks_whenever_it_is_woken() -> None:
    """As threads and tasks do. One that does not wait is told so as soon as the server has confirmed the lease."""
    world = World(random.Random(1))
    process = Process(world, Server(world), "c1")
    for name, program in (("1", once(hold=1.0)), ("2", once(wait=0.0))):
        worker = Worker(process, name)
        worker.start(program(worker, Lock(worker, spec())))
        world.work(world.now + 0.1, 1000)
    asked, lined, told = (event for event in world.history if event.who == "c1/2")
    assert (asked.kind, lined.kind, told.kind) == ("ask", "lined", "busy")
    assert told.at - asked.at < RECALL_WITHIN_S / 10


# The exhaustive search


def outcomes(scenario: LockScenario, monkeypatch: pytest.MonkeyPatch | None = None) -> set[str]:
    """Return the possible outcomes of a scenario: how the attempts end. (Their order is left out if it does not matter.)"""
    found: set[str] = set()

    def settle(world: stepwise.Stepwise) -> None:
        scenario.settle(world)
        told = {"taken", "busy", "failed", "cancelled", "lost", "extended", "freed", "crashed"}
        ends = {f"{e.who}:{e.attempt}:{e.kind}" for e in world.history if e.kind in told}
        found.add(" ".join(sorted(ends)))

    if monkeypatch is not None:
        counter = iter(range(10**9))
        monkeypatch.setattr(Fingerprint, "__init__", lambda self, _world: setattr(self, "value", next(counter)))
    report = explore(scenario.build, settle)
    assert report.covered
    assert report.found == []
    return found


ONCE_EACH = (once(wait=0.0), once(wait=0.0))


@pytest.mark.turns
@pytest.mark.parametrize(
    ("programs", "fault", "least"),
    [
        (ONCE_EACH, "lost-reply", 3),
        (ONCE_EACH, "duplicate", 3),
        (ONCE_EACH, "crash", 5),
        pytest.param(ONCE_EACH, "slow", 3, marks=pytest.mark.soak),
        ((once(wait=0.0, hold=0.3),), "cancel", 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_joining_equal_states_loses_no_outcome(
    programs: tuple[Program, ...], fault: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search that continues each state once finds all that a search without states finds."""
    small = LockScenario("small", "two clients", programs, (fault,))
    joined = outcomes(small)
    assert len(joined) >= least
    assert outcomes(small, monkeypatch) == joined


def test_schedules_are_replayed_from_their_choices() -> None:
    scenario = SCENARIOS["two-crash"]
    history, violations = scenario.replay([0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0])
    assert history == scenario.replay([0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0])[0]
    assert violations == []


def test_an_error_in_the_code_under_test_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Waiting, "joined", broken)
    violations = [violation for seed in range(20) for violation in SWARM.simulate(seed).violations]
    assert "R0 the history raised ZeroDivisionError()" in {str(violation) for violation in violations}
    found = SCENARIOS["two"].explore().found
    assert "R0 the history raised ZeroDivisionError()" in {str(violation) for violation in found[0].violations}
    _, replayed = SCENARIOS["two"].replay(found[0].choices)
    assert "R0 the history raised ZeroDivisionError()" in {str(violation) for violation in replayed}
