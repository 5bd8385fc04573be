"""The number of words of each page. To print it, also for an earlier commit: PYTHONPATH=tests python -m docs.words [COMMIT]"""

from __future__ import annotations

import subprocess
import sys

from docs.pages import PAGES, ROOT, name

LIMIT = 1500
LOOKED_UP = {"CHANGELOG.md", "docs/benchmark-details.md", "docs/faults.md", "docs/glossary.md", "docs/ladder-details.md"}
"""Pages for which the limit does not hold. References and evidence are looked up, not read; so is all of docs/design."""


def words() -> dict[str, int]:
    """Count the words of each page."""
    return {name(page): len(page.read_text(encoding="utf-8").split()) for page in PAGES}


def words_at(commit: str) -> dict[str, int]:
    """Count the words of each page of a commit."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout

    files = git("ls-tree", "-r", "--name-only", commit, "--", ".").split()
    pages = [file for file in files if file.endswith(".md") and (file.startswith("docs/") or "/" not in file)]
    return {page: len(git("show", f"{commit}:{page}").split()) for page in pages}


def limited(page: str) -> bool:
    """Whether the limit holds for a page."""
    return page not in LOOKED_UP and not page.startswith("docs/design/")


def main() -> None:
    now = words()
    before = words_at(sys.argv[1]) if sys.argv[1:] else {}
    print(f"{'before':>7} {'now':>7}")
    for page in sorted(now.keys() | before.keys()):
        mark = f" over {LIMIT}" if limited(page) and now.get(page, 0) > LIMIT else ""
        print(f"{before.get(page, '-'):>7} {now.get(page, '-'):>7} {page}{mark}")
    print(f"{sum(before.values()) or '-':>7} {sum(now.values()):>7} all")


if __name__ == "__main__":
    main()
