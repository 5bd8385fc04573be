"""Small classes with ``__slots__``, which compare and show their fields.

`dataclass(slots=True)` would write the same, for each class anew in each process that imports it. That, and what `dataclasses`
imports (`inspect`, `ast`, `tokenize`), was a quarter of the time in which ``holdfast run`` starts. So of what a plain lock
imports, nothing is a dataclass: it is one of these, or a `NamedTuple`.
"""

from __future__ import annotations


class Struct:
    """Equal to another one of its class whose fields are equal. A subclass names its fields in ``__slots__`` and
    ``__match_args__``, and sets them in ``__init__``."""

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
