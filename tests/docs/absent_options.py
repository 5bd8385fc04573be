"""Write the table of docs/glossary.md on the options that a class does not take.

PYTHONPATH=tests python -m docs.absent_options
"""

from __future__ import annotations

import re

from docs.pages import ROOT
from holdfast._api.absent_options import ROWS

PAGE = ROOT / "docs" / "glossary.md"
_TABLE = re.compile(r"(?<=\| class \| not taken \| why \|\n\|---\|---\|---\|\n)(\|.*\n)+")


def _code(words: str) -> str:
    return ", ".join(f"`{word}`" for word in words.split())


def page() -> str:
    """Return the page, with the rows as they have to be."""
    rows = "".join(f"| {_code(row.classes)} | {_code(row.options)} | {row.why[0].upper()}{row.why[1:]} |\n" for row in ROWS)
    text, count = _TABLE.subn(lambda _: rows, PAGE.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{PAGE} has {count} such tables")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
