"""Loggers, and the place in the user's code that a warning points to.

A logger imports `logging` only at its first message, because that import is slow, and ``holdfast run`` usually logs nothing.
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
        try:
            import logging
        except OSError as error:
            # No file descriptor is free, so no module can be read. The caller must go on all the same: it is often the keeper's
            # thread, while it handles another error.
            return _Unlogged(attribute, error)
        return getattr(logging.getLogger(self._name), attribute)


class _Unlogged:
    """A replacement for a logger's method if `logging` cannot be imported.

    It prints warnings and errors to stderr, and drops other messages.
    """

    def __init__(self, method: str, error: OSError) -> None:
        self._method = method
        self._error = error

    def __call__(self, message: str, *args: object, **_: object) -> None:
        if self._method in {"warning", "error", "exception", "critical"} and sys.stderr is not None:
            cause = sys.exc_info()[1] or self._error
            print(f"holdfast: {message % args if args else message}: {cause}", file=sys.stderr)


def logger(name: str) -> Logger:
    """Return a stand-in for ``logging.getLogger(name)`` that imports `logging` at its first use."""
    return cast("Logger", _Later(name))


def of_the_user() -> int:
    """Return the ``stacklevel`` with which ``warnings.warn`` points to the line of the user's code that called holdfast."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - inspect.currentframe would have to be imported
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("holdfast."):
        level, frame = level + 1, frame.f_back
    return level
