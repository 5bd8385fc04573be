"""The report of a scenario, as text and JSON: a row for each contender, and figures with targets and verdicts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

SCHEMA = 1
"""Version of the JSON document. It is raised when a field is removed or changes its meaning."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {"≤": operator.le, "≥": operator.ge, "=": operator.eq}


class Measure(NamedTuple):
    """A column of the report."""

    unit: str
    decimals: int
    meaning: str


MEASURES = {
    "per_second": Measure("/s", 0, "acquisitions per second, each with its release; median of the rounds"),
    "p50_ms": Measure("ms", 3, "median"),
    "p99_ms": Measure("ms", 3, "99th percentile"),
    "p999_ms": Measure("ms", 3, "99.9th percentile"),
    "longest_ms": Measure("ms", 1, "longest of all"),
    "tail": Measure("", 2, "99.9th percentile of the waits by their median"),
    "jain": Measure("", 3, "Jain's index of fairness over all threads or tasks: 1 if all got the same; median of the rounds"),
    "commands": Measure("", 2, "commands that reach the server, per acquisition with its release"),
    "idle_commands": Measure("/s", 1, "commands that reach the server per second while nothing changes"),
    "connections": Measure("", 1, "connections to the server, per process"),
    "bytes": Measure("B", 0, "memory of the process (resident set), each"),
    "core_share": Measure("%", 1, "processor time of the process, of one core"),
    "server_share": Measure("%", 1, "processor time of the server, of one core"),
    "lost": Measure("", 0, "leases lost"),
    "wrong": Measure("", 0, "two holders at once, or a fence that did not rise"),
    "wall_ms": Measure("ms", 1, "from start to end; median"),
    "peak_mb": Measure("MB", 1, "largest resident set of one process"),
    "server_bytes": Measure("B", 0, "memory of the server, each"),
    "per_core_second": Measure("/s", 0, "how many one core of the server can carry out per second"),
    "n": Measure("", 0, "how many were measured"),
}


def quantile(values: Sequence[float], q: float) -> float:
    """Return the quantile ``q`` (nearest rank, not interpolated)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def jain(counts: Sequence[int]) -> float:
    """Return Jain's index of fairness (R. Jain et al., DEC-TR-301, 1984).

    The index is 1 if all n counts are equal, and 1/n if all but one are 0.
    """
    return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts)) if any(counts) else 0.0


@dataclass
class Row:
    """The measured values of one contender."""

    contender: str
    values: dict[str, float]
    """Measured values, by the names in `MEASURES`."""
    group: str = ""
    """Name of the group of contenders that are compared with each other."""
    rounds: list[float] = field(default_factory=list)
    """The measured value of each round, such as its operations per second."""


def rates(contender: str, rounds: list[float], group: str = "") -> Row:
    """Return a row with the median of ``rounds``, which has the operations per second of each round."""
    return Row(contender, {"per_second": median(rounds)}, group, rounds)


def times(contender: str, seconds: Sequence[float], group: str = "") -> Row:
    ms = [1000 * s for s in seconds]
    values = {"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99), "longest_ms": max(ms), "n": float(len(ms))}
    return Row(contender, values, group)


@dataclass
class Figure:
    """A number of the report. ``held`` is True if its target was met, False if not, and None if there is no target."""

    name: str
    value: float
    unit: str = ""
    relation: str = ""
    target: float = 0.0
    held: bool | None = field(init=False)

    def __post_init__(self) -> None:
        self.held = _COMPARE[self.relation](self.value, self.target) if self.relation else None

    def line(self) -> str:
        digits = ".0f" if float(self.value).is_integer() else ".3g" if self.value < 100 else ",.0f"
        value = f"{self.value:{digits}}"
        said = f"  {self.name:72}{value:>9} {self.unit:3}"
        if self.held is None:
            return said.rstrip()
        return f"{said} target {self.relation} {self.target:g}{' ' + self.unit if self.unit else ''}: " + (
            "held" if self.held else "MISSED"
        )


@dataclass
class Result:
    title: str
    rows: list[Row] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chart: str = "per_second"
    """The measure that the chart shows."""
    name: str = ""
    seconds: float = 0.0
    """Duration of the measurement in seconds."""

    def value(self, contender: str, measure: str, group: str = "") -> float | None:
        """Return a measured value of a contender; None if the contender was left out."""
        found = (row for row in self.rows if (row.contender, row.group) == (contender, group))
        return next((row.values[measure] for row in found), None)

    def compare(self, name: str, one: float | None, other: float | None, relation: str = "", target: float = 0.0) -> None:
        """Add the quotient ``one / other`` to the report, if both were measured.

        ``relation`` is "≤" or "≥" if the quotient should be at most or at least ``target``. It is "" if there is no target.
        """
        if one is not None and other:
            self.figures.append(Figure(name, one / other, "", relation, target))

    def text(self) -> str:
        lines = ["", f"{self.name}: {self.title}"]
        for group in dict.fromkeys(row.group for row in self.rows):
            lines += _table(group, [row for row in self.rows if row.group == group])
        lines += [figure.line() for figure in self.figures]
        return "\n".join(lines + [f"  ({note})" for note in self.notes])

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "seconds": round(self.seconds, 1),
            "contenders": [
                {
                    "group": row.group,
                    "contender": row.contender,
                    "values": {measure: _rounded(value) for measure, value in row.values.items()},
                    "rounds": [_rounded(value) for value in row.rounds],
                }
                for row in self.rows
            ],
            "figures": [
                {
                    "name": figure.name,
                    "value": _rounded(figure.value),
                    "unit": figure.unit,
                    "relation": figure.relation or None,
                    "target": figure.target if figure.relation else None,
                    "held": figure.held,
                }
                for figure in self.figures
            ],
            "notes": self.notes,
        }


def _rounded(value: float) -> float | None:
    """Round a value to six digits. Return None for an infinite value, which JSON cannot represent."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def shown(measure: str, value: float) -> str:
    return f"{value:,.{MEASURES[measure].decimals}f}"


def _table(group: str, rows: Sequence[Row]) -> list[str]:
    columns = list(dict.fromkeys(measure for row in rows for measure in row.values))
    heads = (f"{measure.removesuffix('_ms')} {MEASURES[measure].unit}".strip() for measure in columns)
    lines = [f"  {group:44}" + "".join(f"{head:>19}" for head in heads)]
    for row in rows:
        cells = (shown(measure, row.values[measure]) if measure in row.values else "" for measure in columns)
        lines.append(f"    {row.contender:42}" + "".join(f"{cell:>19}" for cell in cells))
    return lines


def document(results: Iterable[Result], machine: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document, which `docs/benchmark-details.md` describes."""
    return {
        "schema": SCHEMA,
        "machine": machine,
        "options": options,
        "measures": {name: {"unit": measure.unit, "meaning": measure.meaning} for name, measure in MEASURES.items()},
        "scenarios": [result.facts() for result in results],
    }
