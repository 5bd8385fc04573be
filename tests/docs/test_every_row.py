"""Every fault of the page docs/faults.md has its tests, and every test its faults on the page: by their numbers."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
ROWS = range(1, 80)

ELSEWHERE: dict[int, str] = {}
"""Faults that cannot be had here: by number, and why."""


def by_fault() -> dict[int, list[str]]:
    """Names of the tests that are marked with each number."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mark.fault(" in text else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    assert node.name.startswith("test_"), node.name
                    for number in mark.args:
                        found[ast.literal_eval(number)].append(node.name)
    return found


def on_the_page() -> list[int]:
    """Numbers of the faults in the tables, in their order."""
    anchors = re.findall(r'<a id="fault-(\d+)"></a>(\d+)', PAGE.read_text(encoding="utf-8"))
    assert [number for number, shown in anchors if number != shown] == []
    return [int(number) for number, _ in anchors]


def test_every_fault_is_tested() -> None:
    tested = by_fault()
    assert set(tested) <= set(ROWS), "a number that means nothing"
    assert [row for row in ROWS if row not in tested and row not in ELSEWHERE] == []
    assert [row for row in ELSEWHERE if row in tested] == [], "it can be had, then"
    assert all(len(reason) > 20 for reason in ELSEWHERE.values()), "say why"


def test_every_fault_is_on_the_page_once() -> None:
    assert sorted(on_the_page()) == list(ROWS)
