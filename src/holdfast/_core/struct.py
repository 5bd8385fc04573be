"""A base for small classes with ``__slots__`` that are compared and shown by their fields.

`dataclass(slots=True)` would generate the same code, for each class in each process that imports it. The generation, and the
modules that `dataclasses` imports (`inspect`, `ast`, `tokenize`), took a quarter of the start time of ``holdfast run``. So no
module that a plain lock imports has a dataclass: it uses a `Struct` or a `NamedTuple`.
"""

from __future__ import annotations


class Struct:
    """A class whose instances are equal if their fields are equal.

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
