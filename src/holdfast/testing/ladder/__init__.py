"""The ladder: simple locks as many programs write them, called rungs, each with an order of events (schedule) that breaks it.

`RUNGS` has the locks, from a flag that is read and written up to fences that are checked. `SCENARIOS` has the clients and
faults that they are tried with. `find` tries schedules until a rung violates a rule; `survives` tries all schedules of a
scenario; `climb` does both for every rung. No failure is scripted. ``holdfast demo ladder`` shows the failures, and
``docs/ladder.md`` explains them.

locks      the locks
world      the simulated clients and servers
rungs      the rungs with their failures, and the search for these
picture    the timeline of a failure
"""

from __future__ import annotations

from holdfast.testing.ladder.rungs import RUNGS, SCENARIOS, Found, Rung, Scenario, Step, climb, find, survives

__all__ = ["RUNGS", "SCENARIOS", "Found", "Rung", "Scenario", "Step", "climb", "find", "survives"]
