"""Redaction of errors: remove frames whose local variables may contain a password from tracebacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from holdfast._usage import explain, usage_of

P = ParamSpec("P")
T = TypeVar("T")


def hides_client(name: str = "", usage: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that gets a client, so that its frames are removed from the tracebacks of errors.

    Error reporters send the local variables of each frame, and those of this function may contain a password. If the arguments
    do not fit the function, the error also shows a correct call.

    ``name``: name of the function in Python's own errors about wrong arguments; if empty, the name that the function has.
    ``usage``: a correct call, for these errors; if empty, one that is derived from the parameters.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__qualname__ = name or function.__qualname__

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (it is raised again)
                explain(error, usage or (lambda: usage_of(function, function.__qualname__.removesuffix(".__init__"))))
                earlier = error.__context__
                while earlier is not None:
                    earlier.__traceback__, earlier = None, earlier.__context__
                raise error.with_traceback(None)  # noqa: B904 (it is the same error)
            finally:
                del args, kwargs

        return call

    return decorate
