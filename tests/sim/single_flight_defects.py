"""Deliberate defects of single flight, see `mutations`.

That a value is stored only under the fence of its lease matters where a lease was lost, and taken again by a late copy of its
loader's own request: what is wrong without that is shown by the model `flight` (its variant NO_BOUND), not here.
"""

from __future__ import annotations

from functools import partial

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

_defect = partial(Mutation, of="single_flight")

LANDING = (
    _defect(
        "drop-leaves-the-load",
        "_lua/single_flight/delete.lua",
        "",
        Instead(
            "redis.call('DEL', value, fresh, load)\nredis.pcall('HDEL', state, 'of:' .. load)",
            "redis.call('DEL', value, fresh)",
        ),
        "what was being loaded when the key was deleted is stored",
    ),
    _defect(
        "land-without-lease",
        "_lua/single_flight/store.lua",
        "",
        Nth("never", 4),
        "who has lost his lease stores what he has loaded, and ends the load of another",
    ),
    _defect(
        "land-though-void",
        "_lua/single_flight/store.lua",
        "",
        Instead("not void(floors, floor, fence, tags)", "true"),
        "what was being loaded when its tag was invalidated is stored",
    ),
    _defect(
        "load-counted-from-answer",
        "_core/single_flight/flight.py",
        "_interpret",
        Nth("time swapped"),
        "the lease of a load counts from when the answer came",
    ),
    _defect(
        "load-not-renewed",
        "_core/single_flight/flight.py",
        "_interpret",
        Nth("dropped"),
        "a load that takes longer than its lease loses it",
    ),
    _defect(
        "load-looked-after-for-ever",
        "_core/single_flight/flight.py",
        "_end_load",
        Nth("dropped", 2),
        "a load that is over is still looked after",
    ),
)

LOOKING = (
    _defect(
        "look-finds-the-void",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("not void(floors, floor, fence, tags)", "true"),
        "a value is found whose tag was invalidated",
    ),
    _defect(
        "look-at-first-tag",
        "_lua/single_flight/_values.lua",
        "void",
        Instead("'%S+'", "'^%S+'"),
        "of the tags of a value none counts but that of all",
    ),
    _defect(
        "glance-finds-the-void",
        "_core/single_flight/entry.py",
        "fresh",
        Nth("operand dropped", 5),
        "the plain command finds a value whose tag was invalidated",
    ),
    _defect(
        "glance-finds-the-stale",
        "_core/single_flight/entry.py",
        "fresh",
        Nth("operand dropped", 4),
        "the plain command finds a stale value, and calls it fresh",
    ),
    _defect(
        "stale-for-everybody",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("left + stale > 0", "true"),
        "a stale value is found by who wants none",
    ),
    _defect(
        "stale-for-nobody",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("if usable", "if usable and lease == 0"),
        "who would take a stale value waits for the new one",
    ),
    _defect(
        "always-early",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("not hurry", "hurry == nil"),
        "a fresh value is loaded again",
    ),
    _defect(
        "two-load", "_lua/single_flight/get_or_lease.lua", "", Nth("never", 16), "who finds that somebody loads, loads, too"
    ),
)

TELLING = (
    _defect(
        "abort-tells-nobody",
        "_lua/single_flight/cancel_load.lua",
        "",
        Nth("dropped", 3),
        "when a load fails, who waits does not learn of it",
    ),
    _defect(
        "land-tells-nobody",
        "_lua/single_flight/store.lua",
        "",
        Instead("tell(waiters)\nreturn stored", "return stored"),
        "when a value is stored, who waits does not learn of it",
    ),
    _defect(
        "drop-tells-nobody",
        "_lua/single_flight/delete.lua",
        "",
        Nth("dropped", 3),
        "who waits goes on waiting for a load that has lost its lease",
    ),
    _defect("told-one", "_lua/shared/_notify.lua", "tell", Instead("0, -1", "0, 0"), "of all who wait, one is told"),
    _defect(
        "waits-unlisted",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Nth("never", 17),
        "who waits is not listed among those to be told",
    ),
    _defect(
        "waits-beyond-the-lease",
        "_core/single_flight/flight.py",
        "_wait_coalesced",
        Instead("min(until, now + left)", "until"),
        "who waits does not look when the loader's lease has ended",
    ),
    _defect(
        "crowd-without-leader",
        "_core/single_flight/coalesce.py",
        "Coalescer.leave",
        Nth("never", 2),
        "when who looks for all has what he wanted, nobody looks for the others",
    ),
    _defect(
        "look-leaves-the-load",
        "_core/single_flight/flight.py",
        "abandon",
        Nth("never"),
        "who is cancelled while he looks leaves a lease behind",
    ),
    _defect(
        "invalidated-by-the-clock",
        "_lua/single_flight/invalidate.lua",
        "",
        Instead("math.max(now, whole(fields[1], 0))", "now"),
        "what is loaded under a fence that is ahead of the clock outlives an invalidation",
    ),
)

FLIGHT = LANDING + LOOKING + TELLING
