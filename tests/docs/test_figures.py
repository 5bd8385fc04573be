"""Figures in the pages are those of docs/bench/results.json, and nobody has typed them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import figures
from docs.pages import PAGES, ROOT, name
from holdfast_lab.bench.report import MEASURES, SCHEMA
from holdfast_lab.bench.scenarios import SCENARIOS

DOCUMENT = json.loads(figures.RESULTS.read_text(encoding="utf-8"))
MARKED = [page for page in PAGES if figures.MARKED.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", MARKED, ids=name)
def test_figures_are_the_measured_ones(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == figures.filled(text, DOCUMENT), "python -m docs.figures"


def test_a_typed_figure_is_found_out() -> None:
    page = ROOT / "docs" / "capacity.md"
    text = page.read_text(encoding="utf-8")
    value = figures.table("work", DOCUMENT).splitlines()[-1]
    assert figures.filled(text.replace(value, "| typed | 1 |"), DOCUMENT) == text != text.replace(value, "| typed | 1 |")


def test_every_scenario_was_measured_and_is_told_of() -> None:
    assert DOCUMENT["schema"] == SCHEMA
    assert set(DOCUMENT["measures"]) == set(MEASURES)
    text = (ROOT / "docs" / "benchmark-details.md").read_text(encoding="utf-8")
    for scenario in SCENARIOS:
        assert f"## {scenario}\n" in text
        assert f"](bench/{scenario}.svg)" in text
        assert (ROOT / "docs" / "bench" / f"{scenario}.svg").exists()
    assert [scenario["name"] for scenario in DOCUMENT["scenarios"]] == list(SCENARIOS)


def test_charts_are_not_left_from_another_run() -> None:
    """Each bar's value stands in the drawing."""
    for scenario in ("tasks", "threads"):
        drawing = (ROOT / "docs" / "bench" / f"{scenario}.svg").read_text(encoding="utf-8")
        found = next(each for each in DOCUMENT["scenarios"] if each["name"] == scenario)
        for row in found["contenders"]:
            assert re.search(rf">{row['values']['per_second']:,.0f}<", drawing)
