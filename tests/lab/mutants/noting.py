"""Which lines run in the processes that supervise: these start without site-packages, so coverage.py cannot measure them.

A copy of the package is changed so that each statement of their modules notes that it ran. The command
`python -m lab.mutants cover --children` runs tests with that copy, and with this module as a plugin of pytest, which notes the
test.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from lab.mutants.covering import LINES, STATE, failed, note_seconds, pytest_runtest_logreport

__all__ = ["merge", "noting", "pytest_runtest_logreport"]

RAN, CURRENT = STATE / "ran", STATE / "current"
"""Files: what ran, a line for each statement; and the name of the test that runs."""

TESTS = (
    *("cli/test_guardian.py", "cli/test_run*.py", "cli/test_start.py", "cli/test_server_command.py"),
    *("cli/test_command_jobs.py", "cli/test_schedule_command.py", "local/live/test_*.py"),
)
"""The tests of what runs in such processes."""

NOTE = f"""
_ran_already = set()

def _ran(first, last):
    import os
    if (os.getpid(), first) in _ran_already:
        return
    try:
        current = os.open({str(CURRENT)!r}, os.O_RDONLY)
        test = os.read(current, 1000).decode()
        os.close(current)
        ran = os.open({str(RAN)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(ran, f"{{__file__}}\\t{{first}}\\t{{last}}\\t{{test}}\\n".encode())
        os.close(ran)
        _ran_already.add((os.getpid(), first))
    except OSError:
        pass
"""


class _Noting(ast.NodeTransformer):
    """Puts a call before each statement of a function."""

    inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if self.inside and isinstance(body, list) and body and not isinstance(node, ast.ClassDef):
                body = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
                setattr(node, field, [each for statement in body for each in (_note(statement), statement)] or [ast.Pass()])
        return node


def _note(statement: ast.stmt) -> ast.stmt:
    """A call that notes the statement; of a compound one, its head."""
    inner = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if isinstance(inner, list) and isinstance(inner[0], ast.stmt):
        last = max(statement.lineno, inner[0].lineno - 1)
    return ast.parse(f"_ran({statement.lineno}, {last})").body[0]


def noting(source: str) -> str:
    """The source of a module, changed so that its statements note that they ran."""
    tree = _Noting().visit(ast.parse(source))
    future = [
        number for number, each in enumerate(tree.body) if isinstance(each, ast.ImportFrom) and each.module == "__future__"
    ]
    tree.body[(future[-1] + 1 if future else 0) : 0] = ast.parse(NOTE).body
    return ast.unparse(ast.fix_missing_locations(tree))


def pytest_sessionstart() -> None:
    STATE.mkdir(parents=True, exist_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    CURRENT.write_text(item.nodeid, encoding="utf-8")
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        note_seconds({item.nodeid: sum(os.times()[:4]) - began}, failed)


def merge(package: Path) -> None:
    """Add what ran to the lines that coverage.py has measured."""
    data = coverage.CoverageData(str(LINES))
    data.read()
    found: dict[str, dict[str, set[int]]] = {}
    for line in RAN.read_text(encoding="utf-8").splitlines():
        file, first, last, test = line.split("\t")
        path = str(package / file.rpartition("/holdfast/")[2])
        found.setdefault(test, {}).setdefault(path, set()).update(range(int(first), int(last) + 1))
    for test, lines in found.items():
        data.set_context(test)
        data.add_lines(lines)
    data.write()
    RAN.unlink()
