"""Constants that are times say their unit, in their name or in their docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from support.sources import LAB, PACKAGE

UNIT = re.compile(r"_(?:S|MS|US)\b|\b(?:[Mm]illi|[Mm]icro)?[Ss]econds?\b|\b[Mm]inutes?\b|\b[Hh]ours?\b|\bms\b")
PLAIN = re.compile(r"\b(?:shares?|fraction|ratio|multiple|rate|without limit|infinity|above every)\b", re.IGNORECASE)
"""Words of docstrings of numbers that are no times."""


def constants(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Return the line of each constant in a module or class that is a decimal number, and its names and docstring."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef):
            yield from constants(statement.body)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = ", ".join(map(ast.unparse, targets)).strip("()")
            decimal = any(isinstance(node, ast.Constant) and type(node.value) is float for node in leaves(statement.value))
            if decimal and re.fullmatch(r"[A-Z0-9_, ]+", names):
                after = ast.literal_eval(following.value) if documents(following) else ""
                yield statement.lineno, f"{names}: {after}"


def documents(statement: ast.stmt | None) -> TypeGuard[ast.Expr]:
    """Return True if a statement is a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def leaves(value: ast.expr) -> Iterator[ast.expr]:
    """Return the numbers and names of which a number, or a tuple of numbers, is computed; nothing for other values."""
    if isinstance(value, ast.BinOp):
        yield from leaves(value.left)
        yield from leaves(value.right)
    elif isinstance(value, ast.Tuple):
        for element in value.elts:
            yield from leaves(element)
    elif isinstance(value, ast.UnaryOp):
        yield from leaves(value.operand)
    else:
        yield value


def without_unit(path: Path) -> list[str]:
    found = constants(ast.parse(path.read_text(encoding="utf-8")).body)
    return [f"{path.name}:{line}: {text}" for line, text in found if not UNIT.search(text) and not PLAIN.search(text)]


def test_times_say_their_unit() -> None:
    assert [text for package in (PACKAGE, LAB) for path in sorted(package.rglob("*.py")) for text in without_unit(path)] == []


def test_a_time_without_a_unit_is_found(tmp_path: Path) -> None:
    source = tmp_path / "times.py"
    source.write_text(
        '''PATIENCE = 10.0
WAIT_S = 1.5
LIMIT, MOST = 2 * 0.5, 7
"""Longest wait."""
PAUSE, STEP = 0.1, 0.2
"""Seconds to wait, at first and later."""
HALF = 0.5
"""Share of the histories."""
COUNT = 5
NAMES = {"a": 1.0}
class Table:
    LEASE: float = -3.0
'''
    )
    assert without_unit(source) == ["times.py:1: PATIENCE: ", "times.py:3: LIMIT, MOST: Longest wait.", "times.py:12: LEASE: "]
