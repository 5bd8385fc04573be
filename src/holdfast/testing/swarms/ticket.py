"""Seeded histories in which locks are handed over to other processes by tickets, in the world of the `lock` swarm.

Now and then, a holder turns its lease into a ticket. The ticket is lost, or delivered to one or two workers, which redeem it
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
"""Share of the leases that a holder hands over by a ticket instead of releasing them."""

MADE_GOOD = {"cancel", "lost-request", "lost-reply", "duplicate"}
"""Kinds of faults that do not affect a client that redeems a ticket, because the client repeats its request."""

CHAIN = 3
"""Maximum number of times that a lock is handed over by tickets before it is released."""


@dataclass(slots=True)
class TicketMail:
    """The delivery of tickets (which hand locks over): starts workers that redeem the tickets issued by other workers."""

    rng: random.Random
    profile: Profile | None = None
    slips: list[IssuedTicket] = field(default_factory=list)
    lost: int = 0

    def expires(self) -> float:
        assert self.profile is not None
        return self.rng.choice((0.2, 0.5, 1.0, 1.0)) * self.profile.longest

    def deliver(self, slip: IssuedTicket, lock: Lock, left: int) -> None:
        """Deliver a ticket: start zero, one or two workers in random processes, each of which redeems the ticket.

        ``left`` is the number of times that the lock may be handed over again.
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
        """Hold the lock for ``hold`` seconds, write to the protected store, and hand the lock over by a ticket or release it.

        ``left`` is the number of times that the lock may still be handed over. With ``twice``, release the lease once more.
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
        """Start a worker of the same process that releases the lease while it is turned into a ticket; this must be refused."""
        process = lock.worker.process
        meddler = Worker(process, f"{len(process.workers) + 1}m")
        meddler.start(Lock(meddler, lock.spec, fair=lock.local_queue is None).release_again(lease))

    async def work(self, rounds: list[Round], lock_of: Callable[[str], Lock]) -> None:
        """Run a worker's rounds as in `lock.work`, with some leases handed over by tickets instead of released."""
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
    """Build the simulated world of a random seed, with its workers and planned faults, before the first step."""
    rng = random.Random(f"ticket {seed}")
    post = TicketMail(rng)
    world, post.profile = lock_swarm.build(seed, trace=trace, rng=rng, program=post.work, theme=theme)
    return world, post.profile, post


def simulate(seed: int, *, trace: bool = False, coverage: Coverage | None = None, theme: Theme = PLAIN) -> Run[Profile]:
    """Simulate the history of one random seed and judge it by the rules; add the counts of cases to ``coverage``, if given."""
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

    A waiter in the queue does not know when a ticket expires, so it asks once a second. A worker that redeems a ticket does not
    wait for the lock, but may wait three times for a reply.
    """
    usual = lock_swarm.limits(profile)
    return replace(usual, handover=max(usual.handover, 3.5 + profile.waits), lag=max(usual.lag, 5.0))


def _let_run_out(world: World, profile: Profile) -> None:
    """Let the tickets that nobody has redeemed expire.

    If there are none, no more time passes than the last messages need, so that leftovers are seen at once.
    """
    world.mishap = None
    world.pass_time(PROMPT * profile.latency)
    if out(world):
        world.pass_time(1.03 * profile.longest + 1.0)


def judge(slips: list[IssuedTicket], case: Evidence) -> Iterator[Violation]:
    """Judge tickets by rules T1 and T3.

    - T1: a ticket is redeemed at most once. Excused by a server that lost its data while the ticket was in use.
    - T3: the reason of a refusal is true: "used" only if another worker tried before, "expired" only if the ticket has expired.
      Excused by every fault since the ticket was issued, except cancellations and losses of single messages.

    Rules R2 and R3 check that the redeemed lease has a higher fence than the lease of the giver.
    """
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
                yield Violation("T3", f"a ticket that {len(others)} workers had tried to redeem was refused: {why}")


def counts(post: TicketMail) -> Counter[str]:
    """Return the number of tickets that were issued, redeemed, lost, or refused for each reason."""
    found: Counter[str] = Counter(f"ticket {why}" for slip in post.slips for _, why in slip.refused)
    found["ticket issued"] = len(post.slips)
    found["ticket redeemed"] = sum(len(slip.taken) for slip in post.slips)
    found["ticket lost"] = post.lost
    return found
