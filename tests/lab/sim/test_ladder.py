"""The ladder: every rung breaks as it is said to, and the one that cures it survives every schedule of the same scenario."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing.history import Event
from holdfast_lab import ladder
from holdfast_lab.checkers import check
from holdfast_lab.explore import explore, replay
from holdfast_lab.ladder import RUNGS, SCENARIOS, Rung, RungFailure, Scenario, find, rungs, survives
from holdfast_lab.ladder.rungs import build, by_name, settle
from holdfast_lab.ladder.world import LadderWorld
from holdfast_lab.sim.stepwise import Stepwise
from lab.sim import ladder_page
from support.searches import in_turn

FALLING = [rung for rung in RUNGS if rung.fall is not None]
CURES = [rung for rung in RUNGS if rung.fall is None]


LONG = {"timestamp-getset", "redlock-late"}
"""Cures with thousands of schedules. These are all run in turn, and in the soak; in other runs, only the first."""


LATER = {rung.name for rung in FALLING if rung.fall and rung.fall.cure in LONG and not in_turn(rung.fall.cure)}


def marked(rung: Rung) -> Any:
    return pytest.param(rung, marks=[pytest.mark.soak] * (rung.name in LATER), id=rung.name)


@pytest.fixture(scope="module")
def falls() -> dict[str, RungFailure | None]:
    """Return what the search finds, for each rung that breaks."""
    return {rung.name: find(rung) for rung in FALLING}


def test_every_rung_either_breaks_or_cures() -> None:
    assert len({rung.name for rung in RUNGS}) == len(RUNGS) == 15
    assert {rung.fall.cure for rung in FALLING if rung.fall} >= {rung.name for rung in CURES}


@pytest.mark.turns
@pytest.mark.parametrize("rung", FALLING, ids=lambda rung: str(rung.name))
def test_the_search_finds_what_is_wrong(rung: Rung, falls: dict[str, RungFailure | None]) -> None:
    found = falls[rung.name]
    assert rung.fall is not None
    assert found is not None, f"not within {rung.fall.within} schedules"
    assert found.violation.rule == rung.fall.rule
    assert found.violation in check(found.history), "it is the checkers who say so"
    assert found.schedules <= rung.fall.within


@pytest.mark.turns
@pytest.mark.parametrize("rung", [marked(rung) for rung in FALLING])
def test_the_cure_survives_every_schedule_of_the_same(rung: Rung) -> None:
    assert rung.fall is not None
    cure = by_name(rung.fall.cure)
    assert RUNGS.index(cure) > RUNGS.index(rung)
    survived = survives(cure, rung.fall.scenario)
    assert survived.covered
    assert survived.found == []


@pytest.mark.soak
def test_a_step_says_whether_it_holds() -> None:
    assert [step.rung for step in ladder.climb() if step.held] == FALLING


@pytest.mark.parametrize("rung", FALLING, ids=lambda rung: str(rung.name))
def test_a_schedule_is_a_list_of_choices(rung: Rung, falls: dict[str, RungFailure | None]) -> None:
    """Nothing else decides what happens."""
    found, fall = falls[rung.name], rung.fall
    assert found is not None
    assert fall is not None
    history, violations = replay(lambda: build(rung, fall.scenario), settle, found.choices)
    assert violations[0] == found.violation
    assert history == found.history


PROGRAM = """
from holdfast_lab.ladder import RUNGS, find
print([(found.schedules, found.choices, found.history) for rung in RUNGS if rung.fall for found in [find(rung)] if found])
"""


@pytest.mark.turns("lab")
def test_the_search_is_the_same_in_every_process(falls: dict[str, RungFailure | None]) -> None:
    """In one where the order of sets is another one than here."""
    other = str(1 + (os.environ.get("PYTHONHASHSEED") == "1"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": other}
    )
    here = [(found.schedules, found.choices, found.history) for found in falls.values() if found]
    assert done.stdout == f"{here}\n"
    assert len(done.stdout) > 10_000


@pytest.mark.turns("lab")
def test_survivors_were_in_danger() -> None:
    """All clients get the lock in some schedule in which the fault has happened: nothing holds because nothing happens."""
    for cure, scenario in {(by_name(rung.fall.cure), rung.fall.scenario) for rung in FALLING if rung.fall}:
        taken: set[frozenset[str]] = set()
        for history in histories(cure, scenario, most=150):
            assert check(history) == [], cure.name
            if not scenario.faults or any(event.kind == "fault" for event in history):
                taken.add(frozenset(event.who for event in history if event.kind == "taken"))
        assert max(map(len, taken)) == scenario.clients, cure.name


def histories(rung: Rung, scenario: Scenario, most: int = 10**6) -> Iterator[list[Event]]:
    """Those of them that come to their end."""
    found: list[list[Event]] = []

    def keep(world: Stepwise) -> None:
        settle(world)
        found.append(world.history)

    explore(lambda: build(rung, scenario), keep, most=most, stop_at=10**6)
    yield from found


def outcomes(rung: Rung, scenario: Scenario) -> set[tuple[str, ...]]:
    """Return the possible outcomes of a scenario for its clients, and the rules that it can break."""
    found: set[tuple[str, ...]] = set()
    for history in histories(rung, scenario):
        ends = [f"{e.who} {e.kind} {e.note}" for e in history if e.kind in {"taken", "failed", "crashed", "write", "paused"}]
        found.add((*sorted(ends), *sorted({violation.rule for violation in check(history)})))
    return found


@pytest.mark.turns
@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("flag", rungs.CALM),
        ("setnx", rungs.CALM),
        ("timestamp-getset", rungs.CLOCKS),
        ("timestamp-equal", rungs.LOST_REPLY),
        ("token-script", rungs.LOST_REPLY),
        ("setnx-expire", rungs.CRASH),
        ("set-nx-px", rungs.CRASH),
        ("late-write", rungs.LATE),
        ("token-script", rungs.DEATH),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_the_steps_that_are_not_chosen_make_no_difference(
    name: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world of the ladder does at once what only one client sees. The outcomes are those of a world that does not."""
    reduced = outcomes(by_name(name), scenario)
    monkeypatch.setattr(LadderWorld, "steps_now", Stepwise.steps_now)
    assert outcomes(by_name(name), scenario) == reduced


AGAIN = "PYTHONPATH=tests python -m lab.sim.ladder_page writes it anew"


@pytest.mark.soak
def test_the_page_shows_what_is_searched_for_long() -> None:
    page = ladder_page.PAGE.read_text(encoding="utf-8")
    assert page == ladder_page.render(page), AGAIN


def test_the_page_shows_what_happens(falls: dict[str, RungFailure | None]) -> None:
    page = ladder_page.PAGE.read_text(encoding="utf-8")
    assert page == ladder_page.render(page, keep=LATER), AGAIN
    assert [name for name in LATER if (found := falls[name]) is None or found.timeline not in page] == [], AGAIN
    for rung in RUNGS:
        assert rung.fall is None or f"<!-- timeline: {rung.name} -->" in page
        assert f"<!-- lock: {type(rung.lock).__name__} -->" in page
    titles = [line.partition(". ")[2] for line in page.splitlines() if line.startswith("## ") and line[3].isdigit()]
    assert titles == [rung.title for rung in RUNGS]


QUICK = [scenario for scenario in SCENARIOS if scenario.clients == 2]


@pytest.mark.turns("lab")
def test_the_table_of_the_page_is_right() -> None:
    """Three clients, and three servers, take longer: see below."""
    told = ladder_page.rows(ladder_page.TABLE_PAGE.read_text(encoding="utf-8"))
    assert [*told] == [rung.name for rung in RUNGS if rung.name not in ladder_page.ALIKE]
    for name, cells in told.items():
        rung = by_name(name)
        for scenario, said in zip(SCENARIOS, cells, strict=True):
            if rung.servers == 1 and scenario in QUICK:
                assert said == ladder_page.cell(rung, scenario), f"{name}, {scenario.name}"


@pytest.mark.soak
def test_all_of_the_table_is_right() -> None:
    assert ladder_page.table() in ladder_page.TABLE_PAGE.read_text(encoding="utf-8")
