"""Deliberate defects of barriers, latches and events, see `mutations`."""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation


def _defect(where: str, name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, where.format(file), old, new, breaks, of="meetings")


_lua = partial(_defect, "_lua/{}.lua")
_core = partial(_defect, "_core/{}.py")

MEETINGS = (
    _lua(
        "barrier-one-too-few",
        "barrier",
        "if redis.call('ZCARD', places) < parties then return end",
        "if redis.call('ZCARD', places) < parties - 1 then return end",
        "the last but one goes on, with all who wait",
    ),
    _lua(
        "barrier-forgets-who-passed",
        "barrier",
        "  if who == token then mine = outcome end\n",
        "  if who ~= token then redis.call('HDEL', state, who) end\n  if who == token then mine = outcome end\n",
        "what became of a token is not remembered: who looks does not learn it",
    ),
    _lua(
        "barrier-leaver-comes-late",
        "barrier",
        "    remember(token, 'left ')  -- and",
        "    mine = 'left '  -- and",
        "who has given up comes by a late copy of his request, and nobody is behind it",
    ),
    _lua(
        "barrier-broken-comes-late",
        "barrier",
        "      remember(token, broken)  -- or",
        "      mine = broken  -- or",
        "who was told that it is broken comes by a late copy of his request, when it is reset",
    ),
    _lua(
        "barrier-dead-wait",
        "barrier",
        "  elseif who and ends <= now_ms then\n",
        "  elseif who and ends < 0 then\n",
        "who is dead is waited for",
    ),
    _lua(
        "barrier-place-not-renewed",
        "barrier",
        "  else\n    redis.call('ZADD', places, now_ms + ttl, token)\n  end\nend",
        "  end\nend",
        "who waits for longer than a place lasts counts as dead",
    ),
    _lua(
        "barrier-acts-for-ever",
        "barrier",
        "  if actor and redis.call('EXISTS', action) == 0 then\n",
        "  if false then\n",
        "whoever was to run the action, and died, is waited for",
    ),
    _lua(
        "barrier-passes-before-the-action",
        "barrier",
        "  if more == '0' then return settle('passed') end\n",
        "  if more == '0' or true then return settle('passed') end\n",
        "all go on, and nobody runs the action",
    ),
    _core(
        "barrier-looks-no-more",
        "barrier",
        "            at = min(at, now + meeting.spec.ttl / 3)\n",
        "",
        "who waits gives no sign of life",
    ),
    _lua(
        "latch-counts-twice",
        "latch",
        "  local before = redis.call('ZADD', done, now_ms + MEMORY, id) == 0\n",
        "  local before = false\n",
        "a call whose answer got lost, and that is sent again, counts twice",
    ),
    _lua(
        "latch-names-twice",
        "latch",
        "redis.call('ZADD', done, EVER, name) == 0)",
        "redis.call('ZADD', done, EVER, name) == 2)",
        "what has a name counts as often as it is said",
    ),
    _lua("latch-tells-nobody", "latch", "      tell(waiters)\n", "", "who waits is not told that it is open"),
    _core(
        "latch-misses-the-past",
        "latch",
        "return seen.missing == 0 or seen.opened > self.seen.opened",
        "return seen.missing == 0",
        "who waits does not learn that it was open, if it was set back at once",
    ),
    _core(
        "latch-joins-late",
        "latch",
        "            me.crowd.join(me)\n            released, came = await _look_for_all(latch, me, until)\n",
        "            released, came = await _look_for_all(latch, me, until)\n            me.crowd.join(me)\n",
        "who waits is listed nowhere before he has looked: what opens in between, he sleeps through",
    ),
)
