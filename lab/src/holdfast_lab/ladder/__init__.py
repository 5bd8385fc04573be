"""The ladder: simple locks as many programs write them, from the worst to the best, each with a failure that breaks it.

A lock of the ladder is called a rung. `RUNGS` has the rungs, from a flag that is read and written up to fences that are
checked. `SCENARIOS` has the clients and faults with which the rungs are tried.

The orders of events that break a rung are not written down. `find` searches for one: it tries schedules (orders of events)
until the rung violates a rule. `survives` tries all schedules of a scenario. `climb` does both for every rung that fails.
``holdfast demo ladder`` shows the failures, and ``docs/ladder.md`` explains them.

locks    the locks
world    the simulated clients and servers
rungs    the rungs with their failures, and the search for the failures
picture  the timeline of a failure
"""

from __future__ import annotations

from holdfast_lab.ladder.rungs import RUNGS, SCENARIOS, Found, Rung, Scenario, Step, climb, find, survives

__all__ = ["RUNGS", "SCENARIOS", "Found", "Rung", "Scenario", "Step", "climb", "find", "survives"]
