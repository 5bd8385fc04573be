"""Which code a job runs: by this, two programs that serve a job of one name under one schedule are told apart.

A path would be another one on each host, and in each release that has a directory of its own; the name of the module and of the
function is not. The arguments of a command count as they are, paths among them, too.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.schedule.command import Command

RUNS = "_holdfast_runs"
"""Attribute of a function that only wraps what a job runs."""

LONGEST = 200
"""Characters."""


def origin_of(function: Callable[..., Any]) -> str:
    """``module:name`` of a function. Of a `Command`, the name of its program, and a digest of that and of its arguments."""
    function = getattr(function, RUNS, function)
    if isinstance(function, Command):
        name = Path(function.argv[0]).name
        words = "\0".join([name, *function.argv[1:]]).encode(errors="surrogateescape")
        return f"command:{_plain(name)}#{hashlib.sha256(words).hexdigest()[:8]}"
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return _plain(f"{_module(getattr(named, '__module__', None) or 'builtins')}:{named.__qualname__}")


def _module(name: str) -> str:
    """The name under which others import what was started as a program."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return Path(file).stem if file else name


def _plain(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:LONGEST]
