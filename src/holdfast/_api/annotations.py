"""Reads the return annotation of a function: can a codec store its results?"""

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
"""Types that codecs store. Of codecs that are not here nothing is known."""


def refuse_unstorable(function: Callable[..., Any], codec: str) -> None:
    """Raises ConfigError where the return annotation of a function names a type that the codec can never store."""
    plain = PLAIN.get(codec)
    if plain is None:
        return
    wrong = _unstorable(_returned(function), plain, codec)
    if wrong is not None:
        what = getattr(wrong, "__qualname__", None) or str(wrong)
        raise ConfigError(
            f"{named(function)} is annotated to return {what}, which codec {codec!r} cannot store; return what it can, or pass "
            "a codec that can",
            parameter="codec",
        )


def _returned(function: Callable[..., Any]) -> Any:
    """The return annotation; Any where there is none, or it names something that cannot be found now."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 (whatever evaluating a user's annotations raises)
        return Any


def _unstorable(annotation: Any, plain: tuple[type, ...], codec: str) -> Any:
    """The part of an annotation of which no value can be stored; None if there is none."""
    annotation = getattr(annotation, "__supertype__", annotation)  # a NewType
    if annotation is None:
        annotation = type(None)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        found = [_unstorable(part, plain, codec) for part in inner if part is not type(None)]
        return None if None in found else found[0]  # of a part that can be stored all results may be
    kind = origin or annotation
    if kind is Any or kind is object or not isinstance(kind, type):  # Any is a class since Python 3.11
        return None  # Any, a TypeVar, Literal, ...: it may be anything
    if issubclass(kind, plain) or any(_fits(one, kind) for one in plain):
        if codec == "json" and kind is dict and inner and inner[0] in {int, float, bool, bytes, type(None)}:
            return annotation  # its keys would come back as text
        parts = inner if kind in {list, dict} else ()
        return next((wrong for part in parts if (wrong := _unstorable(part, plain, codec)) is not None), None)
    return annotation


def _fits(one: type, kind: type) -> bool:
    """Whether a plain value may be of that type, as a list is a Sequence."""
    try:
        return issubclass(one, kind)
    except TypeError:
        return True  # a protocol that cannot say so
