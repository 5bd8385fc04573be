"""Deliberate defects in what becomes of holders that are held to be hung, see `mutations`."""

from __future__ import annotations

from mutants.defects import Mutation
from mutants.operators import Instead, Nth

HUNG = (
    Mutation(
        "hung-and-renewed",
        "_core/lock/records.py",
        "HeldLease.good_until",
        Instead("min(self.deadline, self.ends_at, self.stalled_at)", "min(self.deadline, self.ends_at)"),
        "who hangs keeps the lock: its renewals go on, as fast as they are answered",
    ),
    Mutation(
        "progress-ignored",
        "_core/lock/records.py",
        "HeldLease.progressed",
        Nth("dropped"),
        "who checks in is held to be hung all the same",
    ),
    Mutation(
        "progress-revives",
        "_api/lease.py",
        "LeaseCore.progress",
        Instead("self.check()", "self.held_lease.lost = ''"),
        "who checks in too late has his lost lease back",
    ),
    Mutation(
        "hung-and-kept",
        "_api/lease.py",
        "LeaseCore.may_be_there",
        Nth("operand dropped", 2),
        "who was held to be hung, and ends, does not give back what the server still has for him",
    ),
    Mutation(
        "progress-of-no-vote",
        "_core/quorum/lease.py",
        "QuorumLease.progressed",
        Nth("dropped", 2),
        "on several servers, who checks in is held to be hung all the same",
        of="quorum",
    ),
)
