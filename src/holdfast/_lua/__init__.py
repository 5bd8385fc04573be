"""The scripts that run on the server: one file, one contract (KEYS / ARGV / RETURNS) each.

A line ``-- INCLUDE  _queue`` stands for the text of that file: what only few runs need comes behind what ends most of them.
Nothing else is ever put into a script: names and values travel in KEYS and ARGV alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Generic, TypeVar

try:
    from _sha1 import sha1  # type: ignore[import-not-found]  # as `random` does: hashlib loads all of OpenSSL
except ImportError:
    from hashlib import sha1

R = TypeVar("R")


@functools.cache  # several include the same
def source(name: str) -> str:
    """Text of a script, with what it includes."""
    with open(f"{__path__[0]}/{name}.lua", encoding="utf-8") as file:  # noqa: PTH123 (pathlib imports slowly)
        return whole(file.read())


def whole(text: str) -> str:
    """A script with the text of what it includes."""
    return re.sub(r"^-- INCLUDE +(\S+)\n", lambda include: source(include[1]), text, flags=re.MULTILINE)


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
