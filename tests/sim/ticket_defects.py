"""Deliberate defects of handing a lock over by a ticket, see `mutations`."""

from __future__ import annotations

from functools import partial

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

_defect = partial(Mutation, of="ticket")

TICKETS = (
    _defect(
        "ticket-takes-what-is-free",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("holder ~= giver", "holder and holder ~= giver"),
        "a ticket whose time is over, or that was used, takes the lock when it is free",
    ),
    _defect(
        "ticket-of-anybody",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("holder ~= giver", "not holder"),
        "a ticket takes the lock from whoever has it",
    ),
    _defect(
        "ticket-giver-not-dead",
        "_lua/lock/exchange_token.lua",
        "",
        Nth("dropped", 15),
        "who has handed the lock on is not declared dead: a late copy of what he has sent takes it again",
    ),
    _defect(
        "ticket-answered-once",
        "_lua/lock/exchange_token.lua",
        "",
        Nth("never", 3),
        "the answer gets lost, and who asks again is told that somebody else was quicker",
    ),
    _defect(
        "ticket-same-fence",
        "_lua/lock/exchange_token.lua",
        "",
        Instead(
            "first, last = take(lock, state, heir, ttl, now, last)",
            "redis.call('SET', lock, heir, 'PX', ttl)\nfirst = last - BLOCK + 1",
        ),
        "who redeems a ticket gets the fences of who gave it",
    ),
    _defect(
        "ticket-drawn-again",
        "_lua/lock/exchange_token.lua",
        "",
        Instead("now)\nreturn", "now)\nlast = last + BLOCK\nredis.call('HSET', state, 'fence', last)\nreturn"),
        "a request that is sent again is answered with another fence",
    ),
    _defect(
        "ticket-counted-from-answer",
        "_core/lock/ticket.py",
        "redeem",
        Nth("time swapped"),
        "the lease of who redeems a ticket counts from when the answer came",
    ),
    _defect(
        "ticket-of-nobody",
        "_core/lock/ticket.py",
        "issue",
        Nth("dropped", 6),
        "who is cancelled while he makes a ticket leaves one behind that nobody has",
    ),
    _defect(
        "ticket-taken-back-last",
        "_core/lock/ticket.py",
        "take_back",
        Nth("negated"),
        "of a ticket that nobody was given, only what it was made of is given up",
    ),
    _defect(
        "ticket-giver-goes-on",
        "_api/ticket.py",
        "Issue._begin",
        Nth("dropped", 5),
        "a lease that was handed over is looked after still",
    ),
    _defect(
        "ticket-line-not-told",
        "_api/ticket.py",
        "Issue.operation",
        Nth("dropped", 12),
        "those of the giver's process who wait are not told that the lock has left it",
    ),
    _defect(
        "ticket-lock-held-twice",
        "_api/ticket.py",
        "Issue._begin",
        Instead("self._begun = held_lease.over = True", "self._begun = True"),
        "who has handed his lock over can still give it back, or use it",
    ),
)
