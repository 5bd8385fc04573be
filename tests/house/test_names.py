"""Names of the code mean what they say. A rename of one word for another may have met a second sense of the word."""

from __future__ import annotations

import ast
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
