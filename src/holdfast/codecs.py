"""Codecs, which turn the values that `Cache` and `once` store into bytes and back.

Each stored value carries its kind, which is the name of its codec, or "other" for a codec supplied by the user. A reader whose
codec has another kind does not decode the value.
"""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from holdfast._log import of_the_user
from holdfast.errors import ConfigError, HoldfastWarning

__all__ = ["ERROR", "Codec", "Undecodable", "decode_error", "encode_error", "exception_types", "find"]

ERROR = "error"
"""Kind of a stored exception, instead of the name of a codec."""


class Undecodable(Exception):
    """Raised if a codec cannot read stored bytes.

    Users do not see this error, because for such bytes `once` raises HoldfastError, and a cache loads the value again.
    """


@runtime_checkable
class Serializer(Protocol):
    """A codec supplied by the user, which is any object or module that has ``dumps`` and ``loads``."""

    def dumps(self, value: Any, /) -> bytes | str:
        """Return the bytes, or the text, to store for a value."""

    def loads(self, data: bytes, /) -> Any:
        """Return the value for the stored bytes."""


class Codec:
    """A codec, which turns values into bytes to store, and such bytes back into values."""

    kind: str

    def __init__(self, name: str, dumps: Callable[[Any], bytes], loads: Callable[[bytes], Any], kind: str = "") -> None:
        self.name = name
        self.kind = kind or name
        """Word stored with each value. A reader decodes the value only if its own codec has the same kind."""
        self._dumps, self._loads = dumps, loads

    def __repr__(self) -> str:
        return f"<codec {self.name}>"

    def encode(self, value: Any, what: str) -> bytes:
        """Return the bytes to store for a value.

        Raises ConfigError if the codec cannot store the value, or if JSON or msgpack would not restore it unchanged. ``what``:
        the error message begins with this text.
        """
        try:
            return self._dumps(value)
        except Exception as error:  # a codec of the user may raise anything
            raise ConfigError(
                f"{what}: codec {self.name!r} cannot store a value of type {type(value).__name__}: {error}", parameter="codec"
            ) from error

    def decode(self, kind: str, stored: bytes) -> Any:
        """Return the value for stored bytes. ``kind``: the word stored with them.

        Raises Undecodable if another codec has stored the bytes, or if they cannot be read.
        """
        if kind != self.kind:
            raise Undecodable(f"the value was stored with codec {kind!r}, not {self.name!r}")
        try:
            return self._loads(stored)
        except Exception as error:
            raise Undecodable(f"codec {self.name!r} cannot read the stored value: {type(error).__name__}") from error


def find(which: object) -> Codec:
    """Return the codec for the value of an option ``codec=``: the name of a codec, or an object with dumps and loads.

    Warns if the codec is pickle, which is unsafe. Raises ConfigError if there is no such codec.
    """
    if isinstance(which, str):
        if which not in _MAKE:
            names = ", ".join(repr(name) for name in _MAKE)
            raise ConfigError(
                f"codec must be one of {names}, or an object with dumps and loads, not {which!r}", parameter="codec"
            )
        return _MAKE[which]()
    if which is pickle:
        return _pickle()
    if not isinstance(which, Serializer):
        raise ConfigError(f"codec must be a name, or an object with dumps and loads, not {which!r}", parameter="codec")
    return _of_the_users(which)


def _json() -> Codec:
    return Codec("json", _to_json, _from_json)


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _from_json(data: bytes) -> Any:
    """Parse JSON faster than json.loads. The bytes must be UTF-8, with no blanks around the value."""
    text = data.decode()
    value, end = _scan(text, 0)
    if end != len(text):
        raise ValueError("more text follows the JSON value")
    return value


def _to_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise ValueError("the value is nested too deeply for JSON, or contains itself") from None
    if json.loads(text) != value:
        raise ValueError(_changed(value, "the value") or "JSON would not restore the value unchanged")
    return text


def _changed(value: Any, where: str) -> str:
    """Return an error text about the first part of a value that JSON would change, such as a tuple; "" if there is none.

    ``where``: path from the whole value to this one, for the text."""
    if isinstance(value, tuple):
        return f"{where} is a tuple, which JSON would restore as a list: store a list"
    if isinstance(value, list):
        return next(filter(None, (_changed(part, f"{where}[{number}]") for number, part in enumerate(value))), "")
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                return f"{where} has the key {key!r}, which JSON would restore as text"
            if found := _changed(part, f"{where}[{key!r}]"):
                return found
    return ""


def _bytes() -> Codec:
    return Codec("bytes", _only_bytes, bytes)


def _only_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("this codec stores only bytes")
    return value


def _str() -> Codec:
    return Codec("str", _only_text, bytes.decode)


def _only_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("this codec stores only str")
    return value.encode()


def _msgpack() -> Codec:
    try:
        msgpack: Any = importlib.import_module("msgpack")
    except ImportError:
        raise ConfigError(
            "codec='msgpack' needs the package msgpack: pip install 'holdfast[msgpack]'", parameter="codec"
        ) from None

    def loads(data: bytes) -> Any:
        return msgpack.unpackb(data, strict_map_key=False)

    def dumps(value: Any) -> bytes:
        packed: bytes = msgpack.packb(value)
        if loads(packed) != value:
            raise ValueError("msgpack would not restore the value unchanged; it restores a tuple, for example, as a list")
        return packed

    return Codec("msgpack", dumps, loads)


def _pickle() -> Codec:
    warnings.warn(
        "codec='pickle': anyone who can write to this server can run code in every process that reads the key; use pickle only "
        "if nobody else can write to it, or use codec='json'",
        HoldfastWarning,
        of_the_user(),
    )
    return Codec("pickle", pickle.dumps, pickle.loads)


def _of_the_users(theirs: Serializer) -> Codec:
    def dumps(value: Any) -> bytes:
        data = theirs.dumps(value)
        return data.encode() if isinstance(data, str) else bytes(data)

    name = theirs.__name__ if isinstance(theirs, ModuleType) else type(theirs).__name__
    return Codec(name, dumps, theirs.loads, kind="other")


_MAKE: dict[str, Callable[[], Codec]] = {
    "json": _json, "bytes": _bytes, "str": _str, "msgpack": _msgpack, "pickle": _pickle,
}  # fmt: skip


# Exceptions that are stored like results


def exception_types(given: object, parameter: str) -> tuple[type[Exception], ...]:
    """Return a tuple of exception types from one type or a tuple of them. Raises ConfigError for anything else.

    ``parameter``: name of the parameter, for the error.
    """
    found = given if isinstance(given, tuple) else (given,)
    for one in found:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise ConfigError(f"{parameter} must be exception types, not {one!r}", parameter=parameter)
    return found


def encode_error(error: Exception) -> bytes:
    """Return an exception as JSON bytes to store: the name of its type, its arguments and its attributes. Pickle is not used.

    Arguments and attributes that JSON cannot represent are stored as their `repr`. Such bytes are stored with the kind
    `ERROR`.
    """
    facts = {"type": _name(type(error)), "args": [_plain(arg) for arg in error.args], "facts": _plain_facts(vars(error))}
    return json.dumps(facts, ensure_ascii=False).encode("utf-8", "backslashreplace")


def decode_error(stored: bytes, types: Iterable[type[Exception]]) -> Exception:
    """Return the stored exception if its type, or a base class of its type, is among ``types``; else raise Undecodable."""
    try:
        facts = json.loads(stored)
        name, args, more = facts["type"], facts["args"], facts["facts"]
        cls = next(cls for cls in _with_derived(types) if _name(cls) == name)
        error = cls.__new__(cls, *args)
        # The exception's own __init__ is not called: it may take other arguments than those that it passes to its base
        # class.
        Exception.__init__(error, *args)
        error.__dict__.update(more)
    except StopIteration:
        raise Undecodable(f"the stored exception is of type {name}, which is not among the types in errors=") from None
    except Exception as unreadable:
        raise Undecodable(f"the stored exception cannot be restored: {unreadable}") from unreadable
    return error


def copied(error: Exception) -> Exception | None:
    """Return a copy of an exception with the same type, arguments, attributes and notes, and the original as its cause.

    If possible, the copy is created without a call of the exception's constructor. Returns None if no exact copy can be
    created.
    """
    for make in (_without_constructor, copy.copy):
        try:
            made = make(error)
            made.args = error.args  # a constructor may have changed its arguments, as one that adds a prefix to the message
            made.__dict__.update(vars(error))
            if notes := getattr(error, "__notes__", None):
                made.__notes__ = [*notes]  # each waiter can add notes to its own copy
            if type(made) is type(error) and made is not error and str(made) == str(error):
                made.__cause__ = error
                return made
        except Exception:  # noqa: BLE001, S112 (methods of a user's class may raise anything; then try the next way)
            continue
    return None


def _without_constructor(error: Exception) -> Exception:
    return type(error).__new__(type(error), *error.args)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _with_derived(types: Iterable[type[Exception]]) -> Iterable[type[Exception]]:
    for cls in types:
        yield cls
        yield from _with_derived(cls.__subclasses__())


def _plain(value: Any) -> Any:
    try:
        return json.loads(_to_json(value))
    except (TypeError, ValueError):
        return repr(value)


def _plain_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in facts.items() if not name.startswith("__")}
