"""Deliberate defects of single flight, see `mutations`.

That a value is stored only under the fence of its lease matters where a lease was lost, and taken again by a late copy of its
loader's own request: what is wrong without that is shown by the model `flight` (its variant NO_BOUND), not here.
"""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="single_flight")

LANDING = (
    _defect(
        "delete-leaves-the-load",
        "_lua/single_flight/delete.lua",
        "",
        Instead(
            "redis.call('DEL', value, fresh, load)\nredis.pcall('HDEL', state, 'of:' .. load)",
            "redis.call('DEL', value, fresh)",
        ),
        "a value is stored although its key was deleted during its load",
    ),
    _defect(
        "store-without-lease",
        "_lua/single_flight/store.lua",
        "",
        Nth("never", 4),
        "a caller that has lost its load lease stores its value, and ends the load of another",
    ),
    _defect(
        "store-though-invalidated",
        "_lua/single_flight/store.lua",
        "",
        Instead("not void(floors, floor, fence, tags)", "true"),
        "a value is stored although its tag was invalidated during its load",
    ),
    _defect(
        "load-counted-from-answer",
        "_core/single_flight/flight.py",
        "_interpret",
        Nth("time swapped"),
        "the lease of a load counts from the reply",
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
        "a load that is over is still renewed",
    ),
)

LOOKING = (
    _defect(
        "lookup-finds-the-invalidated",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("not void(floors, floor, fence, tags)", "true"),
        "a caller gets a value whose tag was invalidated",
    ),
    _defect(
        "lookup-reads-the-first-tag",
        "_lua/single_flight/_values.lua",
        "void",
        Instead("'%S+'", "'^%S+'"),
        "none of the tags of a value counts but that of all values",
    ),
    _defect(
        "fast-read-finds-the-invalidated",
        "_core/single_flight/entry.py",
        "fresh",
        Nth("operand dropped", 5),
        "the plain command returns a value whose tag was invalidated",
    ),
    _defect(
        "fast-read-finds-the-stale",
        "_core/single_flight/entry.py",
        "fresh",
        Nth("operand dropped", 4),
        "the plain command returns a stale value, and calls it fresh",
    ),
    _defect(
        "stale-for-everybody",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("left + stale > 0", "true"),
        "a caller that wants no stale value gets one",
    ),
    _defect(
        "stale-for-nobody",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("if usable", "if usable and lease == 0"),
        "a caller that accepts a stale value waits for the new one",
    ),
    _defect(
        "always-early",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Instead("not hurry", "hurry == nil"),
        "a fresh value is loaded again",
    ),
    _defect(
        "two-load",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Nth("never", 16),
        "a caller that finds another one loading also loads",
    ),
)

TELLING = (
    _defect(
        "cancel-notifies-nobody",
        "_lua/single_flight/cancel_load.lua",
        "",
        Nth("dropped", 3),
        "when a load fails, the waiters are not notified",
    ),
    _defect(
        "store-notifies-nobody",
        "_lua/single_flight/store.lua",
        "",
        Instead("tell(waiters)\nreturn stored", "return stored"),
        "when a value is stored, the waiters are not notified",
    ),
    _defect(
        "delete-notifies-nobody",
        "_lua/single_flight/delete.lua",
        "",
        Nth("dropped", 3),
        "waiters go on waiting for a load that has lost its lease",
    ),
    _defect("told-one", "_lua/shared/_notify.lua", "tell", Instead("0, -1", "0, 0"), "only one of all waiters is notified"),
    _defect(
        "waits-unlisted",
        "_lua/single_flight/get_or_lease.lua",
        "",
        Nth("never", 17),
        "a waiter is not listed for notifications",
    ),
    _defect(
        "waits-beyond-the-lease",
        "_core/single_flight/flight.py",
        "_wait_coalesced",
        Instead("min(until, now + left)", "until"),
        "a waiter does not look when the loader's lease has ended",
    ),
    _defect(
        "coalescer-without-leader",
        "_core/single_flight/coalesce.py",
        "Coalescer.leave",
        Nth("never", 2),
        "when the caller that asks for all of its process has its value, nobody asks for the others",
    ),
    _defect(
        "lookup-leaves-the-load",
        "_core/single_flight/flight.py",
        "abandon",
        Nth("never"),
        "a caller that is cancelled while it looks leaves a lease behind",
    ),
    _defect(
        "invalidated-by-the-clock",
        "_lua/single_flight/invalidate.lua",
        "",
        Instead("math.max(now, whole(fields[1], 0))", "now"),
        "a value that is loaded under a fence ahead of the clock outlives an invalidation",
    ),
)

FLIGHT = LANDING + LOOKING + TELLING
