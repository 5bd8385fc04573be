"""Deliberate defects in taking a lock away from its holder, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="break_lock")

BREAKING = (
    _defect(
        "break-without-fence",
        "_lua/inspect/break_lock.lua",
        "",
        Instead("math.max((fields[1] or 0) + 1, now)", "(fields[1] or now) - BLOCK + 1"),
        "the fence that is returned does not exclude the previous holder",
    ),
    _defect(
        "break-without-comparing",
        "_lua/inspect/break_lock.lua",
        "",
        Nth("never", 6),
        "the lock is taken from any holder, not only from the one that was seen",
    ),
    _defect(
        "break-without-telling",
        "_lua/inspect/break_lock.lua",
        "",
        Instead("publish(inbox_of(lock, holder), BROKEN .. ' ' .. holder .. ' ' .. ARGV[2])", "1"),
        "the previous holder is not notified, but reported as notified",
    ),
    _defect(
        "break-not-reported",
        "_core/lock/renewal.py",
        "Renewing.on_answer",
        Instead(
            "return not held_lease.lose(broken_by(held_lease.hint) if held_lease.hint else 'another client broke the lock')",
            "held_lease.lose('another client broke the lock')\nreturn True",
        ),
        "the owner of the lease is not told what its process knows",
    ),
)
