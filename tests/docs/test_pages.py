"""Pages fit together: links lead somewhere, blocks are of a known kind, few are not run, nothing is out of place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.pages import LANGUAGES, PAGES, ROOT, anchors, blocks, is_cron_line, links, name
from docs.words import LIMIT, limited, words


def wrong_with(page: Path, link: str) -> str:
    """Why a link leads nowhere; nothing if it leads somewhere."""
    target, _, anchor = link.partition("#")
    file = (page.parent / target).resolve() if target else page
    if not file.exists():
        return "no such file"
    if not file.is_relative_to(ROOT):
        return "not in the repository"
    return "no such heading" if anchor and anchor not in anchors(file) else ""


def test_links_lead_somewhere() -> None:
    found = {(name(page), link): wrong_with(page, link) for page in PAGES for link in links(page) if "https://" not in link[:8]}
    assert {at: why for at, why in found.items() if why} == {}


def test_blocks_are_of_a_known_kind() -> None:
    offenders = [
        f"{name(page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in LANGUAGES
        or (block.language not in {"python", "console"} and re.search(r"^(import |from |\$ )", block.text, re.MULTILINE))
        or (block.language != "crontab" and any(map(is_cron_line, block.text.splitlines())))
    ]
    assert offenders == []
    fences = {name(page): page.read_text(encoding="utf-8").count("\n```") for page in PAGES}
    assert fences == {name(page): 2 * len(blocks(page)) for page in PAGES}


def test_lines_are_not_too_long() -> None:
    """Tables and links aside."""
    offenders = [
        f"{name(page)}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 128 and not line.startswith("|") and "](" not in line
    ]
    assert offenders == []


def test_few_blocks_are_not_run() -> None:
    marked = [block for page in PAGES for block in blocks(page) if block.not_run]
    assert all(len(block.not_run) > 20 for block in marked), "say why"
    assert len(marked) <= 6, [f"{name(block.page)}:{block.line}" for block in marked]


def test_a_block_that_another_test_runs() -> None:
    marked = [block for page in PAGES for block in blocks(page) if block.run_by]
    assert marked
    for block in marked:
        assert f'"{block.page.name}"' in (ROOT / block.run_by).read_text(encoding="utf-8")


def test_pages_are_short() -> None:
    """References, evidence and internals aside: they are looked up, not read."""
    assert {page: count for page, count in words().items() if limited(page) and count > LIMIT} == {}


def test_the_pages_before_the_evidence_are_shorter() -> None:
    assert {page: words()[page] for page in ("docs/benchmarks.md", "docs/ladder.md") if words()[page] > 900} == {}


RECIPES = [
    "apscheduler",
    "celery",
    "cron",
    "databases",
    "django",
    "dogpile",
    "fastapi",
    "kubernetes",
    "once-recipes",
    "rq-dramatiq",
    "schedule-web",
]
"""Pages that show how to use holdfast with something else. People copy from them, so they say where a recipe ends."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_what_it_does_not_do(recipe: str) -> None:
    """As a section with a list, whose items begin with a sentence in bold."""
    text = (ROOT / "docs" / f"{recipe}.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## What (?:it does|these recipes do) not do\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^\* \*\*", section, re.MULTILINE)) >= 3


def test_the_recipes_for_frameworks_are_known() -> None:
    """Those in the table of the page about web applications and task queues."""
    table = re.findall(r"^\| \[.*\]\(([\w-]+)\.md\) \|", (ROOT / "docs" / "web.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(table) < set(RECIPES)


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
        *project["dependency-groups"]["docs"],
        *project["build-system"]["requires"],
    ]
    text = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    for requirement in wanted:
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        assert f"[{package}](https://pypi.org/project/{package}/)" in text
