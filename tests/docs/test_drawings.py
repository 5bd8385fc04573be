"""The pictures in docs/drawings are those that `docs.drawings` draws, and pages show them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from docs.drawings import DRAWINGS, FOLDER, Drawing
from docs.pages import PAGES


def test_the_files_are_as_drawn() -> None:
    drawn = {name: draw().svg() for name, draw in DRAWINGS.items()}
    assert {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)  # noqa: S314


def test_pages_show_them() -> None:
    """With a text for readers who do not see them."""
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]{20,}\]\((\S+/drawings/\S+|drawings/\S+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == set(FOLDER.iterdir())


def test_a_text_that_does_not_fit_is_refused() -> None:
    drawing = Drawing("A title", {"One": 40, "Two": 700}, 3)
    drawing.say(0, "One", "short")
    with pytest.raises(ValueError, match="does not fit"):
        drawing.say(1, "Two", "longer than what is left to the right of it")
    with pytest.raises(ValueError, match="does not fit"):
        drawing.say(1, "One", "to the left", left=True)
