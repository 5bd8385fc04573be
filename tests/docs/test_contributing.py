"""CONTRIBUTING.md speaks of files, names and targets that exist. Its commands are run by `test_examples`."""

from __future__ import annotations

import re

from docs.pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OPTION = re.findall(r"^\| \d+\. .+$", PAGE, re.MULTILINE)
"""Rows of the table about an option."""


def linked(text: str) -> list[str]:
    """Return the files and folders that a text links to. A link within the page has none."""
    return [target.partition("#")[0] for target in re.findall(r"\]\(([^)#\s][^)\s]*)\)", text) if "://" not in target]


def test_the_first_files_are_those_of_the_architecture_page() -> None:
    section = PAGE.partition("## Read\n")[2].partition("\n## ")[0]
    ours = {target.removeprefix("src/holdfast/") for target in linked(section) if target.startswith("src/")}
    page = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    theirs = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\d\. (`.+):", page, re.MULTILINE))))
    assert len(re.findall(r"^\d\. ", section, re.MULTILINE)) == 5
    assert ours <= theirs


def test_the_files_of_the_example_are_about_it() -> None:
    assert len(OPTION) == 10
    files = [target for row in OPTION for target in linked(row) if target != "CHANGELOG.md"]
    about = {file: re.search(r"quarantine|QUARANTINED", (ROOT / file).read_text(encoding="utf-8")) for file in files}
    assert len(about) >= 15
    assert [file for file, found in about.items() if not found] == []


def test_the_names_of_the_example_are_in_its_files() -> None:
    for row in OPTION:
        texts = "".join(
            (ROOT / file).read_text(encoding="utf-8") for file in linked(row) if file.startswith(("src/", "lab/", "tests/"))
        )
        plain = re.sub(r"\[`[^`]+`\]", "", row)
        assert [name for name in re.findall(r"`([^`]+)`", plain) if name not in texts] == [], row


def test_its_targets_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([\w-]+)", re.sub(r"\n", " ", PAGE))) - {"and"} <= targets
