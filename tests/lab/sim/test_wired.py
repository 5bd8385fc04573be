"""Histories of the real drivers and connections over scripted sockets, and the defects that they have to catch."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_lab.runner import SWARMS, batch, swarm_of
from lab.sim.wired_defects import WIRED
from support.sources import turn


def run(first: int, count: int) -> None:
    tally = batch(first, count, "wired")
    assert tally.failed == []
    assert tally.missing("wired") == []


def test_histories_over_scripted_sockets() -> None:
    run(0, 150)


@pytest.mark.soak
def test_many_histories_over_scripted_sockets() -> None:
    run(1000, 30_000)


@pytest.mark.parametrize("seed", range(7))
def test_a_seed_decides_everything(seed: int) -> None:
    """Also where the garbage collector runs at other moments."""
    gc.disable()
    try:
        before = SWARMS["wired"].simulate(seed, trace=True)
    finally:
        gc.enable()
    gc.collect()
    after = SWARMS["wired"].simulate(seed, trace=True)
    assert after.history == before.history
    assert (after.profile, after.counts) == (before.profile, before.counts)


@pytest.mark.parametrize("seed", range(4))
def test_a_seed_decides_everything_in_a_cluster_too(seed: int) -> None:
    """Its threads are real ones, of which one runs at a time."""
    before, after = (swarm_of("wired+redirecting").simulate(seed, trace=True) for _ in range(2))
    assert before.counts["wired slot moves"]
    assert (after.history, after.profile, after.counts) == (before.history, before.profile, before.counts)


def search(names: set[str]) -> None:
    """Search for these defects, each of which has to be caught."""
    script = Path(__file__).with_name("wired_defects.py")
    done = subprocess.run(
        [sys.executable, str(script), *sorted(names)], capture_output=True, text=True, check=True, timeout=300
    )
    found = {line["name"]: line["found"] for line in map(json.loads, done.stdout.splitlines())}
    assert set(found) == names
    assert {name for name, how in found.items() if how is None} == set()


DEFECTS = {defect.name for defect in WIRED}
IN_TURN = set(sorted(DEFECTS, key=lambda name: turn(f"defect {name}"))[: len(DEFECTS) // 8])


def test_the_planted_defects_whose_turn_it_is_are_caught() -> None:
    """An eighth of them; others after each change of a source."""
    assert len(IN_TURN) > 2
    search(IN_TURN)


@pytest.mark.soak
def test_each_planted_defect_is_caught() -> None:
    search(DEFECTS)
