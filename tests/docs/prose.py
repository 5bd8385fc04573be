"""The prose as the tests see it: docstrings, comments, errors, messages, hints, ``--help``, and the sentences of the pages."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from docs.pages import PAGES, ROOT
from support.sources import LAB, PACKAGE

MODELS = ROOT / "models"

_MODEL_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_LUA_COMMENT = re.compile(r"(?:^|\s)--(?!\[)[ -]*(.*)")
_SENTENCE = re.compile(r"(?<=\.)\s+(?=[A-Z`])|\n\n")
_SENTENCE_OF_PAGE = re.compile(r"(?<=[.?!])(?<!\b[A-Z]\.)(?<!e\.g\.)\s+(?=[A-Z`*\[\"(])")
_LINK = re.compile(r"(\[[^\]]*\])\([^)]*\)")
_RULE = re.compile(r"\|[-| :]+\|")
_GENERATED = re.compile(r"<!-- figures.*?<!-- end of figures -->|(?<=<!-- table -->\n).*?(?=\n\n)", re.DOTALL)
_TELLS = re.compile(
    r"(Error|Conflict|Warning|Lost|Held|Timeout|NotSent|Unknown|Refused|Failed|Malformed|Finding|Violation|Check|Row|NoWith)$"
    r"|^_?(error|warning|warn|info|debug|exception|say|tell|print|line|title|detail|notice|note|add_note|complain|violated)$"
    r"|^_?(fail|lose|lost|close|cancel|end|refuse|refuse_generator|wrong|bad|bad_url|cut|append|add_loudness|add_urls|fromkeys)$"
)
"""Names of the functions and classes whose arguments are texts for people."""
_PROSE = re.compile(r"(?=(.*?[a-z]{2,}[ .,;:]){3})(?!import |.*\\)[A-Za-z`'{%].*")
"""A sentence or phrase in a table, and not a pattern, a timetable, a program or the name of a figure."""
_TEXT = re.compile(
    r"(?=(.*?[A-Za-z]{2,}[ .,;:)'`]){3})(?!import |do |\^|CREATE |INSERT |UPDATE |MOVED |ASK |TRYAGAIN |.*(?:\* ){4}).+"
)
"""A text of several words, and not a pattern, a timetable, a command of a database or a program."""
_WORDS = 5
"""Minimum number of words of a text that no call, table or ``raise`` statement shows to be for people."""
_Table = (ast.Assign, ast.AnnAssign)
_Scope = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Prose(NamedTuple):
    """A text of the sources, on one line, its whitespace collapsed."""

    kind: str
    """docstring, attribute (the docstring of one), comment, error (after ``raise``), message (in another call), hint (in a
    table), help, or text (anywhere else, such as assigned to a variable or returned); of a page: sentence or row."""
    path: Path
    line: int
    text: str
    context: str = ""
    """The code that the text belongs to: a signature, or the line of the error or option. Of a page: the sentence before."""
    inside: tuple[str, ...] = ()
    """The first sentences of the docstrings of the module and the classes around the text. Of a page: the headings above."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def read(*packages: Path) -> list[Prose]:
    """Collect all prose of these packages (default: both distributions and the models), in the order of files and kinds."""
    found: list[Prose] = []
    for path in sorted(path for package in packages or (PACKAGE, LAB, MODELS) for path in package.rglob("*")):
        if path.suffix == ".py":
            source = path.read_text(encoding="utf-8")
            found += [*_python(path, source), *_comments(path, source)]
        elif path.suffix == ".lua":
            found += _lua(path, path.read_text(encoding="utf-8"))
        elif path.suffix == ".pml":
            found += _model(path, path.read_text(encoding="ascii"))
    return found


def _python(path: Path, source: str) -> Iterator[Prose]:
    lines = source.splitlines()
    seen: set[ast.expr] = set()
    for node, inside in (nodes := list(_nodes(ast.parse(source)))):
        for kind, docstring, context in _docstrings(node, lines):
            seen.add(docstring)
            around = _around(node, inside) if kind == "attribute" else inside
            yield Prose(kind, path, docstring.lineno, " ".join(str(docstring.value).split()), context, around)
        for kind, literal, text in _literals(node):
            if text.count(" ") > 1 and literal not in seen:
                seen.add(literal)
                yield Prose(kind, path, literal.lineno, text, lines[getattr(node, "lineno", 1) - 1].strip(), inside)
        if (value := _help(node)) is not None and (text := _text(value)):
            seen.add(value)
            yield Prose("help", path, value.lineno, text, lines[value.lineno - 1].strip(), inside)
        seen.update(_for_machines(node))
    for node, inside in nodes:
        text = _text(node) if isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in seen else ""
        if len(re.sub(r"\{.*?\}", "X", text).split()) >= _WORDS and _TEXT.fullmatch(text):
            line = getattr(node, "lineno", 1)
            yield Prose("text", path, line, text, lines[line - 1].strip(), inside)


def _help(node: ast.AST) -> ast.expr | None:
    """Return the text that a node passes to a parser of the command line, or assigns to one."""
    match node:
        case ast.keyword("help" | "description" | "epilog", value):
            return value
        case ast.Assign([ast.Attribute(_, "epilog") | ast.Name("_EPILOG")], value):
            return value
    return None


def _for_machines(node: ast.AST) -> Iterator[ast.expr]:
    """Find the texts in a node that are parts of another text, keys of a table, or patterns."""
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in ast.walk(node) if part is not node and isinstance(part, ast.expr))
    elif isinstance(node, ast.Dict):
        yield from (key for key in node.keys if key is not None)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
        yield from node.args


def _nodes(node: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Walk a tree; yield each node with the first sentences of the docstrings around it."""
    yield node, inside
    around = _around(node, inside)
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, around)


def _around(node: ast.AST, inside: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(node, (ast.Module, ast.ClassDef)) and (docstring := ast.get_docstring(node)):
        return (*inside, " ".join(_SENTENCE.split(docstring)[0].split()))
    return inside


def _docstrings(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, ast.Constant, str]]:
    """Find the docstrings in a body: its own, and those of the attributes that they follow."""
    if not isinstance(node, (ast.Module, *_Scope)):
        return
    for number, statement in enumerate(node.body):
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            continue
        if not isinstance(statement.value.value, str):
            continue
        if number:
            yield "attribute", statement.value, lines[node.body[number - 1].lineno - 1].strip()
        elif isinstance(node, _Scope):
            yield "docstring", statement.value, " ".join(line.strip() for line in lines[node.lineno - 1 : statement.lineno - 1])
        else:
            yield "docstring", statement.value, ""


def _literals(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """Find the texts for people in a ``raise`` statement, a call, or the tables of a module or class. Each has its kind."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from (("error", *found) for found in _texts(node.exc))
    elif isinstance(node, ast.Call) and _TELLS.search(getattr(node.func, "attr", getattr(node.func, "id", ""))):
        yield from (("message", *found) for found in _texts(node))
    elif isinstance(node, (ast.Module, ast.ClassDef)):
        tables = (statement.value for statement in node.body if isinstance(statement, _Table) and statement.value)
        yield from (("hint", *found) for table in tables for found in _texts(table) if _PROSE.fullmatch(found[1]))


def _texts(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Find the texts in an expression, wherever in it."""
    if isinstance(node, ast.expr) and (text := _text(node)):
        yield node, text
    elif not isinstance(node, (ast.JoinedStr, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _text(node: ast.expr) -> str:
    """Return a text with its parts that are computed in braces; empty if the node is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else ast.unparse(part) for part in node.values)
        plain = (part if not part.startswith(("f'{", 'f"{')) else part[2:-1] for part in parts)
        return " ".join("".join(plain).split())
    return ""


def _comments(path: Path, source: str) -> Iterator[Prose]:
    """Find comments; those on consecutive lines of their own are one text."""
    rows = [
        (token.start[0], token.line.lstrip().startswith("#"), token.string.lstrip("#: "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    yield from _joined(path, rows)


def _lua(path: Path, source: str) -> Iterator[Prose]:
    rows = [
        (number, line.lstrip().startswith("--"), match[1])
        for number, line in enumerate(source.splitlines(), 1)
        if (match := _LUA_COMMENT.search(line))
    ]
    yield from _joined(path, rows)


def _model(path: Path, source: str) -> Iterator[Prose]:
    for comment in _MODEL_COMMENT.finditer(source):
        line = source.count("\n", 0, comment.start()) + 1
        yield Prose("comment", path, line, " ".join(comment[1].replace("\n * ", "\n").split()))


def _joined(path: Path, rows: list[tuple[int, bool, str]]) -> Iterator[Prose]:
    texts: list[tuple[int, list[str]]] = []
    before = -1
    for line, alone, text in rows:
        if texts and alone and line == before + 1:
            texts[-1][1].append(text)
        else:
            texts.append((line, [text]))
        before = line if alone else -1
    for line, parts in texts:
        yield Prose("comment", path, line, " ".join(part for part in parts if part))


USERS_PAGES = [page for page in PAGES if page == ROOT / "README.md" or page.parent == ROOT / "docs"]
"""README and the pages in docs. The pages in docs/design and the others in the root are for developers."""


def read_pages(pages: Iterable[Path] = PAGES) -> list[Prose]:
    """Collect the sentences and the rows of tables of pages, without blocks, comments and generated figures."""
    return [text for page in pages for text in _sentences(page)]


def _sentences(page: Path) -> Iterator[Prose]:
    headings: list[str] = []
    before, columns = "", ""
    text = _GENERATED.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    paragraphs = [(line, _LINK.sub(r"\1", paragraph)) for line, paragraph in _paragraphs(text)]
    for (line, paragraph), (_, following) in itertools.pairwise([*paragraphs, (0, "")]):
        if heading := re.match(r"(#+) (.+)", paragraph):
            headings = [*headings[: len(heading[1]) - 1], heading[2]]
            before = ""
        elif _RULE.fullmatch(following):
            columns = paragraph
        elif paragraph.startswith("|") and not _RULE.fullmatch(paragraph):
            yield Prose("row", page, line, paragraph, columns, tuple(headings))
        elif not paragraph.startswith("|"):
            for sentence in _SENTENCE_OF_PAGE.split(paragraph):
                yield Prose("sentence", page, line, sentence, before, tuple(headings))
                before = sentence


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Find the paragraphs, items of lists, headings and rows of a page, each on one line, with its number."""
    lines: list[str] = []
    start, fenced = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence, alone = line.lstrip().startswith("```"), line.startswith(("#", "|", "!["))
        item = re.match(r" *([*] |\d+\. )", line)
        if lines and (fence or fenced or alone or item or not line.strip()):
            yield start, " ".join(lines)
            lines = []
        if fence:
            fenced = not fenced
        elif fenced or line.startswith(("<!--", "![")):
            continue
        elif alone:
            yield number, line
        elif line.strip():
            start = start if lines else number
            lines.append(line.strip().removeprefix(item[0].strip() + " ") if item else line.strip())
