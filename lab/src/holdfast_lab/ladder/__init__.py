"""The ladder: simple locks as many programs write them, from the worst to the best, each with a failure that breaks it.

A search finds the orders of events that break a lock. They are not written down. ``holdfast demo ladder`` shows the failures,
and ``docs/ladder-details.md`` explains them.

locks    the locks
world    the simulated clients and servers
rungs    the rungs with their failures, and the search for the failures
picture  the timeline of a failure
"""

from __future__ import annotations

from holdfast_lab.ladder.rungs import RUNGS, SCENARIOS, FailingRung, Rung, RungFailure, Scenario, climb, find, survives

__all__ = ["RUNGS", "SCENARIOS", "FailingRung", "Rung", "RungFailure", "Scenario", "climb", "find", "survives"]
