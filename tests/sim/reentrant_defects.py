"""Deliberate defects of an RLock: who has it, and how often, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _book(name: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, "_reentrant.py", old, new, breaks)


REENTRANT = (
    _book(
        "again-draws-a-fence",
        "            self.count = before + 1\n",
        "            self.count = before + 1\n            self.lease.fence += 1\n",
        "who takes a lock again gets the next fence",
    ),
    _book(
        "inner-gives-back",
        "        if holding.count == 1:\n            return holding\n",
        "        if holding.count:\n            return holding\n",
        "the end of the inner of two uses gives the lock back",
    ),
    _book(
        "taken-again-after-loss",
        "            return None\n        holding.lease.check()\n        return holding\n",
        "            return None\n        return holding\n",
        "who has lost a lock takes it again as if he had it",
    ),
    _book(
        "never-given-back",
        "        holding.count -= 1\n",
        "",
        "the last of several uses does not give the lock back",
    ),
)
