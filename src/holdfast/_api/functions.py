"""Checks of a function to be decorated: its name for messages, and whether it is a coroutine function or a generator.

`refuse_bare` and `takes_options` raise ConfigError if a decorator is used without its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from holdfast.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def named(function: Callable[..., Any]) -> str:
    """Return the function's qualified name. A function without a name, such as a functools.partial, gives its repr()."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def is_async(function: Callable[..., Any]) -> bool:
    """Return True for a coroutine function, a `functools.partial` of one, or an object with ``async def __call__``."""
    return _is(inspect.iscoroutinefunction, function)


def refuse_generator(function: Callable[..., Any], why: str) -> None:
    """Raise ConfigError if the function is a generator function, sync or async. ``why`` completes the message."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise ConfigError(f"{named(function)} is a generator: {why}", parameter="function")


def refuse_class(function: object) -> None:
    """Raise ConfigError if a decorator for functions decorates a class, whose name would then no longer refer to the class."""
    if inspect.isclass(function):
        raise ConfigError(f"{function.__qualname__} is a class: decorate one of its methods", parameter="function")


def refuse_bare(given: object, form: str, parameter: str = "template") -> None:
    """Raise ConfigError if ``given`` is a function, because the decorator was then used without arguments.

    Without this check, the error would come late, at the first call of the decorated function, or not at all. ``form``: text
    that shows how to write the decorator. ``parameter``: the parameter that ``given`` was passed for.
    """
    if inspect.isroutine(given) or isinstance(given, functools.partial):
        raise ConfigError(f"{named(given)} is decorated without arguments: write {form}", parameter=parameter)


def takes_options(form: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that returns a decorator, so that ``@function`` without arguments raises ConfigError.

    ``form``: text that shows how to write the decorator. The returned function deletes its arguments before an exception
    leaves it, because a traceback with variables would show passwords.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if len(args) == 1 and not kwargs:
                refuse_bare(args[0], form)
            try:
                return function(*args, **kwargs)
            finally:
                del args, kwargs

        return call

    return decorate


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):  # A partial may wrap an object.
        function = function.func
    return kind(function) or kind(type(function).__call__)
