"""Redaction of errors: remove frames whose local variables may contain a password from tracebacks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, TypeVar, cast

from holdfast._usage import explain, usage_of
from holdfast.errors import HoldfastError

CO_COROUTINE = 0x80
"""The flag of the code of coroutine functions, as in `inspect`, which is slow to import."""

P = ParamSpec("P")
T = TypeVar("T")


Words = Callable[[Callable[..., object], Collection[str]], str]
"""Returns the text of an error that explains an unknown option, from a function and the options of a call; empty: no text."""


def hides_client(name: str = "", usage: str = "", words: Words | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that gets a client, so that its frames are removed from the tracebacks of errors.

    Error reporters send the local variables of each frame, and those of this function may contain a password. If the arguments
    do not fit the function, the error also shows a correct call.

    ``name``: name of the function in Python's own errors about wrong arguments; if empty, the name that the function has.
    ``usage``: a correct call, for these errors; if empty, one that is derived from the parameters.
    ``words``: explains options that the function does not have, instead of Python's error.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__qualname__ = name or function.__qualname__

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (it is raised again)
                explain(
                    error,
                    usage or (lambda: usage_of(function, function.__qualname__.removesuffix(".__init__"))),
                    functools.partial(words, function, list(kwargs)) if words else str,
                )
                earlier = error.__context__
                while earlier is not None:
                    earlier.__traceback__, earlier = None, earlier.__context__
                raise error.with_traceback(None)  # noqa: B904 (it is the same error)
            finally:
                del args, kwargs

        if not function.__code__.co_flags & CO_COROUTINE:
            return call

        @functools.wraps(function)
        async def wait(*args: P.args, **kwargs: P.kwargs) -> Any:
            coroutine: Any = call(*args, **kwargs)
            del args, kwargs
            try:
                return await coroutine
            except HoldfastError as error:
                raise error.with_traceback(None)  # noqa: B904 (it is the same error)

        return cast("Callable[P, T]", wait)

    return decorate
