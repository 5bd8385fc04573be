"""Pages fit together: links lead somewhere, blocks are of a known kind, few are not run, nothing is out of place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.pages import LANGUAGES, PAGES, ROOT, anchors, blocks, is_cron_line, links, name

everywhere = pytest.mark.parametrize("page", PAGES, ids=name)


@everywhere
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name(page)}: {link}"
        assert file.is_relative_to(ROOT), f"{name(page)}: {link}"
        assert not anchor or anchor in anchors(file), f"{name(page)}: {link}: no such heading"


@everywhere
def test_blocks_are_of_a_known_kind(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{name(page)}:{block.line}"
        assert block.language in {"python", "console"} or not re.search(r"^(import |from |\$ )", block.text, re.MULTILINE)
        assert block.language == "crontab" or not any(map(is_cron_line, block.text.splitlines())), f"{name(page)}:{block.line}"
    assert page.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks(page))


@everywhere
def test_lines_are_not_too_long(page: Path) -> None:
    """Tables and links aside."""
    for line in page.read_text(encoding="utf-8").splitlines():
        assert len(line) <= 128 or line.startswith("|") or "](" in line, f"{name(page)}: {line}"


def test_few_blocks_are_not_run() -> None:
    marked = [block for page in PAGES for block in blocks(page) if block.not_run]
    assert all(len(block.not_run) > 20 for block in marked), "say why"
    assert len(marked) <= 4, [f"{name(block.page)}:{block.line}" for block in marked]


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page for page in PAGES if page.name != "README.md"} - reached == {index}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    text = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    for requirement in wanted:
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        assert f"[{package}](https://pypi.org/project/{package}/)" in text
