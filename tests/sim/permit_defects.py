"""Deliberate defects of semaphores and read-write locks, see `mutations`."""

from __future__ import annotations

from functools import partial

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

_defect = partial(Mutation, of="permit")

PERMITS = (
    _defect(
        "permit-barging",
        "_lua/permit/acquire.lua",
        "",
        Nth("operand dropped", 64),
        "what is free goes to who asks, past those in line who want more",
    ),
    _defect(
        "permit-limit-ignored",
        "_lua/permit/acquire.lua",
        "",
        Nth("operand dropped", 46),
        "who finds nobody in line takes permits, however many are held",
    ),
    _defect(
        "permit-used-stays-at-expiry",
        "_lua/permit/_permits.lua",
        "remove",
        Instead("p.used - permits", "p.used - 0 * permits"),
        "permits that come back are counted as held still",
    ),
    _defect(
        "permit-blocked-passed-over",
        "_lua/permit/_permits.lua",
        "serve",
        Instead("blocked = true\nbreak", "from = from + 1"),
        "who wants more than is free is passed over, again and again",
    ),
    _defect(
        "permit-place-kept",
        "_lua/permit/_permits.lua",
        "serve",
        Nth("dropped", 11),
        "who was served stands in line still, and is served again",
    ),
    _defect(
        "permit-release-serves-nobody",
        "_lua/permit/release.lua",
        "",
        Nth("never", 8),
        "what is given back is handed over to nobody",
    ),
    _defect(
        "permit-release-without-look",
        "_lua/permit/release.lua",
        "",
        Nth("always", 5),
        "who gives back what is not his any more makes room for one too many",
    ),
    _defect("permit-left-in-line", "_lua/permit/release.lua", "", Nth("never", 6), "who gives up stays in line"),
    _defect(
        "permit-not-buried",
        "_lua/permit/release.lua",
        "",
        Nth("dropped", 9),
        "a late copy of a request that was given up takes permits for nobody",
    ),
    _defect(
        "permit-refresh-inserts",
        "_lua/permit/refresh.lua",
        "refresh",
        Instead("if not p.place then return {NO_CLAIM} end", "redis.call('ZADD', queue, 'NX', p.now, token)"),
        "a late sign of life puts somebody in line who has left it",
    ),
    _defect(
        "permit-renewal-revives",
        "_lua/permit/renew.lua",
        "renew",
        Instead(
            "if not p or not redis.call('ZSCORE', holders, token) then return missed(p, token) end",
            "if not p then return 0 end",
        ),
        "who is late renews what is somebody else's by now",
    ),
    _defect(
        "permit-downgrade-serves-nobody",
        "_lua/permit/change.lua",
        "",
        Nth("dropped", 10),
        "a writer becomes a reader, and the readers who wait stay outside",
    ),
    _defect(
        "permit-downgrade-not-counted",
        "_lua/permit/change.lua",
        "",
        Nth("dropped", 5),
        "a writer who becomes a reader is counted as a writer still",
    ),
    _defect(
        "permit-limit-serves-nobody",
        "_lua/permit/limit.lua",
        "",
        Instead("serve(p, false)", ""),
        "there are more permits, and who waits for them is not told",
    ),
    _defect(
        "permit-asked-again-is-shorter",
        "_lua/permit/_permits.lua",
        "confirm",
        Instead("if until_ms - p.now_ms < ttl then extend_permits(p, token, ttl) end", "extend_permits(p, token, ttl)"),
        "a late copy of a request takes from a holder of permits what was renewed for longer",
    ),
)
