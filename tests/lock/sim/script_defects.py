"""Deliberate defects in the scripts, see `mutations`."""

from __future__ import annotations

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

FENCES = (
    Mutation("fence-not-written", "_lua/shared/_grant.lua", "take", Nth("dropped", 2), "the new fence is not stored"),
    Mutation(
        "fence-not-raised",
        "_lua/shared/_grant.lua",
        "take",
        Instead("local first = (last or 0) + 1", "local first = (last or 0) + 1 - BLOCK"),
        "the fences of the last grant are issued again, unless the clock is ahead of them",
    ),
    Mutation(
        "fence-without-clock",
        "_lua/shared/_grant.lua",
        "take",
        Nth("never"),
        "the fence is a counter alone, and starts again when the server has lost its data",
    ),
    Mutation(
        "fence-drawn-again",
        "_lua/lock/acquire.lua",
        "",
        Instead("return {1, last - BLOCK + 1, last}", "return {1, take(lock, state, token, ttl, now, last)}"),
        "a request that is sent again gets another fence",
    ),
    Mutation(
        "late-writes-accepted",
        "_lua/fencing/check.lua",
        "",
        Instead("seen > tonumber(ARGV[1])", "seen < 0"),
        "the protected resource accepts writes of earlier holders",
    ),
)

TAKING = (
    Mutation(
        "take-without-expiry",
        "_lua/shared/_grant.lua",
        "take",
        Instead("redis.call('SET', lock, token, 'PX', ttl)", "redis.call('SET', lock, token)"),
        "a lock is written without an expiry",
    ),
    Mutation(
        "acquire-revoked-token",
        "_lua/lock/acquire.lua",
        "",
        Nth("operand dropped", 8),
        "a late copy of a request that was given up acquires the lock",
    ),
    Mutation(
        "acquire-claim-not-extended",
        "_lua/lock/acquire.lua",
        "",
        Nth("dropped", 10),
        "a request for the full lease after a hand-over gets the claim window only",
    ),
    Mutation(
        "acquire-always-joins",
        "_lua/lock/acquire.lua",
        "",
        Instead("== '1' then", "then"),
        "a client that only asks joins the queue",
    ),
    Mutation(
        "place-at-once-over",
        "_lua/shared/_waiters.lua",
        "",
        Nth("unit swapped"),
        "a place in the queue counts for 3 ms instead of 3 s",
    ),
    Mutation(
        "place-without-deadline",
        "_lua/lock/acquire.lua",
        "",
        Nth("dropped", 17),
        "a waiter that joins the queue has no deadline, so its place does not count",
    ),
    Mutation(
        "queue-without-expiry",
        "_lua/lock/acquire.lua",
        "",
        Instead("redis.call('PTTL', queue) == -1", "redis.call('PTTL', queue) == 0"),
        "the queue of an unused lock stays forever",
    ),
    Mutation(
        "state-without-expiry",
        "_lua/shared/_state.lua",
        "keep_alive",
        Nth("dropped", 2),
        "the state of an unused lock stays forever",
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
        "a winner that is dead keeps the lock for a minute",
    ),
    Mutation(
        "granted-to-nobody",
        "_lua/lock/_handover.lua",
        "hand_over",
        Nth("never", 8),
        "when no waiter is notified, the last one tried has the lock",
    ),
    Mutation(
        "winner-keeps-place",
        "_lua/lock/_handover.lua",
        "hand_over",
        Nth("dropped", 4),
        "a waiter to which the lock was handed over stays in the queue, and gets it again",
    ),
    Mutation(
        "hand-over-of-others",
        "_lua/lock/release.lua",
        "",
        Nth("operand dropped", 8),
        "a client that releases another client's lock hands it over",
    ),
)

KEEPING = (
    Mutation(
        "late-copy-shortens",
        "_lua/shared/_state.lua",
        "extend",
        Nth("always"),
        "a late copy of a request shortens a lease that was renewed for longer",
    ),
    Mutation(
        "only-the-last-is-revoked",
        "_lua/shared/_state.lua",
        "revoke",
        Instead("-100 *", "-1 *"),
        "only the newest of the revoked tokens is refused",
    ),
)

REFRESHING = (
    Mutation(
        "refresh-inserts",
        "_lua/lock/refresh.lua",
        "refresh",
        Instead("return {NO_CLAIM}", "redis.call('ZADD', queue, 'NX', now, token)"),
        "a late refresh puts a waiter that has left into the queue again",
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
        "a lock that expires is handed over to nobody",
    ),
    Mutation(
        "refresh-barges",
        "_lua/lock/refresh.lua",
        "refresh",
        Nth("always", 9),
        "a waiter that finds a free lock by its refresh acquires it, even if it is not the first",
    ),
    Mutation(
        "refresh-claim-not-extended",
        "_lua/lock/refresh.lua",
        "refresh",
        Nth("dropped", 8),
        "a grant by the reply to a refresh promises the full lease, and has the claim window only",
    ),
)

GIVING_BACK = (
    Mutation(
        "release-any-token",
        "_lua/lock/release.lua",
        "",
        Instead("holder == token", "holder"),
        "the lock is deleted, whichever client has it",
    ),
    Mutation(
        "leave-keeps-lock",
        "_lua/lock/release.lua",
        "",
        Instead("holder == token", "holder == token and mode == 'release'"),
        "an attempt that is given up leaves the queue, but keeps the lock that it was granted meanwhile",
    ),
    Mutation(
        "revoke-forgets",
        "_lua/lock/release.lua",
        "",
        Nth("dropped", 8),
        "the token of an attempt that was given up is not revoked",
    ),
    Mutation(
        "revoke-remembers-one",
        "_lua/lock/release.lua",
        "",
        Instead("revoke(state, fields[2], token)", "revoke(state, nil, token)"),
        "only the last revoked token is remembered",
    ),
)

RENEWING = (
    Mutation(
        "renew-any-token",
        "_lua/lock/renew.lua",
        "renew",
        Instead("if holder ~= token then return missed(state, token, holder) end", "if not holder then return 0 end"),
        "a renewal extends the lease of any client that has the lock, and replies yes",
    ),
    Mutation(
        "renew-creates",
        "_lua/lock/renew.lua",
        "renew",
        Instead(
            "if holder ~= token then return missed(state, token, holder) end",
            "if holder and holder ~= token then return -1 end\nif not holder then redis.call('SET', lock, token) end",
        ),
        "a renewal acquires a lock again that was lost or released",
    ),
    Mutation(
        "renew-in-seconds",
        "_lua/lock/renew.lua",
        "renew",
        Nth("unit swapped", 3),
        "the lease is renewed for a thousand times its length",
    ),
    Mutation(
        "renew-changes-nothing",
        "_lua/lock/renew.lua",
        "renew",
        Nth("dropped", 3),
        "the reply is yes, and the lease is not extended",
    ),
)

PAUSING = (
    Mutation(
        "quarantine-ignored",
        "_lua/lock/_quarantine.lua",
        "lock_quarantine",
        Instead("return answer[2], nil", "return nil, nil"),
        "a server that has lost its data grants a lock with a quarantine at once",
    ),
    Mutation(
        "handed-over-in-quarantine",
        "_lua/lock/release.lua",
        "",
        Nth("always", 10),
        "a release, or an attempt that is given up, hands over a lock that is in quarantine",
    ),
    Mutation(
        "refresh-grants-in-quarantine",
        "_lua/lock/refresh.lua",
        "refresh",
        Instead("(holder or pause)", "holder"),
        "a waiter in the queue gets a lock that is in quarantine",
    ),
)

SCRIPTS = FENCES + TAKING + HANDING_OVER + KEEPING + REFRESHING + GIVING_BACK + RENEWING + PAUSING
