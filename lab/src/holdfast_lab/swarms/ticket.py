"""Seeded histories in which tickets hand locks over to other processes, in the world of the `lock` swarm.

Now and then, a holder turns its lease into a ticket. The ticket is lost, or it is delivered to one or two workers. They
redeem the ticket early or late.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from holdfast._core.requests import Sleep
from holdfast_lab.judge.coverage import Coverage
from holdfast_lab.judge.evidence import Evidence
from holdfast_lab.judge.safety_rules import Limits, Violation
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.theme import PLAIN, Theme
from holdfast_lab.sim.ticket_client import IssuedTicket, issue, out, redeem
from holdfast_lab.sim.worker import Cancelled, Worker
from holdfast_lab.sim.world import World
from holdfast_lab.swarms import lock as lock_swarm
from holdfast_lab.swarms.lock import ECHO, PROMPT, Profile, Round
from holdfast_lab.swarms.result import Run

SHARE = 0.6
"""Share of the leases that holders hand over by tickets. They release the others."""

MADE_GOOD = {"cancel", "lost-request", "lost-reply", "duplicate"}
"""Kinds of faults that cannot change the reason for which a ticket is refused. A client sends a lost request again, and a
cancelled client gets no refusal."""

CHAIN = 3
"""Maximum number of times that a lock is handed over by tickets before a holder releases it."""


@dataclass(slots=True)
class TicketMail:
    """The delivery of tickets, each of which hands a lock over. To deliver a ticket means to start workers that redeem it."""

    rng: random.Random
    profile: Profile | None = None
    slips: list[IssuedTicket] = field(default_factory=list)
    lost: int = 0

    def expires(self) -> float:
        assert self.profile is not None
        return self.rng.choice((0.2, 0.5, 1.0, 1.0)) * self.profile.longest

    def deliver(self, slip: IssuedTicket, lock: Lock, left: int) -> None:
        """Deliver a ticket: start zero, one or two workers in random processes, which redeem the ticket.

        ``left`` is the number of times that the lock may be handed over after that.
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
        except Cancelled:
            return
        if lease is not None:
            await self.use(lock, lease, rng.choice((0.0, 0.1, 1.0, 1.5)) * rng.random() * lock.spec.ttl, left)

    async def use(self, lock: Lock, lease: Lease, hold: float, left: int, *, twice: bool = False) -> None:
        """Hold the lock for ``hold`` seconds, and write to the protected store. Then hand the lock over by a ticket, or
        release it.

        ``left`` is the number of times that the lock may still be handed over. If ``twice`` is True, the lease is released once
        more at the end, and by another worker while it is turned into a ticket.
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
        except Cancelled:
            if mine is not None:
                await lock.release(lease)

    def _meddle(self, lock: Lock, lease: Lease) -> None:
        """Start a worker of the same process that releases the lease while it is being turned into a ticket. The release must
        be refused."""
        process = lock.worker.process
        meddler = Worker(process, f"{len(process.workers) + 1}m")
        meddler.start(Lock(meddler, lock.spec, fair=lock.local_queue is None).release_again(lease))

    async def work(self, rounds: list[Round], lock_of: Callable[[str], Lock]) -> None:
        """Run a worker's rounds as `lock.work` does, but hand some locks over by tickets instead of releasing them."""
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
    """Build the simulated world of a random seed, with its workers and planned faults. Nothing has run yet."""
    rng = random.Random(f"ticket {seed}")
    post = TicketMail(rng)
    world, post.profile = lock_swarm.build(seed, trace=trace, rng=rng, program=post.work, theme=theme)
    return world, post.profile, post


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    """Simulate the history of one random seed and judge it by the rules. Add the verdicts to ``coverage`` if it is passed."""
    world, profile, post = build(seed, trace=trace, theme=theme)
    run = lock_swarm.judged(seed, world, profile, coverage, bounds=limits(profile), before_end=_let_run_out)
    case = Evidence(world.history)
    run.violations += judge(post.slips, case)
    if coverage is not None:
        coverage.docket += case.docket
    run.counts += counts(post)
    return run


def limits(profile: Profile) -> Limits:
    """Return the time limits of the rules: those of `lock.limits`, extended for tickets.

    A waiter in the queue does not learn when a ticket expires, and asks the server only once a second. A worker that
    redeems a ticket does not wait for the lock, but it may wait for three replies.
    """
    usual = lock_swarm.limits(profile)
    return replace(usual, handover=max(usual.handover, 3.5 + profile.waits), lag=max(usual.lag, 5.0), tickets=True)


def _let_run_out(world: World, profile: Profile) -> None:
    """Let the tickets expire that nobody has redeemed.

    If there are none, let time pass only until the last messages have arrived, so that leftover data is noticed before
    leases expire.
    """
    world.mishap = None
    world.pass_time(PROMPT * profile.latency)
    if out(world):
        world.pass_time(1.03 * profile.longest + 1.0)


def judge(slips: list[IssuedTicket], case: Evidence) -> Iterator[Violation]:
    """Judge tickets by the rules T1 and T3.

    - T1: a ticket is redeemed at most once. Excused: the server lost its data while the ticket was in use.
    - T3: a ticket is refused for the true reason. "used" is true only if another worker has tried to redeem it, "expired"
      only after the ticket has expired. Excused: any fault since the ticket was issued, except cancellations and losses of
      single messages.

    Rules R2 and R3 check that a redeemed lease has a higher fence than the lease that was turned into the ticket.
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
                yield Violation("T3", f"a ticket that {len(others)} workers had tried to redeem was refused: {why}")


def counts(post: TicketMail) -> Counter[str]:
    """Return how many tickets were issued, redeemed and lost, and how many were refused for each reason."""
    found: Counter[str] = Counter(f"ticket {why}" for slip in post.slips for _, why in slip.refused)
    found["ticket issued"] = len(post.slips)
    found["ticket redeemed"] = sum(len(slip.taken) for slip in post.slips)
    found["ticket lost"] = post.lost
    return found
