"""Deliberate defects in the functions that acquire and release a lock which nobody else wants, see `mutations`."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead

HERE = "_core/lock/uncontended.py"

UNCONTENDED = (
    Mutation(
        "led-with-nothing-pending",
        HERE,
        "lead",
        Instead("attempt.may_be_on_server = attempt.maybe_in_flight = True", "attempt.maybe_in_flight = True"),
        "an attempt that is given up right after its first request leaves the lock on the server",
    ),
    Mutation(
        "led-for-ever",
        HERE,
        "lead",
        Instead("attempt.until = now + (wait or recall)", "attempt.until = None"),
        "who asks for a free lock first, and finds it busy, waits without limit",
    ),
    Mutation(
        "took-counted-from-answer",
        HERE,
        "took",
        Instead("deadline = sent + spec.first_valid", "deadline = came + spec.first_valid"),
        "a new lease counts from the answer",
    ),
    Mutation(
        "took-too-late",
        HERE,
        "took",
        Instead("came >= deadline", "False"),
        "a lease that is over when the answer comes is taken for a lock",
    ),
    Mutation(
        "took-unregistered",
        HERE,
        "took",
        Instead("register(node, held_lease, came)", "[]"),
        "a new lease is not renewed",
    ),
    Mutation(
        "took-without-a-queue",
        HERE,
        "took",
        Instead("queue.held_lease = held_lease", "pass"),
        "the queue of the process does not know that the process holds the lock",
    ),
    Mutation(
        "left-unconfirmed",
        HERE,
        "left",
        Instead("reply != 1", "reply is None"),
        "a release counts as done whatever the server has answered",
    ),
    Mutation(
        "left-with-waiters",
        HERE,
        "left",
        Instead("not queue.queue", "True"),
        "who comes while the lock is being released is never given the turn",
    ),
    Mutation(
        "left-renewed",
        HERE,
        "left",
        Instead("node.renewing.forget(held_lease.token)", "pass"),
        "a lease that was released is still in the books",
    ),
    Mutation(
        "woken-too-late",
        HERE,
        "woken",
        Instead("now >= held_lease.deadline", "False"),
        "who wakes up when the lease that he was handed is over takes it for a lock",
    ),
    Mutation(
        "parked-for-ever",
        HERE,
        "park",
        Instead("attempt.until = now + wait", "attempt.until = None"),
        "who waits in the queue of his process waits without limit",
    ),
)
