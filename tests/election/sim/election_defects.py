"""Deliberate defects of leader election, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="election")

ELECTION = (
    _defect(
        "proclaim-notifies-nobody",
        "_lua/election/proclaim.lua",
        "",
        Nth("dropped", 9),
        "observers are not notified of a new leader",
    ),
    _defect(
        "observer-not-listed", "_lua/election/observe.lua", "", Nth("never", 5), "observers are not listed for notifications"
    ),
    _defect(
        "observer-sees-the-one-before",
        "_lua/election/observe.lua",
        "",
        Nth("never", 10),
        "until the next leader has proclaimed itself, observers see the previous one",
    ),
    _defect(
        "transfer-to-anyone",
        "_lua/election/transfer.lua",
        "",
        Nth("always", 8),
        "the first waiting candidate gets the lock, not the named one",
    ),
    _defect(
        "names-stay-in-queue",
        "_lua/shared/_waiters.lua",
        "leave",
        Instead("'at:' .. token, 'as:' .. token", "'at:' .. token"),
        "a candidate that leaves the queue leaves its name behind",
    ),
    _defect(
        "resigns-in-silence",
        "_api/election_lock.py",
        "BaseTermCore.release_on_server",
        Nth("dropped", 2),
        "observers are not notified that the leader has resigned",
    ),
    _defect(
        "believes-while-handing-over",
        "_api/election_lock.py",
        "BaseTermCore.transfer",
        Nth("dropped", 2),
        "a leader that hands over believes that it leads until the reply",
    ),
    _defect(
        "elected-counted-from-answer",
        "_core/election.py",
        "_take_up",
        Nth("time swapped"),
        "the lease of a leader counts from the reply",
    ),
    _defect(
        "observer-sleeps-on",
        "_core/election.py",
        "change",
        Instead("min(view.remaining + LOOK_AGAIN_AFTER_S, LISTEN_S)", "LISTEN_S"),
        "observers do not look when the lease of the leader ends",
    ),
    _defect(
        "term-of-the-first-leader",
        "_lua/election/proclaim.lua",
        "",
        Instead(
            "redis.call('HSET', state, 'leader', token, 'term', term, 'name', ARGV[4], 'value', ARGV[5])",
            "redis.call('HSETNX', state, 'term', term)\n"
            "redis.call('HSET', state, 'leader', token, 'name', ARGV[4], 'value', ARGV[5])",
        ),
        "observers see each leader in the term of the first one",
    ),
)
