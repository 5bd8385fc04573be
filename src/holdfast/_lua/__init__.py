"""The Lua scripts that run on the server, and the code that assembles them from their files.

The comment at the head of each file says what the script expects (KEYS and ARGV) and what it returns (RETURNS). Scripts share
code by inclusion: a line ``-- INCLUDE shared/_state`` is replaced by the text of that file. The text is inserted once per
script, at the first such line, so each file names all files that it uses. An included file uses no variable of the file that
includes it. Code that few runs need is included late in a script, so that the other runs return before they reach it.

A line ``-- CODES LOST`` is replaced by the definition of the constant LOST of `_lua.codes`. Nothing else is inserted into a
script. Names and values are passed in KEYS and ARGV.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast._lua import codes

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # as `random` does: hashlib loads all of OpenSSL
except ImportError:
    from hashlib import sha1

R = TypeVar("R")


def read(name: str) -> str:
    """Return the text of a Lua file. ``name``: path without the ending, such as "lock/acquire"."""
    with open(f"{__path__[0]}/{name}.lua", encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
        return file.read()


@functools.cache  # several scripts include the same file
def parts(name: str) -> list[str]:
    """Split a Lua file at its INCLUDE and CODES lines.

    The first item is the text before the first such line. For each such line, three items follow, which are the word "INCLUDE"
    or "CODES", the rest of the line, and the text up to the next such line.
    """
    return re.split(r"^ *-- (INCLUDE|CODES) +(.+)\n", read(name), flags=re.MULTILINE)


def source(name: str) -> str:
    """Return the full text of a script, with the included files and the constants in it."""
    return _joined(name, set())


def _joined(name: str, included: set[str]) -> str:
    first, *rest = parts(name)
    found = [first]
    for kind, what, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if kind == "CODES":
            found.append(codes.declared(what.split()))
        elif what not in included:
            included.add(what)
            found.append(_joined(what, included))
        found.append(text)
    return "".join(found)


def commands(name: str) -> set[str]:
    """Return the names of the Redis commands that a script may call; a subcommand is written as ``PUBSUB|NUMSUB``."""
    called = re.findall(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?", source(name))
    return {"|".join(filter(None, found)) for found in called}


def sha1_hex(data: bytes) -> str:
    """Return the SHA-1 hash of ``data`` in hex.

    Servers identify a script by the hash of its text. Process records identify a lock by the hash of its key.
    """
    return str(sha1(data, usedforsecurity=False).hexdigest())


def whole_number(raw: object) -> int:
    """Return the reply ``raw`` unchanged. This is the parser for scripts that return one whole number."""
    assert isinstance(raw, int)
    return raw


class Script(Generic[R]):
    """A script, with the function that turns its reply into a Python value."""

    __slots__ = ("body", "name", "parse", "sha")

    name: str
    body: bytes
    sha: str
    parse: Callable[[Any], R]

    def __init__(self, name: str, parse: Callable[[object], R]) -> None:
        self.name = name
        self.body = source(name).encode()
        self.sha = sha1_hex(self.body)
        self.parse = parse

    def __repr__(self) -> str:
        return f"<script {self.name} {self.sha[:8]}>"
