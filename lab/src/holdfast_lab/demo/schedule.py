"""``holdfast demo schedule``: three processes, two with wrong clocks, serve one schedule. Each tick runs once.

Each scene returns what it has measured, and a function ``judge_...`` returns the checks. The processes run the code in `crew`.
"""

from __future__ import annotations

import collections
import json
import signal
import time
from contextlib import ExitStack
from typing import Any

from holdfast._local.server import private
from holdfast.cli.demo import show
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.cli.demo.stage import Stage
from holdfast_lab.demo import crew

SKEWS = (0.0, 5.3, -4.6)
"""Seconds by which the clock of each process is ahead of the machine's clock."""

WATCHED = 4.0
"""Seconds for which ticks are counted."""

PATIENCE = 10.0
"""Maximum seconds to wait until a job has run."""

Lines = list[dict[str, Any]]


def main(*, as_json: bool) -> int:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with ExitStack() as stack:
            stage = stack.enter_context(Stage(stack.enter_context(private()).url))
            screen.line(f"holdfast demo schedule: {len(SKEWS)} processes on {stage.server}, a server of its own")
            staff = Crew(stage, screen)
            facts: Facts = {"server": stage.server, "skews": SKEWS}
            seen, checks = show.play(screen, SCENES, staff)
            return {**facts, **seen}, checks

    return perform("demo schedule", play, as_json=as_json)


class Crew:
    """The processes, and their list with a record of each run."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.screen = screen
        self._client = stage.client
        self._key = stage.key("paper")
        self.actors = [stage.start("serve", stage.name, self._key, str(skew), module=crew.__name__) for skew in SKEWS]
        for actor in self.actors:
            actor.hear()

    def lines(self, job: str) -> Lines:
        """Return the records of a job, oldest first."""
        raw: Any = self._client.lrange(self._key, 0, -1)
        return [line for line in map(json.loads, raw) if line["job"] == job]

    def await_line(self, job: str, count: int) -> dict[str, Any]:
        """Wait for the job's record number ``count``. Raises ShowError after `PATIENCE` seconds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if len(lines := self.lines(job)) >= count:
                return lines[count - 1]
            time.sleep(0.02)
        raise ShowError(f"job {job!r} did not run within {PATIENCE:g} s")


def ticks(staff: Crew) -> Facts:
    """Run two jobs of the schedule. For comparison, each process also runs a job by its own timer, under a plain lock."""
    screen = staff.screen
    screen.title("Each tick once")
    clocks = ", ".join(f"{abs(skew):g} s {'ahead' if skew > 0 else 'behind'}" if skew else "right" for skew in SKEWS)
    screen.line(f"  {len(SKEWS)} processes serve two jobs; their clocks: {clocks}.")
    screen.line("  For comparison, each also runs a job by its own clock, under a plain lock.")
    begin = time.time() + 0.25
    end = begin + WATCHED
    time.sleep(WATCHED + 0.75)
    facts: Facts = {"seconds": WATCHED, "jobs": {}}
    seen: Lines = []
    for job, every in (("second", 1.0), ("half", 0.5)):
        due = _multiples(every, begin, end)
        lines = [line for line in staff.lines(job) if begin <= line["tick"] < end]
        runs = collections.Counter(line["tick"] for line in lines)
        facts["jobs"][job] = {"due": len(due), "run": len(lines), "exactly_once": runs == dict.fromkeys(due, 1)}
        seen += lines
    facts["late_ms"] = [round(1000 * (line["at"] - line["tick"]), 1) for line in seen]
    facts["processes"] = sorted(collections.Counter(line["pid"] for line in seen).values())
    bare = [line for line in staff.lines("bare") if begin <= line["at"] < end]
    facts["with_a_lock"] = {"due": facts["jobs"]["second"]["due"], "run": len(bare)}
    return facts


def judge_ticks(facts: Facts) -> list[Check]:
    checks = []
    for job, seen in facts["jobs"].items():
        text = f"each {job}: {seen['due']} ticks in {facts['seconds']:g} s, {seen['run']} runs, each tick once"
        checks.append(Check(text, held=seen["exactly_once"] and seen["due"] > 0))
    late, bare = facts["late_ms"] or [-1.0], facts["with_a_lock"]
    return [
        *checks,
        Check(f"no run is early: {min(late):g} to {max(late):g} ms after their time", held=min(late) >= 0),
        Check(
            f"with a plain lock: {bare['due']} ticks, {bare['run']} runs, each by its own clock",
            held=bare["run"] > bare["due"] + 1,
        ),
    ]


def crash(staff: Crew) -> Facts:
    """Kill the process that runs a job. Another process runs the job again."""
    staff.screen.title("The process that runs a job is killed")
    staff.screen.line(f"  A long job with on_crash='again' and a lease of {crew.TTL:g} s; its process gets kill -9.")
    staff.actors[0].tell("long")
    first = staff.await_line("long", 1)
    runner = next(actor for actor in staff.actors if actor.pid == first["pid"])
    killed_at = time.time()
    runner.signal(signal.SIGKILL)
    second = staff.await_line("long", 2)
    return {
        "first": {name: first[name] for name in ("tick", "attempt", "fence")},
        "second": {name: second[name] for name in ("tick", "attempt", "fence")},
        "elsewhere": first["pid"] != second["pid"],
        "after": round(second["at"] - killed_at, 3),
        "runs": len(staff.lines("long")),
    }


def judge_crash(facts: Facts) -> list[Check]:
    first, second = facts["first"], facts["second"]
    same = first["tick"] == second["tick"] and first["attempt"] + 1 == second["attempt"]
    text = f"the same tick ran again {facts['after']:.1f} s later, elsewhere, as attempt {second['attempt']}"
    return [
        Check(text, held=same and facts["elsewhere"] and facts["runs"] == 2),
        Check("with a higher fence than the run that was killed", held=second["fence"] > first["fence"]),
    ]


SCENES = [(ticks, judge_ticks), (crash, judge_crash)]


def _multiples(every: float, start: float, end: float) -> list[float]:
    first = int(start / every) + 1
    return [number * every for number in range(first, int(end / every) + 2) if start <= number * every < end]
