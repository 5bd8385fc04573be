"""Type checkers accept the programs of `right`, and refuse each of those of `wrong`. mypy also checks both in `make types`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def checked(*command: str) -> str:
    """Run a type checker, and return what it prints if it finds an error. A ``type: ignore`` that is not needed is one."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = sys.executable, "-m", *command
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_mypy() -> None:
    assert checked("mypy", "tests/typed/right.py", "tests/typed/wrong.py") == ""


def test_pyright() -> None:
    assert checked("pyright", "--project", "tests/typed") == ""


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_there_are_thirty_programs_and_each_wrong_one_has_a_mistake(name: str) -> None:
    text = (HERE / f"{name}.py").read_text()
    lines = text.splitlines()
    programs = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(programs) >= 30
    mistakes = {one.name: sum("type: ignore" in line for line in lines[one.lineno : one.end_lineno]) for one in programs}
    assert {program for program, count in mistakes.items() if bool(count) != (name == "wrong")} == set()
