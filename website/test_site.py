"""The built site is complete, and every link of it leads somewhere. `make docs` builds it and runs these tests."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import reference
from make_site import SITE

HTML = SITE / "html"


class Parsed(HTMLParser):
    """The links and anchors of a page, and its paragraphs as text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.paragraphs: list[str] = []
        self._skipped = 0
        self._in_paragraph = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {str(found[key]) for key in ("id", "name") if key in found}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif tag in {"script", "link", "img", "iframe"} and (target := found.get("src") or found.get("href")):
            self.loaded.append(target)
        self._skipped += tag in {"code", "pre"}
        if tag in {"p", "td"}:
            self._in_paragraph = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in {"code", "pre"}
        if tag in {"p", "td"}:
            self._in_paragraph = False

    def handle_data(self, data: str) -> None:
        if self._in_paragraph:
            self.paragraphs[-1] += "X" if self._skipped else data


@pytest.fixture(scope="module")
def parsed() -> dict[Path, Parsed]:
    """All pages of the site."""
    assert HTML.exists(), "build the site first: make site"
    return {page: Parsed(page) for page in HTML.rglob("*.html") if page.name != "404.html"}


def test_every_public_name_is_in_the_reference(parsed: dict[Path, Parsed]) -> None:
    """With each of its members, under the name by which users import it."""
    anchors = set().union(*(page.anchors for path, page in parsed.items() if path.parent.name == "reference"))
    module = name = ""
    missing = []
    for line in reference.NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ")
        elif found := re.match(r"(?:class |def |async def |type |(?=\w+: ))(\w+)", line):
            name = "" if re.search(r": as [\w.]+$", line) else f"{module}.{found[1]}"
            missing += [name] * (name != "" and name not in anchors)
        elif name and (found := re.match(r"    \.(?:async def |def )?(\w+)", line)):
            member = f"{name}.{found[1]}"
            missing += [member] * (member not in anchors)
    assert missing == []


def test_links_and_loaded_files_lead_somewhere(parsed: dict[Path, Parsed]) -> None:
    wrong = []
    for page, found in parsed.items():
        for link in [*found.links, *found.loaded]:
            target, anchor = urldefrag(link)
            if re.match(r"https://|mailto:", target) and link in found.links:
                continue
            file = (page.parent / unquote(target)).resolve() if target else page
            if not file.is_file():
                wrong.append(f"{page.relative_to(HTML)}: {link}: no such file")
            elif anchor and file.suffix == ".html" and unquote(anchor) not in parsed[file].anchors:
                wrong.append(f"{page.relative_to(HTML)}: {link}: no such place")
    assert wrong == []


def test_no_markup_is_left_in_the_text(parsed: dict[Path, Parsed]) -> None:
    """Lists without an empty line before them, links and blocks that the renderer reads in another way than GitHub does."""
    left = re.compile(r"\n *([*-]|\d+\.) |```|\]\(|\]\[|:::|^\|| \| ")
    wrong = [f"{page.relative_to(HTML)}: {text}" for page in parsed for text in parsed[page].paragraphs if left.search(text)]
    assert wrong == []
