"""The trials of a mutant: quick tests that run its lines, the conformance tests of its script, and histories."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import coverage

from lab.mutants.covering import LINES, SECONDS, STATE
from lab.mutants.drawing import Mutant
from support.sources import PACKAGE

TESTS = Path(__file__).parents[2]
LUA = PACKAGE / "_lua"
SWARMS = STATE / "swarms.json"
QUICK, FILE = 2.0, 0.01
"""CPU seconds of tests that are tried, as measured under coverage.py; and what each file of tests costs besides."""
HISTORIES, SWARM_CPU = 500, 2.0
"""Histories that are tried, if there is time."""
FORMER = 40
"""Histories of each swarm from which is known what it touches."""


# Which


@cache
def _seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
    return found


def files() -> list[str]:
    """Return the files of the tests that were measured."""
    return sorted({_file(name) for name in _seconds()})


@cache
def _contexts(file: str) -> dict[int, list[str]]:
    """Which tests and swarms have run each line."""
    data = coverage.CoverageData(str(LINES))
    data.read()
    return data.contexts_by_lineno(str(PACKAGE / file))


def _covering(mutant: Mutant) -> set[str]:
    """Return what has run its lines."""
    lines = _contexts(mutant.file)
    return {each for line in mutant.lines for each in lines.get(line, ()) if each}


def tests(mutant: Mutant) -> list[str]:
    """Return tests that cover the mutant: alternately one of the same file, and a quick one of any other.

    If nothing is known of its lines, as in a script or in a forked child, return tests of its file, or of the modules that use
    it.
    """
    files = [mutant.file] if mutant.file.endswith(".py") else _modules(mutant)
    found = _covering(mutant) & _seconds().keys()
    if not found:
        found = {test for file in files for tests in _contexts(file).values() for test in tests} & _seconds().keys()
    pairs = zip(_closest(files, found), _quickest_of_each(found), strict=True)
    return _within_limit(name for pair in pairs for name in pair)


def _modules(mutant: Mutant) -> list[str]:
    """Return the modules that name the scripts which a file of Lua becomes part of."""
    names = [f'"{user}"' for user in _users(_name(mutant))]
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    return [file for file, text in texts.items() if any(name in text for name in names)]


@cache
def _lines() -> Counter[str]:
    """Return how many lines of the package each test runs."""
    data = coverage.CoverageData(str(LINES))
    data.read()
    return Counter(test for file in data.measured_files() for tests in data.contexts_by_lineno(file).values() for test in tests)


def _closest(files: list[str], names: set[str]) -> list[str]:
    """Return the tests, those first of whose lines the largest part is in these files: they are about them."""
    here = Counter(test for file in files for tests in _contexts(file).values() for test in tests)
    return sorted(names, key=lambda name: (-here[name] / max(1, _lines()[name]), name))


def _quickest_of_each(names: set[str]) -> list[str]:
    """Return the tests: the quickest one of each file, then the second one of each, and so on."""
    before = Counter[str]()
    ranked = list[tuple[int, float, str]]()
    for name in sorted(names, key=lambda name: (_seconds()[name], name)):
        ranked.append((before[_file(name)], _seconds()[name], name))
        before[_file(name)] += 1
    return [name for _, _, name in sorted(ranked)]


def _file(name: str) -> str:
    return name.partition("::")[0]


def _within_limit(names: Iterable[str]) -> list[str]:
    """Return the first of these tests that together take `QUICK` seconds; one that takes more than is left is left out."""
    left, found, files = QUICK, list[str](), set[str]()
    for name in names:
        cost = _seconds()[name] + 0.005 + FILE * (_file(name) not in files)
        if name not in found and cost <= left:
            left -= cost
            found.append(name)
            files.add(_file(name))
    return found


def conformance(mutant: Mutant) -> list[str]:
    """Tests of the scripts that have it, on one server: of the three files that name them most often."""
    if not mutant.file.endswith(".lua"):
        return []
    named = Counter(
        {
            path.relative_to(TESTS.parent).as_posix(): _mentions(path, mutant)
            for path in TESTS.glob("*/conformance/test_*script*.py")
        }
    )
    most = [path for path, count in named.most_common(3) if count]
    found = {name for name in _seconds() if _file(name) in most and "redis-6.2" not in name}
    return _within_limit(_quickest_of_each(found))


def _mentions(path: Path, mutant: Mutant) -> int:
    of_permits = "permits" in path.name
    called = [user.rpartition("/")[2] for user in _users(_name(mutant)) if user.startswith("permit/") == of_permits]
    found: list[str] = re.findall(r"\w+", path.read_text(encoding="utf-8").lower())
    return sum(map(found.count, called))


@cache
def _users(name: str) -> set[str]:
    """The scripts that a file becomes part of; both as in ``lock/acquire``."""
    if "/_" not in name:
        return {name}
    files = {path.relative_to(LUA).with_suffix("").as_posix(): path.read_text(encoding="ascii") for path in LUA.rglob("*.lua")}
    with_it = [file for file, text in files.items() if re.search(rf"^\s*-- INCLUDE\s+{name}$", text, re.MULTILINE)]
    return {user for file in with_it for user in _users(file)}


def _name(mutant: Mutant) -> str:
    return mutant.file.removeprefix("_lua/").removesuffix(".lua")


def swarms(mutant: Mutant) -> list[str]:
    """Names of the swarms that reach a mutant."""
    if mutant.file.endswith(".py"):
        return sorted(each.removeprefix("swarm ") for each in _covering(mutant) if each.startswith("swarm "))
    asked: dict[str, dict[str, int]] = json.loads(SWARMS.read_text(encoding="utf-8"))
    return [of for of, scripts in asked.items() if _users(_name(mutant)) & scripts.keys()]


# Tried, in a process of its own that imports the copy


def run_histories(root: Path, names: list[str]) -> int:
    prefer(root)
    campaign = _campaign()
    until = time.process_time() + SWARM_CPU
    for seed in range(HISTORIES // len(names) + 1):
        for name in names:
            violations = campaign.SWARMS[name].simulate(seed).violations
            if violations:
                print(f"{name} seed {seed}: {violations[0]}")
                return 1
            if time.process_time() > until:
                print(f"{seed} seeds")
                return 0
    return 0


def _campaign() -> Any:
    from holdfast_lab import runner

    return runner


def prefer(root: Path) -> None:
    sys.path[:0] = [str(root), str(TESTS)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(TESTS)])
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(TESTS.parent)


# Measured


def cover_swarms() -> None:
    """Note which lines and which scripts each swarm runs."""
    measured = coverage.Coverage(data_file=str(LINES), source_pkgs=["holdfast"], config_file=False, messages=False)
    if LINES.exists():
        measured.load()
    STATE.mkdir(parents=True, exist_ok=True)
    campaign = _campaign()
    asked: dict[str, dict[str, int]] = {}
    for name, swarm in campaign.SWARMS.items():
        asked[name] = Counter()
        measured.start()
        measured.switch_context(f"swarm {name}")
        for seed in range(FORMER):
            world = swarm.simulate(seed).world
            for server in getattr(world, "servers", ()):
                asked[name].update(server.asked_for)
        measured.stop()
    measured.save()
    SWARMS.write_text(json.dumps(asked), encoding="utf-8")
