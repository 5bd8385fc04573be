"""Writes the pages that the site is made of into a folder: docs/, the pages of the top folder, and the API reference.

python website/prepare.py FOLDER

Links between pages are adapted. A link to a file that is not on the site, such as a source file, becomes its text.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

import reference

ROOT = Path(__file__).parents[1]
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
"""Pages of the top folder, and their names on the site."""
ASSETS = ("site.css", "iframe-worker.js")

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)")


def adapted(text: str, source: str) -> str:
    """Return the text of a page of the repository with links as they have to be on the site."""
    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(lambda match: adapted_link(match, source), part) for part in parts[::2]]
    return "".join(parts)


def adapted_link(link: re.Match[str], source: str) -> str:
    """Return one link of a page. ``source`` is the path of the page in the repository."""
    target, mark, anchor = link[2].partition("#")
    if not target or "://" in target:
        return link[0]
    file = os.path.normpath(PurePosixPath(source).parent / target)
    if (there := place(file)) is None:
        return link[1]
    return f"[{link[1]}]({os.path.relpath(there, PurePosixPath(place(source) or '').parent)}{mark}{anchor})"


def place(file: str) -> str | None:
    """Return where a file of the repository is on the site; None if it is not there."""
    if file in TOP:
        return TOP[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else None


def uris() -> list[str]:
    """Return the pages of the site, each as its path below the folder of pages."""
    files = [*TOP, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    return sorted([*(place(file) or "" for file in files), *(f"reference/{name}" for name in reference.pages())])


def navigation() -> list[str]:
    """Return the pages in the navigation of mkdocs.yml, in its order."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r"(\S+\.md)$", nav, re.MULTILINE)


def prepare(folder: Path) -> None:
    """Write all pages, pictures and assets. The folder is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for file in [*TOP, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]:
        page = folder / (place(file) or "")
        page.write_text(adapted((ROOT / file).read_text(encoding="utf-8"), file), encoding="utf-8")
    (folder / "reference").mkdir()
    for name, text in reference.pages().items():
        (folder / "reference" / name).write_text(text, encoding="utf-8")
    (folder / "assets").mkdir()
    for name in ASSETS:
        shutil.copy(Path(__file__).parent / name, folder / "assets" / name)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
