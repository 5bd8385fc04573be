"""Deliberate defects in the functions that acquire and release a lock which nobody else wants, see `mutations`."""

from __future__ import annotations

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead

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
        Instead("attempt.until = now + (wait or (0.0 if queue is None else RECALL_WITHIN_S))", "attempt.until = None"),
        "an attempt that first asks for a free lock, and finds it busy, waits without limit",
    ),
    Mutation(
        "took-counted-from-answer",
        HERE,
        "took",
        Instead("deadline = sent + attempt.spec.first_valid", "deadline = came + attempt.spec.first_valid"),
        "a new lease counts from the reply",
    ),
    Mutation(
        "took-too-late",
        HERE,
        "took",
        Instead("came >= deadline", "False"),
        "a lease that has ended when the reply arrives is taken for a lock",
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
        "the local queue does not know that the process holds the lock",
    ),
    Mutation(
        "left-unconfirmed",
        HERE,
        "left",
        Instead("reply != 1", "reply is None"),
        "a release counts as done whatever the server has replied",
    ),
    Mutation(
        "left-with-waiters",
        HERE,
        "left",
        Instead("not queue.queue", "True"),
        "a waiter that arrives while the lock is being released never gets the turn",
    ),
    Mutation(
        "left-renewed",
        HERE,
        "left",
        Instead("node.renewing.forget(held_lease.token)", "pass"),
        "a lease that was released is still in the records",
    ),
    Mutation(
        "woken-too-late",
        "_core/lock/local_queue.py",
        "LocalQueue.accept",
        Instead("now >= held_lease.deadline", "False"),
        "a waiter that wakes up after the end of the lease that was handed on takes it for a lock",
    ),
    Mutation(
        "parked-for-ever",
        HERE,
        "park",
        Instead("attempt.until = now + wait", "attempt.until = None"),
        "a waiter in the local queue waits without limit",
    ),
    Mutation(
        "left-fair-still-held",
        HERE,
        "leave",
        Instead("over, held_lease.over = held_lease.over, True", "over = held_lease.over"),
        "the lease of a FairLock goes on while it is released, and after that",
    ),
    Mutation(
        "took-without-early-message",
        HERE,
        "took",
        Instead(
            "queue.crowded, queue.asked, queue.trouble = early, queue.asked or early, None",
            "queue.crowded, queue.asked, queue.trouble = False, False, None",
        ),
        "the message that another client waits is forgotten if it came before the reply that grants the lock",
        "lock+overtaken",
    ),
    Mutation(
        "took-in-no-hurry",
        HERE,
        "took",
        Instead("register(node, held_lease, came)", "register(node, held_lease, came, hurry=False)"),
        "the keeper is not woken for a new lease, and looks at it shortly before its end",
        "lock+mixed",
    ),
    Mutation(
        "turn-lost-with-the-clean-up",
        "_core/lock/acquire.py",
        "abandon",
        Instead(
            """try:
    place = attempt.turn.place if isinstance(attempt.turn, AskServer) else None
    if place is not None:
        await _leave(attempt, place)
    if not local_queue.has_lease(attempt):
        await strategy.give_up(attempt)
finally:
    local_queue.settle(attempt, None)""",
            """place = attempt.turn.place if isinstance(attempt.turn, AskServer) else None
if place is not None:
    await _leave(attempt, place)
if not local_queue.has_lease(attempt):
    await strategy.give_up(attempt)
local_queue.settle(attempt, None)""",
        ),
        "an attempt whose clean-up is interrupted never ends its turn",
        "lock+hurried",
    ),
    Mutation(
        "extended-fences-again",
        "_core/lock/local_queue.py",
        "LocalQueue.extended",
        Instead("held.last != held_lease.last_fence", "True"),
        "an extension without further fences begins again with the first fence of the grant",
        "lock+mixed",
    ),
    Mutation(
        "early-renewal-extends",
        "_core/lock/renewal.py",
        "Renewing._attend",
        Instead("ttl = whole(held_lease.deadline - now)", "ttl = held_lease.ttl"),
        "a lease with renew=False is extended when its process asks whether it still exists",
        "lock+mixed",
    ),
    Mutation(
        "undo-counted-before-it-is-sent",
        "_core/lock/release.py",
        "give_up",
        Instead(
            "if not attempt.may_be_on_server:\n    return",
            "if not attempt.may_be_on_server:\n    return\nattempt.may_be_on_server = False",
        ),
        "an undo that is interrupted, and lost, is not sent again",
        "lock+hurried",
    ),
)
