"""The table of reply codes and message kinds against the scripts, Python and the page about the protocol.

``python tests/house/test_codes.py`` writes the tables of that page to standard output.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import holdfast
from holdfast._lua import codes, source

ROOT = Path(holdfast.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "design" / "protocol.md"
SCRIPTS = {path.relative_to(ROOT / "_lua").with_suffix("").as_posix(): path for path in (ROOT / "_lua").rglob("*.lua")}


def meanings() -> dict[str, str]:
    """Each name with the text below it."""
    body = ast.parse((ROOT / "_lua" / "codes.py").read_text(encoding="utf-8")).body
    found = {}
    for node, below in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assert isinstance(below, ast.Expr)
            assert isinstance(below.value, ast.Constant)
            found[node.targets[0].id] = str(below.value.value).replace("``", "`")
    return found


MEANINGS = meanings()
REPLIES = {name: value for name in MEANINGS if isinstance(value := getattr(codes, name), int)}
MESSAGES = {name: value for name in MEANINGS if isinstance(value := getattr(codes, name), str)}


def code_of(path: Path) -> str:
    """A script without comments."""
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="ascii"))


def tables() -> str:
    lines = ["| reply | | |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {MEANINGS[name]} |" for name, value in REPLIES.items()]
    lines += ["", "| message | | |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {MEANINGS[name]} |" for name, value in MESSAGES.items()]
    return "\n".join(lines) + "\n"


def test_one_number_has_one_meaning() -> None:
    assert {*REPLIES, *MESSAGES} == {*MEANINGS}
    for values in (REPLIES, MESSAGES):
        assert len(set(values.values())) == len(values)
    assert not {0, 1} & set(REPLIES.values()), "they are yes and no"


def test_messages_are_what_other_releases_read() -> None:
    """Processes of different releases tell each other by these. They never change; another kind gets a number of its own."""
    assert MESSAGES == {"GRANTED": "1", "WANTED": "2", "CHANGED": "3", "BROKEN": "4"}


def test_both_sides_name_each() -> None:
    scripts = "\n".join(code_of(path) for path in SCRIPTS.values())
    python = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if "testing" not in path.parts)
    assert [name for name in MEANINGS if not re.search(rf"\b{name}\b", scripts)] == []
    assert [name for name in MEANINGS if not re.search(rf"\bcodes\.{name}\b", python)] == []


def test_a_script_imports_what_it_names() -> None:
    for name, path in SCRIPTS.items():
        imported = re.findall(r"^ *-- CODES +(.+)$", path.read_text(encoding="ascii"), re.MULTILINE)
        used = {word for word in MEANINGS if re.search(rf"\b{word}\b", code_of(path))}
        assert {word for line in imported for word in line.split()} == used, name


def test_no_script_answers_or_tells_a_bare_number() -> None:
    """All but 0 and 1 have names. -1 stands for "it has no end" besides, as in the answer of PTTL."""
    forms = r"\{-\d|\{[2-9][,}]|'\d '|(?:return|and) -\d|[=~]= -[2-9]"
    bare = {(name, found) for name, path in SCRIPTS.items() for found in re.findall(forms, code_of(path))}
    assert bare == {("schedule/serve", "return -1")}


def test_python_reads_no_bare_code() -> None:
    """Of numbers, patterns begin with 0 and 1 alone. Nothing is compared with one below 0, but with -1 for "it has no end"."""
    bare = []
    for path in (each for room in ("_core", "_api", "doctor", "schedule") for each in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values = (
                [node.value] if isinstance(node, ast.MatchValue) else node.comparators if isinstance(node, ast.Compare) else []
            )
            if isinstance(node, ast.MatchSequence) and re.match(r"\[(\d+ \| )?[2-9]", ast.unparse(node)):
                bare.append(f"{path.name}: {ast.unparse(node)}")
            below = [value for value in values if re.match(r"-\d", ast.unparse(value))]
            of_time = isinstance(node, ast.Compare) and ast.unparse(node.left) in {"ms", "left", "timeout"}
            bare += [f"{path.name}: {ast.unparse(node)}" for _ in below if not of_time]
    assert bare == []


def test_the_constants_are_in_the_scripts() -> None:
    assert "local NO_CLAIM, TAKEN_AWAY, NOT_NEWEST = -1, -2, 2\n" in source("lock/renew")
    assert "local CHANGED = '3'\n" in source("single_flight/delete")


def test_the_page_lists_all() -> None:
    assert tables() in PAGE.read_text(encoding="utf-8"), "python tests/house/test_codes.py"


if __name__ == "__main__":
    print(tables(), end="")
