"""Which mutants there are: each operator at each of its places, in the files of each area."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from lab.mutants import lua, python
from lab.mutants.operators import Place
from support.sources import PACKAGE

AREAS = {
    "scripts": ("_lua/**/*.lua",),
    "core": ("_core/**/*.py",),
    "drivers": ("_runtime/**/*.py",),
    "wire": ("_net/*.py",),
    "supervision": (
        "_local/**/*.py",
        "cli/run.py",
        "cli/supervise.py",
    ),
    "apis": ("_api/**/*.py", "_[a-z]*.py", "[a-z]*.py", "schedule/*.py"),
}
UNDRAWN = {"__repr__", "__str__", ""}
"""Functions that say something to people, or what stands in none: that is run before any test."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file. It plants as a recorded defect does."""

    area: str
    file: str
    function: str
    operator: str
    number: int
    """Of its places in the function, from 1."""
    place: Place

    @property
    def name(self) -> str:
        return f"{self.file} {self.function or '-'} {self.operator} {self.number}"

    @cached_property
    def lines(self) -> range:
        source = (PACKAGE / self.file).read_text(encoding="utf-8")
        return range(source.count("\n", 0, self.place.start) + 1, source.count("\n", 0, self.place.end) + 2)

    def planted(self, source: str) -> str:
        return self.place.planted(source)


def of_file(area: str, file: str) -> Iterator[Mutant]:
    """All of a file, but those that change nothing."""
    source = (PACKAGE / file).read_text(encoding="utf-8")
    numbers: dict[tuple[str, str], int] = {}
    for place in (lua if file.endswith(".lua") else python).places(source):
        key = place.function, place.operator
        numbers[key] = numbers.get(key, 0) + 1
        drawn = file.endswith(".lua") or key[0].rpartition(".")[2] not in UNDRAWN
        if drawn and place.new != source[place.start : place.end]:
            yield Mutant(area, file, *key, numbers[key], place)


def of_area(area: str) -> Iterator[Mutant]:
    """All of an area; a file counts for the first area that has it."""
    earlier = {
        path for before in list(AREAS)[: list(AREAS).index(area)] for each in AREAS[before] for path in PACKAGE.glob(each)
    }
    for path in sorted({path for each in AREAS[area] for path in PACKAGE.glob(each)} - earlier):
        yield from of_file(area, str(path.relative_to(PACKAGE)))


def drawn(seed: int, areas: Iterable[str] = AREAS) -> Iterator[Mutant]:
    """All of these areas, in an order that the seed decides: the areas by turns, and in each the operators."""
    yield from _by_turns([shuffled(f"{seed} {area}", list(of_area(area))) for area in areas])


def shuffled(seed: str, mutants: list[Mutant]) -> list[Mutant]:
    """The operators by turns."""
    chance = random.Random(seed)
    chance.shuffle(mutants)
    operators = list(dict.fromkeys(mutant.operator for mutant in mutants))
    return list(_by_turns([[mutant for mutant in mutants if mutant.operator == each] for each in operators]))


def _by_turns(lists: list[list[Mutant]]) -> Iterator[Mutant]:
    for row in zip_longest(*lists):
        yield from (mutant for mutant in row if mutant is not None)
