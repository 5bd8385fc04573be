"""Deliberate defects in our scripts and operations, each a mistake that a tired programmer could make.

`mutate` puts them in, one at a time, and the simulator has to catch each. Those of a part of the package are in a module of
their own, the others here.

Each names its function and its change; `python tests/lab/sim/mutate.py --show NAME` shows it. If the function has changed, the
tests tell whether the place is found, and the replay whether it is still that defect.
"""

from __future__ import annotations

from break_lock.sim.break_lock_defects import BREAKING
from election.sim.election_defects import ELECTION
from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth
from lab.sim.rare_defects import RARE
from lock.sim.hung_defects import HUNG
from lock.sim.local_queue_defects import GATES
from lock.sim.rlock_defects import REENTRANT
from lock.sim.script_defects import SCRIPTS
from lock.sim.uncontended_defects import UNCONTENDED
from multilock.sim.multilock_defects import SEVERAL
from permit.sim.permit_defects import PERMITS
from quorum.sim.quorum_defects import QUORUM
from rendezvous.sim.rendezvous_defects import MEETINGS
from schedule.sim.schedule_defects import SCHEDULES
from single_flight.sim.single_flight_defects import FLIGHT
from ticket.sim.ticket_defects import TICKETS

HOLDING = (
    Mutation(
        "renewal-answer-unread",
        "_core/lock/renewal.py",
        "Renewing.on_answer",
        Nth("operand dropped", 3),
        "a lock that is gone counts as renewed",
    ),
    Mutation(
        "renewed-without-margin",
        "_core/lock/records.py",
        "HeldLease.renewed",
        Nth("term dropped"),
        "a renewed lease is believed without a margin for the drift of clocks",
    ),
    Mutation(
        "shorter-lease-not-believed",
        "_core/lock/records.py",
        "HeldLease.note_request",
        Nth("dropped", 3),
        "a holder that asks for a shorter lease goes on believing in the longer one until the reply",
    ),
    Mutation(
        "renewed-too-late",
        "_core/lock/records.py",
        "HeldLease.renewed",
        Instead("self.due_at(sent + length * self.spec.renew_part)", "sent + length"),
        "a lease is renewed when it is over",
    ),
    Mutation(
        "by-hand-counted-from-answer",
        "_core/lock/renewal.py",
        "renew",
        Nth("time swapped"),
        "a lease that is renewed by hand counts from the reply",
    ),
    Mutation(
        "keeper-counted-from-answer",
        "_core/lock/node.py",
        "Node._on_renewed",
        Instead("self.renewing.on_answer(renew, answer, sent, now)", "self.renewing.on_answer(renew, answer, now, now)"),
        "a lease that the keeper renews counts from the reply",
    ),
    Mutation(
        "watched-after-release",
        "_api/lease_core.py",
        "LeaseCore.release_on_server",
        Nth("dropped", 6),
        "a lease that was released is still renewed",
    ),
)

ASKING = (
    Mutation(
        "counted-from-answer",
        "_core/lock/acquire.py",
        "take",
        Nth("time swapped"),
        "the lease counts from the reply",
    ),
    Mutation(
        "no-margin",
        "_core/lock/spec.py",
        "margin",
        Instead("ttl * 0.01 + 0.002", "0.0"),
        "there is no margin for the drift of clocks",
    ),
    Mutation("never-joins", "_core/lock/acquire.py", "ask", Instead("int(join)", "0"), "a waiter does not join the queue"),
    Mutation(
        "never-pending",
        "_core/lock/acquire.py",
        "ask",
        Instead(
            "(attempt.maybe_in_flight and first is None, True, True)",
            "(attempt.maybe_in_flight and first is None, True, attempt.may_be_on_server)",
        ),
        "an attempt does not know that it may have left something on the server",
    ),
    Mutation(
        "busy-forgets-a-copy",
        "_core/lock/acquire.py",
        "take",
        Instead("attempt.may_be_on_server = attempt.maybe_in_flight", "attempt.may_be_on_server = False"),
        'an attempt that gets the reply "busy" forgets an earlier request without a reply',
    ),
    Mutation(
        "unknown-is-no",
        "_core/lock/acquire.py",
        "ask",
        Instead("doubt or isinstance(error, Unknown)", "doubt"),
        "a request without a reply counts as not done",
    ),
    Mutation(
        "waiter-stays-listed",
        "_core/lock/acquire.py",
        "_stand_in_line",
        Nth("dropped", 5),
        "an attempt that no longer waits is still refreshed",
    ),
    Mutation(
        "release-revokes-nothing",
        "_core/lock/release.py",
        "release",
        Instead("'bury' if maybe_in_flight else 'release'", "'release'"),
        "after the release, a late copy of the request acquires the lock again",
    ),
)

WAITING = (
    Mutation(
        "joined-before-listening",
        "_core/lock/server_queue.py",
        "Waiting.register_waiter",
        Instead("return listens", "return True"),
        "a waiter joins the queue before its inbox is subscribed",
    ),
    Mutation(
        "message-counted-from-reading",
        "_core/lock/server_queue.py",
        "Waiting.on_message",
        Instead("waiter.told + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S)", "now + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S)"),
        "the claim window counts from when the message was read",
    ),
    Mutation(
        "message-for-the-full-lease",
        "_core/lock/server_queue.py",
        "Waiting.on_message",
        Instead(
            "waiter.told + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S)",
            "waiter.told + waiter.attempt.spec.ttl - margin(waiter.attempt.spec.ttl)",
        ),
        "a hand-over is believed for the full lease",
    ),
    Mutation(
        "message-releases-a-held-lock",
        "_core/lock/server_queue.py",
        "Waiting.on_message",
        Nth("operand dropped", 2),
        "the lock was granted by a reply, and the late message about the same grant releases it",
    ),
    Mutation(
        "refreshed-too-rarely",
        "_core/lock/server_queue.py",
        "",
        Instead("REFRESH_EVERY_S = 1.0", "REFRESH_EVERY_S = 10.0"),
        "refreshes are sent less often than a place lasts",
    ),
    Mutation(
        "refreshed-once",
        "_core/lock/server_queue.py",
        "Waiting.on_refreshed",
        Nth("dropped"),
        "after the first refresh there is no second",
    ),
    Mutation(
        "refresh-not-repeated",
        "_core/lock/server_queue.py",
        "Waiting.on_failed",
        Nth("dropped"),
        "after a refresh without a reply there is no other",
    ),
    Mutation(
        "refresh-counted-from-answer",
        "_core/lock/server_queue.py",
        "Waiting.on_refreshed",
        Instead("deadline = sent + ttl - margin(ttl)", "deadline = now + ttl - margin(ttl)"),
        "a grant by refresh counts from the reply",
    ),
)

MORE = (
    Mutation(
        "release-without-hand-over",
        "_lua/lock/release.lua",
        "",
        Instead("answer ~= NO_CLAIM", "answer == 0"),
        "a release does not hand the lock over, and the waiters have to find out",
    ),
    Mutation(
        "leave-keeps-place",
        "_lua/lock/release.lua",
        "",
        Instead("mode ~= 'release'", "mode == 'bury'"),
        "an attempt that is given up stays in the queue",
    ),
    Mutation(
        "renew-overtaken",
        "_lua/lock/renew.lua",
        "renew",
        Instead("whole(last, 0) > tonumber(number)", "tonumber(last) < 0"),
        "of two renewals, the one that arrives last counts, not the one that was made last",
    ),
    Mutation(
        "late-answer-accepted",
        "_core/lock/acquire.py",
        "take",
        Nth("always", 3),
        "a reply that arrived after the end of the lease is taken for a lock",
    ),
    Mutation(
        "late-message-accepted",
        "_core/lock/acquire.py",
        "_stand_in_line",
        Nth("operand dropped", 3),
        "a hand-over that is read after the claim window is taken for a lock",
    ),
    Mutation(
        "joins-unasked",
        "_core/lock/acquire.py",
        "ask",
        Instead("int(join)", "1"),
        "a client that only asks is in the queue already",
    ),
    Mutation(
        "time-out-leaves-place",
        "_core/lock/acquire.py",
        "_stand_in_line",
        Nth("dropped", 10),
        "an attempt that times out stays in the queue",
    ),
    Mutation(
        "old-message-believed",
        "_core/lock/server_queue.py",
        "Waiting.on_message",
        Nth("always", 5),
        "the fence of a message is not compared with the last one known",
    ),
)

MUTATIONS = (
    *SCRIPTS,
    *HOLDING,
    *ASKING,
    *WAITING,
    *MORE,
    *GATES,
    *UNCONTENDED,
    *HUNG,
    *SEVERAL,
    *QUORUM,
    *FLIGHT,
    *SCHEDULES,
    *ELECTION,
    *MEETINGS,
    *TICKETS,
    *PERMITS,
    *REENTRANT,
    *BREAKING,
    *RARE,
)
