"""Facts about a function to be wrapped: its name for messages, and whether it is a coroutine function or a generator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import ConfigError


def named(function: Callable[..., Any]) -> str:
    """Return the function's qualified name; its repr() if it has none, as a functools.partial."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for a coroutine function, a `functools.partial` of one, or an object with ``async def __call__``."""
    return _is(inspect.iscoroutinefunction, function)


def refuse_generator(function: Callable[..., Any], why: str) -> None:
    """Raise ConfigError if the function is a generator function, sync or async. ``why`` completes the message."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise ConfigError(f"{named(function)} is a generator: {why}", parameter="function")


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):  # A partial may wrap an object.
        function = function.func
    return kind(function) or kind(type(function).__call__)
