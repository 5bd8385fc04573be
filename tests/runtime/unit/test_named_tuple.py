"""The named tuple of `_core.struct` is like that of `typing`, except that it compiles no annotations."""

from __future__ import annotations

import pickle
import typing
from typing import Any

import pytest

from holdfast._core.struct import NamedTuple


class Ours(NamedTuple):
    """Two numbers."""

    first: int
    """The first number."""
    second: float | None = None

    @property
    def total(self) -> float:
        return self.first + (self.second or 0)


class Theirs(typing.NamedTuple):
    """Two numbers."""

    first: int
    """The first number."""
    second: float | None = None

    @property
    def total(self) -> float:
        return self.first + (self.second or 0)


class Derived(Ours):
    """As `Spec` is derived."""


class Empty(NamedTuple):
    """A reply without fields."""


@pytest.mark.parametrize("cls", [Ours, Theirs])
def test_it_is_a_named_tuple(cls: Any) -> None:
    one = cls(1, second=2.0)
    assert one == (1, 2.0)
    assert (one.first, one.second, one.total) == (1, 2.0, 3.0)
    assert cls(1) == cls(first=1, second=None)
    assert repr(one) == f"{cls.__name__}(first=1, second=2.0)"
    assert one._replace(first=5).total == 7.0
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - our own bytes
    assert (cls.__doc__, cls.__module__, cls.__qualname__, cls._fields) == (
        "Two numbers.", __name__, cls.__name__, ("first", "second"),
    )  # fmt: skip
    assert typing.get_type_hints(cls) == {"first": int, "second": float | None}
    with pytest.raises(AttributeError):
        one.first = 3
    with pytest.raises(TypeError):
        cls()


def test_it_may_be_derived_from_and_may_be_empty() -> None:
    assert repr(Derived(1, 2.0)) == "Derived(first=1, second=2.0)"
    assert Derived(1).total == 1
    assert Empty() == ()
