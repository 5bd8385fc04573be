"""Check of a function's return annotation. A codec must be able to store results of the annotated type."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from typing import Any

from holdfast._api.functions import named
from holdfast.errors import ConfigError

PLAIN: dict[str, tuple[type, ...]] = {
    "json": (type(None), bool, int, float, str, list, dict),
    "msgpack": (type(None), bool, int, float, str, bytes, bytearray, list, dict),
    "str": (str,),
    "bytes": (bytes,),
}
"""The types that each codec can store, by the name of the codec. Other codecs are not checked."""


def refuse_unstorable(function: Callable[..., Any], codec: str) -> None:
    """Raise ConfigError if the return annotation of a function names a type that the codec can never store."""
    plain = PLAIN.get(codec)
    if plain is None:
        return
    wrong = _unstorable(_returned(function), plain, codec)
    if wrong is not None:
        what = getattr(wrong, "__qualname__", None) or str(wrong)
        raise ConfigError(
            f"{named(function)} is annotated to return {what}, which codec {codec!r} cannot store; return another type, or "
            "pass another codec",
            parameter="codec",
        )


def _returned(function: Callable[..., Any]) -> Any:
    """Return the function's return annotation; Any if it has none, or if the annotation cannot be evaluated."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 (whatever evaluating a user's annotations raises)
        return Any


def _unstorable(annotation: Any, plain: tuple[type, ...], codec: str) -> Any:
    """Return the part of an annotation whose values can never be stored; None if there is none."""
    annotation = getattr(annotation, "__supertype__", annotation)  # The type that a NewType wraps.
    if annotation is None:
        annotation = type(None)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        found = [_unstorable(part, plain, codec) for part in inner if part is not type(None)]
        return None if None in found else found[0]  # All results may be of the one part that can be stored.
    kind = origin or annotation
    if kind is Any or kind is object or not isinstance(kind, type):  # Any is a class since Python 3.11
        return None  # Any, a TypeVar or a Literal may stand for a value of any type.
    if issubclass(kind, plain) or any(_fits(one, kind) for one in plain):
        if codec == "json" and kind is dict and inner and inner[0] in {int, float, bool, bytes, type(None)}:
            return annotation  # JSON would turn the keys into text.
        parts = inner if kind in {list, dict} else ()
        return next((wrong for part in parts if (wrong := _unstorable(part, plain, codec)) is not None), None)
    return annotation


def _fits(one: type, kind: type) -> bool:
    """Return True if a value of type ``one`` may be of type ``kind``, as a list is a Sequence."""
    try:
        return issubclass(one, kind)
    except TypeError:
        return True  # A protocol that does not support issubclass: the value may fit.
