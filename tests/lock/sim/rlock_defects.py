"""Deliberate defects of an RLock: who has it, and how often, see `mutations`."""

from __future__ import annotations

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

REENTRANT = (
    Mutation(
        "again-draws-a-fence",
        "_api/rlock.py",
        "RLockHolding.again",
        Instead("return result", "self.core.fence += 1\nreturn result"),
        "a holder that acquires the lock again gets the next fence",
    ),
    Mutation(
        "inner-releases",
        "_api/rlock.py",
        "Holdings.leave",
        Instead("holding.count == 1", "holding.count"),
        "the end of the inner of two uses releases the lock",
    ),
    Mutation(
        "taken-again-after-loss",
        "_api/rlock.py",
        "Holdings.mine",
        Nth("dropped", 2),
        "a holder that has lost a lock acquires it again as if it had it",
    ),
    Mutation(
        "never-released",
        "_api/rlock.py",
        "Holdings.leave",
        Nth("dropped", 3),
        "the last of several uses does not release the lock",
    ),
)
