"""The tests run in several processes: all of them run once, and what goes wrong in any process is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import pytest
pytest_plugins = ["support.processes"]

@pytest.fixture(scope="session")
def shared():
    yield
    raise RuntimeError("something was left behind")
"""

TESTS = """
import os
import pytest

def test_that_passes(shared):
    print("not shown")

def test_that_fails(shared):
    print("shown")
    assert 1 == 2

def test_that_ends_its_process(shared):
    os._exit(7)

def test_after_that(shared, capfd):
    os.write(1, b"written")
    assert capfd.readouterr().out == "written"

@pytest.mark.skip
def test_that_is_skipped():
    pass
"""


def run(directory: Path, *options: str) -> str:
    """Return what two files of the same tests print, run in three processes."""
    (directory / "conftest.py").write_text(CONFTEST)
    for number in "12":
        (directory / f"test_{number}.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--processes", "3", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.turns("lab")
def test_all_tests_run_and_every_failure_is_told(tmp_path: Path) -> None:
    said = run(tmp_path, "-rA")
    assert re.search(r"4 failed, 4 passed, 2 skipped, [12] errors?", said), said
    for number in "12":
        assert f"PASSED test_{number}.py::test_after_that" in said
        assert f"FAILED test_{number}.py::test_that_fails - assert 1 == 2" in said
        assert f"FAILED test_{number}.py::test_that_ends_its_process" in said
    assert said.count("The process that ran the test has ended, with exit code 7.") >= 2
    assert "RuntimeError: something was left behind" in said  # once, if one process has run the rest of both files


@pytest.mark.turns("lab")
def test_the_first_failure_ends_all(tmp_path: Path) -> None:
    said = run(tmp_path, "-x")
    assert re.search(r"stopping after [1-3] failures", said), said  # another process may fail meanwhile
    assert re.search(r"[1-3] failed", said)
