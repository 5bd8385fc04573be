"""Seeded histories in which locks are handed over by tickets, in the world of `lock`.

A holder makes a ticket of its lock now and then. The ticket is lost, or delivered to one or two workers, which redeem it
soon or late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from holdfast._core.requests import Sleep
from holdfast.testing.judge.coverage import Coverage
from holdfast.testing.judge.evidence import Evidence
from holdfast.testing.judge.safety_rules import Limits, Violation
from holdfast.testing.sim.lock_client import Lease, Lock
from holdfast.testing.sim.rare import PLAIN, Theme
from holdfast.testing.sim.ticket_client import IssuedTicket, issue, out, redeem
from holdfast.testing.sim.worker import Cancelled, Worker
from holdfast.testing.sim.world import World
from holdfast.testing.swarms import lock as lock_swarm
from holdfast.testing.swarms.lock import ECHO, PROMPT, Profile, Round
from holdfast.testing.swarms.result import Run

SHARE = 0.6
"""Of the leases that are handed over."""

MADE_GOOD = {"cancel", "lost-request", "lost-reply", "duplicate"}
"""Faults that a client does not notice when it redeems a ticket, because it asks again."""

CHAIN = 3
"""As often a lock may be handed on, one after the other."""


@dataclass(slots=True)
class TicketMail:
    """How tickets get from one to the other: those who are to redeem them are started with them."""

    rng: random.Random
    profile: Profile | None = None
    slips: list[IssuedTicket] = field(default_factory=list)
    lost: int = 0

    def expires(self) -> float:
        assert self.profile is not None
        return self.rng.choice((0.2, 0.5, 1.0, 1.0)) * self.profile.longest

    def deliver(self, slip: IssuedTicket, lock: Lock, left: int) -> None:
        """To somebody, perhaps to two."""
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
        except Cancelled:
            return
        if lease is not None:
            await self.use(lock, lease, rng.choice((0.0, 0.1, 1.0, 1.5)) * rng.random() * lock.spec.ttl, left)

    async def use(self, lock: Lock, lease: Lease, hold: float, left: int, *, twice: bool = False) -> None:
        """Hold the lock, write to what it protects, and hand it over, or give it back."""
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
        except Cancelled:
            if mine is not None:
                await lock.release(lease)

    def _meddle(self, lock: Lock, lease: Lease) -> None:
        """Another thread or task gives the lease back while a ticket is made of it: that is refused."""
        process = lock.worker.process
        meddler = Worker(process, f"{len(process.workers) + 1}m")
        meddler.start(Lock(meddler, lock.spec, fair=lock.local_queue is None).release_again(lease))

    async def work(self, rounds: list[Round], lock_of: Callable[[str], Lock]) -> None:
        """Run a worker as in `lock.work`, and make tickets besides."""
        for planned in rounds:
            lock = lock_of(planned.lock)
            try:
                lease = await lock.acquire(planned.wait)
            except Cancelled:
                lease = None
            if lease is not None:
                await self.use(lock, lease, planned.hold, CHAIN, twice=planned.twice)
            await Sleep(planned.gap)


def build(seed: int, *, trace: bool = False, theme: Theme = PLAIN) -> tuple[World, Profile, TicketMail]:
    """The world of a seed, before anything has happened in it."""
    rng = random.Random(f"ticket {seed}")
    post = TicketMail(rng)
    world, post.profile = lock_swarm.build(seed, trace=trace, rng=rng, program=post.work, theme=theme)
    return world, post.profile, post


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    """Simulate one history and judge it. Its events are counted in ``coverage``."""
    world, profile, post = build(seed, trace=trace, theme=theme)
    run = lock_swarm.judged(seed, world, profile, coverage, bounds=limits(profile), before_end=_let_run_out)
    case = Evidence(world.history)
    run.violations += judge(post.slips, case)
    if coverage is not None:
        coverage.docket += case.docket
    run.counts += counts(post)
    return run


def limits(profile: Profile) -> Limits:
    """Return the limits of `lock.limits`, widened for tickets.

    No queued waiter knows when a ticket expires, so each waiter asks once a second. A redeemer does not wait for the lock, but
    up to three times for an answer.
    """
    usual = lock_swarm.limits(profile)
    return replace(usual, handover=max(usual.handover, 3.5 + profile.waits), lag=max(usual.lag, 5.0))


def _let_run_out(world: World, profile: Profile) -> None:
    """Tickets that nobody has redeemed end by themselves. If there are none, no time passes: what is left is seen at once."""
    world.mishap = None
    world.pass_time(PROMPT * profile.latency)
    if out(world):
        world.pass_time(1.03 * profile.longest + 1.0)


def judge(slips: list[IssuedTicket], case: Evidence) -> Iterator[Violation]:
    """T1: a ticket is redeemed once, at most; excused is amnesia while it is in use. T3: it is refused for a reason: as used,
    if somebody has tried before; as expired, if it is. Any fault from when it was made on excuses that, but for cancellations
    and losses of single messages. (That who redeems it has a higher fence than who gave it, R2 and R3 see to.)"""
    for slip in slips:
        taken = slip.taken
        giver = slip.giver
        made = min((event.at for event in case.leases.get(slip.lease, ())), default=case.start)
        forgot = case.disturbed(made, max(slip.asked, default=made) + ECHO, slip.lock)
        if not case.docket.decide("T1", forgot) and len(taken) > 1:
            yield Violation("T1", f"the ticket of {giver.lease or giver._acquisition} was redeemed {len(taken)} times")  # noqa: SLF001
        for at, why in slip.refused:
            felt = [fault for fault in case.faults if fault.at <= at and (fault.weather or fault.ends(ECHO) >= made)]
            if case.docket.decide("T3", any(fault.kind not in MADE_GOOD for fault in felt)):
                continue
            others = [asked for asked in slip.asked if asked <= at]
            if (why == "used" and len(others) < 2) or (why == "expired" and at < slip.ends) or why in {"gone", "late"}:
                yield Violation("T3", f"a ticket that {len(others)} had tried to redeem was refused: {why}")


def counts(post: TicketMail) -> Counter[str]:
    """Count the fates of the tickets."""
    found: Counter[str] = Counter(f"ticket {why}" for slip in post.slips for _, why in slip.refused)
    found["ticket issued"] = len(post.slips)
    found["ticket redeemed"] = sum(len(slip.taken) for slip in post.slips)
    found["ticket lost"] = post.lost
    return found
