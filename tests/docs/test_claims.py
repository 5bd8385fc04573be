"""Claims in the pages that a program can check: where things are."""

from __future__ import annotations

import re

from docs import architecture
from docs.pages import ROOT


def test_the_architecture_page_shows_the_rooms_as_they_are() -> None:
    text = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    architecture.check_steps()
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.svg(), (
        "PYTHONPATH=tests python -m docs.architecture"
    )
    top = [path for path in architecture.PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = [path.name + ("/" if path.is_dir() else "") for path in top if not path.name.startswith("__")]
    assert [name for name in names if f"`{name}`" not in text and name != "aio.py"] == []
    assert [
        file for file in re.findall(r"^\d\. `([^`]+)`", text, re.MULTILINE) if not (architecture.PACKAGE / file).exists()
    ] == []
