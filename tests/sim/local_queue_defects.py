"""Deliberate defects in the local queue of a process, where a lock is passed on and kept, see `mutations`."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

PASSING = (
    Mutation(
        "passed-after-loss",
        "_core/lock/acquire.py",
        "acquire",
        Nth("never", 6),
        "who is passed a lease that is lost takes it for a lock",
    ),
    Mutation(
        "passed-and-woken-too-late",
        "_core/lock/acquire.py",
        "acquire",
        Instead("turn.fence and now < held_lease.deadline", "turn.fence"),
        "who wakes up when the lease that he was passed is over takes it for a lock",
    ),
    Mutation(
        "passed-beyond-the-block",
        "_core/lock/local_queue.py",
        "LocalQueue._grant",
        Nth("operand dropped"),
        "a lock is passed on under fences that the server has not issued",
    ),
    Mutation(
        "passed-under-one-fence",
        "_core/lock/local_queue.py",
        "LocalQueue._grant",
        Instead("fence = self.fence = self.fence + 1", "fence = self.fence + 1"),
        "two who are passed a lock have the same fence",
    ),
    Mutation(
        "passed-for-ever",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Instead("not self.asked or (self.passes < spec.max_passes and now < self.taken + spec.max_pass_time)", "True"),
        "a lock is passed on although another process is known to wait",
    ),
    Mutation(
        "passed-too-often",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Nth("operand dropped", 7),
        "the number of passes has no bound when another process waits",
    ),
    Mutation(
        "passed-for-too-long",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Nth("operand dropped", 8),
        "the time for which a lock is passed on has no bound when another process waits",
    ),
    Mutation(
        "passed-without-limit",
        "_core/lock/local_queue.py",
        "LocalQueue._may_keep",
        Instead("min(self.taken + PASS_LIMIT_S, held_lease.deadline)", "held_lease.deadline"),
        "a lock is passed on for ever when nobody is known to wait",
    ),
    Mutation(
        "asked-forgotten",
        "_core/lock/local_queue.py",
        "LocalQueue.on_asked",
        Nth("dropped"),
        "a process forgets that it was asked for the lock",
    ),
    Mutation(
        "asked-when-deaf",
        "_core/lock/node.py",
        "Node._on_subscribed",
        Nth("dropped", 2),
        "who takes a lock before his inbox listens believes that nobody waits",
    ),
    Mutation(
        "asked-while-asking",
        "_core/lock/local_queue.py",
        "LocalQueue.note_grant",
        Instead("self.asked |= self.crowded", "self.asked = self.crowded"),
        "what was heard while the lock was being asked for is forgotten when it is given",
    ),
    Mutation(
        "last-in-line-first",
        "_core/lock/local_queue.py",
        "LocalQueue._enter",
        Instead("self.queue.append", "self.queue.appendleft"),
        "who comes last to the line of a process is served first",
    ),
    Mutation(
        "freshened-from-answer",
        "_core/lock/local_queue.py",
        "LocalQueue.note_more_fences",
        Instead("sent + held_lease.ttl", "self.clock() + held_lease.ttl"),
        "a lease that is made longer before it is passed on counts from when the answer came",
    ),
    Mutation(
        "freshened-fences-overlap",
        "_core/lock/local_queue.py",
        "LocalQueue.note_more_fences",
        Nth("one more"),
        "after more fences were asked for, the last of the old ones is given once more",
    ),
)

LEAVING = (
    Mutation(
        "withdrawn-pass-dropped",
        "_core/lock/local_queue.py",
        "LocalQueue._hand_on",
        Nth("dropped"),
        "who is cancelled when he was passed the lock keeps it for ever",
    ),
    Mutation(
        "withdrawn-leader-stays",
        "_core/lock/local_queue.py",
        "LocalQueue.withdraw",
        Nth("dropped", 8),
        "who asked for all and is cancelled leaves the others waiting",
    ),
    Mutation(
        "place-not-bequeathed",
        "_core/lock/acquire.py",
        "_stand_in_line",
        Nth("always", 3),
        "who gives up takes the place of his process with him",
    ),
    Mutation(
        "loss-not-told-to-the-line",
        "_api/lease.py",
        "LeaseCore.make_way",
        Nth("dropped"),
        "when a lease is lost, the others of the process wait until the holder has noticed",
    ),
    Mutation(
        "failure-leaves-the-line",
        "_core/lock/local_queue.py",
        "LocalQueue.failed",
        Instead("self._ask_server(None)", "self.turn_of = None"),
        "when who asks for all has failed, nobody else asks",
    ),
    Mutation(
        "heir-without-doubt",
        "_core/lock/records.py",
        "Waiter.move_to",
        Instead(
            "heir.token, heir.may_be_on_server, heir.maybe_in_flight = "
            "(former.token, former.may_be_on_server, former.maybe_in_flight)",
            "heir.token, heir.may_be_on_server = (former.token, former.may_be_on_server)",
        ),
        "who inherits a place does not know that a copy of the request for it may still come",
    ),
)

KEEPING = (
    Mutation(
        "kept-when-asked",
        "_core/lock/local_queue.py",
        "LocalQueue.on_asked",
        Nth("never"),
        "a lease that is only kept does not go to who asks for it",
    ),
    Mutation(
        "kept-for-ever",
        "_core/lock/local_queue.py",
        "LocalQueue.on_time",
        Instead("now >= self.linger_until", "now >= self.linger_until + 5.0"),
        "a lease is kept for longer than its lock says",
    ),
    Mutation(
        "kept-given-back-once",
        "_core/lock/node.py",
        "Node._give_back.then",
        Instead("due.until", "0"),
        "a lease that nobody uses is not given back if the server is away at that moment",
    ),
    Mutation(
        "given-back-and-not-told",
        "_core/lock/node.py",
        "Node._give_back.then",
        Nth("dropped", 3),
        "when the keeper has given a lock back, nobody asks for it any more",
    ),
)

GATES = PASSING + LEAVING + KEEPING
