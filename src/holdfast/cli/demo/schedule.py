"""``holdfast demo schedule``: three processes, one schedule; each tick once, whatever their clocks say, and one of them killed.

`crew` is what the processes run. Each scene gives facts, its judge says what has to hold.
"""

from __future__ import annotations

import collections
import json
import signal
import time
from contextlib import ExitStack
from typing import Any

from holdfast._servers import private
from holdfast.cli.demo import crew
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.cli.demo.stage import Actor, Stage

SKEWS = (0.0, 5.3, -4.6)
"""Seconds by which the clock of each process is off."""

WATCHED = 4.0
"""Seconds for which ticks are counted."""

PATIENCE = 10.0

Lines = list[dict[str, Any]]


def main(*, as_json: bool) -> int:
    """Run it; returns the exit code."""

    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with ExitStack() as stack:
            stage = stack.enter_context(Stage(stack.enter_context(private()).url))
            screen.line(f"holdfast demo schedule: {len(SKEWS)} processes on {stage.server}, a server of its own")
            ticks = see_ticks(stage, screen)
            crash = see_crash(stage, screen)
            checks = ticks.pop("checks") + crash.pop("checks")
            return {"server": stage.server, "skews": SKEWS, "ticks": ticks, "crash": crash}, checks

    return perform("demo schedule", play, as_json=as_json)


def see_ticks(stage: Stage, screen: Screen) -> Facts:
    """A job each second and one each half second, beside the same with a lock around it."""
    screen.title("Each tick once")
    clocks = ", ".join(f"{skew:+g} s" if skew else "right" for skew in SKEWS)
    screen.line(f"  {len(SKEWS)} processes serve a job of each second and one of each half; their clocks: {clocks}.")
    screen.line(f"  {len(SKEWS)} others, of the same clocks, do it with a lock that is held while the job runs.")
    ours, theirs = stage.key("ours"), stage.key("theirs")
    serving = [stage.start("serve", stage.name, ours, str(skew), module=crew.__name__) for skew in SKEWS]
    naive = [stage.start("naive", stage.key("lock"), theirs, str(skew), module=crew.__name__) for skew in SKEWS]
    for actor in (*serving, *naive):
        actor.hear()
    for actor in naive:
        actor.tell("go")
    begin = time.time() + 0.25
    time.sleep(WATCHED + 0.75)
    _dismiss(serving, naive)
    seen = _lines(stage, ours, begin, begin + WATCHED)
    bare = [line for line in _lines(stage, theirs, 0, 1e12) if begin <= line["at"] < begin + WATCHED]
    facts: Facts = {"seconds": WATCHED, "jobs": {}}
    for job, every in (("second", 1.0), ("half", 0.5)):
        due = _multiples(every, begin, begin + WATCHED)
        runs = collections.Counter(line["tick"] for line in seen if line["job"] == job)
        facts["jobs"][job] = {"due": len(due), "run": sum(runs.values()), "exactly_once": runs == dict.fromkeys(due, 1)}
    facts["late_ms"] = [round(1000 * (line["at"] - line["tick"]), 1) for line in seen]
    facts["processes"] = sorted(collections.Counter(line["pid"] for line in seen).values())
    facts["with_a_lock"] = {"due": facts["jobs"]["second"]["due"], "run": len(bare)}
    facts["checks"] = judge_ticks(facts)
    for check in facts["checks"]:
        screen.check(check)
    return facts


def judge_ticks(facts: Facts) -> list[Check]:
    """What has to hold."""
    checks = []
    for job, seen in facts["jobs"].items():
        text = f"every {job}: {seen['due']} ticks in {facts['seconds']:g} s, {seen['run']} runs, each tick once"
        checks.append(Check(text, held=seen["exactly_once"] and seen["due"] > 0))
    late, bare = facts["late_ms"] or [-1.0], facts["with_a_lock"]
    return [
        *checks,
        Check(f"none too early: {min(late):g} to {max(late):g} ms after its time, by the machine's clock", held=min(late) >= 0),
        Check(
            f"with a lock instead: {bare['due']} ticks, {bare['run']} runs, by three clocks", held=bare["run"] > bare["due"] + 1
        ),
    ]


def see_crash(stage: Stage, screen: Screen) -> Facts:
    """The process that runs a job is killed."""
    screen.title("The process that runs it is killed")
    screen.line(f"  A long job, on_crash='again', with a lease of {crew.TTL:g} s; whoever runs it is killed with -9.")
    key = stage.key("labour")
    actors = {
        actor.pid: actor
        for actor in (stage.start("labour", f"{stage.name}-2", key, str(skew), module=crew.__name__) for skew in SKEWS)
    }
    for actor in actors.values():
        actor.hear()
    next(iter(actors.values())).tell("begin")
    first = _await_line(stage, key, 1)
    killed_at = time.time()
    actors.pop(first["pid"]).signal(signal.SIGKILL)
    second = _await_line(stage, key, 2)
    _dismiss(actors.values())
    facts: Facts = {
        "first": {name: first[name] for name in ("tick", "attempt", "fence")},
        "second": {name: second[name] for name in ("tick", "attempt", "fence")},
        "elsewhere": first["pid"] != second["pid"],
        "after": round(second["at"] - killed_at, 3),
        "runs": len(_lines(stage, key, 0, 1e12)),
    }
    facts["checks"] = judge_crash(facts)
    for check in facts["checks"]:
        screen.check(check)
    return facts


def judge_crash(facts: Facts) -> list[Check]:
    """What has to hold."""
    first, second = facts["first"], facts["second"]
    again = (
        facts["elsewhere"]
        and facts["runs"] == 2
        and (first["tick"], first["attempt"] + 1) == (second["tick"], second["attempt"])
    )
    return [
        Check(f"the same tick ran again {facts['after']:.1f} s later, elsewhere, as attempt {second['attempt']}", held=again),
        Check("with a higher fence: what it writes can be told from what the dead one still has under way",
              held=second["fence"] > first["fence"]),
    ]  # fmt: skip


def _multiples(every: float, start: float, end: float) -> list[float]:
    first = int(start / every) + 1
    return [number * every for number in range(first, int(end / every) + 2) if start <= number * every < end]


def _lines(stage: Stage, key: str, start: float, end: float) -> Lines:
    """What was written down of ticks in this time."""
    raw: Any = stage.client.lrange(key, 0, -1)
    return [line for line in map(json.loads, raw) if start <= line["tick"] < end]


def _await_line(stage: Stage, key: str, count: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if len(lines := _lines(stage, key, 0, 1e12)) >= count:
            return lines[count - 1]
        time.sleep(0.02)
    raise ShowError(f"the job did not run within {PATIENCE:g} s")


def _dismiss(*groups: Any) -> None:
    actor: Actor
    for group in groups:
        for actor in group:
            actor.dismiss()
