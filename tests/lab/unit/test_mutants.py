"""How mutants are drawn, and tried in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from lab.mutants import drawing
from support.sources import PACKAGE

TRIALS = """
import json, os, signal, subprocess, sys, time
from lab.mutants import isolation

isolation.CPU, isolation.WALL = 1, 50

def spin():
    while True:
        pass

def leave_a_child():
    subprocess.Popen(["sleep", "60"])
    return 0

def kill_all():
    os.killpg(0, signal.SIGKILL)

works = {
    "returns": lambda: 0,
    "fails": lambda: 3,
    "raises": lambda: 1 / 0,
    "spins": spin,
    "sleeps": lambda: time.sleep(60),
    "leaves a child": leave_a_child,
    "kills all": kill_all,
}
began = time.monotonic()
found = {name: isolation.isolated(work, 0.02 if name == "sleeps" else 1).how for name, work in works.items()}
print(json.dumps(found | {"took": time.monotonic() - began}))
"""


@pytest.mark.turns("lab")
def test_the_draw_is_even() -> None:
    drawn = list(islice(drawing.drawn(1), 60))
    assert Counter(mutant.area for mutant in drawn) == dict.fromkeys(drawing.AREAS, 10)
    for mutant in drawn:
        source = (PACKAGE / mutant.file).read_text(encoding="utf-8")
        assert mutant.planted(source) != source


@pytest.mark.turns("lab")
def test_a_seed_decides_the_order() -> None:
    one, again, other = (drawing.shuffled(seed, list(drawing.of_area("drivers"))) for seed in ("1", "1", "2"))
    assert one == again
    assert one != other
    assert set(one) == set(other)


@pytest.mark.turns("lab")
def test_a_trial_ends_whatever_it_does() -> None:
    here = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", TRIALS], cwd=here, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found.pop("took") < 60, "nobody waits for what is left behind"
    assert found == {
        "returns": "ok",
        "fails": "failed",
        "raises": "failed",
        "spins": "killed",
        "sleeps": "hung",
        "leaves a child": "ok",
        "kills all": "killed",
    }
