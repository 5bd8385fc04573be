"""The documentation as the tests see it: pages, their fenced blocks, their links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LANGUAGES = {"python", "console", "crontab", "text", "json", "sql", "toml", "ini", "yaml"}
"""The first three are run, and the commands in ini and yaml. The others are for what is no program."""

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"(?:<!--(?:(?!-->).)*-->\n)*\Z", re.DOTALL)
_MARK = re.compile(r"<!-- (not run|run by|not typed|printed)(?:: (.+?))? -->", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


_VARIABLE = re.compile(r"(\w+) *= *(.*)")
_SCHEDULE = re.compile(r"(@[a-z]+|[*\d](?:\S*[ \t]+\S+){4})[ \t]+(?=\S)")


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    line: int
    """Of its first line of content, from 1."""
    language: str
    text: str
    not_run: str = ""
    """Why it cannot be run; empty if it is."""
    run_by: str = ""
    """The test that runs it as a file of its own; empty if it runs with the other examples of its page."""
    printed: bool = False
    """Whether the programs of the page print this text. It is marked with ``<!-- printed -->``."""
    not_typed: str = ""
    """Why mypy cannot check it, such as a framework without annotations; empty if it can."""


def name(page: Path) -> str:
    """Of a page, for messages."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, with the marks in the comments before them."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        marks = _MARKS.search(text[: match.start()])
        assert marks
        found_marks = dict(_MARK.findall(marks[0]))
        block = Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        found.append(
            block._replace(
                not_run=found_marks.get("not run", ""),
                run_by=found_marks.get("run by", ""),
                printed="printed" in found_marks,
                not_typed=found_marks.get("not typed", ""),
            )
        )
    return [block for block in found if language in {None, block.language}]


class CronLine(NamedTuple):
    """A line of a crontab that runs something."""

    schedule: str
    command: str
    env: dict[str, str]
    """Variables that are set above it."""

    @classmethod
    def of(cls, block: Block) -> list[CronLine]:
        """All of a block. Raises ValueError for a line that cron does not take."""
        env: dict[str, str] = {}
        found = []
        for line in block.text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if variable := _VARIABLE.fullmatch(line):
                env[variable[1]] = variable[2]
            elif schedule := _SCHEDULE.match(line):
                found.append(cls(schedule[1], line[schedule.end() :], dict(env)))
            else:
                raise ValueError(f"{name(block.page)}:{block.line}: not of a crontab: {line}")
        return found


def is_cron_line(line: str) -> bool:
    """Whether a line would run something if it were in a crontab."""
    return (
        re.match(r"@(reboot|hourly|daily|weekly|monthly|yearly)\b|([*\d][\d*,/-]*[ \t]+){4}[*\w]\S*[ \t]+\S", line) is not None
    )


def links(page: Path) -> Iterator[str]:
    """Targets of the links on a page, outside of blocks."""
    yield from _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Return what a link may name after #: headings as the usual renderers spell them, and the anchors of rows in tables."""
    found = set(_ANCHOR.findall(page.read_text(encoding="utf-8")))
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def module(page: Path) -> str:
    """The python blocks of a page that mypy can check, as one module, each line where it is on the page."""
    lines: list[str] = []
    for block in blocks(page, "python"):
        if block.not_typed or block.run_by:
            continue
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    return "\n".join(lines) + "\n"
