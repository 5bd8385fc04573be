"""The style of docstrings and comments: sentences name their subject, and a client, a process or a holder is "it"."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
LEFT_OUT = {"testing"}
"""Rooms that are not judged yet, because their sentences have not been rewritten. The set shall become empty."""

QUOTED = re.compile(r"``.*?``|`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
"""Code and examples: another text's words, not our own."""

HEADLESS = re.compile(r"(?:^|(?<=[.:;!?] ))(?:Who|What|Whose|Whom|Whoever|Whatever|Where)\b(?![^.?]*\?)")
"""A sentence, but for questions, that begins with a relative clause: the reader has to find out what it is about."""

GENDERED = re.compile(r"\b(?:he|him|his|himself|she|her|hers|herself)\b", re.IGNORECASE)

LUA_COMMENT = re.compile(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|--+(?P<comment>.*)")
"""Strings are matched too, so that dashes in a string begin no comment."""


def refused(text: str) -> bool:
    """Whether a sentence of the text is headless or gendered."""
    plain = QUOTED.sub("_", " ".join(text.split()))
    return bool(HEADLESS.search(plain) or GENDERED.search(plain))


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, also of attributes, and of each comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")


def lua_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment."""
    for number, line in enumerate(source.splitlines(), 1):
        for found in LUA_COMMENT.finditer(line):
            if found["comment"] is not None:
                yield number, found["comment"].strip()


def offenders(path: Path) -> list[str]:
    """Return the refused texts of a source file, each as ``file:line: text``."""
    texts = python_texts if path.suffix == ".py" else lua_texts
    name = path.relative_to(ROOT).as_posix()
    return [f"{name}:{line}: {text}" for line, text in texts(path.read_text(encoding="utf-8")) if refused(text)]


def test_every_docstring_and_comment_names_its_subject() -> None:
    sources = [path for path in sorted(ROOT.rglob("*")) if path.suffix in {".py", ".lua"}]
    judged = [path for path in sources if path.relative_to(ROOT).parts[0] not in LEFT_OUT]
    assert {path.suffix for path in judged} == {".py", ".lua"}
    found = [offender for path in judged for offender in offenders(path)]
    assert not found, "name the subject, and call a client or a process 'it':\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "Who holds the lock, as ``host:pid``.",
        "Seconds. What is left of them, counts.",
        "Two kinds: Whose turn it is, and the rest.",
        "Where the server is, says the variable. Is it there?",
        "Whatever comes\nis told to the counter.",
        "The holder is told, and loses his lease.",
        "Ask the waiter; he may have left.",
        "She waits.",
    ],
)
def test_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "Holder of the lock, as ``host:pid``.",
        "Return what is left of the time, and where it went.",
        "What if the server restarts? It starts a quarantine.",
        "The heading ``What is promised`` and the words 'Who waits' are quoted; so is \"tell him\".",
        "The holder's process, which loses its lease when it hangs there.",
        "Whether the server answers.",
    ],
)
def test_accepted(text: str) -> None:
    assert not refused(text)


def test_each_kind_of_text_is_found() -> None:
    python = 'class A:\n    """One."""\n    b: int\n    """Two."""\n    c = "# not this"  # three\n'
    assert sorted(python_texts(python)) == [(2, "One."), (4, "Two."), (5, "three")]
    assert list(lua_texts("-- one\nlocal a = '-- not this'  -- two's\n")) == [(1, "one"), (2, "two's")]
