"""Deliberate defects of leader election, see `mutations`."""

from __future__ import annotations

from functools import partial

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

_defect = partial(Mutation, of="election")

ELECTION = (
    _defect("proclaim-tells-nobody", "_lua/election/proclaim.lua", "", Nth("dropped", 9), "observers are not told who leads"),
    _defect(
        "observer-not-listed", "_lua/election/observe.lua", "", Nth("never", 5), "observers are not among those who are told"
    ),
    _defect(
        "observer-sees-the-one-before",
        "_lua/election/observe.lua",
        "",
        Nth("never", 10),
        "while the next one has not said who he is, observers see the one before",
    ),
    _defect("transfer-to-anyone", "_lua/election/transfer.lua", "", Nth("always", 8), "the first in line is given it"),
    _defect(
        "names-stay-in-line",
        "_lua/shared/_waiters.lua",
        "leave",
        Instead("'at:' .. token, 'as:' .. token", "'at:' .. token"),
        "who leaves the line leaves his name behind",
    ),
    _defect(
        "resigns-in-silence",
        "_api/election.py",
        "BaseTermCore.release_on_server",
        Nth("dropped", 2),
        "observers are not told that the leader has resigned",
    ),
    _defect(
        "believes-while-handing-over",
        "_api/election.py",
        "BaseTermCore.transfer",
        Nth("dropped", 2),
        "who hands over believes to lead until he is answered",
    ),
    _defect(
        "elected-counted-from-answer",
        "_core/election.py",
        "_take_up",
        Nth("time swapped"),
        "the lease of a leader counts from when the answer came",
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
