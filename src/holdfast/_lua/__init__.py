"""The scripts that run on the server: one file, one contract (KEYS / ARGV / RETURNS) each.

A line ``-- INCLUDE  shared/_state`` stands for the text of that file, once in a script: where it is named first. So each file
names all that it uses, and what only few runs need comes behind what ends most of them. An included file has constants and
functions with arguments, and reads no variable of the file that includes it. A line ``-- CODES  LOST`` stands for constants of
`codes`. Nothing else is ever put into a script: names and values travel in KEYS and ARGV alone.
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
    """Return the text of a file, which is named as in ``lock/acquire``."""
    with open(f"{__path__[0]}/{name}.lua", encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
        return file.read()


@functools.cache  # several include the same
def parts(name: str) -> list[str]:
    """Return the text of a file in parts: what stands before its first line that is replaced, "INCLUDE" or "CODES", what
    stands behind that word, the text behind the line, and so on."""
    return re.split(r"^ *-- (INCLUDE|CODES) +(.+)\n", read(name), flags=re.MULTILINE)


def source(name: str) -> str:
    """Return the text of a script with what it includes."""
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
    """The commands that a script runs, each of which the server checks; a subcommand as in ``PUBSUB|NUMSUB``."""
    called = re.findall(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?", source(name))
    return {"|".join(filter(None, found)) for found in called}


def sha1_hex(data: bytes) -> str:
    """The digest that servers know scripts by, and records the keys of locks."""
    return str(sha1(data, usedforsecurity=False).hexdigest())


def whole_number(raw: object) -> int:
    """The reply of a script that answers one."""
    assert isinstance(raw, int)
    return raw


class Script(Generic[R]):
    """A script together with the function that gives its replies a type."""

    __slots__ = ("body", "name", "parse", "sha")

    def __init__(self, name: str, parse: Callable[[object], R]) -> None:
        self.name = name
        self.body = source(name).encode()
        self.sha = sha1_hex(self.body)
        self.parse = parse

    def __repr__(self) -> str:
        return f"<script {self.name} {self.sha[:8]}>"
