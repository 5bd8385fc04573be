"""A base class for small classes with ``__slots__`` whose instances are compared and printed by their fields.

`dataclass(slots=True)` would generate such methods for each class, in each process that imports it. That, and the import of
`dataclasses`, took a quarter of the start time of ``holdfast run``. So the modules that a plain lock imports use `Struct` or
`NamedTuple`, and no dataclasses.
"""

from __future__ import annotations


class Struct:
    """A base class whose instances are equal if they have the same class and equal fields.

    A subclass names its fields in ``__slots__`` and ``__match_args__``, and sets them in ``__init__``.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({shown})"
