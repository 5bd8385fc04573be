"""Deliberate defects in serving a schedule, see `mutations`."""

from __future__ import annotations

from functools import partial

from lab.mutants.defects import Mutation
from lab.mutants.operators import Instead, Nth

_defect = partial(Mutation, of="schedule")

CLAIMING = (
    _defect(
        "tick-claimed-twice",
        "_lua/schedule/serve.lua",
        "serve",
        Nth("dropped", 26),
        "a tick that was claimed before is claimed again",
    ),
    _defect("tick-too-early", "_lua/schedule/serve.lua", "due_after", Nth("never"), "a tick is granted before its time"),
    _defect(
        "claim-not-idempotent",
        "_lua/schedule/serve.lua",
        "serve",
        Nth("never", 19),
        "a claim that is sent again does not find the run that it was granted",
    ),
    _defect(
        "late-claim-obeyed",
        "_lua/schedule/serve.lua",
        "",
        Nth("operand dropped", 6),
        "a late copy of a request is carried out, and nobody knows of the runs that it is granted",
    ),
    _defect(
        "run-beside-a-run",
        "_lua/schedule/serve.lua",
        "serve",
        Instead("local ready = free and head", "free = free or 0\nlocal ready = head"),
        "a run is granted although another one goes on",
    ),
)

LATE = (
    _defect(
        "claim-of-a-past-moment",
        "_lua/schedule/serve.lua",
        "due_after",
        Instead("after ~= '' and tonumber(after) <= now and tonumber(after) > tonumber(last)", "false"),
        "a claim that was long on its way runs a tick although a later one is due",
    ),
    _defect(
        "late-ticks-all-run",
        "_lua/schedule/serve.lua",
        "claim",
        Nth("operand dropped", 12),
        "of ticks that are due at the same moment, each is run",
    ),
    _defect(
        "waits-beside-a-later-one",
        "_lua/schedule/serve.lua",
        "claim",
        Nth("never", 2),
        "a tick that waits for room is run although a later one is due",
    ),
)

ENDING = (
    _defect(
        "end-of-anybody",
        "_lua/schedule/serve.lua",
        "serve",
        Instead("slot.token == ARGV[a + 4]", "slot.token"),
        "the end of an earlier run ends the one that goes on",
    ),
    _defect(
        "crashed-while-it-runs",
        "_lua/schedule/serve.lua",
        "serve",
        Instead("slots[i].token and slots[i].token ~= slots[i].holder", "slots[i].token"),
        "a run counts as crashed although its lease has not expired",
    ),
    _defect(
        "end-not-written-down",
        "_lua/schedule/serve.lua",
        "close",
        Nth("dropped", 4),
        "a run that has ended is still stored as running",
    ),
    _defect(
        "again-for-ever",
        "_lua/schedule/serve.lua",
        "close",
        Nth("operand dropped", 10),
        "a tick whose runs crash is run again and again",
    ),
)

SERVING = (
    _defect(
        "run-counted-from-answer",
        "_core/schedule/state.py",
        "ScheduleState._granted",
        Nth("time swapped", 2),
        "the lease of a run counts from the reply",
    ),
    _defect(
        "claim-forgotten",
        "_core/schedule/state.py",
        "ScheduleState.failed",
        Instead(
            "for item in self._unanswered or ():\n    item.due = None\n    self._plan(item.job)",
            "items, self._unanswered = self._unanswered, None\n"
            "for item in items or ():\n    item.due = None\n    self._plan(item.job)",
        ),
        "a claim without a reply is not sent again",
    ),
    _defect(
        "answer-not-awaited",
        "_core/schedule/state.py",
        "ScheduleState.next_at",
        Nth("never"),
        "a request without a reply is sent again only when something else happens",
    ),
    _defect(
        "looking-while-stopping",
        "_core/schedule/state.py",
        "ScheduleState.next_at",
        Nth("always", 2),
        "a process that stops wakes up again and again for ticks that it no longer runs",
    ),
    _defect(
        "grace-loses-ticks",
        "_core/schedule/misfire.py",
        "due",
        Instead("ticks[0] > first", "ticks[0] > first and len(ticks) > 1"),
        "ticks that were late are neither run nor recorded as missed",
    ),
    _defect(
        "first-missed-not-counted",
        "_core/schedule/misfire.py",
        "due",
        Instead("_between(when, last, given_up, COUNTED)", "_between(when, first, given_up, COUNTED)"),
        "the first missed tick is not counted",
    ),
    _defect(
        "begun-too-late",
        "_core/schedule/state.py",
        "ScheduleState._granted",
        Nth("operand dropped", 2),
        "a run is begun although its lease has ended when the reply arrives",
    ),
)

SCHEDULES = (*CLAIMING, *LATE, *ENDING, *SERVING)
