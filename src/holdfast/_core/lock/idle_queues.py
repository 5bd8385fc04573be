"""A registry of queues by key, which keeps a queue only as long as something else refers to it."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SPARE = 64
"""Once this many values were dropped, their keys are removed together."""


class Loose(Generic[K, V]):
    """A dictionary with weak references to its values, like `weakref.WeakValueDictionary`, but without callbacks.

    Python runs such a callback when a value is dropped. A Ctrl-C that arrives in a callback has no effect, because CPython
    ignores the exceptions of callbacks.
    """

    __slots__ = ("_full", "_refs")

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[V]] = {}
        self._full = SPARE

    def get(self, key: K) -> V | None:
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def setdefault(self, key: K, value: V) -> V:
        """Return the value of the key. If there is none, store ``value`` and return it.

        The key is looked up again here, because a signal handler may have stored a value since the caller looked.
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
