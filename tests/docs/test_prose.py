"""Sentences of the sources have a named subject, and a process is never a person."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT
from docs.prose import read, read_pages
from support.sources import LAB, PACKAGE

QUOTED = re.compile(r"``.+?``|`[^`]+`|\"[^\"]+\"")
HEADLESS = re.compile(
    r"(?:^|(?<=[.:;!?] )|(?<=\())(Who|What|Whose|Whom|Whoever|Whatever|Whichever|Where|Those (?:who|that|which))\b(?![^.?]*\?)"
)
PERSON = re.compile(r"\b(he|him|his|himself|she|her|hers)\b", re.IGNORECASE)


def refused(text: str) -> bool:
    """Tell whether a sentence begins with a clause in the place of its subject, or treats a thing as a person."""
    plain = QUOTED.sub("X", text)
    return bool(HEADLESS.search(plain) or PERSON.search(plain))


@pytest.mark.parametrize(
    "text",
    [
        "Who gives the lock back tells the next.",
        "Release the lock. What was handed on, is lost.",
        "A queue: Whose turn is next keeps the place.",
        "Whom the server names holds the lock.",
        "Whoever waits is told.",
        "Whatever comes is told.",
        "Whichever comes first is told.",
        "Those who wait are told.",
        "Where the server is, says the URL.",
        "The holder renews, unless he has given up.",
        "The lock goes back to him.",
        "The waiter keeps his place.",
        "She holds the lock.",
        "A process that ends by itself, or himself.",
    ],
)
def test_a_sentence_is_refused(text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "Return the holder, who may be gone.",
        "Tell what the server knows.",
        "What is a lease? An acquisition that ends by itself.",
        'Refuse sentences like "Who waits is told.", or "his place".',
        "The `his` field. `Who` is a name.",
        "This is where the keeper waits.",
        "The history of the whole theme.",
    ],
)
def test_a_sentence_is_accepted(text: str) -> None:
    assert not refused(text)


def test_the_sources_are_written_so() -> None:
    texts = read()
    assert {text.kind for text in texts} == {"docstring", "attribute", "comment", "error", "message", "hint", "help", "text"}
    assert {text.path.suffix for text in texts} == {".py", ".lua", ".pml"}
    assert len(texts) > 5000
    assert [str(text) for text in texts if refused(text.text)] == []


def test_tests_and_tools_are_written_so() -> None:
    folders = [ROOT / "tests", ROOT / "website", ROOT / "packaging"]
    texts = read(*folders)
    assert {text.path.relative_to(ROOT).parts[0] for text in texts} == {folder.name for folder in folders}
    assert [str(text) for text in texts if text.kind not in {"hint", "text"} and refused(text.text)] == []  # their own data


def test_the_pages_are_written_so() -> None:
    texts = read_pages()
    assert {text.kind for text in texts} == {"sentence", "row"}
    assert {text.path for text in texts} == set(PAGES)
    assert len(texts) > 5000
    assert [str(text) for text in texts if refused(re.sub(r"\[.+?\]", "X", text.text))] == []  # links may be titles of pages


def outside_entries(docstring: str) -> list[str]:
    """Return the lines of the sections Args and Raises that are indented like an entry, and are none. The site needs names."""
    sections = re.findall(r"^(?:Args|Raises):\n((?: .*\n?|\n)+)", inspect.cleandoc(docstring), re.MULTILINE)
    lines = [line for section in sections for line in section.splitlines()]
    return [line for line in lines if re.match(r" {4}\S", line) and not re.match(r" {4}[\w*.]+: ", line)]


def docstrings(*packages: Path) -> Iterator[tuple[Path, str]]:
    """Find all docstrings of modules, classes and functions."""
    for path in sorted(path for package in packages for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, ast.get_docstring(node) or ""


def test_a_continued_line_has_to_be_indented() -> None:
    docstring = "Wait.\n\nArgs:\n    ttl: seconds, or\n    none.\n    wait: a\n        b: c\n\nNot: one"
    assert outside_entries(docstring) == ["    none."]


def test_sections_of_docstrings_are_indented() -> None:
    found = list(docstrings(PACKAGE, LAB))
    assert sum(docstring.count("\nArgs:\n") for _, docstring in found) > 40
    assert [(path.name, line) for path, docstring in found for line in outside_entries(docstring)] == []


def test_the_sentences_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "locks.md"
    page.write_text(
        """# Locks

A lock is held. It ends
by itself (W. Smith, 1999). **Pass a URL.** It is a text: see
[locks](locks.md).

<!-- not run: it is an example -->
```python
lock = None  # No sentence. Nor this.
```

## Times

* The first. It
  counts.

| option | meaning |
|---|---|
| `ttl` | A time. It ends |

<!-- figures: one -->

| a | b |
|---|---|
| 1 | 2 |

<!-- end of figures -->
"""
    )
    rows = [text.context for text in read_pages([page]) if text.kind == "row"]
    assert rows == ["| option | meaning |"]
    assert [(text.line, text.text, text.inside) for text in read_pages([page])] == [
        (3, "A lock is held.", ("Locks",)),
        (3, "It ends by itself (W. Smith, 1999).", ("Locks",)),
        (3, "**Pass a URL.** It is a text: see [locks].", ("Locks",)),
        (14, "The first.", ("Locks", "Times")),
        (14, "It counts.", ("Locks", "Times")),
        (19, "| `ttl` | A time. It ends |", ("Locks", "Times")),
    ]


def test_a_text_has_the_first_sentences_around_it(tmp_path: Path) -> None:
    source = tmp_path / "queue.py"
    source.write_text(
        '''"""A queue of waiters.

Only one thread uses it.
"""
COLOUR = 1
"""Its colour."""
class Queue:
    """The waiters, in order. More follows."""
    first: int
    """The first one."""
    def push(self):
        """Add a waiter."""
        raise ValueError("the queue is full")
'''
    )
    assert {text.text: text.inside for text in read(tmp_path) if text.kind != "comment"} == {
        "A queue of waiters. Only one thread uses it.": (),
        "Its colour.": ("A queue of waiters.",),
        "The waiters, in order. More follows.": ("A queue of waiters.",),
        "The first one.": ("A queue of waiters.", "The waiters, in order."),
        "Add a waiter.": ("A queue of waiters.", "The waiters, in order."),
        "the queue is full": ("A queue of waiters.", "The waiters, in order."),
    }


def test_texts_of_calls_and_tables_are_found(tmp_path: Path) -> None:
    source = tmp_path / "hints.py"
    source.write_text(
        r"""ADVICE = {
    "timeout": "pass wait= for how long to wait",
    **dict.fromkeys(("a", "b"), "leave it out: a waiter is notified"),
    "pattern": r"^one two three four (\d+)",
    "cron": "0 0 1 1 *",
}
SCRIPT = "import sys; sys.exit(run the program)"
class Row:
    why = [Reason("nobody holds it, so it has no lease")]
def find(log, lock):
    log.warning("lock %r was lost", lock)
    say("the server" + (" is not there" if lock else f" has no {lock} of this name"))
    lock.find("text for a machine")
    error = NotSent("no answer in time")
    raise error if lock else ServerError("raised without a call of its own")
def tell():
    raise ValueError(f"{why} is not a number", "one more text")
def why(parser, held):
    parser.epilog = "The lock is not acquired by this."
    reason = "the lock was broken by " + ("its holder, or by another client" if held else f"{held} alone")
    return {"a key that has five words": "a value that has five words", "b": re.compile("a pattern that has five words")}
"""
    )
    assert [(text.kind, text.line, text.text) for text in read(tmp_path)] == [
        ("hint", 2, "pass wait= for how long to wait"),
        ("hint", 3, "leave it out: a waiter is notified"),
        ("hint", 9, "nobody holds it, so it has no lease"),
        ("message", 11, "lock %r was lost"),
        ("message", 12, "is not there"),
        ("message", 12, "has no {lock} of this name"),
        ("message", 14, "no answer in time"),
        ("message", 15, "raised without a call of its own"),
        ("error", 17, "{why} is not a number"),
        ("error", 17, "one more text"),
        ("help", 19, "The lock is not acquired by this."),
        ("text", 20, "the lock was broken by"),
        ("text", 20, "its holder, or by another client"),
        ("text", 21, "a value that has five words"),
    ]
