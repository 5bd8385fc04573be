"""Mutation by operators: changes of the code that neither tests nor simulator notice. ``make mutants``, or, in ``tests``:

    python -m lab.mutants cover PATHS ...               record which lines these tests run, and the swarms; before the others
    python -m lab.mutants cover --children PATHS ...    record lines of the supervising processes; after that
    python -m lab.mutants run                try mutants one after the other; continue after an interruption
    python -m lab.mutants try NAME           try one of them with all layers; `survivors` lists the names
    python -m lab.mutants survivors          print the mutants that nothing has killed, as diffs
    python -m lab.mutants report             print the table: killed by layer

A mutant is tried in a copy of the package, by a process of its own, and in its own namespace where that is allowed. The results
are in .mutants/ (`HOLDFAST_MUTANTS`), one JSON line for each.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

from lab.mutants import drawing, isolation, layers, noting
from lab.mutants.covering import STATE
from lab.mutants.drawing import AREAS, Mutant
from lab.mutants.trials import Trials
from lab.sim.mutate import copied
from support.sources import PACKAGE

RESULTS = STATE / "results.jsonl"
LAYERS: dict[str, Callable[[Mutant], list[str]]] = {
    "tests": layers.tests,
    "conformance": layers.conformance,
    "histories": layers.swarms,
}
"""The files to try, and their tests or swarms."""
ANEW = 3
"""How often the tests run at most: again without one that fails by itself, as on a busy machine."""


def results() -> dict[str, dict[str, Any]]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {line["name"]: line for line in map(json.loads, lines)}


def tried(trials: Trials, mutant: Mutant, *, every: bool) -> dict[str, Any]:
    """Return the result of each layer. Stop at the first that kills the mutant, unless ``every``."""
    found: dict[str, Any] = {"name": mutant.name, "area": mutant.area, "operator": mutant.operator, "layers": {}, "cpu": 0.0}
    for layer, which in LAYERS.items():
        names = which(mutant)
        if not names:
            continue
        for _ in range(ANEW):
            outcome = trials.outcome(layer, mutant, names)
            found["cpu"] = round(found["cpu"] + outcome.cpu, 1)
            result = found["layers"][layer] = verdict(trials, mutant, layer, names, outcome)
            if result["dead"] or not named(result["said"], names):
                break
            names = [name for name in names if name not in named(result["said"], names)]
        if found["layers"][layer]["dead"] and not every:
            break
    found["every"] = every
    return found


def verdict(trials: Trials, mutant: Mutant, layer: str, names: list[str], outcome: isolation.Outcome) -> dict[str, Any]:
    """Whether it is dead, how the layer has ended, and what that has said."""
    lines = outcome.said.strip().splitlines() or [""]
    said = next((line for line in reversed(lines) if line.startswith(("FAILED", "ERROR"))), "")
    dead = outcome.how != "ok"
    if outcome.how == "failed" and layer != "histories" and not said:
        raise RuntimeError(f"the tests could not be run: {lines[-1]}")
    if layer != "histories" and dead and not re.match(r"FAILED tests/\w+/unit/", said):
        dead = confirmed(trials, mutant, layer, named(said, names) or names, outcome.how)
    return {"dead": dead, "how": outcome.how, "said": (said or lines[-1])[:300]}


def named(said: str, names: list[str]) -> list[str]:
    """Return the test that a line of pytest names, as a list; empty if it names none. A name may contain blanks."""
    found = [name for name in names if said.partition(" ")[2].startswith(name)]
    return [max(found, key=len)] if found else []


def confirmed(trials: Trials, mutant: Mutant, layer: str, names: list[str], how: str) -> bool:
    """A busy machine kills nothing: without the mutant these tests pass, in half the time, and with it they fail again."""
    without = trials.outcome(layer, None, names, patience=0.5).how
    if without != "ok" or how != "failed":
        return without == "ok"
    return trials.outcome(layer, mutant, names).how != "ok"


def run(args: argparse.Namespace) -> None:
    """Try the first ``count`` of the draw that have not been tried; or once more, for longer, those that nothing has killed."""
    isolation.enter()
    known, until = results(), time.monotonic() + args.minutes * 60
    todo = [mutant for mutant in islice(drawing.drawn(args.seed, args.areas), args.count) if mutant.name not in known]
    if args.again:
        todo = [by_name()[each["name"]] for each in alive() if not each["again"]]
        layers.QUICK, layers.SWARM_CPU, isolation.CPU = 3 * layers.QUICK, 3 * layers.SWARM_CPU, 3 * isolation.CPU

    def campaign(trials: Trials) -> None:
        for number, mutant in enumerate(todo):
            if time.monotonic() > until:
                return
            found = tried(trials, mutant, every=number < args.every) | {"again": args.again}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            dead = {layer: each["dead"] for layer, each in found["layers"].items()}
            print(number, found["cpu"], mutant.name, dead, flush=True)

    with copied() as copy:
        Trials(copy, campaign).begin()


@cache
def by_name() -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in drawing.drawn(0)}


def try_one(args: argparse.Namespace) -> None:
    isolation.enter()
    mutant = by_name()[args.name]

    def campaign(trials: Trials) -> None:
        print(shown(mutant), json.dumps(tried(trials, mutant, every=True), indent=2), sep="\n")

    with copied() as copy:
        Trials(copy, campaign).begin()


def shown(mutant: Mutant) -> str:
    before = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    old, new = before.splitlines(keepends=True), mutant.planted(before).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, mutant.file, mutant.name, n=1))


def alive() -> Iterator[dict[str, Any]]:
    """With those that no test is known to run."""
    return (each for each in results().values() if not any(layer["dead"] for layer in each["layers"].values()))


def survivors(_: argparse.Namespace) -> None:
    for each in alive():
        print(shown(by_name()[each["name"]]), *each["layers"], sep="\n", end="\n\n")


def report(_: argparse.Namespace) -> None:
    """By area: how many were tried, and which layer killed them first; and each layer alone, where all were tried."""
    names = [*LAYERS, "survived", "not run by any test"]
    print("| area | mutants | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|", sep="\n")
    for area in [*AREAS, ""]:
        rows = [each for each in results().values() if each["area"] == (area or each["area"])]
        ends = Counter(
            next((name for name, layer in each["layers"].items() if layer["dead"]), names[-2] if each["layers"] else names[-1])
            for each in rows
        )
        print(f"| {area or 'all'} | {len(rows)} | " + " | ".join(str(ends[name]) for name in names) + " |")
    for layer in LAYERS:
        given = [each["layers"][layer]["dead"] for each in results().values() if layer in each["layers"]]
        print(f"{layer}: {sum(given)} of the {len(given)} that it was given")


def cover(args: argparse.Namespace) -> None:
    """Run the tests of these paths: with coverage.py, or with a copy that notes what runs in processes that supervise."""
    command = [sys.executable, "-m", "pytest", "-m", "not soak and not cron", "-q", "-p", "no:cacheprovider", "-p"]
    if not args.children:
        # The lock of coverage.py may be taken at a fork, and the child then waits for it without end.
        levels = ("unit", "conformance", "live", "faults")
        paths = args.paths or [str(path) for level in levels for path in sorted(layers.TESTS.glob(f"*/{level}"))]
        without = "--ignore=tests/runtime/faults/test_fork.py"
        subprocess.run([*command, "lab.mutants.covering", without, *paths], cwd=layers.TESTS.parent, check=False)
        layers.cover_swarms()
        return
    with copied() as copy:
        for path in {path for each in AREAS["supervision"] for path in PACKAGE.glob(each)}:
            instead = copy.root / "holdfast" / path.relative_to(PACKAGE)
            instead.write_text(noting.noting(path.read_text(encoding="utf-8")), encoding="utf-8")
        layers.prefer(copy.root)
        paths = args.paths or [str(path) for pattern in noting.TESTS for path in sorted(layers.TESTS.glob(pattern))]
        subprocess.run([*command, "lab.mutants.noting", *paths], check=False)
    noting.merge(PACKAGE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.mutants", description="Mutation by operators.")
    commands = parser.add_subparsers(required=True)
    for name, function in {"cover": cover, "run": run, "try": try_one, "survivors": survivors, "report": report}.items():
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        if name == "cover":
            command.add_argument("--children", action="store_true", help="what runs in the processes that supervise")
            command.add_argument("paths", nargs="*")
        elif name == "run":
            command.add_argument("--seed", type=int, default=1)
            command.add_argument("--count", type=int, default=400, help="of the draw, from its beginning")
            command.add_argument("--areas", nargs="+", choices=AREAS, default=list(AREAS))
            command.add_argument("--every", type=int, default=0, help="so many are tried by all layers")
            command.add_argument("--again", action="store_true", help="those that nothing has killed, with more tests and time")
            command.add_argument("--minutes", type=float, default=1e6)
        elif name == "try":
            command.add_argument("name")
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
