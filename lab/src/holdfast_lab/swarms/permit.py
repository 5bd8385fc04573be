"""Seeded histories of a semaphore, "x", and a read-write lock, "y", in the world of the `lock` swarm.

Each acquisition draws how many permits it wants. Now and then, workers change the limit of the semaphore, and writers downgrade
to readers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast._core import permit
from holdfast._core.lock.spec import Permits
from holdfast._core.permit import READING, SEMAPHORE, WRITING
from holdfast._core.requests import Sleep, WireError
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.worker import TaskCancelled
from holdfast_lab.sim.world import World
from holdfast_lab.swarms.lock import OF_ONE_SERVER, LockHistory, PlannedAcquisition
from holdfast_lab.swarms.swarm import Swarm


@dataclass(slots=True)
class Users:
    """How the workers of a history use permits, and the program that they run."""

    rng: random.Random
    limit: int
    least: int
    """Lowest limit of the semaphore. If `most` is None, no acquisition wants more permits than this, so each can succeed."""
    changes: float
    """Share of the acquisitions during which the worker changes the limit."""
    writes: float
    """Share of the acquisitions of the read-write lock that are for writing."""

    most: int | None = None
    """Maximum number of permits that one acquisition wants. It may exceed the limit. None: the lowest limit, `least`."""

    def wanted(self, name: str) -> Permits:
        rng = self.rng
        if name == "y":
            return WRITING if rng.random() < self.writes else READING
        return permit.semaphore(
            rng.choice((1, 1, rng.randint(1, self.most or self.least))), rng.choice((None, self.limit, self.limit))
        )

    async def work(self, rounds: list[PlannedAcquisition], lock_of: Callable[[str], Lock]) -> None:
        """Make the planned acquisitions of a worker, as in the `lock` swarm, but acquire permits instead of the lock."""
        for planned in rounds:
            plain = lock_of(planned.lock)
            described = plain.spec._replace(permits=self.wanted(planned.lock), quarantine=0.0, linger=0.0, progress_within=None)
            lock = Lock(plain.worker, described, fair=True)
            lease: Lease | None = None
            try:
                lease = await lock.acquire(planned.wait)
                if lease is not None:
                    await Sleep(planned.hold / 2)
                    if planned.by_hand:
                        await lock.renew(lease, max(0.1, described.ttl * planned.by_hand))
                    if described.permits == WRITING and self.rng.random() < 0.3:
                        await lock.downgrade(lease)
                    await self._change(lock)
                    await Sleep(planned.hold / 2)
                    held, lease = lease, None
                    await lock.release(held)
                    if planned.twice:
                        await lock.release_again(held)
            except TaskCancelled:
                if lease is not None:
                    await lock.release(lease)
            await Sleep(planned.gap)

    async def _change(self, lock: Lock) -> None:
        if lock.spec.permits is not None and lock.spec.permits.kind == SEMAPHORE and self.rng.random() < self.changes:
            with lock.worker.operation():
                try:
                    await permit.count(lock.spec, SEMAPHORE, self.rng.randint(self.least, self.limit + 1))
                except WireError:
                    pass


class PermitHistory(LockHistory):
    """A history of a semaphore and a read-write lock."""

    nests = False
    users: Users

    def __init__(self, seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> None:
        super().__init__(seed, trace=trace, theme=theme)
        self.profile.linger = self.profile.quarantine = 0.0
        self.profile.progress_within = None

    def random_of(self, seed: int, theme: Theme) -> random.Random:
        rng = random.Random(f"permits {seed}")
        limit = rng.choice((1, 2, 2, 3, 5))
        self.users = Users(rng, limit, rng.randint(1, limit), rng.choice((0.0, 0.0, 0.2)), rng.choice((0.2, 0.5)))
        theme.use(seed, self.users)
        return rng

    async def work(self, rounds: list[PlannedAcquisition], lock_of: Callable[[str], Any]) -> None:
        await self.users.work(rounds, lock_of)

    def limits(self) -> Limits:
        return replace(super().limits(), permits=True)

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        self.counts += _counts(self.world)
        return super().judge(coverage)


def _counts(world: World) -> Counter[str]:
    """Count downgrades, changes of the limit, refused acquisitions, and acquisitions while other permits are held."""
    held: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for event in world.history:
        if event.kind == "taken":
            held[event.lock] = held.get(event.lock, 0) + 1
            counts["permits shared"] += held[event.lock] > 1
        elif event.kind in {"release", "lost"}:
            held[event.lock] = held.get(event.lock, 0) - 1
        elif event.kind == "downgraded":
            counts["permits downgraded"] += 1
        elif event.kind == "limit":
            counts["permits limit"] += 1
        elif event.kind == "failed" and "Conflict" in event.note:
            counts["permits refused"] += 1
    return counts


ENOUGH = {
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

SWARM = Swarm(PermitHistory, ENOUGH, (*OF_ONE_SERVER, "R17", "R18"))
