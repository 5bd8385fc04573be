"""Deliberate defects of barriers, latches and events, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="rendezvous")

MEETINGS = (
    _defect(
        "barrier-one-too-few",
        "_lua/rendezvous/barrier.lua",
        "come",
        Instead("redis.call('ZCARD', places) < parties", "redis.call('ZCARD', places) < parties - 1"),
        "the last participant but one passes, with all that wait",
    ),
    _defect(
        "barrier-forgets-who-passed",
        "_lua/rendezvous/barrier.lua",
        "remember",
        Instead(
            "if who == token then mine = outcome end",
            "if who ~= token then redis.call('HDEL', state, who) end\nif who == token then mine = outcome end",
        ),
        "the outcome of a token is not remembered, so a participant that asks does not learn it",
    ),
    _defect(
        "barrier-leaver-comes-late",
        "_lua/rendezvous/barrier.lua",
        "begin",
        Instead("remember(token, 'left ')", "mine = 'left '"),
        "a participant that has given up arrives by a late copy of its request",
    ),
    _defect(
        "barrier-broken-comes-late",
        "_lua/rendezvous/barrier.lua",
        "begin",
        Instead("remember(token, broken)", "mine = broken"),
        "a participant that was told that the barrier is broken arrives by a late copy of its request after the reset",
    ),
    _defect(
        "barrier-waits-for-the-crashed",
        "_lua/rendezvous/barrier.lua",
        "look_for_the_dead",
        Instead("ends <= now_ms", "ends < 0"),
        "the others wait for a dead participant",
    ),
    _defect(
        "barrier-place-not-renewed",
        "_lua/rendezvous/barrier.lua",
        "go_on",
        Instead("else\nredis.call('ZADD', places, now_ms + ttl, token)", ""),
        "a participant that waits for longer than a place lasts counts as dead",
    ),
    _defect(
        "barrier-acts-for-ever",
        "_lua/rendezvous/barrier.lua",
        "look_for_the_dead",
        Nth("never"),
        "the others wait for a participant that was to run the action, and died",
    ),
    _defect(
        "barrier-passes-before-the-action",
        "_lua/rendezvous/barrier.lua",
        "come",
        Instead("more == '0'", "more == '0' or true"),
        "all participants pass, and nobody runs the action",
    ),
    _defect(
        "barrier-looks-no-more",
        "_core/rendezvous/barrier.py",
        "_meet",
        Nth("dropped", 8),
        "a waiting participant does not refresh its place",
    ),
    _defect(
        "latch-counts-twice",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead("redis.call('ZADD', done, now_ms + MEMORY, id) == 0", "false"),
        "a call whose reply was lost, and that is sent again, counts twice",
    ),
    _defect(
        "latch-names-twice",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead("redis.call('ZADD', done, EVER, name) == 0", "redis.call('ZADD', done, EVER, name) == 2"),
        "a call with a name counts each time that it is made",
    ),
    _defect(
        "latch-notifies-nobody",
        "_lua/rendezvous/latch.lua",
        "",
        Nth("dropped", 12),
        "a waiter is not notified that the latch is open",
    ),
    _defect(
        "latch-misses-the-past",
        "_core/rendezvous/latch.py",
        "LatchWaiter.released_by",
        Nth("operand dropped", 2),
        "a waiter does not learn that the latch was open, if it was reset at once",
    ),
    _defect(
        "latch-joins-late",
        "_core/rendezvous/latch.py",
        "wait",
        Instead(
            "me.coalescer.join(me)\nreleased, came = await _look_for_all(latch, me, until)",
            "released, came = await _look_for_all(latch, me, until)\nme.coalescer.join(me)",
        ),
        "a waiter is not listed before it has looked, and misses an opening in between",
    ),
    _defect(
        "latch-state-stays",
        "_lua/rendezvous/latch.lua",
        "",
        Instead("redis.call('PEXPIRE', state, keep)", ""),
        "the state of an unused latch stays forever",
    ),
    _defect(
        "latch-released-at-once",
        "_core/rendezvous/latch.py",
        "LatchWaiter.released_by",
        Nth("boundary shifted"),
        "a waiter is released although the latch was not opened meanwhile",
    ),
    _defect(
        "event-forgets-when-cleared",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead(
            "redis.call('ZADD', done, now_ms + MEMORY, id) == 0", "redis.call('ZADD', done, now_ms + MEMORY, round .. id) == 0"
        ),
        "a late copy of a call that has set an event sets it again after it was cleared",
    ),
)
