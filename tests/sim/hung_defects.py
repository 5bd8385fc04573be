"""Deliberate defects in what becomes of holders that are held to be hung, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _hung(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks)


HUNG = (
    _hung(
        "hung-and-renewed",
        "_core/renewing.py",
        "        return min(self.deadline, self.ends_at, self.stalled_at)",
        "        return min(self.deadline, self.ends_at)",
        "who hangs keeps the lock: its renewals go on, as fast as they are answered",
    ),
    _hung(
        "progress-ignored",
        "_core/renewing.py",
        "            self.stalled_at = now + self.spec.progress_within\n",
        "            pass\n",
        "who checks in is held to be hung all the same",
    ),
    _hung(
        "progress-revives",
        "_lease.py",
        "        self.check()\n        self._tenure.progressed(",
        "        self._tenure.lost = ''\n        self._tenure.progressed(",
        "who checks in too late has his lost lease back",
    ),
    _hung(
        "hung-and-kept",
        "_lease.py",
        "not tenure.lost or tenure.stalled or",
        "not tenure.lost or",
        "who was held to be hung, and ends, does not give back what the server still has for him",
    ),
    Mutation(
        "progress-of-no-vote",
        "_core/votes.py",
        "            vote.progressed(now)\n",
        "            pass\n",
        "on several servers, who checks in is held to be hung all the same",
        of="quorum",
    ),
)
