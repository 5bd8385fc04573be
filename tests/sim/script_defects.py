"""Deliberate defects in the scripts, see `mutations`."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

FENCES = (
    Mutation(
        "fence-not-written", "_lua/shared/_grant.lua", "take", Nth("dropped", 2), "the fence that was drawn is not written down"
    ),
    Mutation(
        "fence-not-raised",
        "_lua/shared/_grant.lua",
        "take",
        Instead("local first = (last or 0) + 1", "local first = (last or 0) + 1 - BLOCK"),
        "the fences are the last ones, where the clock does not raise it",
    ),
    Mutation(
        "fence-without-clock",
        "_lua/shared/_grant.lua",
        "take",
        Nth("never"),
        "the fence is a counter alone, and starts again when the server has forgotten",
    ),
    Mutation(
        "fence-drawn-again",
        "_lua/lock/acquire.lua",
        "",
        Instead("return {1, last - BLOCK + 1, last}", "return {1, take(lock, state, token, ttl, now, last)}"),
        "a request that is sent again is answered with another fence",
    ),
    Mutation(
        "late-writes-accepted",
        "_lua/fencing/check.lua",
        "",
        Instead("seen > tonumber(ARGV[1])", "seen < 0"),
        "what a lock protects accepts writes of those who had the lock earlier",
    ),
)

TAKING = (
    Mutation(
        "take-without-expiry",
        "_lua/shared/_grant.lua",
        "take",
        Instead("redis.call('SET', lock, token, 'PX', ttl)", "redis.call('SET', lock, token)"),
        "a lock is written without a lease",
    ),
    Mutation(
        "acquire-dead-token",
        "_lua/lock/acquire.lua",
        "",
        Nth("operand dropped", 8),
        "a late copy of a request that was given up takes the lock",
    ),
    Mutation(
        "acquire-claim-not-extended",
        "_lua/lock/acquire.lua",
        "",
        Nth("dropped", 10),
        "who asks for the full lease after a hand-over has the claim window only",
    ),
    Mutation(
        "acquire-always-joins", "_lua/lock/acquire.lua", "", Instead("== '1' then", "then"), "who only asked stands in line"
    ),
    Mutation(
        "place-at-once-over",
        "_lua/shared/_waiters.lua",
        "",
        Nth("unit swapped"),
        "a place in line counts for 3 ms, where 3 s were meant",
    ),
    Mutation(
        "place-without-deadline",
        "_lua/lock/acquire.lua",
        "",
        Nth("dropped", 17),
        "who joins the queue has no deadline, and does not count",
    ),
    Mutation(
        "queue-without-expiry",
        "_lua/lock/acquire.lua",
        "",
        Instead("redis.call('PTTL', queue) == -1", "redis.call('PTTL', queue) == 0"),
        "the queue of a lock nobody uses any more stays for ever",
    ),
    Mutation(
        "state-without-expiry",
        "_lua/shared/_state.lua",
        "keep_alive",
        Nth("dropped", 2),
        "the state of a lock nobody uses any more stays for ever",
    ),
)

HANDING_OVER = (
    Mutation(
        "claim-too-short",
        "_lua/shared/_constants.lua",
        "",
        Instead("local CLAIM = 2000", "local CLAIM = 1000"),
        "the claim window on the server is shorter than the one in the client",
    ),
    Mutation(
        "claim-too-long",
        "_lua/shared/_constants.lua",
        "",
        Instead("local CLAIM = 2000", "local CLAIM = 60000"),
        "a winner who is dead keeps the lock for a minute",
    ),
    Mutation(
        "granted-to-nobody",
        "_lua/lock/_handover.lua",
        "hand_over",
        Nth("never", 8),
        "when nobody in line listens, the last one tried has the lock",
    ),
    Mutation(
        "winner-keeps-place",
        "_lua/lock/_handover.lua",
        "hand_over",
        Nth("dropped", 4),
        "who was handed the lock stays in line, and is handed it again",
    ),
    Mutation(
        "hand-over-of-others",
        "_lua/lock/release.lua",
        "",
        Nth("operand dropped", 8),
        "who gives back a lock that is somebody else's hands it over",
    ),
)

KEEPING = (
    Mutation(
        "late-copy-shortens",
        "_lua/shared/_state.lua",
        "extend",
        Nth("always"),
        "a late copy of a request takes from its holder what was renewed for longer",
    ),
    Mutation(
        "only-the-last-is-dead",
        "_lua/shared/_state.lua",
        "revoke",
        Instead("-100 *", "-1 *"),
        "of the tokens that are declared dead only the newest is refused",
    ),
)

REFRESHING = (
    Mutation(
        "refresh-inserts",
        "_lua/lock/refresh.lua",
        "refresh",
        Instead("return {NO_CLAIM}", "redis.call('ZADD', queue, 'NX', now, token)"),
        "a late refresh puts somebody who has left into the line again",
    ),
    Mutation(
        "refresh-is-no-sign-of-life",
        "_lua/lock/refresh.lua",
        "refresh",
        Nth("dropped", 10),
        "places are not extended, and end after 3 s",
    ),
    Mutation(
        "refresh-does-not-help",
        "_lua/lock/refresh.lua",
        "refresh",
        Instead("(holder or pause)", "(holder or pause) and waiters == 0"),
        "a lock that runs out is handed to nobody",
    ),
    Mutation(
        "refresh-barges",
        "_lua/lock/refresh.lua",
        "refresh",
        Nth("always", 9),
        "who finds a free lock by its refresh takes it, whoever is first in line",
    ),
    Mutation(
        "refresh-claim-not-extended",
        "_lua/lock/refresh.lua",
        "refresh",
        Nth("dropped", 8),
        "a grant by answer promises the full lease, and has the claim window only",
    ),
)

GIVING_BACK = (
    Mutation(
        "release-any-token",
        "_lua/lock/release.lua",
        "",
        Instead("holder == token", "holder"),
        "the lock is deleted, whoever has it",
    ),
    Mutation(
        "leave-keeps-lock",
        "_lua/lock/release.lua",
        "",
        Instead("holder == token", "holder == token and mode == 'release'"),
        "who gives up leaves the queue, but not the lock it was given meanwhile",
    ),
    Mutation(
        "bury-forgets",
        "_lua/lock/release.lua",
        "",
        Nth("dropped", 8),
        "the token of an attempt that was given up is not noted as dead",
    ),
    Mutation(
        "bury-remembers-one",
        "_lua/lock/release.lua",
        "",
        Instead("revoke(state, fields[2], token)", "revoke(state, nil, token)"),
        "only the last token that was declared dead is remembered",
    ),
)

RENEWING = (
    Mutation(
        "renew-any-token",
        "_lua/lock/renew.lua",
        "renew",
        Instead("if holder ~= token then return missed(state, token, holder) end", "if not holder then return 0 end"),
        "a renewal lengthens the lease of whoever has the lock, and answers yes",
    ),
    Mutation(
        "renew-creates",
        "_lua/lock/renew.lua",
        "renew",
        Instead(
            "if holder ~= token then return missed(state, token, holder) end",
            "if holder and holder ~= token then return -1 end\nif not holder then redis.call('SET', lock, token) end",
        ),
        "a renewal takes a lock again that was lost, or given back",
    ),
    Mutation(
        "renew-in-seconds",
        "_lua/lock/renew.lua",
        "renew",
        Nth("unit swapped", 3),
        "the lease is renewed for a thousand times its length",
    ),
    Mutation(
        "renew-changes-nothing", "_lua/lock/renew.lua", "renew", Nth("dropped", 3), "the answer is yes, and the lease as it was"
    ),
)

PAUSING = (
    Mutation(
        "pause-ignored",
        "_lua/lock/_quarantine.lua",
        "lock_quarantine",
        Instead("return answer[2], nil", "return nil, nil"),
        "a server that has forgotten who holds a guarded lock grants it at once",
    ),
    Mutation(
        "handed-over-in-pause",
        "_lua/lock/release.lua",
        "",
        Nth("always", 10),
        "who gives back or gives up hands over a guarded lock that the server may have forgotten",
    ),
    Mutation(
        "refresh-takes-in-pause",
        "_lua/lock/refresh.lua",
        "refresh",
        Instead("(holder or pause)", "holder"),
        "who stands in line gets a guarded lock that the server may have forgotten",
    ),
)

SCRIPTS = FENCES + TAKING + HANDING_OVER + KEEPING + REFRESHING + GIVING_BACK + RENEWING + PAUSING
