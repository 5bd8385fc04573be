"""The facts about a function before it is wrapped: its name for messages, and its kind. It may be anything that is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import ConfigError


def named(function: Callable[..., Any]) -> str:
    """Return a name for messages. A `functools.partial` and an object with ``__call__`` have none of their own."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def is_async(function: Callable[..., Any]) -> bool:
    """A coroutine function; a `functools.partial` of one; or an object whose ``__call__`` is one."""
    return _is(inspect.iscoroutinefunction, function)


def refuse_generator(function: Callable[..., Any], why: str) -> None:
    """Raises ConfigError for a generator function, of either kind, which says ``why`` not."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise ConfigError(f"{named(function)} is a generator: {why}", parameter="function")


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):  # perhaps of an object
        function = function.func
    return kind(function) or kind(type(function).__call__)
