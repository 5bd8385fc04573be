"""Deliberate defects in the scripts, see `mutations`; and what a defect is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One defect: in ``file`` of the package, ``old`` becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    """What is wrong then, for people."""
    of: str = "lock"
    """The swarm that is to catch it: see `campaign.SWARMS`."""


def _lua(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, f"_lua/{file}.lua", old, new, breaks)


FENCES = (
    _lua(
        "fence-not-written",
        "_grant",
        "  redis.call('HSET', state, 'fence', first + BLOCK - 1)\n",
        "",
        "the fence that was drawn is not written down",
    ),
    _lua(
        "fence-not-raised",
        "_grant",
        "local first = (last or 0) + 1\n",
        "local first = (last or 0) + 1 - BLOCK\n",
        "the fences are the last ones, where the clock does not raise it",
    ),
    _lua(
        "fence-without-clock",
        "_grant",
        "  if first < now then first = now end\n",
        "",
        "the fence is a counter alone, and starts again when the server has forgotten",
    ),
    _lua(
        "fence-drawn-again",
        "acquire",
        "  return {1, last - BLOCK + 1, last}\n",
        "  return {1, take(lock, state, token, ttl, now, last)}\n",
        "a request that is sent again is answered with another fence",
    ),
)

TAKING = (
    _lua(
        "take-without-expiry",
        "_grant",
        "redis.call('SET', lock, token, 'PX', ttl)",
        "redis.call('SET', lock, token)",
        "a lock is written without a lease",
    ),
    _lua(
        "acquire-dead-token",
        "acquire",
        "and not (dead and string.find(dead, token, 1, true)) then",
        "then",
        "a late copy of a request that was given up takes the lock",
    ),
    _lua(
        "acquire-claim-not-extended",
        "acquire",
        "  extend(lock, ttl)\n",
        "",
        "who asks for the full lease after a hand-over has the claim window only",
    ),
    _lua(
        "acquire-always-joins",
        "acquire",
        "if ARGV[3] == '1' then",
        "if ARGV[3] then",
        "who only asked stands in line",
    ),
    _lua(
        "place-at-once-over",
        "_line",
        "local PLACE = 3000",
        "local PLACE = 3",
        "a place in line counts for 3 ms, where 3 s were meant",
    ),
    _lua(
        "place-without-deadline",
        "acquire",
        "  redis.call('HSET', state, 'at:' .. token, math.floor(now / 1000) + PLACE)\n",
        "",
        "who joins the queue has no deadline, and does not count",
    ),
    _lua(
        "queue-without-expiry",
        "acquire",
        "if redis.call('PTTL', queue) == -1 then",
        "if redis.call('PTTL', queue) == 0 then",
        "the queue of a lock nobody uses any more stays for ever",
    ),
    _lua(
        "state-without-expiry",
        "_state",
        "    redis.call('PEXPIRE', state, 2 * ms)\n",
        "",
        "the state of a lock nobody uses any more stays for ever",
    ),
)

HANDING_OVER = (
    _lua(
        "claim-too-short",
        "_numbers",
        "local CLAIM = 2000",
        "local CLAIM = 1000",
        "the claim window on the server is shorter than the one in the client",
    ),
    _lua(
        "claim-too-long",
        "_numbers",
        "local CLAIM = 2000",
        "local CLAIM = 60000",
        "a winner who is dead keeps the lock for a minute",
    ),
    _lua(
        "granted-to-nobody",
        "_queue",
        "  if granted then redis.call('DEL', lock) end\n",
        "",
        "when nobody in line listens, the last one tried has the lock",
    ),
    _lua(
        "winner-keeps-place",
        "_queue",
        "            leave(state, queue, token)\n            return token, last",
        "            return token, last",
        "who was handed the lock stays in line, and is handed it again",
    ),
    _lua(
        "hand-over-of-others",
        "release",
        "if waiters > 0 and answer ~= -1 then",
        "if waiters > 0 then",
        "who gives back a lock that is somebody else's hands it over",
    ),
)

REFRESHING = (
    _lua(
        "refresh-inserts",
        "refresh",
        "  if not place and holder ~= token then return {-1} end\n",
        "  if not place and holder ~= token then redis.call('ZADD', queue, 'NX', now, token) end\n",
        "a late refresh puts somebody who has left into the line again",
    ),
    _lua(
        "refresh-is-no-sign-of-life",
        "refresh",
        "  redis.call('HSET', state, 'at:' .. token, math.floor(now / 1000) + PLACE)\n",
        "",
        "places are not extended, and end after 3 s",
    ),
    _lua(
        "refresh-does-not-help",
        "refresh",
        "  if not (holder or pause) then\n",
        "  if not (holder or pause) and waiters == 0 then\n",
        "a lock that runs out is handed to nobody",
    ),
    _lua(
        "refresh-barges",
        "refresh",
        "if not holder or holder == token then  -- nobody",
        "if true then  -- nobody",
        "who finds a free lock by its refresh takes it, whoever is first in line",
    ),
    _lua(
        "refresh-claim-not-extended",
        "refresh",
        "    extend(lock, ttl)\n",
        "",
        "a grant by answer promises the full lease, and has the claim window only",
    ),
)

GIVING_BACK = (
    _lua(
        "release-any-token",
        "release",
        "if holder == token then",
        "if holder then",
        "the lock is deleted, whoever has it",
    ),
    _lua(
        "leave-keeps-lock",
        "release",
        "if holder == token then",
        "if holder == token and mode == 'release' then",
        "who gives up leaves the queue, but not the lock it was given meanwhile",
    ),
    _lua(
        "bury-forgets",
        "release",
        "  bury(state, fields[2], token)\n",
        "",
        "the token of an attempt that was given up is not noted as dead",
    ),
    _lua(
        "bury-remembers-one",
        "release",
        "bury(state, fields[2], token)",
        "bury(state, nil, token)",
        "only the last token that was declared dead is remembered",
    ),
)

RENEWING = (
    _lua(
        "renew-any-token",
        "renew",
        "if holder ~= token then return missed(state, token, holder) end",
        "if not holder then return 0 end",
        "a renewal lengthens the lease of whoever has the lock, and answers yes",
    ),
    _lua(
        "renew-creates",
        "renew",
        "if holder ~= token then return missed(state, token, holder) end",
        "if holder and holder ~= token then return -1 end\nif not holder then redis.call('SET', lock, token) end",
        "a renewal takes a lock again that was lost, or given back",
    ),
    _lua(
        "renew-in-seconds",
        "renew",
        "redis.call('PEXPIRE', lock, ttl)",
        "redis.call('EXPIRE', lock, ttl)",
        "the lease is renewed for a thousand times its length",
    ),
    _lua(
        "renew-changes-nothing",
        "renew",
        "redis.call('PEXPIRE', lock, ttl)\n",
        "",
        "the answer is yes, and the lease as it was",
    ),
)

PAUSING = (
    _lua(
        "pause-ignored",
        "_pause",
        "then pause = answer[2] else denied = answer end",
        "then pause = nil else denied = answer end",
        "a server that has forgotten who holds a guarded lock grants it at once",
    ),
    _lua(
        "handed-over-in-pause",
        "release",
        "if not (pause or denied) then hand_over(",
        "if true then hand_over(",
        "who gives back or gives up hands over a guarded lock that the server may have forgotten",
    ),
    _lua(
        "refresh-takes-in-pause",
        "refresh",
        "  if not (holder or pause) then\n",
        "  if not holder then\n",
        "who stands in line gets a guarded lock that the server may have forgotten",
    ),
)

SCRIPTS = FENCES + TAKING + HANDING_OVER + REFRESHING + GIVING_BACK + RENEWING + PAUSING
