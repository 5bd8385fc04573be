"""Loggers that load `logging` when there is something to say: a command under a lock is over sooner than that is imported."""

from __future__ import annotations

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
