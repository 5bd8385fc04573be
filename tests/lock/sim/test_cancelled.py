"""Each operation is cancelled at each of its requests, with the request carried out and not: nothing is left, nobody waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast._core.requests import Command, RunScript
from holdfast_lab import checkers
from holdfast_lab.scenarios.lock import LockScenario, Program, once
from holdfast_lab.sim.network import Pipe
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker
from holdfast_lab.sim.world import Api

Way = Callable[[Stepwise, Worker], None]


def under_way(world: Stepwise, worker: Worker) -> list[Pipe]:
    """The requests of a worker that are on their way to the server."""
    mine = {worker.name, worker.process.name}
    return [pipe for pipe in world.pipes if pipe is pipe.wire.up and pipe.wire.label in mine]


def at_once(_world: Stepwise, worker: Worker) -> None:
    """Cancelled with the request on its way: by a task it may still be carried out, by a thread too."""
    worker.cancel()


def unapplied(world: Stepwise, worker: Worker) -> None:
    """The request gets lost with its connection; before anybody knows, the cancellation comes."""
    for pipe in under_way(world, worker):
        pipe.wire.cut()
    worker.cancel()


def applied(world: Stepwise, worker: Worker) -> None:
    """The request is carried out, and the cancellation comes before the answer."""
    for pipe in under_way(world, worker):
        while pipe.messages:
            pipe.deliver()
    worker.cancel()


def twice(world: Stepwise, worker: Worker) -> None:
    """And once more, in the middle of what it does about the first."""
    applied(world, worker)
    worker.cancel()


OPERATIONS: dict[str, tuple[Program, Program]] = {
    "acquire and release": (once(), once(wait=5.0)),
    "a wait and a hand-over": (once(hold=0.5), once()),
    "a wait that times out": (once(hold=1.5), once(wait=0.5)),
    "a single try": (once(hold=0.5), once(wait=0.0)),
    "renewal by hand": (once(hold=0.5, by_hand=True), once()),
}


SHARED: dict[str, tuple[tuple[Program, ...], float]] = {
    "passed on inside a process": ((once(hold=0.2), once(), once(wait=5.0)), 0.0),
    "a place that is inherited": ((once(wait=0.5), once(), once(hold=1.5)), 0.0),
    "kept, taken again, and asked for": ((once(), once(), once(wait=0.0)), 0.3),
}
"""Two workers of one process and one of another; and for how long a lease is kept."""


def run(scenario: LockScenario, who: int, number: int, way: Way) -> bool:
    """One history, in which a worker is cancelled at its request of this number; False if it makes fewer."""
    world = scenario.build()
    workers = [worker for process in world.processes for worker in process.workers]
    cancelled = False
    try:
        while world.working:
            world.options()[0].do()
            worker = workers[who]
            assert isinstance(worker, Worker)
            if not cancelled and not worker.done and worker.requests == number + 1 and worker.asked is not None:
                cancelled = True
                if way is at_once or isinstance(worker.asked, RunScript | Command):
                    way(world, worker)
                else:
                    worker.cancel()
        scenario.settle(world)
    finally:
        world.close()
    found = [str(violation) for violation in checkers.check(world.history, limits=scenario.limits)]
    assert found == [], f"cancelled at request {number}"
    return cancelled


@pytest.mark.turns
@pytest.mark.parametrize("way", [at_once, unapplied, applied, twice], ids=lambda way: way.__name__)
@pytest.mark.parametrize("api", ["threads", "asyncio"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_cancelled_at_every_request(operation: str, api: Api, way: Way) -> None:
    scenario = LockScenario("cancelled", operation, OPERATIONS[operation], api=api)
    points = 0
    for who in (0, 1):
        number = 0
        while run(scenario, who, number, way):
            number += 1
        points += number
    assert points >= 4, "hardly any requests"


@pytest.mark.turns
@pytest.mark.parametrize("way", [at_once, unapplied, applied, twice], ids=lambda way: way.__name__)
@pytest.mark.parametrize("api", ["threads", "asyncio"])
@pytest.mark.parametrize("operation", SHARED)
def test_cancelled_where_others_of_the_process_wait(operation: str, api: Api, way: Way) -> None:
    programs, linger = SHARED[operation]
    faults = ("cancel", "lost-request")  # none is chosen, but the single try cannot be sure of its answer any more
    scenario = LockScenario("cancelled", operation, programs, faults, 0, api=api, together=2, warm=True, linger=linger)
    points = 0
    for who in (0, 1, 2):
        number = 0
        while run(scenario, who, number, way):
            number += 1
        points += number
    assert points >= 4, "hardly any requests"
