"""A registry of queues by key, which keeps a queue only as long as something else refers to it."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SPARE = 64
"""Number of outdated keys that are tolerated before they are removed."""


class Loose(Generic[K, V]):
    """A weak-value dictionary, like `weakref.WeakValueDictionary`, that runs no Python code when a value is dropped.

    CPython runs signal handlers in such code, and ignores what they raise: a Ctrl-C while a lock object is dropped would have
    no effect.
    """

    __slots__ = ("_full", "_refs")

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[V]] = {}
        self._full = SPARE
        """Number of keys above which outdated keys are removed."""

    def get(self, key: K) -> V | None:
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def setdefault(self, key: K, value: V) -> V:
        """Return the value registered for the key; if there is none, register ``value`` and return it.

        A signal handler may have registered a value since the caller looked.
        """
        there = self.get(key)
        if there is not None:
            return there
        self._refs[key] = weakref.ref(value)
        if len(self._refs) > self._full:
            self._refs = {key: ref for key, ref in list(self._refs.items()) if ref() is not None}
            self._full = 2 * len(self._refs) + SPARE
        return value

    def items(self) -> list[tuple[K, V]]:
        found = [(key, ref()) for key, ref in list(self._refs.items())]
        return [(key, value) for key, value in found if value is not None]

    def values(self) -> list[V]:
        return [value for _, value in self.items()]
