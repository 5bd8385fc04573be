"""The origin of a job, which is a text that identifies the code that the job runs.

If two processes declare the same job name with different origins, they run different programs under one name. The origin of a
function consists of the names of its module and of the function. It contains no path, because paths differ between hosts and
releases. The origin of a command consists of the program's name and a hash of the arguments.
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
"""Name of the attribute in which a wrapper stores the wrapped function or `Command`, whose origin is also the wrapper's."""

LONGEST = 200
"""Maximum length of an origin, in characters."""


def origin_of(function: Callable[..., Any]) -> str:
    """Return the text that identifies the code of a job.

    It is ``module:name`` for a function; for a `Command`, the program's name and a hash of its arguments.
    """
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
    """Return the name under which a module can be imported, also if it was started as the main program (``__main__``)."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return Path(file).stem if file else name


def _plain(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()[:LONGEST]
