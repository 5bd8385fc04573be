"""Small scenarios of a ticket. The search runs every schedule of each scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast._api.ticket import Issue
from holdfast_lab.judge.safety_rules import Limits
from holdfast_lab.scenarios.lock import LockScenario, Program, once
from holdfast_lab.sim.lock_client import Lease, Lock
from holdfast_lab.sim.state import same_in_all_states
from holdfast_lab.sim.stepwise import Stepwise
from holdfast_lab.sim.ticket_client import IssuedTicket, issue, out, redeem
from holdfast_lab.sim.worker import TaskCancelled, Worker

EXPIRES = 1.5
"""Seconds after which a ticket expires. This is less than a lease."""


def give(*to: int) -> Program:
    """Return a program that acquires the lock and turns its lease into a ticket.

    ``to`` has indexes of processes. In each of them, a worker tries to redeem the ticket.
    """

    async def program(worker: Worker, lock: Lock) -> None:
        lease: Lease | None = None
        try:
            lease = await lock.acquire(None)
            if lease is None:
                return
            lock.write(lease)
            held, lease = lease, None
            slip = await issue(lock, held, EXPIRES)
        except TaskCancelled:
            if lease is not None:
                await lock.release(lease)
            return
        if slip is not None:
            processes = [worker.process.world.processes[number] for number in to]
            for number, process in enumerate(process for process in processes if process.here):
                heir = Worker(process, f"r{number}")
                heir.start(_take_over(slip, Lock(heir, lock.spec)))

    return program


async def _take_over(slip: IssuedTicket, lock: Lock) -> None:
    lease: Lease | None = None
    try:
        lease = await redeem(lock, slip)
        assert len(slip.taken) <= 1, "the ticket was redeemed twice"
        if lease is None:
            return
        assert lease.fence > slip.giver.fence, "the redeemed lease has no higher fence than the lease of the giver"
        lock.write(lease)
        held, lease = lease, None
        await lock.release(held)
    except TaskCancelled:
        if lease is not None:
            await lock.release(lease)


@dataclass(frozen=True)
class TicketScenario(LockScenario):
    @property
    def limits(self) -> Limits:
        """The limits of a lock, but a hand-over may take longer than a second.

        A waiter does not learn when a ticket expires, and asks the server only once a second.
        """
        return replace(super().limits, handover=1.1)

    def settle(self, world: Stepwise) -> None:
        """Let time pass until each unredeemed ticket has expired, and then end the history."""
        world.budget = 0
        while steps := world.steps_now():
            steps[0].do()
        if out(world):
            until = world.now + EXPIRES + 0.001
            while world.due_by(until) and (options := world.options()):
                options[0].do()
            world.now = max(world.now, until)
        super().settle(world)


FAULTS = ("cancel", "lost-request", "lost-reply", "duplicate", "slow", "crash", "pause")
ONE, TWO, LOST = (give(1), once()), (give(1, 0),), (give(), once())

TICKET_SCENARIOS: dict[str, TicketScenario] = {
    relay.name: relay
    for relay in (
        TicketScenario(
            "relay", "a holder hands the lock over to another process, while a waiter waits", ONE, warm=True, brisk=True
        ),
        TicketScenario("relay-two", "two processes redeem the same ticket", (*TWO, once()), warm=True, brisk=True),
        TicketScenario("relay-lost", "nobody redeems the ticket, and a waiter waits", LOST, warm=True, brisk=True),
        *(
            TicketScenario(f"relay-{fault}", f"a holder hands the lock over; {fault}", ONE, (fault,), warm=True, brisk=True)
            for fault in FAULTS
        ),
    )
}

same_in_all_states(Issue)
