"""Errors of calls that are passed a client: its URL may have a password, which is in no frame that a traceback shows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def hides_client(name: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate what is passed a client: its errors show none of its frames, whose variables error reporters send along.

    ``name``: what users are told where Python itself finds a mistake in the arguments; the function's own if empty.
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
