"""Small scenarios of a MultiLock. The search runs every schedule of each scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast_lab.scenarios.lock import LockScenario, Program, once
from holdfast_lab.sim.lock_client import spec
from holdfast_lab.sim.multilock_client import MultiLock, Part
from holdfast_lab.sim.server import Server
from holdfast_lab.sim.state import WRITERS
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.worker import Worker

WRITERS[Part] = lambda state, part: state.add_all((part.name, part.asking, part.lease, part.attempt))
WRITERS[MultiLock] = lambda state, lock: state.add_all((lock.parts, lock.wants, lock.half))


@dataclass(frozen=True)
class MultilockScenario(LockScenario):
    """A scenario of several locks. Each worker has a MultiLock, with the locks in an order of its own.

    ``orders`` has a text for each worker, such as "xy": lock x, then lock y.
    """

    orders: tuple[str, ...] = ()
    brisk: bool = True
    warm: bool = True
    ttl: float = 2.0

    def build(self, *, trace: bool = False) -> Stepwise:
        world = self.empty_world(self.ttl, trace=trace, brisk=self.brisk)
        world.in_turn = self.api == "asyncio" and self.together > 1
        self.add_processes(world, Server(world), -(-len(self.programs) // self.together))
        specs = {name: spec(name, ttl=self.ttl, renew=self.renew) for name in "xyz"}
        for number, (program, order) in enumerate(zip(self.programs, self.orders, strict=True)):
            worker = Worker(world.processes[number // self.together], str(number + 1))
            locks: Any = MultiLock(worker, [specs[name] for name in order], fair=self.fair)
            worker.start(program(worker, locks))
        return world


BOTH: tuple[Program, ...] = (once(), once())
FAULTS = ("cancel", "lost-request", "lost-reply", "crash", "duplicate")

MULTILOCK_SCENARIOS: dict[str, MultilockScenario] = {
    crossing.name: crossing
    for crossing in (
        MultilockScenario("crossed", "two clients acquire two locks, named in two orders", BOTH, orders=("xy", "yx")),
        MultilockScenario("crossed-once", "two locks, one client does not wait", (once(), once(wait=0.0)), orders=("xy", "yx")),
        *(
            MultilockScenario(f"crossed-{fault}", f"two locks, both clients wait; {fault}", BOTH, (fault,), orders=("xy", "yx"))
            for fault in FAULTS
        ),
        MultilockScenario("crossed-tasks", "two locks, two tasks", BOTH, orders=("xy", "yx"), together=2, api="asyncio"),
    )
}
