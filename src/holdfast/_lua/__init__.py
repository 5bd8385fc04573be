"""The scripts that run on the server: one file, one contract (KEYS / ARGV / RETURNS) each.

A line ``-- INCLUDE  _queue`` stands for the text of that file: what only few runs need comes behind what ends most of them.
Nothing else is ever put into a script: names and values travel in KEYS and ARGV alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

R = TypeVar("R")

_HERE = Path(__file__).parent


def source(name: str) -> str:
    """Text of a script, with what it includes."""
    text = (_HERE / f"{name}.lua").read_text(encoding="ascii")
    return re.sub(r"^-- INCLUDE +(\w+)\n", lambda include: source(include[1]), text, flags=re.MULTILINE)


class Script(Generic[R]):
    """A script together with the function that gives its replies a type."""

    __slots__ = ("body", "name", "parse", "sha")

    def __init__(self, name: str, parse: Callable[[object], R]) -> None:
        self.name = name
        self.body = source(name).encode()
        self.sha = hashlib.sha1(self.body, usedforsecurity=False).hexdigest()
        self.parse = parse

    def __repr__(self) -> str:
        return f"<script {self.name} {self.sha[:8]}>"
