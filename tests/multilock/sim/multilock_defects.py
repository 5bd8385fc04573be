"""Deliberate defects of several locks at once, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="multilock")

SEVERAL = (
    _defect(
        "multilock-in-the-order-given",
        "_core/lock/multilock.py",
        "in_order",
        Instead("sorted(several, key=place)", "list(several)"),
        "several locks are acquired in the order in which they are named",
    ),
    _defect(
        "multilock-acquired-in-part",
        "_lua/lock/multi_acquire.lua",
        "",
        Instead("return {i}", "break"),
        "a run that is to acquire all locks or none acquires those before the first busy one",
    ),
    _defect(
        "multilock-with-revoked-tokens",
        "_lua/lock/multi_acquire.lua",
        "",
        Nth("operand dropped", 9),
        "a late copy of a request for several locks acquires locks that were given up",
    ),
    _defect(
        "multilock-without-expiry-of-the-state",
        "_lua/lock/multi_acquire.lua",
        "",
        Nth("dropped", 3),
        "the state of a lock that was acquired with others stays forever",
    ),
    _defect(
        "multilock-keeps-the-first",
        "_core/lock/multilock.py",
        "acquire",
        Nth("never", 2),
        "when the wait for one lock times out, those before it stay held",
    ),
    _defect(
        "multilock-undoes-the-last",
        "_core/lock/multilock.py",
        "undo",
        Nth("dropped", 2),
        "a cancelled attempt releases only the last of several locks",
    ),
    _defect(
        "multilock-cancelled-while-released",
        "_core/lock/multilock.py",
        "release",
        Nth("dropped"),
        "a cancellation during the release of several locks leaves the rest of them held",
    ),
    _defect(
        "multilock-unknown-is-no",
        "_core/lock/multilock.py",
        "multi_acquire",
        Instead("[doubt or isinstance(error, Unknown) for doubt in doubts]", "doubts"),
        "a request for several locks without a reply counts as not done",
    ),
    _defect(
        "multilock-counted-from-answer",
        "_core/lock/multilock.py",
        "_hold",
        Nth("time swapped"),
        "the leases of several locks count from the reply",
    ),
    _defect(
        "multilock-with-one-lost",
        "_core/lock/multilock.py",
        "_in_order",
        Nth("never"),
        "a lock that was lost during the wait for others counts as held",
    ),
    _defect(
        "multilock-released-to-nobody",
        "_lua/lock/multi_release.lua",
        "settle",
        Nth("never", 4),
        "the release of several locks hands none of them over",
    ),
    _defect(
        "multilock-released-whoever-has-it",
        "_lua/lock/multi_release.lua",
        "",
        Instead("holder == ARGV[2 * i - 1]", "holder"),
        "several locks are deleted, whichever client has them",
    ),
    _defect(
        "multilock-ahead-of-its-own-process",
        "_core/lock/multilock.py",
        "_lead",
        Nth("never", 2),
        "an attempt for several locks asks the server, although others of its process hold one of them, or wait for it",
    ),
    _defect(
        "multilock-release-lies",
        "_core/lock/multilock.py",
        "multi_release",
        Instead("value == 1 or (resent and given[2])", "value == 1 or turn[2]"),
        "the release of several locks reports one as released that another client had",
    ),
)
