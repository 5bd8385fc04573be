"""``holdfast demo ladder``: simple locks as many programs write them, each with an order of events that breaks it.

The simulator searches for this order of events. It also simulates the server, so the demonstration needs no real server.
"""

from __future__ import annotations

import textwrap

from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, perform
from holdfast_lab import ladder
from holdfast_lab.ladder import RUNGS, FailingRung

WIDTH = 80


def main(*, as_json: bool) -> int:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        screen.line("holdfast demo ladder: a simulator tries schedules until a rule is broken")
        checks: list[Check] = []
        rungs: list[Facts] = []
        for step in ladder.climb():
            found = judge(step, RUNGS.index(step.cure) + 1)
            show(screen, RUNGS.index(step.rung) + 1, step, found)
            checks += found
            rungs.append(facts(step))
        return {"rungs": rungs}, checks

    return perform("demo ladder", play, as_json=as_json)


def judge(step: FailingRung, number: int) -> list[Check]:
    """Return two checks: the search finds a failure of the rung, and no failure of its cure, rung ``number``."""
    name, fall, found, cure, survived = step.rung.name, step.fall, step.found, step.cure, step.survived
    broken = found is not None and found.violation.rule == fall.rule
    which = f"schedule {found.schedules} of at most {fall.within}" if found else f"not within {fall.within} schedules"
    whole = survived.covered and not survived.found
    covered = f"{survived.schedules} schedules, {survived.states} states" + (", all that exist" if survived.covered else "")
    return [
        Check(f"{name} breaks ({fall.rule}): {which}", broken),
        Check(f"{cure.name} (rung {number}) survives the same: {covered}", whole),
    ]


def show(screen: Screen, number: int, step: FailingRung, checks: list[Check]) -> None:
    screen.title(f"{number}. {step.rung.title}")
    for text in (step.rung.about, f"Tried with {step.fall.scenario.about}.", step.fall.wrong):
        for line in textwrap.wrap(text, WIDTH - 2):
            screen.line(f"  {line}")
    if step.found is not None:
        screen.line()
        for line in step.found.timeline.splitlines():
            screen.line(f"  {line}".rstrip())
    screen.line()
    for check in checks:
        screen.check(check)


def facts(step: FailingRung) -> Facts:
    found = step.found
    return {
        "name": step.rung.name,
        "title": step.rung.title,
        "about": step.rung.about,
        "scenario": step.fall.scenario.about,
        "wrong": step.fall.wrong,
        "found": found and {"schedules": found.schedules, "rule": found.violation.rule, "text": found.violation.text},
        "within": step.fall.within,
        "timeline": found.timeline.splitlines() if found else [],
        "cure": step.cure.name,
        "survived": {
            "schedules": step.survived.schedules,
            "states": step.survived.states,
            "covered": step.survived.covered,
            "violations": len(step.survived.found),
        },
        "held": step.held,
    }
