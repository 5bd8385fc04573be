"""The Lua scripts that run on the server; each file states its contract (KEYS / ARGV / RETURNS).

A line ``-- INCLUDE  shared/_state`` stands for the text of that file, which is inserted once per script, where it is first
named. So each file names all files that it uses. Code that few runs need is included after the code that ends most runs. An
included file has constants and functions with arguments; it reads no variable of the file that includes it. A line ``-- CODES
LOST`` stands for constants from `codes`. Nothing else is ever inserted into a script: names and values are passed in KEYS and
ARGV only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast._lua import codes

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # as `random` does: hashlib loads all of OpenSSL
except ImportError:
    from hashlib import sha1

R = TypeVar("R")


def read(name: str) -> str:
    """Return the text of a Lua file, by its name, such as ``lock/acquire``."""
    with open(f"{__path__[0]}/{name}.lua", encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
        return file.read()


@functools.cache  # several scripts include the same file
def parts(name: str) -> list[str]:
    """Split a Lua file at its "INCLUDE" and "CODES" lines.

    Return the text before the first such line. Three texts follow for each line: the word "INCLUDE" or "CODES", the rest of the
    line, and the text up to the next such line.
    """
    return re.split(r"^ *-- (INCLUDE|CODES) +(.+)\n", read(name), flags=re.MULTILINE)


def source(name: str) -> str:
    """Return the text of a script with its included files and constants inserted."""
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
    """Return the Redis commands that a script calls; subcommands as ``PUBSUB|NUMSUB``."""
    called = re.findall(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?", source(name))
    return {"|".join(filter(None, found)) for found in called}


def sha1_hex(data: bytes) -> str:
    """Return the SHA-1 digest in hex, by which servers identify scripts and process records identify keys of locks."""
    return str(sha1(data, usedforsecurity=False).hexdigest())


def whole_number(raw: object) -> int:
    """Return the reply of a script as an int. Such a script replies with one whole number."""
    assert isinstance(raw, int)
    return raw


class Script(Generic[R]):
    """A script together with the function that turns its reply into a Python value."""

    __slots__ = ("body", "name", "parse", "sha")

    def __init__(self, name: str, parse: Callable[[object], R]) -> None:
        self.name = name
        self.body = source(name).encode()
        self.sha = sha1_hex(self.body)
        self.parse = parse

    def __repr__(self) -> str:
        return f"<script {self.name} {self.sha[:8]}>"
