"""Seeded histories in which tickets hand locks over to other processes, in the world of the `lock` swarm.

Now and then, a holder turns its lease into a ticket. One or two workers redeem it early or late, or it is lost.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast._core.requests import Sleep
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.theme import Theme
from holdfast_lab.sim.ticket_client import IssuedTicket, issue, out, redeem
from holdfast_lab.sim.worker import TaskCancelled, Worker
from holdfast_lab.swarms import lock as lock_swarm
from holdfast_lab.swarms.lock import ECHO, OF_A_LOCK, PROMPT, LockHistory, PlannedAcquisition, Profile
from holdfast_lab.swarms.swarm import Swarm

SHARE = 0.6
"""Share of the leases that are handed over by a ticket. The others are released."""

MADE_GOOD = {"cancel", "lost-request", "lost-reply", "duplicate"}
"""Kinds of faults that do not change the reason for which a ticket is refused.

A client repeats a request if it or its reply is lost. A copy of a request gets the same answer. A cancelled client gets none.
"""

CHAIN = 3
"""Maximum number of times that a lock is handed over by a ticket before a holder releases it."""


@dataclass(slots=True)
class TicketMail:
    """The delivery of tickets: it starts workers that redeem them."""

    rng: random.Random
    profile: Profile | None = None
    slips: list[IssuedTicket] = field(default_factory=list)
    lost: int = 0

    def expires(self) -> float:
        assert self.profile is not None
        return self.rng.choice((0.2, 0.5, 1.0, 1.0)) * self.profile.longest

    def deliver(self, slip: IssuedTicket, lock: Lock, left: int) -> None:
        """Let zero, one or two workers in random processes redeem the ticket.

        ``left`` is how often the workers that redeem it may hand the lock over by further tickets.
        """
        rng = self.rng
        self.slips.append(slip)
        number = rng.choice((0, 1, 1, 1, 1, 2, 2))
        self.lost += not number
        for _ in range(number):
            process = rng.choice([process for process in lock.worker.process.world.processes if process.here])
            worker = Worker(process, f"{len(process.workers) + 1}r")
            worker.start(self._redeem(slip, Lock(worker, lock.spec, fair=lock.local_queue is None), left))

    async def _redeem(self, slip: IssuedTicket, lock: Lock, left: int) -> None:
        rng = self.rng
        try:
            await Sleep(
                rng.choice((0.0, 0.0, 0.01, 0.5, 1.0, 1.2)) * rng.random() * (slip.ends - lock.worker.process.world.now)
            )
            lease = await redeem(lock, slip)
        except TaskCancelled:
            return
        if lease is not None:
            await self.use(lock, lease, rng.choice((0.0, 0.1, 1.0, 1.5)) * rng.random() * lock.spec.ttl, left)

    async def use(self, lock: Lock, lease: Lease, hold: float, left: int, *, twice: bool = False) -> None:
        """Hold the lock for ``hold`` seconds, and then hand it over by a ticket, or release it.

        ``left`` is how often the lock may still be handed over. If ``twice`` is True, two more releases of the lease are tried,
        and must be refused: one by another worker while this worker turns the lease into a ticket, and one at the end.
        """
        mine: Lease | None = lease
        try:
            lock.write(lease)
            await Sleep(hold)
            lock.write(lease)
            mine = None
            if left and self.rng.random() < SHARE:
                if twice:
                    self._meddle(lock, lease)
                slip = await issue(lock, lease, self.expires())
                if slip is not None:
                    self.deliver(slip, lock, left - 1)
            else:
                await lock.release(lease)
            if twice:
                await lock.release_again(lease)
        except TaskCancelled:
            if mine is not None:
                await lock.release(lease)

    def _meddle(self, lock: Lock, lease: Lease) -> None:
        """Let another worker release the lease while it is turned into a ticket. The release must be refused."""
        process = lock.worker.process
        meddler = Worker(process, f"{len(process.workers) + 1}m")
        meddler.start(Lock(meddler, lock.spec, fair=lock.local_queue is None).release_again(lease))

    async def work(self, rounds: list[PlannedAcquisition], lock_of: Callable[[str], Lock]) -> None:
        """Make the planned acquisitions of a worker, as `lock.work` does, but hand some locks over by tickets."""
        for planned in rounds:
            lock = lock_of(planned.lock)
            try:
                lease = await lock.acquire(planned.wait)
            except TaskCancelled:
                lease = None
            if lease is not None:
                await self.use(lock, lease, planned.hold, CHAIN, twice=planned.twice)
            await Sleep(planned.gap)


class TicketHistory(LockHistory):
    """A history in which tickets hand the lock over."""

    nests = False
    post: TicketMail

    def random_of(self, seed: int, theme: Theme) -> random.Random:  # noqa: ARG002 - for permits
        rng = random.Random(f"ticket {seed}")
        self.post = TicketMail(rng)
        return rng

    def redraw(self, seed: int, profile: Profile) -> None:  # noqa: ARG002 - for several locks
        self.post.profile = profile

    async def work(self, rounds: list[PlannedAcquisition], lock_of: Callable[[str], Any]) -> None:
        await self.post.work(rounds, lock_of)

    def limits(self) -> Limits:
        return limits(self.profile)

    def before_end(self) -> None:
        """Let the tickets expire that nobody has redeemed.

        If there are no such tickets, let time pass only until the last messages have arrived. So leftovers are noticed before
        their leases expire.
        """
        world, profile = self.world, self.profile
        world.mishap = None
        world.pass_time(PROMPT * profile.latency)
        if out(world):
            world.pass_time(1.03 * profile.longest + 1.0)

    def judge(self, coverage: Coverage | None) -> list[Violation]:
        found, case = super().judge(coverage), Evidence(self.world.history)
        found += judge(self.post.slips, case)
        if coverage is not None:
            coverage.docket += case.docket
        self.counts += counts(self.post)
        return found


def limits(profile: Profile) -> Limits:
    """Return the limits of `lock.limits`, with more time for waiters.

    A waiter does not learn when a ticket expires, and asks the server only once a second. A worker that redeems a ticket may
    wait for three replies.
    """
    usual = lock_swarm.limits(profile)
    return replace(usual, handover=max(usual.handover, 3.5 + profile.waits), lag=max(usual.lag, 5.0), tickets=True)


def judge(slips: list[IssuedTicket], case: Evidence) -> Iterator[Violation]:
    """Judge tickets by the rules T1 and T3.

    - T1: a ticket is redeemed at most once. Excused: between its issue and the last attempt to redeem it, the server lost its
      data, its clock was set, or keys were changed by others.
    - T3: a ticket is refused for the true reason: "used" only if another worker has tried to redeem it, and "expired" only
      after it has expired. Excused: any fault since the ticket was issued, except those in `MADE_GOOD`.

    Rules R2 and R3 check that a redeemed lease has a higher fence than the lease that became the ticket.
    """
    for slip in slips:
        taken = slip.taken
        giver = slip.giver
        made = min((event.at for event in case.leases.get(slip.lease, ())), default=case.start)
        forgot = case.disturbed(made, max(slip.asked, default=made) + ECHO, slip.lock)
        if not case.docket.decide("T1", forgot) and len(taken) > 1:
            yield Violation("T1", f"the ticket of {giver.lease or giver.acquisition} was redeemed {len(taken)} times")
        for at, why in slip.refused:
            felt = [fault for fault in case.faults if fault.at <= at and (fault.weather or fault.ends(ECHO) >= made)]
            if case.docket.decide("T3", any(fault.kind not in MADE_GOOD for fault in felt)):
                continue
            others = [asked for asked in slip.asked if asked <= at]
            if (why == "used" and len(others) < 2) or (why == "expired" and at < slip.ends) or why in {"gone", "late"}:
                yield Violation("T3", f"a ticket was refused without a reason: {why}, after {len(others)} requests")


def counts(post: TicketMail) -> Counter[str]:
    found: Counter[str] = Counter(f"ticket {why}" for slip in post.slips for _, why in slip.refused)
    found["ticket issued"] = len(post.slips)
    found["ticket redeemed"] = sum(len(slip.taken) for slip in post.slips)
    found["ticket lost"] = post.lost
    return found


ENOUGH = {
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

SWARM = Swarm(TicketHistory, ENOUGH, (*OF_A_LOCK, "T1", "T3"))
