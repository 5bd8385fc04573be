"""Names of the code mean what they say. A rename of one word for another may have met a second sense of the word."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator

from support.sources import LAB, PACKAGE

SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for package in (PACKAGE, LAB) for path in package.rglob("*.py")}


def is_truth(value: ast.expr) -> bool:
    """Return True if an expression is a comparison, a negation, a check of a type, or ends with one."""
    match value:
        case ast.BoolOp(_, [*_, last]):
            return is_truth(last)
        case ast.Compare() | ast.UnaryOp(ast.Not()) | ast.Constant(True | False):
            return True
        case ast.Call(ast.Name(name)):
            return name in {"isinstance", "bool", "any", "all"}
    return False


def true_ids(tree: ast.Module) -> Iterator[str]:
    """Return the names of ids to which a truth value is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None and is_truth(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name for name in map(ast.unparse, targets) if name.endswith(("_id", "_ids")))


def test_truth_values_with_the_name_of_an_id_are_found() -> None:
    found = "a_id = isinstance(x, int) and (not y or z is not None)\nself.b_id: bool = not x\nif (c_id := x > 1): pass"
    others = "a_id = x and x.a_id\nlistening = x is None\nb_id = x or ''\nc_id: str"
    assert list(true_ids(ast.parse(found))) == ["a_id", "self.b_id", "c_id"]
    assert list(true_ids(ast.parse(others))) == []


def test_an_id_is_no_truth_value() -> None:
    assert {path.name: found for path, tree in SOURCES.items() if (found := list(true_ids(tree)))} == {}


PAIRS = {
    "a protocol of what a room uses, and the class that has it": (
        "ActiveRun Candidate Entry JobFacts Lease Line Lines Part Runner Server Slot Tally Worker World"
    ),
    "a class of the library, and its double in the simulator, in the wired simulation or on the ladder": (
        "ActiveRun Candidate Driver Lease Line Lock MultiLock Part Process RLock Redlock Service Slot Term"
    ),
    "a class of the sync API, and its twin of the asyncio API": "BrokenBarrier Driver Runner ShardDriver",
    "the simulator, and the wired simulation": "Profile Server Stuck Worker World",
    "the same role in each swarm, demonstration or kind of search": "Cast Profile Scenario",
    "a record of the core, and the object that users get of it": "Holder Overview Runner Waiter",
    "the object that `connect` returns, and a connection to a server": "AioConnection Connection",
    "a command of the server, and a command of the operating system as a job": "Command",
    "a flag that processes share, and an event of a history": "Event",
    "an event in one process, and the simplest lock of the ladder": "Flag",
    "a call of `once` that is running, and a run of a job": "Running",
    "a request of two kinds of connections": "_Request",
    "the two supervisors of the glossary": "Supervisor",
}
"""Names of classes in several modules, each with the reason. All other classes have a name of their own."""


def test_a_class_name_has_one_meaning() -> None:
    modules = collections.defaultdict(set)
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(path)
    assert {name for name, paths in modules.items() if len(paths) > 1} == {
        name for names in PAIRS.values() for name in names.split()
    }
