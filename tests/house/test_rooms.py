"""The rooms of the house: who may import whom, and that nothing goes in circles. Imports for types count, and in functions.
Also: how many places use private members of another object, and the folders of the tests.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path

import holdfast
import holdfast_lab
from docs import architecture
from holdfast._core import requests
from house.rooms import ROOMS
from support.levels import LEVELS

ROOT, LAB = Path(holdfast.__file__).parent, Path(holdfast_lab.__file__).parent


def name_of(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path, package): path for package in (ROOT, LAB) for path in sorted(package.rglob("*.py"))}


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[str]:
    """Modules of ours that a file names, wherever in it: also under ``if TYPE_CHECKING``, and in functions."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from full & MODULES.keys()
            if full - MODULES.keys() and node.module in MODULES:
                yield str(node.module)


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Modules that each module imports. It parses all of them, so a run that tests something else does not do it."""
    return {name: set(imported(path)) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    if module.split(".", maxsplit=1)[0] == LAB.name:
        return "lab"
    return module.split(".")[1] if "." in module else module


def components(arrows: dict[str, set[str]]) -> Iterator[set[str]]:
    """The strongly connected components of more than one module. (R. Tarjan, "Depth-First Search and Linear Graph Algorithms",
    SIAM Journal on Computing 1, 1972.)"""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[set[str]]:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(arrows[module]):
            if other not in order:
                yield from visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            at = stack.index(module)
            found = set(stack[at:])
            del stack[at:]
            if len(found) > 1:
                yield found

    for module in sorted(arrows):
        if module not in order:
            yield from visit(module)


def test_components_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set(), "e": {"f"}, "f": {"e", "a"}}
    assert list(components(arrows)) == [{"b", "c"}, {"e", "f"}]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert list(components(arrows())) == []


def test_rooms_import_what_they_may_and_nothing_else() -> None:
    found = {
        (room_of(module), room_of(other))
        for module, others in arrows().items()
        for other in others
        if room_of(module) != room_of(other)
    }
    assert found == {(room, other) for room, allowed in ROOMS.items() for other in allowed.split()}


def test_rooms_stand_on_those_before_them() -> None:
    floors = list(ROOMS)
    assert [
        room for room, allowed in ROOMS.items() if any(floors.index(other) >= floors.index(room) for other in allowed.split())
    ] == []


# Requests


def test_every_request_is_in_one_file_and_some_driver_does_it() -> None:
    """That each driver does all of its own, mypy proves."""
    path = ROOT / "_core" / "requests.py"
    kinds = {
        node.name: ast.unparse(node.bases[0])
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and node.bases and re.match(r"(Request|Instant)\[", ast.unparse(node.bases[0]))
    }
    elsewhere = [
        f"{module}: {node.name}"
        for module, other in MODULES.items()
        if other != path and not module.startswith(("holdfast.testing", LAB.name))
        for node in ast.walk(parse(other))
        if isinstance(node, ast.ClassDef) and any(re.match(r"(Request|Instant)\[", ast.unparse(base)) for base in node.bases)
    ]
    assert elsewhere == []
    at_once = members(requests.ServerInstant, requests.QuorumInstant, requests.ClientInstant)
    awaited = members(requests.ServerAwaited, requests.QuorumAwaited, requests.ClientAwaited) | {"AskPlace"}  # of `inspect`
    assert at_once == {name for name, base in kinds.items() if base.startswith("Instant[")} - {"Instant"}
    assert awaited == {name for name, base in kinds.items() if base.startswith("Request[")} - {"Instant"}


REQUESTS = {name for name, kind in vars(requests).items() if isinstance(kind, type) and issubclass(kind, requests.Request)}


def incomplete(source: str) -> Iterator[str]:
    """Return what mypy cannot prove complete: a ``match`` over requests with a last case that is neither `assert_never` nor the
    ``match`` of the base class, and a table with requests as keys. Also return assignments that replace methods of a driver."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Match(ast.Name("request"), cases):
                last = cases[-1]
                ends = re.search(r"assert_never\(request\)$|super\(\)\.\w+\(request\)$", ast.unparse(last.body[-1]))
                if ast.unparse(last.pattern) != "_" or not ends:
                    yield f"match of line {node.lineno}"
            case ast.Dict(keys) if REQUESTS & {ast.unparse(key) for key in keys if key is not None}:
                yield f"table of line {node.lineno}"
            case ast.Assign(targets):
                found = (target for target in targets if isinstance(target, ast.Attribute | ast.Subscript))
                yield from (ast.unparse(target) for target in found if replaces(target))


def replaces(target: ast.Attribute | ast.Subscript) -> bool:
    """Return True if an assignment to ``target`` changes how a driver answers requests."""
    if isinstance(target, ast.Subscript):
        return ast.unparse(target.slice) in REQUESTS
    return target.attr in {"do", "at_once", "awaited"} and ast.unparse(target.value) != "self"


def test_incomplete_tables_of_requests_are_found() -> None:
    complete = "match request:\n case Now():\n  return 1.0\n case _:\n  "
    assert list(incomplete(f"{complete}assert_never(request)")) == []
    assert list(incomplete(f"{complete}return super().do(request)")) == []
    assert list(incomplete(f"{complete}return None")) == ["match of line 1"]
    assert list(incomplete("match request:\n case Now():\n  return 1.0")) == ["match of line 1"]
    assert list(incomplete("self.answers = {Now: clock, 1: 2}")) == ["table of line 1"]
    assert list(incomplete("worker.answers[AskPlace] = carry_out")) == ["worker.answers[AskPlace]"]
    assert list(incomplete("driver.do = do")) == ["driver.do"]


def test_each_driver_answers_its_requests_in_a_complete_match() -> None:
    found = {module: list(incomplete(path.read_text())) for module, path in MODULES.items()}
    assert {module: places for module, places in found.items() if places} == {}


def members(*unions: object) -> set[str]:
    return {(typing.get_origin(kind) or kind).__name__ for union in unions for kind in typing.get_args(union)}


# Private members


def test_few_places_use_private_members_of_another_object_and_each_says_why() -> None:
    """Ruff reports each such place as SLF001, unless a comment on its line permits it."""
    lines = [(module, line) for module, path in MODULES.items() for line in path.read_text().splitlines() if "SLF001" in line]
    assert len(lines) < 15
    assert [(module, line) for module, line in lines if not re.search(r"# noqa: SLF001 - \w", line)] == []
    settings = tomllib.loads((ROOT.parent.parent / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "SLF" in settings["select"]
    ignored = {pattern for pattern, codes in settings["per-file-ignores"].items() if "SLF001" in codes}
    assert "SLF001" not in settings["ignore"]
    assert not [pattern for pattern in ignored if pattern.startswith(("src", "lab"))]


# Tests

WITH_LEVELS = {*architecture.CAPABILITIES, "api", "doctor", "lab", "local", "net", "runtime", "testing"}
"""Folders of tests that have a folder for each level: capabilities, and rooms that serve several capabilities."""

WITHOUT_LEVELS = {"chaos", "cli", "docs", "house", "house/typed", "lab/mutants", "support"}


def misplaced(file: str) -> str:
    """Return the folder to which a file of tests belongs, given by its path in `tests`, or "" if the file is there."""
    *folders, name = file.split("/")
    if "/".join(folders) in WITHOUT_LEVELS or file == "conftest.py":
        return ""
    room = next((folder for folder in folders if folder in WITH_LEVELS), "CAPABILITY")
    capability = architecture.capability_of(Path(name)) or room
    level = next((folder for folder in folders if folder in LEVELS), "LEVEL")
    return "" if folders == [capability, level] else f"{capability}/{level}"


def test_misplaced_files_are_found() -> None:
    assert misplaced("election/faults/test_election_faults.py") == ""
    assert misplaced("net/live/test_sentinel.py") == ""
    assert misplaced("unit/test_election_operations.py") == "election/unit"
    assert misplaced("lock/live/test_semaphore.py") == "permit/live"
    assert misplaced("lock/test_lock.py") == "lock/LEVEL"
    assert misplaced("lock/live/more/test_lock.py") == "lock/live"
    assert misplaced("test_it.py") == "CAPABILITY/LEVEL"


def test_each_file_of_tests_is_in_the_folder_of_its_capability_and_level() -> None:
    tests = Path(__file__).parents[1]
    files = [path.relative_to(tests).as_posix() for path in sorted(tests.rglob("*.py"))]
    assert {f"tests/{file}": f"belongs to tests/{misplaced(file)}" for file in files if misplaced(file)} == {}
    assert [file for file in files if file.startswith("support/test_")] == []


def test_tests_import_public_names_from_where_users_do() -> None:
    """A private module may then be renamed without a change of tests about something else."""
    tests = Path(__file__).parents[1]
    imports = re.compile(r"^ *from (holdfast\._\S+) import (\([^)]*\)|.*)", re.MULTILINE)
    inside = [
        f"{path.relative_to(tests)}: {module}.{name}"
        for path in sorted(tests.rglob("*.py"))
        for module, names in imports.findall(path.read_text())
        for name in re.findall(r"\w+", names)
        if name in holdfast.__all__ and is_public(module, name)
    ]
    assert inside == []


def is_public(module: str, name: str) -> bool:
    """Return whether a name in a private module is what users import under this name."""
    return getattr(importlib.import_module(module), name, None) is getattr(holdfast, name)
