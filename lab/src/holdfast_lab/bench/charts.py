"""Draw the result of a scenario as a bar chart in an SVG file, with pygal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pygal
from pygal.style import CleanStyle

from holdfast_lab.bench.report import MEASURES, Result, Row, shown

WIDTH, BAR, AROUND = 900, 26, 120  # pixels
OURS, FLOOR, PEER = "#2c7fb8", "#bbbbbb", "#e6a03c"
STYLE = CleanStyle(
    background="#ffffff", value_font_size=11, title_font_size=14, label_font_size=11, major_label_font_size=11, colors=(OURS,)
)


def draw(result: Result, directory: Path) -> Path:
    """Draw the chart of a scenario into this directory, and return its path."""
    measure = MEASURES[result.chart]
    rows = [row for row in result.rows if math.isfinite(row.values.get(result.chart, math.nan))]
    rows.reverse()  # pygal starts at the bottom
    values = [row.values[result.chart] for row in rows]
    groups = {row.group for row in rows}
    logarithmic = _far_apart(values)
    bottom = 10.0 ** math.floor(math.log10(min(values)) - 0.1) if logarithmic else 0.0
    top = max(values, default=0) or 1.0
    unit = ", ".join(part for part in (measure.unit, "logarithmic" if logarithmic else "") if part)
    chart: Any = pygal.HorizontalBar(
        title=f"{result.title}\n{measure.meaning}{f' ({unit})' if unit else ''}",
        style=STYLE,
        width=WIDTH,
        height=AROUND + BAR * len(rows),
        js=[],  # a page with the chart must not load scripts from other hosts
        no_prefix=True,
        logarithmic=logarithmic,
        range=(bottom, top),
        zero=bottom,
        print_values=True,
        value_formatter=lambda value: shown(result.chart, value),
        show_legend=False,
        truncate_label=-1,
        max_scale=8,
    )
    chart.x_labels = [f"{row.contender}, {row.group}" if len(groups) > 1 else row.contender for row in rows]
    if logarithmic:
        chart.y_labels = [bottom * 10.0**power for power in range(math.ceil(math.log10(top / bottom)) + 1)]
    chart.add("", [{"value": row.values[result.chart], "color": _color(row)} for row in rows])
    chart.add_xml_filter(_without_scripts)
    path = directory / f"{result.name}.svg"
    path.write_bytes(chart.render())
    return path


def _without_scripts(root: Any) -> Any:
    """Remove all scripts, because many sites refuse to show an SVG file that contains them."""
    for parent in list(root.iter()):
        for script in [child for child in parent if child.tag == "script"]:
            parent.remove(script)
    return root


def _color(row: Row) -> str:
    """Return the colour of a bar. Other libraries, lower bounds and holdfast have different colours."""
    if row.contender.startswith(("redis", "python-redis-lock", "redlock-py")):
        return PEER
    return FLOOR if row.contender.startswith(("bare", "python ", "flock", "asyncio.", "threading.", "SET")) else OURS


def _far_apart(values: list[float]) -> bool:
    """Return whether the chart needs a logarithmic scale."""
    return len(values) > 1 and min(values) > 0 and max(values) > 20 * min(values)
