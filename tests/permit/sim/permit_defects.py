"""Deliberate defects of semaphores and read-write locks, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="permit")

PERMITS = (
    _defect(
        "permit-barging",
        "_lua/permit/acquire.lua",
        "",
        Nth("operand dropped", 64),
        "free permits go to a newcomer, past a waiter that wants more",
    ),
    _defect(
        "permit-limit-ignored",
        "_lua/permit/acquire.lua",
        "",
        Nth("operand dropped", 46),
        "a client that finds no waiters acquires permits, however many are held",
    ),
    _defect(
        "permit-used-stays-at-expiry",
        "_lua/permit/_permits.lua",
        "remove",
        Instead("p.used - permits", "p.used - 0 * permits"),
        "expired permits still count as held",
    ),
    _defect(
        "permit-blocked-passed-over",
        "_lua/permit/_permits.lua",
        "serve",
        Instead("blocked = true\nbreak", "from = from + 1"),
        "a waiter that wants more permits than are free is passed over, again and again",
    ),
    _defect(
        "permit-place-kept",
        "_lua/permit/_permits.lua",
        "serve",
        Nth("dropped", 11),
        "a waiter that was served stays in the queue, and is served again",
    ),
    _defect(
        "permit-release-serves-nobody",
        "_lua/permit/release.lua",
        "",
        Nth("never", 8),
        "released permits are handed over to nobody",
    ),
    _defect(
        "permit-release-without-check",
        "_lua/permit/release.lua",
        "",
        Nth("always", 5),
        "a client that releases permits that it no longer has makes room for one too many",
    ),
    _defect(
        "permit-left-in-queue", "_lua/permit/release.lua", "", Nth("never", 6), "an attempt that is given up stays in the queue"
    ),
    _defect(
        "permit-not-revoked",
        "_lua/permit/release.lua",
        "",
        Nth("dropped", 9),
        "a late copy of a request that was given up acquires permits for nobody",
    ),
    _defect(
        "permit-refresh-inserts",
        "_lua/permit/refresh.lua",
        "refresh",
        Instead("if not p.place then return {NO_CLAIM} end", "redis.call('ZADD', queue, 'NX', p.now, token)"),
        "a late refresh puts a waiter that has left into the queue again",
    ),
    _defect(
        "permit-renewal-revives",
        "_lua/permit/renew.lua",
        "renew",
        Instead(
            "if not p or not redis.call('ZSCORE', holders, token) then return missed(p, token) end",
            "if not p then return 0 end",
        ),
        "a late holder renews permits that belong to another client by now",
    ),
    _defect(
        "permit-downgrade-serves-nobody",
        "_lua/permit/change.lua",
        "",
        Nth("dropped", 10),
        "a writer becomes a reader, and the waiting readers are not served",
    ),
    _defect(
        "permit-downgrade-not-counted",
        "_lua/permit/change.lua",
        "",
        Nth("dropped", 5),
        "a writer that becomes a reader still counts as a writer",
    ),
    _defect(
        "permit-limit-serves-nobody",
        "_lua/permit/limit.lua",
        "",
        Instead("serve(p, false)", ""),
        "there are more permits, and their waiters are not notified",
    ),
    _defect(
        "permit-asked-again-is-shorter",
        "_lua/permit/_permits.lua",
        "confirm",
        Instead("if until_ms - p.now_ms < ttl then extend_permits(p, token, ttl) end", "extend_permits(p, token, ttl)"),
        "a late copy of a request shortens a lease of permits that was renewed for longer",
    ),
)
