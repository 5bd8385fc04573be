"""Base classes for small classes whose instances are compared and printed by their fields.

`dataclass(slots=True)` would generate such methods for each class, in each process that imports it. This, and the import of
`dataclasses`, took a quarter of the start time of ``holdfast run``. So the modules that a plain lock imports use `Struct` or
`NamedTuple` instead.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - exported for type checkers
else:

    class _Fields(type):
        """The metaclass that makes a named tuple of a class body."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)  # `NamedTuple` itself
            fields = body.get("__annotations__", {})
            defaults = [body[field] for field in fields if field in body]
            made = collections.namedtuple(name, fields, defaults=defaults, module=body["__module__"])  # noqa: PYI024
            for key, value in body.items():
                if key not in fields:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Fields):
        """A replacement for `typing.NamedTuple`, which compiles the annotation of each field."""


class Struct:
    """A base class whose instances are equal if they have the same class and equal fields.

    A subclass names its fields in ``__slots__`` and ``__match_args__``, and sets them in ``__init__``.
    """

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @classmethod
    def _fields(cls) -> tuple[str, ...]:
        return getattr(cls, "__match_args__", ())  # a subclass without fields need not have it

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields())
        return f"{type(self).__name__}({shown})"


S = TypeVar("S")
V = TypeVar("V")


class cached_property(Generic[S, V]):  # noqa: N801 - as the one of functools
    """A replacement for `functools.cached_property` without a mutex. That of Python 3.12 has no mutex either.

    The `cached_property` of Python 3.11 uses a mutex. If another thread holds this mutex during a fork, the child process
    waits forever. Without the mutex, two threads may both compute the value, which is harmless.
    """

    def __init__(self, compute: Callable[[S], V]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Self: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> V: ...

    def __get__(self, instance: S | None, owner: type[S]) -> Self | V:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
