"""What a benchmark finds: distributions, targets and verdicts; as text and as JSON."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_COMPARE: dict[str, Callable[[float, float], bool]] = {"≤": operator.le, "≥": operator.ge, "=": operator.eq}


def quantile(values: Sequence[float], q: float) -> float:
    """The value at or below which the fraction ``q`` of them lies (nearest rank; not interpolated)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


@dataclass
class Times:
    """A distribution of times, in milliseconds."""

    name: str
    n: int
    median: float
    p95: float
    p99: float
    longest: float

    @classmethod
    def of(cls, name: str, seconds: Sequence[float]) -> Times:
        ms = [1000 * s for s in seconds]
        return cls(name, len(ms), quantile(ms, 0.5), quantile(ms, 0.95), quantile(ms, 0.99), max(ms))

    def line(self) -> str:
        figures = "".join(f"{value:10.3f}" for value in (self.median, self.p95, self.p99, self.longest))
        return f"  {self.name:44}{figures}"


@dataclass
class Figure:
    """One number and, where there is one, its target."""

    name: str
    value: float
    unit: str = ""
    relation: str = ""
    target: float = 0.0
    held: bool | None = field(init=False)

    def __post_init__(self) -> None:
        self.held = _COMPARE[self.relation](self.value, self.target) if self.relation else None

    def line(self) -> str:
        value = f"{self.value:.0f}" if self.unit == "" and float(self.value).is_integer() else f"{self.value:.3f}"
        said = f"  {self.name:44}{value:>10} {self.unit:3}"
        if self.held is None:
            return said.rstrip()
        return f"{said} target {self.relation} {self.target:g}{' ' + self.unit if self.unit else ''}: " + (
            "held" if self.held else "MISSED"
        )


@dataclass
class Section:
    """One experiment."""

    title: str
    times: list[Times] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = ["", self.title]
        if self.times:
            lines.append(f"  {'milliseconds':44}" + "".join(f"{head:>10}" for head in ("median", "p95", "p99", "longest")))
        lines += [times.line() for times in self.times]
        lines += [figure.line() for figure in self.figures]
        return "\n".join(lines + [f"  ({note})" for note in self.notes])

    def facts(self) -> dict[str, Any]:
        return asdict(self)
