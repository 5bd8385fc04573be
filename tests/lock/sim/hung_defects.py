"""Deliberate defects in what becomes of holders that are held to be hung, see `mutations`."""

from __future__ import annotations

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

HUNG = (
    Mutation(
        "hung-and-renewed",
        "_core/lock/records.py",
        "HeldLease.good_until",
        Instead("min(self.deadline, self.ends_at, self.stalled_at)", "min(self.deadline, self.ends_at)"),
        "a holder that hangs keeps the lock: its renewals go on, as fast as replies arrive",
    ),
    Mutation(
        "progress-ignored",
        "_core/lock/records.py",
        "HeldLease.progressed",
        Nth("dropped"),
        "a holder that calls progress() is taken to hang all the same",
    ),
    Mutation(
        "progress-revives",
        "_api/lease_core.py",
        "LeaseCore.progress",
        Instead("self.check()", "self.held_lease.lost = ''"),
        "a holder that calls progress() too late gets its lost lease back",
    ),
    Mutation(
        "hung-and-kept",
        "_api/lease_core.py",
        "LeaseCore.may_be_there",
        Nth("operand dropped", 2),
        "a holder that was taken to hang ends, and its lease on the server is not released",
    ),
    Mutation(
        "progress-of-no-vote",
        "_core/quorum/lease.py",
        "QuorumLease.progressed",
        Nth("dropped", 2),
        "on several servers, a holder that calls progress() is taken to hang all the same",
        of="quorum",
    ),
)
