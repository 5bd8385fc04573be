"""Deliberate defects of barriers, latches and events, see `mutations`."""

from __future__ import annotations

from functools import partial

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

_defect = partial(Mutation, of="rendezvous")

MEETINGS = (
    _defect(
        "barrier-one-too-few",
        "_lua/rendezvous/barrier.lua",
        "come",
        Instead("redis.call('ZCARD', places) < parties", "redis.call('ZCARD', places) < parties - 1"),
        "the last but one goes on, with all who wait",
    ),
    _defect(
        "barrier-forgets-who-passed",
        "_lua/rendezvous/barrier.lua",
        "remember",
        Instead(
            "if who == token then mine = outcome end",
            "if who ~= token then redis.call('HDEL', state, who) end\nif who == token then mine = outcome end",
        ),
        "what became of a token is not remembered: who looks does not learn it",
    ),
    _defect(
        "barrier-leaver-comes-late",
        "_lua/rendezvous/barrier.lua",
        "begin",
        Instead("remember(token, 'left ')", "mine = 'left '"),
        "who has given up comes by a late copy of his request, and nobody is behind it",
    ),
    _defect(
        "barrier-broken-comes-late",
        "_lua/rendezvous/barrier.lua",
        "begin",
        Instead("remember(token, broken)", "mine = broken"),
        "who was told that it is broken comes by a late copy of his request, when it is reset",
    ),
    _defect(
        "barrier-dead-wait",
        "_lua/rendezvous/barrier.lua",
        "look_for_the_dead",
        Instead("ends <= now_ms", "ends < 0"),
        "who is dead is waited for",
    ),
    _defect(
        "barrier-place-not-renewed",
        "_lua/rendezvous/barrier.lua",
        "go_on",
        Instead("else\nredis.call('ZADD', places, now_ms + ttl, token)", ""),
        "who waits for longer than a place lasts counts as dead",
    ),
    _defect(
        "barrier-acts-for-ever",
        "_lua/rendezvous/barrier.lua",
        "look_for_the_dead",
        Nth("never"),
        "whoever was to run the action, and died, is waited for",
    ),
    _defect(
        "barrier-passes-before-the-action",
        "_lua/rendezvous/barrier.lua",
        "come",
        Instead("more == '0'", "more == '0' or true"),
        "all go on, and nobody runs the action",
    ),
    _defect(
        "barrier-looks-no-more", "_core/rendezvous/barrier.py", "_meet", Nth("dropped", 8), "who waits gives no sign of life"
    ),
    _defect(
        "latch-counts-twice",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead("redis.call('ZADD', done, now_ms + MEMORY, id) == 0", "false"),
        "a call whose answer got lost, and that is sent again, counts twice",
    ),
    _defect(
        "latch-names-twice",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead("redis.call('ZADD', done, EVER, name) == 0", "redis.call('ZADD', done, EVER, name) == 2"),
        "what has a name counts as often as it is said",
    ),
    _defect("latch-tells-nobody", "_lua/rendezvous/latch.lua", "", Nth("dropped", 12), "who waits is not told that it is open"),
    _defect(
        "latch-misses-the-past",
        "_core/rendezvous/latch.py",
        "LatchWaiter.released_by",
        Nth("operand dropped", 2),
        "who waits does not learn that it was open, if it was set back at once",
    ),
    _defect(
        "latch-joins-late",
        "_core/rendezvous/latch.py",
        "wait",
        Instead(
            "me.coalescer.join(me)\nreleased, came = await _look_for_all(latch, me, until)",
            "released, came = await _look_for_all(latch, me, until)\nme.coalescer.join(me)",
        ),
        "who waits is listed nowhere before he has looked: what opens in between, he sleeps through",
    ),
    _defect(
        "latch-state-stays",
        "_lua/rendezvous/latch.lua",
        "",
        Instead("redis.call('PEXPIRE', state, keep)", ""),
        "the state of a latch that nobody uses any more stays for ever",
    ),
    _defect(
        "latch-released-at-once",
        "_core/rendezvous/latch.py",
        "LatchWaiter.released_by",
        Nth("boundary shifted"),
        "who waits for a latch that was not opened meanwhile is released",
    ),
    _defect(
        "event-forgets-when-cleared",
        "_lua/rendezvous/latch.lua",
        "repeated",
        Instead(
            "redis.call('ZADD', done, now_ms + MEMORY, id) == 0", "redis.call('ZADD', done, now_ms + MEMORY, round .. id) == 0"
        ),
        "a late copy of a call that has set an event sets it again when it was cleared",
    ),
)
