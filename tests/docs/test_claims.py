"""Claims in the pages that a program can check: where things are, what the API takes and raises, what the benchmark needs."""

from __future__ import annotations

import functools
import inspect
import json
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, NamedTuple

import pytest

import holdfast
from docs import architecture
from docs.pages import PAGES, ROOT, name
from docs.prose import USERS_PAGES, Prose, read, read_pages
from holdfast_lab.bench.plan import QUICK_SECONDS, SECONDS
from support.sources import LAB, PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.servers import PrivateServer

LAB_README = ROOT / "lab" / "README.md"
EXTRAS = {
    distribution: set(tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]["optional-dependencies"])
    for distribution, file in {"holdfast": "pyproject.toml", "holdfast-lab": "lab/pyproject.toml"}.items()
}
"""Of each distribution."""


def test_the_architecture_page_shows_the_rooms_as_they_are() -> None:
    text = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    architecture.check_steps()
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.svg(), (
        "PYTHONPATH=tests python -m docs.architecture"
    )
    assert text == architecture.printed(), "PYTHONPATH=tests python -m docs.architecture"
    read = text.partition(architecture.MARK)[0]
    assert len(read.split()) <= 900, "the page is read in one go; the table at its end is looked up"
    top = [path for path in architecture.PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = [path.name + ("/" if path.is_dir() else "") for path in top if not path.name.startswith("__")]
    assert [name for name in names if f"`{name}`" not in text and name != "aio.py"] == []
    assert [
        file for file in re.findall(r"^\d\. `([^`]+)`", text, re.MULTILINE) if not (architecture.PACKAGE / file).exists()
    ] == []


# Statements that were false once. Each is compared with what the code does, and a page that says it again is refused.


class Claim(NamedTuple):
    """A subject about which sentences are easily wrong."""

    about: str
    """Pattern of the sentences about it."""
    unless: str
    """Pattern of what makes such a sentence true."""
    false: tuple[str, ...]
    """Wrong sentences about it, as they were written or could be."""


CLAIMS = {
    "options of the decorator": Claim(
        r"(?:\blocked|\bdecorator\b).*\boptions\b.*`(?:holdfast\.)?Lock`|\bother options are those of `Lock`",
        r"does not take the other options of `Lock`|are those of \[?`Lock`\]?\. `locked` does not",
        (
            "`@locked` takes the options of `Lock`.",
            "The decorator has the same options as `holdfast.Lock`.",
            "The other options are those of `Lock`.",
        ),
    ),
    "all errors": Claim(
        r"(?i)\b(?:all|every|each|any)\b(?: \w+)? (?:errors?|exceptions?)\b.*\bHoldfastError",
        r"(?i)errors? about a lock or a server",
        (
            "All errors are subclasses of `HoldfastError`.",
            "All errors are `HoldfastError`s.",
            "Every exception that holdfast raises is a subclass of `holdfast.HoldfastError`.",
        ),
    ),
    "when ConfigError is raised": Claim(
        r"`?ConfigError`?.*\bbefore\b.*\b(?:is|was) sent\b|\bbefore (?:anything|any).*\bsent\b.*\bConfigError",
        r"can come before or after contact|^(?:An unknown option|A value out of range|A text that is not a ticket)\b",
        (
            "| `ConfigError` | A wrong argument, refused before anything was sent | `ValueError` |",
            "`ConfigError` is always raised before a request is sent.",
            "Mistakes are found before anything is sent, and raise `ConfigError`.",
        ),
    ),
    "annotated as threading.Lock": Claim(
        r"(?i)`threading\.Lock`.*\b(?:fits?|works?|takes?|accepts?|drop-in|replaces?|use)\b|\bfits? .*`threading\.Lock`",
        r"does not fit the annotation|arguments|^So code that uses a `threading\.Lock` works with a `holdfast\.Lock`, too\.$",
        (
            "A `holdfast.Lock` fits where a `threading.Lock` does.",
            "So code which takes a `threading.Lock` takes a `holdfast.Lock`.",
            "It is a drop-in for `threading.Lock`, which it replaces.",
        ),
    ),
    "names of holdfast.aio": Claim(
        r"`holdfast\.aio` has the same (?!classes)|same names are in `holdfast\.aio`",
        r"`holdfast\.aio` has the same names for asyncio, without the modules",
        ("`holdfast.aio` has the same names.", "The same names are in `holdfast.aio`."),
    ),
}


def wrong(claim: Claim, text: str) -> bool:
    """Whether a sentence is about the subject, and false."""
    return bool(re.search(claim.about, text)) and not re.search(claim.unless, text)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_no_text_says_what_is_false(claim: Claim) -> None:
    """No sentence of a page, a docstring or a help text."""
    assert [text for text in claim.false if not wrong(claim, text)] == []
    assert [str(text) for text in sentences() if wrong(claim, text.text)] == []


@functools.cache
def sentences() -> list[Prose]:
    """All sentences of pages and sources, and the rows of tables."""
    parts = ((text, re.split(r"(?<=\.) (?=[A-Z`])", text.text)) for text in read(PACKAGE, LAB))
    return [*read_pages([*PAGES, LAB_README]), *(text._replace(text=part) for text, found in parts for part in found)]


def page_text(path: str) -> str:
    """A page of the repository, each run of whitespace as one blank."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


def test_the_decorator_takes_these_options_of_lock() -> None:
    options = {name for name, each in inspect.signature(holdfast.Lock).parameters.items() if each.kind is each.KEYWORD_ONLY}
    own = [name for name, each in inspect.signature(holdfast.locked).parameters.items() if each.kind is each.KEYWORD_ONLY]
    listed, _, rest = page_text("docs/decorator.md").partition("## Options and limits ")[2].partition(" are those of [`Lock`]")
    assert rest.startswith("(locks.md#options). `locked` does not take the other options of `Lock`, ")
    assert set(re.findall(r"`(\w+)`", listed)) == options & set(own) < options


def test_which_errors_are_not_of_holdfast(server: PrivateServer) -> None:
    """The first sentence of the page says which errors are; its second table has these."""
    rows = page_text("docs/errors.md").partition("Mistakes in the program raise Python's own errors")[2]
    lock = holdfast.Lock(server.url, "one")
    mistakes: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: holdfast.Lock(server.url, "one", timeout=3)),  # type: ignore[arg-type]
        (ValueError, lambda: lock.acquire(timeout=-2)),
        (OverflowError, lambda: lock.acquire(timeout=1e300)),
        (AttributeError, lambda: lock.extend),  # type: ignore[attr-defined]
    ]
    for error, mistake in mistakes:
        with pytest.raises(error) as raised:
            mistake()
        assert not isinstance(raised.value, holdfast.HoldfastError)
        assert f"| {error.__name__} |" in rows
    assert page_text("docs/errors.md").startswith(
        "# Errors, log lines and statistics ## Errors Every error about a lock or a server"
    )


def test_a_config_error_can_come_after_contact_with_the_server(server: PrivateServer) -> None:
    assert "**`ConfigError` can come before or after contact with the server.**" in page_text("docs/errors.md")
    with holdfast.Semaphore(server.url, "pool", limit=2), pytest.raises(holdfast.ConfigError, match="limit"):
        holdfast.Semaphore(server.url, "pool", limit=3).acquire()


def test_a_lock_does_not_fit_the_annotation_of_threading(tmp_path: Path) -> None:
    """As docs/threading.md says: mypy refuses it, and accepts the annotation that the page shows."""
    program = tmp_path / "program.py"
    program.write_text(FITS, encoding="utf-8")
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", cache, str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    refused = re.findall(r"program\.py:(\d+): error: Argument 1 to \"(\w+)\"", done.stdout)
    assert refused == [("14", "takes_a_lock")], done.stdout
    text = page_text("docs/threading.md")
    assert "Only its annotations have to change: see [type checkers](#type-checkers)." in text
    assert "A holdfast lock does not fit the annotation `threading.Lock`" in text


FITS = """\
import threading
from contextlib import AbstractContextManager
from typing import Any

import holdfast

def takes_a_lock(lock: threading.Lock) -> None: ...

def takes_any(lock: AbstractContextManager[Any]) -> None: ...

lock = holdfast.Lock("local://", "x")
takes_a_lock(threading.Lock())
takes_any(lock)
takes_a_lock(lock)
"""


def test_what_asyncio_lacks() -> None:
    lacking = {name for name in holdfast.__all__ if not hasattr(holdfast.aio, name)}
    modules = {name for name in lacking if inspect.ismodule(getattr(holdfast, name))} - {"aio"}
    text = page_text("docs/asyncio.md")
    assert f"{NUMBERS[len(modules)].capitalize()} modules are not in `holdfast.aio`." in text
    assert {name for name in modules if f"`holdfast.{name}`" in text} == modules
    assert holdfast.__doc__
    said = " ".join(holdfast.__doc__.split()).partition("without the modules ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", said)) == modules


NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten", 11: "eleven"}


def test_how_long_the_benchmark_takes() -> None:
    """As long as the last run, with more or fewer seconds for each contender."""
    measured = json.loads((ROOT / "docs" / "bench" / "results.json").read_text(encoding="utf-8"))
    lasted = sum(scenario["seconds"] for scenario in measured["scenarios"])
    contenders = sum(len(scenario["contenders"]) for scenario in measured["scenarios"])

    def minutes(seconds: float) -> str:
        return NUMBERS[round((lasted + contenders * (seconds - measured["options"]["seconds"])) / 60)]

    full, quick = minutes(SECONDS), minutes(QUICK_SECONDS)
    assert f"This takes about {full} minutes, or about {quick} with `--quick`." in page_text("docs/benchmarks.md")
    assert f"take about {quick} minutes instead of {full}," in page_text("tests/house/help.txt")
    said = {
        (name(page), found)
        for page in [*USERS_PAGES, LAB_README]
        for paragraph in page.read_text(encoding="utf-8").split("\n\n")
        if "bench" in paragraph
        for found in re.findall(r"(\w+) minutes", paragraph)
    }
    assert said == {("docs/benchmarks.md", full)}


def test_every_page_that_names_the_benchmark_says_what_to_install() -> None:
    naming = [page for page in [*USERS_PAGES, LAB_README] if "`holdfast bench" in page.read_text(encoding="utf-8")]
    assert {"README.md", "docs/benchmarks.md", "docs/capacity.md", "lab/README.md"} <= set(map(name, naming))
    assert [name(page) for page in naming if "holdfast-lab[bench]" not in page.read_text(encoding="utf-8")] == []


def test_what_texts_install_exists() -> None:
    """Each distribution, with extras that it has. No shell may take the brackets of an extra for a pattern."""
    texts = [(str(text), text.text) for text in read(PACKAGE, LAB)]
    texts += [(name(page), page.read_text(encoding="utf-8")) for page in [*PAGES, LAB_README]]
    found = [
        (at, *each) for at, text in texts for each in re.findall(r"pip install (\"?)(holdfast[\w-]*)(?:\[([\w,]+)\])?", text)
    ]
    assert {distribution for _, _, distribution, _ in found} == set(EXTRAS)
    mistakes = [
        each for each in found if not set(filter(None, each[3].split(","))) <= EXTRAS[each[2]] or (each[3] and not each[1])
    ]
    assert mistakes == []
