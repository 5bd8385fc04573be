"""Histories of the real drivers and connections over scripted sockets, and the defects that they have to catch."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.testing.wired.histories import FAULTS, simulate
from sim.wired_defects import WIRED

ENOUGH = {
    **dict.fromkeys(FAULTS, 500),
    "looked": 50_000,
    "taken": 1000,
    "renewed": 500,
    "released": 500,
    "answered": 2000,
    "answered by link": 2000,
    "cancelled": 50,
    "command EVAL": 1000,
    "command EVALSHA": 5000,
    "command SUBSCRIBE": 500,
}
"""What has to happen in 1,000 histories at least, or they have proved nothing."""


def run(first: int, count: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + count):
        story = simulate(seed)
        assert story.wrong == "", f"seed {seed}, {story.face}"
        counts += story.counts
    assert {what: counts[what] for what, least in ENOUGH.items() if counts[what] < least * count / 1000} == {}


@pytest.mark.parametrize("first", [0, 500, 1000])
def test_histories_over_scripted_sockets(first: int) -> None:
    run(first, 500)


@pytest.mark.soak
def test_many_histories_over_scripted_sockets() -> None:
    run(1500, 30_000)


@pytest.mark.parametrize("seed", range(6))
def test_a_seed_decides_everything(seed: int) -> None:
    """Also where the garbage collector runs at other moments."""
    gc.disable()
    try:
        before = simulate(seed)
    finally:
        gc.enable()
    gc.collect()
    assert simulate(seed) == before


def test_each_planted_defect_is_caught() -> None:
    script = Path(__file__).with_name("wired_defects.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=300)
    found = {line["name"]: line["found"] for line in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {defect.name for defect in WIRED}
    assert {name for name, how in found.items() if how is None} == set()
