"""The event loop in which the asyncio tests run: asyncio's own, or uvloop's if the environment asks for it (`make uvloop`)."""

from __future__ import annotations

import asyncio
import os
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

UVLOOP = os.environ.get("HOLDFAST_TEST_LOOP") == "uvloop"

USES_A_LOOP = re.compile(r"\b(asyncio|aio|api|apis|both_apis)\b")


def use_the_chosen() -> None:
    """Have asyncio.run, asyncio.Runner and asyncio.new_event_loop make loops of the chosen kind."""
    if UVLOOP:
        import uvloop  # here: there is not a wheel of it for every machine

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.14 on; the tests start loops in many ways
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under uvloop, keep only the tests to which the loop can make a difference.

    Its ``close()`` warns of connections that are still open. If warnings are errors, such a warning ends it half-way, and it
    hangs.
    """
    if not UVLOOP:
        return
    config.addinivalue_line("filterwarnings", "ignore:unclosed resource:ResourceWarning")
    uses = {path: USES_A_LOOP.search(path.read_text()) for path in {item.path for item in items}}
    chosen = [item for item in items if uses[item.path] and not _with_threads(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _with_threads(item: pytest.Item) -> bool:
    """The same test runs once with threads and once with tasks, and this is the one with threads."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and bool({"sync", "threads"} & set(callspec.id.split("-")))
