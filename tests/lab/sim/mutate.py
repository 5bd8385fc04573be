"""The mutation check: puts the defects of `mutations` in, one at a time, and sees if the simulator catches them.

    python tests/lab/sim/mutate.py                search, and tell what catches each
    python tests/lab/sim/mutate.py NAME ...       the same for some; with --most 300: in 300 seeds, without the scenarios
    python tests/lab/sim/mutate.py --record       search, and write down what was found, here and in the docs; with names: those
    python tests/lab/sim/mutate.py --show NAME .. tell what each changes, as a diff
    python tests/lab/sim/mutate.py --medians      measure how many histories each usually takes, and write it down
    python tests/lab/sim/mutate.py --rotate       search anew those whose turn it is, by a digest of the sources: JSON lines
    python tests/lab/sim/mutate.py --replay       do each recorded case again, for the tests: JSON lines; with names: theirs

A defect is put into a copy of the packages, and that copy is imported anew, or what is imported of it changed. So this runs in
a process of its own, which must not have imported the package before.
"""

from __future__ import annotations

import argparse
import compileall
import difflib
import gc
import hashlib
import importlib.util
import inspect
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.mutants.defects import Mutation
from lab.sim.mutations import MUTATIONS
from support.sources import LAB, PACKAGE, digest

TESTS = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("mutations.json")
PAGE = TESTS.parent / "docs" / "design" / "mutations.md"

SEEDS = 30_000
"""Histories of the swarm in which a defect has to be caught."""

SWARM = {
    "lock": "swarm",
    "multilock": "multilock",
    "quorum": "quorum",
    "single_flight": "single_flight",
    "schedule": "schedule",
    "election": "election",
    "rendezvous": "rendezvous",
    "ticket": "ticket",
    "permit": "permit",
    "break_lock": "break_lock",
}
"""Names of the swarms in the record."""

FEWER = {"election": 300, "election+forgetful": 3000, "election+jumping": 3000}
"""Swarms with fewer histories, because their histories take longer; the scenarios find the rest."""

SCENARIOS = {
    "lock": ("scenarios.lock", "QUICK"),
    "quorum": ("scenarios.quorum", "QUORUM_SCENARIOS"),
    "rendezvous": ("scenarios.rendezvous", "RENDEZVOUS_SCENARIOS"),
    "permit": ("scenarios.lock", "PERMITS"),
    "election": ("scenarios.election", "ELECTION_SCENARIOS"),
}
"""The small scenarios that are searched after the seeds: module and name."""

TIMES, USUAL = 5, 100
"""How often a defect is searched to know how many histories that usually takes; and how many these may be."""

ROTATING, ANEW = 400, 4
"""Histories that the search by turns usually needs; and what it costs besides, for each defect, in histories."""

WEIGHT = {"quorum": 5, "election": 4, "schedule": 2, "rendezvous": 2, "ticket": 2}
"""Swarms whose histories take so many times as long as the others'."""

SCHEDULES = 5000
"""Schedules of each scenario that are searched where the swarm has found nothing."""


class Planted(Protocol):
    """A defect."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def function(self) -> str: ...
    def planted(self, source: str) -> str: ...


@dataclass(frozen=True)
class Caught:
    """The history that caught a defect: a seed of the swarm, or a schedule of a scenario."""

    name: str
    rule: str
    by: str
    """``swarm``, ``quorum``, ``election+forgetful``: under a theme, or the scenario."""
    seed: int
    choices: list[int]
    histories: int
    """So many were needed."""
    said: str
    median: int = 0
    """So many are usually needed: of `TIMES` searches, each from another seed. 0: too many, or not searched by seeds."""

    @property
    def where(self) -> str:
        """For people."""
        theme = self.by.partition("+")[2]
        return f"seed {self.seed}{' ' * bool(theme)}{theme}" if self.of_swarm else f"scenario {self.by}"

    @property
    def of_swarm(self) -> bool:
        """It is a seed, and no scenario."""
        return self.by in SWARM.values() or "+" in self.by


def patched(mutation: Planted) -> str:
    """The file of a mutation, with the defect in it."""
    return mutation.planted((PACKAGE / mutation.file).read_text(encoding="utf-8"))


def shown(mutation: Mutation) -> str:
    """Return the change of a defect, for people."""
    before = (PACKAGE / mutation.file).read_text(encoding="utf-8")
    old, new = before.splitlines(keepends=True), mutation.planted(before).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, mutation.file, mutation.name, n=1))


class Copy:
    """A copy of the packages, imported from where it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.found: tuple[Any, list[Any]] | None = None
        """The module `_lua`, and the scripts that were made of it."""
        # With what is compiled already, which Python knows by the time of the text: that is most of what an import costs.
        for package in (PACKAGE, LAB):
            shutil.copytree(package, root / package.name, ignore=shutil.ignore_patterns("*.pyc.*"))
        compileall.compile_dir(root, quiet=1)
        sys.path.insert(0, str(root))
        sys.dont_write_bytecode = True

    @contextmanager
    def mutated(self, mutation: Planted | None) -> Iterator[None]:
        """With this defect in it, freshly imported."""
        for name in [name for name in sys.modules if name.partition(".")[0] in {PACKAGE.name, LAB.name}]:
            del sys.modules[name]
        with self.on_disk(mutation) if mutation else nullcontext():
            yield

    @contextmanager
    def on_disk(self, mutation: Planted) -> Iterator[None]:
        """With this defect in it, for what imports it meanwhile."""
        file = self.root / "holdfast" / mutation.file
        compiled = Path(importlib.util.cache_from_source(str(file)))
        aside = compiled.with_suffix(".aside")
        if compiled.exists():  # it is no script
            compiled.rename(aside)
        text = patched(mutation)
        before, stat = file.read_text(encoding="utf-8"), file.stat()
        file.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if aside.exists():
                aside.rename(compiled)

    @contextmanager
    def swapped(self, mutation: Mutation) -> Iterator[None]:
        """With this defect in what is imported already. To import all of it anew takes five times as long as most histories do,
        so that is done only where the defect is in no function."""
        for name in ("runner", "scenarios.table"):
            self.part(name)  # all that histories need: what was imported later would keep the defect
        undo = self.swap(mutation)
        if undo is None:
            with self.mutated(mutation):
                yield
            with self.mutated(None):  # the next one finds it clean
                return
        try:
            yield
        finally:
            undo()

    def swap(self, mutation: Planted) -> Callable[[], None] | None:
        """Put a defect into what is imported. Returns what takes it out again; None if that cannot be done."""
        return self._swap_scripts(mutation) if mutation.file.endswith(".lua") else self._swap_code(mutation)

    def _swap_code(self, mutation: Planted) -> Callable[[], None] | None:
        """In the outermost function that the defect is in. None: that does not do; as for a constant, or a default."""
        found: Any = importlib.import_module("holdfast." + mutation.file.removesuffix(".py").replace("/", "."))
        codes = [compile(patched(mutation), mutation.file, "exec")]
        for name in mutation.function.split("."):
            found = inspect.getattr_static(found, name, None)
            found = getattr(found, "__func__", None) or getattr(found, "fget", None) or found
            codes = [each for code in codes for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
            if not isinstance(found, type):
                break
        if not isinstance(found, FunctionType):
            return None
        before = found.__code__
        codes = [code for code in codes if _signature(code) == _signature(before)]
        if not codes or (code := codes[-1]) == before:  # of overloads, the last one counts
            return None
        found.__code__ = code
        return partial(setattr, found, "__code__", before)

    def _swap_scripts(self, mutation: Planted) -> Callable[[], None]:
        """In the script, or in all that include it."""
        lua: Any = importlib.import_module("holdfast._lua")
        file, planted, read = mutation.file.removeprefix("_lua/").removesuffix(".lua"), patched(mutation), lua.read
        clean = {script: (script.body, script.sha) for script in self.scripts() if file in _files(lua, script.name)}
        lua.read = lambda name: planted if name == file else read(name)
        lua.parts.cache_clear()
        for script, (body, _) in clean.items():
            script.body = lua.source(script.name).encode()
            script.sha = lua.sha1_hex(script.body)
            assert script.body != body, script.name
        assert clean, f"no script contains {mutation.file}"

        def undo() -> None:
            lua.read = read
            lua.parts.cache_clear()
            for script, before in clean.items():
                script.body, script.sha = before

        return undo

    def scripts(self) -> list[Any]:
        """All scripts of the copy that is imported. To look for them takes as long as a history."""
        lua: Any = importlib.import_module("holdfast._lua")
        if self.found is None or self.found[0] is not lua:
            self.found = lua, [each for each in gc.get_objects() if type(each) is lua.Script]
        return self.found[1]

    def part(self, name: str) -> Any:
        """A module of the lab in the copy."""
        module = importlib.import_module(f"{LAB.name}.{name}")
        assert Path(str(module.__file__)).is_relative_to(self.root)
        return module


def _files(lua: Any, name: str) -> set[str]:
    """The files that a script is made of."""
    _, *rest = lua.parts(name)
    included = (what for kind, what in zip(rest[::3], rest[1::3], strict=True) if kind == "INCLUDE")
    return {name}.union(*(_files(lua, what) for what in included))


def _signature(code: CodeType) -> tuple[object, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_freevars


@contextmanager
def copied() -> Iterator[Copy]:
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as root:
        yield Copy(Path(root).resolve())


# Search


def search(copy: Copy, mutation: Mutation, places: Iterable[int | str]) -> Caught | None:
    """Histories with this defect, until one violates a rule. One that does so without the defect, too, proves nothing of it: it
    is told, and passed over."""
    todo, histories = iter(places), 0
    while True:
        case = None
        with copy.swapped(mutation):
            for place in todo:
                case, more = look(copy, mutation, place)
                histories += more
                if case is not None:
                    break
            else:
                return None
        unclean = again(copy, case)
        if not unclean:
            return replace(case, histories=histories)
        print(f"{mutation.of}: {case.where} violates {unclean} without any of these defects", file=sys.stderr, flush=True)


def all_places(copy: Copy, of: str, most: int | None = None) -> Iterator[int | str]:
    """Return the histories to search for a defect: the seeds of its swarm, then the small scenarios, by name.

    ``most``: search this number of seeds at most, and no scenario.
    """
    seeds = FEWER.get(of, SEEDS)
    yield from range(seeds if most is None else min(seeds, most))
    if most is None and of in SCENARIOS:
        module, table = SCENARIOS[of]
        yield from list(getattr(copy.part(module), table))


def look(copy: Copy, mutation: Mutation, place: int | str) -> tuple[Caught | None, int]:
    """Return what a seed or a scenario shows of a defect, and the number of histories that were needed."""
    by, seed, choices, histories = SWARM.get(mutation.of, mutation.of), 0, list[int](), 1
    if isinstance(place, int):
        seed, violations = place, copy.part("runner").swarm_of(mutation.of).simulate(place).violations
    else:
        report = copy.part("scenarios.table").ALL[place].explore(most=SCHEDULES)
        by, histories, violations = place, report.schedules, []
        if report.found:
            choices, violations = report.found[0].choices, report.found[0].violations
    if not violations:
        return None, histories
    return Caught(mutation.name, violations[0].rule, by, seed, choices, 0, str(violations[0])), histories


def searched(mutations: Iterable[Mutation], most: int | None = None) -> Iterator[tuple[Mutation, Caught | None]]:
    with copied() as copy:
        for mutation in mutations:
            yield mutation, search(copy, mutation, all_places(copy, mutation.of, most))


# Search by turns


def cost(case: Caught) -> int:
    """Return how long it usually takes to find a defect anew, in histories of a lock."""
    return case.median * WEIGHT.get(case.by.partition("+")[0], 1) + ANEW


def rotating(cases: Iterable[Caught], turn: str) -> list[Caught]:
    """Return the defects to search now: in the order of a digest, as many as are usually found within `ROTATING` histories."""
    chosen, histories = list[Caught](), 0
    for case in sorted(cases, key=lambda case: hashlib.sha256(f"{turn} {case.name}".encode()).digest()):
        if case.median and histories + cost(case) <= ROTATING:
            chosen.append(case)
            histories += cost(case)
    return chosen


def rotate(turn: str, most: int | None) -> Iterator[dict[str, Any]]:
    """Search them anew, each in ten times as many histories as it usually takes, or in ``most``."""
    by_name, first = {mutation.name: mutation for mutation in MUTATIONS}, int(turn[:8], 16)
    with copied() as copy:
        for case in rotating(recorded(), turn):
            caught = search(copy, by_name[case.name], range(first, first + (most or 10 * case.median)))
            yield {"name": case.name, "median": case.median, "histories": caught.histories if caught else 0}


def measured(copy: Copy, mutation: Mutation) -> int:
    """In how many histories it is usually found; 0 if that is more than `USUAL`."""
    needed = list[int]()
    with copy.mutated(mutation):
        for first in random.Random(mutation.name).sample(range(SEEDS, 1 << 32), TIMES):
            found = (number for number in range(2 * USUAL) if look(copy, mutation, first + number)[0] is not None)
            needed.append(next(found, 2 * USUAL) + 1)
    median = sorted(needed)[TIMES // 2]
    return median if median <= USUAL else 0


def record_medians(names: list[str]) -> None:
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    with copied() as copy:
        for case in recorded():
            if case.by in SWARM.values() and case.histories <= USUAL and (case.name in names or not (names or case.median)):
                record(replace(case, median=measured(copy, by_name[case.name])))


# Replay


def again(copy: Copy, case: Caught) -> str:
    """Return the rule that a recorded case violates now; empty if none."""
    if case.of_swarm:
        of = next((of for of, by in SWARM.items() if by == case.by), case.by)
        found = copy.part("runner").swarm_of(of).simulate(case.seed).violations
    else:
        _, found = copy.part("scenarios.table").ALL[case.by].replay(case.choices)
        # Without its defect, a schedule may come to a place where there are fewer choices.
        found = [violation for violation in found if "list index out of range" not in violation.text]
    return str(found[0].rule) if found else ""


def replay(names: list[str]) -> Iterator[dict[str, str]]:
    """Do recorded cases again, without their defects and with them: those of the names, or all if there are none."""
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    cases = [case for case in recorded() if case.name in by_name and (case.name in names or not names)]
    with copied() as copy:
        with copy.mutated(None):
            clean = {history(case): again(copy, case) for case in {history(case): case for case in cases}.values()}
        for case in cases:
            with copy.swapped(by_name[case.name]):
                yield {"name": case.name, "clean": clean[history(case)], "mutated": again(copy, case)}


def history(case: Caught) -> tuple[str, int, tuple[int, ...]]:
    """The history in which a defect was caught. Some histories catch several defects."""
    return case.by, case.seed, tuple(case.choices)


def recorded() -> list[Caught]:
    return [Caught(**case) for case in json.loads(RECORD.read_text(encoding="utf-8"))]


# Telling


def table(cases: Iterable[Caught]) -> str:
    """The recorded cases, as the page of the docs shows them."""
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    rows = ["| defect | in | what is wrong | rule | found by | histories |", "|---|---|---|---|---|---|"]
    for case in cases:
        mutation = by_name[case.name]
        rows.append(f"| {case.name} | `{mutation.file}` | {mutation.breaks} | {case.rule} | {case.where} | {case.histories} |")
    return "\n".join(rows)


def record(new: Caught) -> None:
    """Write down what was found: for the replay, and in the page of the docs."""
    found = {case.name: case for case in [*recorded(), new]}
    cases = [found[mutation.name] for mutation in MUTATIONS if mutation.name in found]
    facts = ({key: value for key, value in asdict(case).items() if value or key != "median"} for case in cases)
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in facts)
    RECORD.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    head, _, _ = PAGE.read_text(encoding="utf-8").partition("| defect | in |")
    PAGE.write_text(f"{head}{table(cases)}\n", encoding="utf-8")


def known(name: str) -> str:
    """Return the name of a defect. Raises ArgumentTypeError if no defect has this name."""
    if all(mutation.name != name for mutation in MUTATIONS):
        raise argparse.ArgumentTypeError(f"no defect is named {name!r}; the defects are in tests/*/sim/*_defects.py")
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description="The mutation check.")
    parser.add_argument("names", nargs="*", metavar="NAME", type=known)
    parser.add_argument("--record", action="store_true", help="write down what was found, here and in the docs")
    parser.add_argument("--show", action="store_true", help="tell what each changes, as a diff")
    parser.add_argument(
        "--medians", action="store_true", help="measure how many histories each usually takes, and write it down"
    )
    parser.add_argument("--rotate", action="store_true", help="search anew those whose turn it is: JSON lines")
    parser.add_argument("--most", type=int, metavar="N", help="search each defect in at most N histories")
    parser.add_argument("--replay", action="store_true", help="do each recorded case again: JSON lines")
    args = parser.parse_args()
    if args.show:
        print("".join(shown(mutation) for mutation in MUTATIONS if mutation.name in args.names), end="")
        return 0
    if args.medians:
        record_medians(args.names)
        return 0
    if args.rotate:
        for found in rotate(digest(), args.most):
            print(json.dumps(found), flush=True)
        return 0
    if args.replay:
        for answer in replay(args.names):
            print(json.dumps(answer), flush=True)
        return 0
    caughts = missed = 0
    for mutation, caught in searched((m for m in MUTATIONS if m.name in args.names or not args.names), args.most):
        if caught is None:
            missed += 1
            print(f"{mutation.name:32} NOT CAUGHT: {mutation.breaks}", flush=True)
        else:
            caughts += 1
            if args.record:
                record(caught)
            print(f"{mutation.name:32} {caught.histories:5} {caught.where:16} {caught.said[:120]}", flush=True)
    print(f"{caughts} caught, {missed} not")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
