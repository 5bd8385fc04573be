"""Tables, on stdout: the cells of a column stand below each other, in whatever script they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

from holdfast.cli import output

WIDEST = 60
"""Characters of a column where rows are yet to come: what is longer stands out, and moves nothing in other lines."""


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """A line for each row."""
    cleaned = [_cleaned(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cleaned, strict=True)]
    return [_line(row, widths) for row in cleaned]


def show(rows: Iterable[Sequence[str]]) -> None:
    """All of a table."""
    print("\n".join(aligned(rows)), flush=True)


class Table:
    """A table whose rows come one after the other: columns become wider when they have to."""

    def __init__(self, head: tuple[str, ...]) -> None:
        self._widths = [0] * len(head)
        self._rows = [head]
        self._shown = False

    def add(self, row: tuple[str, ...]) -> None:
        """Several at a time are shown: the first twenty, and then a hundred."""
        self._rows.append(_cleaned(row))
        if len(self._rows) > (100 if self._shown else 20):
            self.flush()

    def flush(self) -> None:
        """Show what has been added."""
        for row in self._rows:
            self._widths = [max(most, min(_width(cell), WIDEST)) for most, cell in zip(self._widths, row, strict=True)]
        lines = [_line(row, self._widths) for row in self._rows]
        if lines:
            print("\n".join(lines), flush=True)
        self._rows, self._shown = [], True


def _cleaned(row: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(output.clean, row))


def _width(cell: str) -> int:
    """Columns that it takes in a terminal: two for each Chinese character, say."""
    return len(cell) if cell.isascii() else sum(1 + (east_asian_width(one) in "WF") for one in cell)


def _line(row: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell + " " * (most - _width(cell)) for cell, most in zip(row, widths, strict=True)).rstrip()
