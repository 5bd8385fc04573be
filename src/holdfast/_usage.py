"""Add an example of a correct call to the TypeError that Python raises if arguments do not fit a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def shows_usage(usage: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator of methods. If the arguments of a call do not fit, the TypeError ends with ``usage``.

    ``usage``: an example of a correct call. The error names the method by the public class, without ``Base``.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__qualname__ = function.__qualname__.removeprefix("Base")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                explain(error, usage)
                raise

        return call

    return decorate


def explain(error: BaseException, usage: str | Callable[[], str], better: Callable[[], str] = str) -> None:
    """Add an example of a correct call, ``usage``, to a TypeError that Python raised because the arguments did not fit.

    Call this in the ``except`` clause of the code that made the call. Other errors stay as they are. A TypeError that the
    function itself raised also stays: it is recognised by the second frame of its traceback. ``better``: return a text to
    replace the whole error, or an empty one to add the example.
    """
    trace = error.__traceback__
    if type(error) is TypeError and trace is not None and trace.tb_next is None:
        error.args = (better() or f"{error}; write {usage if isinstance(usage, str) else usage()}",)


def usage_of(function: Callable[..., object], name: str, without: int = 0) -> str:
    """Return an example of a call, such as ``Lock(client, name, ttl=...)``. Leave out the first ``without`` parameters."""
    import inspect  # imported here, because only errors need it

    parameters = inspect.signature(function).parameters.values()
    plain = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    shown = [one.name for one in plain[without:] if one.default is one.empty]
    options = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
    options.sort(key=lambda one: (one.default is not one.empty, one.name != "ttl"))
    return f"{name}({', '.join([*shown, *(f'{one.name}=...' for one in options[:1])])})"


def replace_usage(error: TypeError, usage: str, other: str) -> None:
    """In an error to which `explain` has added the example ``usage``, replace this example by ``other``."""
    text = str(error)
    if text.endswith(f"; write {usage}"):
        error.args = (f"{text.removesuffix(usage)}{other}",)
