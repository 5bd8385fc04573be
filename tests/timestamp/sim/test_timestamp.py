"""The timestamp lock in the simulator: what holds, each weakness, and the way of a fleet to `Lock`."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from holdfast._core import timestamp
from holdfast_lab.ladder import Rung, Scenario, find, survives
from holdfast_lab.ladder.rungs import CALM, CLOCKS, CRASH, LOST_REPLY, PAUSE
from support.searches import in_turn
from timestamp.sim import legacy_page
from timestamp.sim.fleets import TROUBLE, Fleet, Outcome, simulate
from timestamp.sim.timestamps import FALLS, OURS, OURS_BY_SERVER, STARVING

QUICK, LONG = range(100), range(4000)


def run(fleet: Fleet, seeds: range = QUICK) -> list[Outcome]:
    """Nothing but overlaps may be wrong, and enough must have happened."""
    found = [simulate(seed, fleet) for seed in seeds]
    assert [one.wrong for one in found if one.wrong] == []
    assert {kind for one in found for kind in one.used} == set(fleet.kinds)
    assert sum(one.turns for one in found) > 3 * len(seeds)
    assert sum(one.took_over for one in found) > len(seeds) / 5, "hardly anybody had to be waited out"
    return found


def broken(found: list[Outcome]) -> list[int]:
    return [seed for seed, one in enumerate(found) if one.overlaps]


HOLD = {
    "ours": Fleet(("ours",), TROUBLE),
    "in seconds": Fleet(("ours, in seconds",), TROUBLE),
    "each with its own ttl": Fleet(("ours", "ours, for less"), TROUBLE),
    "by the server's clock": Fleet(("ours, by the server's clock",), TROUBLE, ahead=10.0),
    "with deployed clients": Fleet(("ours", "deployed")),
    "migrating, and old ones": Fleet(("migrating", "ours"), TROUBLE),
    "migrating, and deployed ones": Fleet(("migrating", "deployed")),
    "migrating, and new ones": Fleet(("migrating", "new"), TROUBLE),
    "migrating alone": Fleet(("migrating",), TROUBLE),
}


@pytest.mark.turns
@pytest.mark.parametrize("name", HOLD)
def test_at_most_one_holder(name: str) -> None:
    assert broken(run(HOLD[name])) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", HOLD)
def test_at_most_one_holder_for_long(name: str) -> None:
    assert broken(run(HOLD[name], LONG)) == []


@pytest.mark.turns
@pytest.mark.parametrize(
    "fleet", [Fleet(("ours",), ahead=10.0), Fleet(("ours", "deployed"), ahead=10.0)], ids=["ours", "with deployed clients"]
)
def test_a_clock_that_is_ahead_breaks_it(fleet: Fleet) -> None:
    assert len(broken(run(fleet))) > len(QUICK) / 2


def test_a_fleet_that_skips_the_time_between_breaks_it() -> None:
    """Some know the old lock alone, some the new one alone: there is nothing that both would see."""
    assert len(broken(run(Fleet(("deployed", "new"))))) > len(QUICK) / 2


# Small worlds, and all that can happen in them


LATER = {name for name in ("naive", "same-value") if not in_turn(name)}
"""Weaknesses whose cures have many schedules. These are searched in turn, and in the soak."""


@pytest.mark.turns
@pytest.mark.parametrize(
    ("rung", "scenario"),
    [
        (OURS, CALM),
        (OURS, CRASH),
        pytest.param(OURS, PAUSE, marks=[pytest.mark.soak] * (not in_turn("ours pause"))),
        pytest.param(OURS, LOST_REPLY, marks=[pytest.mark.soak] * ("same-value" in LATER)),
        (OURS_BY_SERVER, CLOCKS),
        (OURS_BY_SERVER, STARVING),
    ],
    ids=lambda each: each.name,
)
def test_it_survives_every_schedule(rung: Rung, scenario: Scenario) -> None:
    report = survives(rung, scenario)
    assert report.covered
    assert report.found == []


@pytest.mark.turns
@pytest.mark.parametrize("name", FALLS)
def test_each_weakness_is_found(name: str) -> None:
    rung = FALLS[name].rung
    assert rung.fall is not None
    found = find(rung)
    assert found is not None
    assert found.violation.rule == rung.fall.rule


AGAIN = "PYTHONPATH=tests python -m timestamp.sim.legacy_page writes it anew"


@pytest.mark.soak
def test_the_page_shows_what_is_searched_for_long() -> None:
    page = legacy_page.PAGE.read_text(encoding="utf-8")
    assert page == legacy_page.render(page), AGAIN


def test_the_page_shows_what_happens() -> None:
    page = legacy_page.PAGE.read_text(encoding="utf-8")
    assert page == legacy_page.render(page, keep=LATER), AGAIN
    for name, weakness in FALLS.items():
        assert f"<!-- timeline: {name} -->" in page
        found = find(weakness.rung)
        assert found is not None
        assert found.timeline in page, AGAIN


# Defects


DEFECTS = {
    "a live lock is taken over": ("if ends >= now.wall:", "if ends >= now.wall + 1:", HOLD["ours"]),
    "whoever swaps has won": ("(mine, seen), stamp", "(mine, seen, await _look(stamp) or b''), stamp", HOLD["ours"]),
    "what is in the key is taken for one's own": (
        "    except Unknown:\n        pass\n    seen =",
        "    except Unknown:\n        if await _look(stamp) == mine: return await _won(stamp, hold, now, mine)\n    seen =",
        HOLD["in seconds"],
    ),
    "whatever is in the key is deleted": (
        "        if not await remaining(hold):\n            break\n        try:\n",
        "        try:\n            if not new:\n                values = (await _look(stamp) or b'',)\n",
        HOLD["ours"],
    ),
    "it is believed for longer than it lasts": ("ttl - margin(ttl)", "ttl * 1.2", HOLD["by the server's clock"]),
}


@pytest.fixture
def patched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModuleType]:
    """The core with a defect."""
    text = Path(str(timestamp.__file__)).read_text(encoding="utf-8")
    old, new, _ = DEFECTS[request.param]
    assert text.count(old) == 1
    file = tmp_path / "patched_timestamp.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[file.stem]


@pytest.mark.parametrize(("name", "patched"), [(name, name) for name in DEFECTS], indirect=["patched"])
def test_a_defect_is_caught(name: str, patched: ModuleType) -> None:
    fleet = DEFECTS[name][2]
    for seed in range(2000):
        outcome = simulate(seed, Fleet(fleet.kinds, fleet.faults, patched))
        assert not outcome.wrong
        if outcome.overlaps:
            assert not simulate(seed, fleet).overlaps, "it is the defect that does it"
            return
    pytest.fail(f"not caught in 2000 histories: {name}")


def test_the_same_seed_is_the_same_history() -> None:
    fleet = HOLD["with deployed clients"]
    assert Counter(simulate(3, fleet).used) == Counter(simulate(3, fleet).used)
    assert [simulate(seed, fleet).turns for seed in range(20)] == [simulate(seed, fleet).turns for seed in range(20)]
