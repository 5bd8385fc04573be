"""The page of environment variables names each variable that the sources use, and no other."""

from __future__ import annotations

import re

from docs.pages import ROOT

PAGE = ROOT / "docs" / "environment.md"
VARIABLE = re.compile(r"\b(?:HOLDFAST_[A-Z_]*[A-Z]|REDIS_URL)\b")


def test_each_variable_of_the_sources_is_on_the_page() -> None:
    used = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]:
        used |= set(VARIABLE.findall(path.read_text(encoding="utf-8")))
    described = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(described) == sorted(used)
