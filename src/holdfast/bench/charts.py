"""One SVG for each scenario, drawn by pygal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pygal
from pygal.style import CleanStyle

from holdfast.bench.report import MEASURES, Result, shown

WIDTH, BAR, AROUND = 900, 26, 150  # pixels


def draw(result: Result, directory: Path) -> Path:
    """Write the chart of a scenario; returns its path."""
    measure = MEASURES[result.chart]
    rows = [row for row in result.rows if result.chart in row.values]
    groups = list(dict.fromkeys(row.group for row in rows))
    contenders = list(dict.fromkeys(row.contender for row in rows))
    values = {(row.contender, row.group): row.values[result.chart] for row in rows}
    if len(groups) == 1:  # then each bar has its own name beside it
        labels, series = contenders, {"": [values[name, groups[0]] for name in contenders]}
    else:
        labels = groups
        series = {name: [values.get((name, group)) for group in groups] for name in contenders}  # type: ignore[misc]
    chart: Any = pygal.HorizontalBar(
        title=f"{result.title}\n{measure.meaning}{f' ({measure.unit})' if measure.unit else ''}",
        style=CleanStyle(value_font_size=11, title_font_size=14, label_font_size=11),
        width=WIDTH,
        height=AROUND + BAR * len(rows),
        js=[],  # a page shall fetch nothing from elsewhere
        no_prefix=True,  # the same file for the same figures
        logarithmic=_far_apart([value for value in values.values() if value > 0]),
        print_values=True,
        value_formatter=lambda value: shown(result.chart, value),
        show_legend=len(groups) > 1,
        legend_at_bottom=True,
        show_y_guides=False,
    )
    chart.x_labels = labels
    for name, line in series.items():
        chart.add(name, line)
    path = directory / f"{result.name}.svg"
    path.write_bytes(chart.render())
    return path


def _far_apart(values: list[float]) -> bool:
    """Bars that could not be told from nothing want another scale."""
    return len(values) > 1 and max(values) > 20 * min(values)
