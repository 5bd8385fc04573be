"""Redaction of errors: remove the frames of functions that get a client from tracebacks, because the local variables of these
frames may contain a password."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def hides_client(name: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that gets a client: its frames are removed from the tracebacks of errors.

    Error reporters send the local variables of each frame, and those of this function may contain a password.

    ``name``: name of the function in Python's own errors about wrong arguments; if empty, its present name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__qualname__ = name or function.__qualname__

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (it is raised again)
                earlier = error.__context__
                while earlier is not None:
                    earlier.__traceback__, earlier = None, earlier.__context__
                raise error.with_traceback(None)  # noqa: B904 (it is the same error)
            finally:
                del args, kwargs

        return call

    return decorate
