"""Which return annotations are refused, because the codec can never store such a result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple, NewType, TypedDict, TypeVar

import pytest

from holdfast import Cache, aio, once
from holdfast.errors import ConfigError

URL = "redis://localhost:1"


class Order:
    pass


class Pair(NamedTuple):
    a: int


class Shade(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Row(TypedDict):
    a: int


Sku = NewType("Sku", str)
When = NewType("When", datetime)
T = TypeVar("T")

REFUSED: list[tuple[str, Any]] = [
    ("json", datetime), ("json", Decimal), ("json", tuple[int, int]), ("json", tuple), ("json", set[int]), ("json", bytes),
    ("json", Order), ("json", Pair), ("json", Shade), ("json", When), ("json", datetime | None), ("json", list[datetime]),
    ("json", dict[str, list[Decimal]]), ("json", dict[int, str]), ("json", "datetime"), ("json", complex),
    ("msgpack", datetime), ("msgpack", tuple[int, ...]), ("str", int), ("str", None), ("bytes", str),
    ("str", list[str]), ("json", datetime | bytes), ("json", "None | datetime"), ("str", int | None),
]  # fmt: skip

ALLOWED: list[tuple[str, Any]] = [
    ("json", int), ("json", None), ("json", list[dict[str, float]]), ("json", Any), ("json", object), ("json", Sequence[int]),
    ("json", Mapping[str, int]), ("json", Literal["a"]), ("json", Sku), ("json", Level), ("json", Row), ("json", T),
    ("json", "nobody_knows"), ("json", str | None), ("msgpack", bytes), ("msgpack", dict[int, bytes]), ("str", Sku),
    ("bytes", bytes), ("str", str | None), ("json", str | datetime), ("json", datetime | str | None),
    ("json", list[str | datetime]), ("json", T | datetime),
]  # fmt: skip


def returning(annotation: Any) -> Callable[[], Any]:
    def work() -> Any: ...

    work.__annotations__["return"] = annotation
    return work


def soon(annotation: Any) -> Callable[[], Any]:
    async def work() -> Any: ...

    work.__annotations__["return"] = annotation
    return work


@pytest.mark.parametrize(("codec", "annotation"), REFUSED, ids=str)
def test_refused(codec: str, annotation: Any) -> None:
    decorators: list[Callable[[], object]] = [
        lambda: once(URL, "x", keep=60, codec=codec)(returning(annotation)),
        lambda: once(URL, "x", keep=60, codec=codec)(functools.partial(returning(annotation))),
        lambda: aio.once(URL, "x", keep=60, codec=codec)(soon(annotation)),
        lambda: Cache(URL, "c", codec=codec).memoize("x")(returning(annotation)),
        lambda: aio.Cache(URL, "c", codec=codec).memoize("x")(soon(annotation)),
    ]
    for decorate in decorators:
        with pytest.raises(ConfigError, match=f"is annotated to return .* codec '{codec}' cannot store") as caught:
            decorate()
        assert caught.value.parameter == "codec"


@pytest.mark.parametrize(("codec", "annotation"), ALLOWED, ids=str)
def test_allowed(codec: str, annotation: Any) -> None:
    once(URL, "x", keep=60, codec=codec)(returning(annotation))
    aio.Cache(URL, "c", codec=codec).memoize("x")(soon(annotation))
