"""A plugin of pytest: which lines each test runs, by coverage.py, and how many CPU seconds it takes. Loaded with `-p`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

STATE = Path(os.environ.get("HOLDFAST_MUTANTS", Path(__file__).parents[3] / ".mutants"))
"""Directory of the results."""
LINES, SECONDS = STATE / "coverage", STATE / "seconds.json"

measured = coverage.Coverage(data_file=str(LINES), source_pkgs=["holdfast"], config_file=False, messages=False)
seconds: dict[str, float] = {}
failed: set[str] = set()
"""Tests that fail without a mutant: they show nothing."""


def pytest_load_initial_conftests() -> None:
    """Begin before the package is imported."""
    STATE.mkdir(parents=True, exist_ok=True)
    if LINES.exists():
        measured.load()
    measured.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured.switch_context(item.nodeid)
    began = sum(os.times()[:4])  # with its children
    try:
        return (yield)
    finally:
        seconds[item.nodeid] = sum(os.times()[:4]) - began


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:  # or skipped
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    measured.stop()
    measured.save()
    note_seconds(seconds, failed)


def note_seconds(took: dict[str, float], useless: set[str]) -> None:
    """Add the CPU seconds of tests to those that are known, but for tests that show nothing."""
    known = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    new = {name: each for name, each in (known | took).items() if name not in useless}
    SECONDS.write_text(json.dumps(new, indent=0))
