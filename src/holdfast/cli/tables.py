"""Tables on stdout with aligned columns, also for texts of double width such as Chinese."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import east_asian_width

from holdfast.cli import output

WIDEST = 60
"""Maximum width of a column of a `Table`, in characters. A longer cell shifts the rest of its own row only."""


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    cleaned = [_cleaned(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cleaned, strict=True)]
    return [_line(row, widths) for row in cleaned]


def show(rows: Iterable[Sequence[str]]) -> None:
    print("\n".join(aligned(rows)), flush=True)


class Table:
    """A table that is printed while its rows arrive. Its columns become wider when a wider cell arrives."""

    def __init__(self, head: tuple[str, ...]) -> None:
        self._widths = [0] * len(head)
        self._rows = [head]
        self._shown = False

    def add(self, row: tuple[str, ...]) -> None:
        """Add a row. Rows are printed in batches, of which the first is small, so that the user soon sees something."""
        self._rows.append(_cleaned(row))
        if len(self._rows) > (100 if self._shown else 20):
            self.flush()

    def flush(self) -> None:
        """Print the rows that were added since the last batch."""
        for row in self._rows:
            self._widths = [max(most, min(_width(cell), WIDEST)) for most, cell in zip(self._widths, row, strict=True)]
        lines = [_line(row, self._widths) for row in self._rows]
        if lines:
            print("\n".join(lines), flush=True)
        self._rows, self._shown = [], True


def _cleaned(row: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(output.clean, row))


def _width(cell: str) -> int:
    """Return the number of terminal columns of a text: two for each wide character, such as a Chinese one."""
    return len(cell) if cell.isascii() else sum(1 + (east_asian_width(one) in "WF") for one in cell)


def _line(row: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell + " " * (most - _width(cell)) for cell, most in zip(row, widths, strict=True)).rstrip()
