"""Deliberate defects in the local queue of a process, where a lock is passed on and kept, see `mutations`."""

from __future__ import annotations

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

PASSING = (
    Mutation(
        "handed-on-after-loss",
        "_core/lock/local_queue.py",
        "LocalQueue._checked",
        Nth("never", 2),
        "a waiter takes a lease that is handed on for a lock, although it is lost",
    ),
    Mutation(
        "handed-on-and-woken-too-late",
        "_core/lock/local_queue.py",
        "LocalQueue._checked",
        Instead("not turn.fence or now >= held_lease.deadline", "not turn.fence"),
        "a waiter that wakes up after the end of the lease that was handed on takes it for a lock",
    ),
    Mutation(
        "handed-on-beyond-the-block",
        "_core/lock/local_queue.py",
        "LocalQueue._grant",
        Instead("held_lease.holder_fence < held_lease.last_fence and enough", "enough"),
        "a lock is handed on under fences that the server has not issued",
    ),
    Mutation(
        "handed-on-under-one-fence",
        "_core/lock/local_queue.py",
        "LocalQueue._grant",
        Instead("fence = held_lease.holder_fence = held_lease.holder_fence + 1", "fence = held_lease.holder_fence + 1"),
        "two waiters to which a lock is handed on have the same fence",
    ),
    Mutation(
        "handed-on-for-ever",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Instead(
            "not self.asked or (held_lease.passes < spec.max_passes and now < held_lease.since + spec.max_pass_time)", "True"
        ),
        "a lock is handed on although another process is known to wait",
    ),
    Mutation(
        "handed-on-too-often",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Nth("operand dropped", 8),
        "a lock is handed on without a limit in number when another process waits",
    ),
    Mutation(
        "handed-on-for-too-long",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Nth("operand dropped", 9),
        "a lock is handed on without a limit in time when another process waits",
    ),
    Mutation(
        "handed-on-without-limit",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Instead("now >= held_lease.since + PASS_LIMIT_S", "False"),
        "a lock is handed on forever when nobody is known to wait",
    ),
    Mutation(
        "asked-forgotten",
        "_core/lock/local_queue.py",
        "LocalQueue.on_asked",
        Nth("dropped"),
        "a process forgets that another process waits for its lock",
    ),
    Mutation(
        "asked-when-deaf",
        "_core/lock/node.py",
        "Node._on_subscribed",
        Nth("dropped", 2),
        "a process that acquires a lock before its inbox is subscribed believes that nobody waits",
    ),
    Mutation(
        "asked-while-asking",
        "_core/lock/local_queue.py",
        "LocalQueue._note_grant",
        Instead("self.asked |= self.crowded", "self.asked = self.crowded"),
        "a message that arrived before the lock was granted is forgotten at the grant",
    ),
    Mutation(
        "last-in-queue-first",
        "_core/lock/local_queue.py",
        "LocalQueue._enter",
        Instead("self.queue.append", "self.queue.appendleft"),
        "the last waiter in the local queue is served first",
    ),
    Mutation(
        "freshened-from-answer",
        "_core/lock/local_queue.py",
        "LocalQueue.extended",
        Instead("answer.sent + lasts", "answer.came + lasts"),
        "a lease that is extended before it is handed on counts from the reply",
    ),
    Mutation(
        "freshened-fences-overlap",
        "_core/lock/local_queue.py",
        "LocalQueue.extended",
        Nth("one more"),
        "after more fences were requested, the last of the old ones is issued once more",
    ),
)

LEAVING = (
    Mutation(
        "withdrawn-with-the-turn",
        "_core/lock/local_queue.py",
        "LocalQueue._withdraw",
        Instead(
            "not isinstance(turn, AskServer) or turn.place is None or not self._pass_place_on(attempt, turn.place)",
            "isinstance(turn, AskServer) and (turn.place is None or not self._pass_place_on(attempt, turn.place))",
        ),
        "an attempt that gives up during its first request for a free lock keeps the turn",
        "lock+crowded",
    ),
    Mutation(
        "withdrawn-hand-on-dropped",
        "_core/lock/local_queue.py",
        "LocalQueue._hand_on",
        Nth("dropped"),
        "a waiter that is cancelled while the lock is handed on to it keeps it forever",
    ),
    Mutation(
        "withdrawn-leader-stays",
        "_core/lock/local_queue.py",
        "LocalQueue._withdraw",
        Nth("dropped", 8),
        "the attempt that asks the server for its process is cancelled, and the others wait on",
    ),
    Mutation(
        "place-not-inherited",
        "_core/lock/acquire.py",
        "_leave",
        Instead("attempt.local_queue is not None and local_queue_of(attempt).pass_place_on(attempt, place)", "False"),
        "a waiter that gives up also gives up the place of its process",
    ),
    Mutation(
        "loss-not-told-to-the-queue",
        "_api/lease_core.py",
        "LeaseCore.make_way",
        Nth("dropped"),
        "when a lease is lost, the others of the process wait until the holder has noticed",
    ),
    Mutation(
        "failure-leaves-the-queue",
        "_core/lock/local_queue.py",
        "LocalQueue._failed",
        Instead("self._ask_server(None)", "self.turn_of = None"),
        "when the attempt that asks the server for its process fails, no other one asks",
    ),
    Mutation(
        "successor-without-doubt",
        "_core/lock/records.py",
        "Waiter.move_to",
        Instead(
            "heir.token, heir.may_be_on_server, heir.maybe_in_flight = "
            "(former.token, former.may_be_on_server, former.maybe_in_flight)",
            "heir.token, heir.may_be_on_server = (former.token, former.may_be_on_server)",
        ),
        "a waiter that inherits a place does not know that a copy of the request for it may still arrive",
    ),
)

KEEPING = (
    Mutation(
        "lingers-when-asked",
        "_core/lock/local_queue.py",
        "LocalQueue.on_asked",
        Nth("never"),
        "a lease that is only kept is not released when another client asks for it",
    ),
    Mutation(
        "lingers-for-ever",
        "_core/lock/local_queue.py",
        "LocalQueue.on_time",
        Instead("now >= self.linger_until", "now >= self.linger_until + 5.0"),
        "a lease is kept for longer than `linger` allows",
    ),
    Mutation(
        "lingering-released-once",
        "_core/lock/node.py",
        "Node._give_back.then",
        Instead("due.until", "0"),
        "the release of an unused lease is not repeated if the server is unavailable at that moment",
    ),
    Mutation(
        "released-and-not-told",
        "_core/lock/node.py",
        "Node._give_back.then",
        Nth("dropped", 3),
        "when the keeper has released a lock, the local queue stops asking for it",
    ),
)

GATES = PASSING + LEAVING + KEEPING
