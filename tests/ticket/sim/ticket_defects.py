"""Deliberate defects of handing a lock over by a ticket, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="ticket")

TICKETS = (
    _defect(
        "ticket-takes-what-is-free",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("holder ~= giver", "holder and holder ~= giver"),
        "a ticket that has expired or was used acquires the lock when it is free",
    ),
    _defect(
        "ticket-of-anybody",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("holder ~= giver", "not holder"),
        "a ticket takes the lock from any holder",
    ),
    _defect(
        "ticket-giver-not-revoked",
        "_lua/lock/exchange_token.lua",
        "",
        Nth("dropped", 15),
        "the giver's token is not revoked: a late copy of one of its requests acquires the lock again",
    ),
    _defect(
        "ticket-answered-once",
        "_lua/lock/exchange_token.lua",
        "",
        Nth("never", 3),
        "the reply is lost, and a client that asks again is told that another one was faster",
    ),
    _defect(
        "ticket-same-fence",
        "_lua/lock/exchange_token.lua",
        "",
        Instead(
            "first, last = take(lock, state, heir, ttl, now, last)",
            "redis.call('SET', lock, heir, 'PX', ttl)\nfirst = last - BLOCK + 1",
        ),
        "a client that redeems a ticket gets the giver's fences",
    ),
    _defect(
        "ticket-drawn-again",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("now)\nreturn", "now)\nlast = last + BLOCK\nredis.call('HSET', state, 'fence', last)\nreturn"),
        "a request that is sent again gets another fence",
    ),
    _defect(
        "ticket-counted-from-answer",
        "_core/lock/ticket.py",
        "redeem",
        Nth("time swapped"),
        "the lease of a client that redeems a ticket counts from the reply",
    ),
    _defect(
        "ticket-of-nobody",
        "_core/lock/ticket.py",
        "issue",
        Nth("dropped", 6),
        "a giver that is cancelled while it makes a ticket leaves a ticket behind that nobody has",
    ),
    _defect(
        "ticket-taken-back-last",
        "_core/lock/ticket.py",
        "take_back",
        Nth("negated"),
        "when nobody was given the ticket, only the giver's token is given up",
    ),
    _defect(
        "ticket-giver-goes-on",
        "_api/ticket.py",
        "Issue._begin",
        Nth("dropped", 5),
        "a lease that was handed over is still renewed",
    ),
    _defect(
        "ticket-queue-not-told",
        "_api/ticket.py",
        "Issue.operation",
        Nth("dropped", 12),
        "waiters in the giver's process are not told that the lock has left it",
    ),
    _defect(
        "ticket-lock-held-twice",
        "_api/ticket.py",
        "Issue._begin",
        Instead("self._begun = held_lease.over = True", "self._begun = True"),
        "a giver that has handed its lock over can still release or use it",
    ),
)
