"""The ladder: the locks that everybody writes first, each with the schedule that breaks it, and the one that survives.

`RUNGS` are the rungs, from a flag that is read and written to fences that are checked; `SCENARIOS` is what they are tried with.
`find` searches for the failure of a rung, by trying schedules until a rule is violated; `survives` tries all schedules of a
scenario; `climb` does both for every rung. None of the failures is scripted. ``holdfast demo ladder`` shows them;
``docs/ladder.md`` explains them.

locks      the locks
world      in which world they are tried
rungs      what breaks each of them, and the search for it
picture    the timeline of a failure
"""

from __future__ import annotations

from holdfast.testing.ladder.rungs import RUNGS, SCENARIOS, Found, Rung, Scenario, Step, climb, find, survives

__all__ = ["RUNGS", "SCENARIOS", "Found", "Rung", "Scenario", "Step", "climb", "find", "survives"]
