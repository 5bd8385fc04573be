"""Messages to the users of the library: loggers, and the line of their code that a warning is about.

Loggers load `logging` when there is something to say: a command under a lock is over sooner than that is imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from logging import Logger


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), attribute)


def logger(name: str) -> Logger:
    """The same as ``logging.getLogger(name)`` to whoever uses it."""
    return cast("Logger", _Later(name))


def of_the_user() -> int:
    """For ``warnings.warn``: the level of the line that is not ours."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    return level
