"""Rare themes: swarms with a fault that plain histories do not have, or have too seldom."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast_lab.runner import SWARMS, RunnerTotals, batch, swarm_of
from holdfast_lab.sim.rare import THEMES

MANY = 3_000
CASES = [f"{of}+{theme.name}" for theme in THEMES.values() for of in theme.swarms]


def judge(tally: RunnerTotals, name: str) -> None:
    seeds = "; ".join(f"{what}: python -m holdfast_lab replay {name}:{seed}" for seed, what in tally.failed[:5])
    assert tally.failed == [], seeds
    assert tally.missing(name) == [], "too little has happened (R11)"


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_some_histories(name: str) -> None:
    judge(batch(0, THEMES[name.partition("+")[2]].histories, name), name)


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_thousands_of_histories(name: str) -> None:
    judge(batch(1_000_000, MANY, name), name)


@pytest.mark.turns
@pytest.mark.parametrize("name", CASES)
def test_a_theme_is_drawn_apart(name: str) -> None:
    """A history under a theme is another one, the same each time; and without it, the one that the seed always was."""
    of = name.partition("+")[0]
    themed, plain = swarm_of(name).simulate, SWARMS[of].simulate
    assert themed(1).history == themed(1).history
    assert plain(1).history == plain(1).history
    assert any(themed(seed).history != plain(seed).history for seed in range(10))


def test_they_are_on_the_command_line() -> None:
    def run(*args: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "holdfast_lab", *args], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = run("swarm", "--schedule", "--theme", "jumping", "--histories", "20", "--jobs", "1")
    assert (code, "0 with violations" in said) == (0, True)
    code, said = run("replay", "schedule+jumping:3")
    assert (code, "clock" in said) == (0, True)
    code, said = run("swarm", "--theme", "nonsense")
    assert (code, all(theme in said for theme in THEMES)) == (2, True)
