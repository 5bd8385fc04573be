"""``@transactional`` and `transaction`: what is refused before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio

from holdfast import ConfigError, Transaction, aio, transaction, transactional
from holdfast.errors import ServerError

URL = "redis://localhost:1"


def sell(sku: str, tx: Transaction, count: int = 1, *more: str) -> int:
    """Doc."""
    return count


class Shop:
    @transactional(URL, "stock:{sku}")
    def sell(self, tx: Transaction, sku: str, *, count: int = 1) -> int:
        return count


async def asynchronous(tx: aio.Transaction) -> None: ...


def without(sku: str) -> None: ...


def several(*tx: Transaction) -> None: ...


def plain(tx: Transaction) -> None: ...


def generator(tx: Transaction) -> Iterator[int]:
    yield 1


def test_callers_do_not_see_the_transaction() -> None:
    decorated: Any = transactional(URL, "stock:{sku}:{count}")(sell)
    assert str(inspect.signature(decorated)) == "(sku: 'str', count: 'int' = 1, *more: 'str') -> 'int'"
    assert (decorated.__name__, decorated.__doc__) == ("sell", "Doc.")
    assert str(inspect.signature(Shop.sell)) == "(self, sku: 'str', *, count: 'int' = 1) -> 'int'"
    for args, kwargs in ((("a", 2), {}), ((), {"count": 2, "sku": "a"})):
        with pytest.raises(ServerError, match=r"transaction on 'stock:a:2' at localhost:1: failed.*nothing was carried out"):
            decorated(*args, **kwargs)
    with pytest.raises(ServerError, match="'stock:b'"):
        Shop().sell("b", count=2)
    with pytest.raises(TypeError):
        decorated()


@pytest.mark.parametrize(
    ("function", "keys", "parameter"),
    [
        (sell, (), "keys"),
        (sell, ("",), "keys"),
        (sell, ("{tx}",), "template"),
        (sell, ("{sku.x}",), "template"),
        (sell, ("{nobody}",), "template"),
        (generator, ("a",), "function"),
        (without, ("a",), "function"),
        (several, ("a",), "function"),
    ],
)
def test_refused_at_decoration(function: Any, keys: tuple[str, ...], parameter: str) -> None:
    with pytest.raises(ConfigError) as caught:
        transactional(URL, *keys)(function)
    assert caught.value.parameter == parameter


def test_bounds_and_apis() -> None:
    for bad in ({"tries": 0}, {"tries": True}, {"wait": -1}):
        with pytest.raises(ConfigError):
            transactional(URL, "a", **bad)
    with pytest.raises(ConfigError, match=r"use holdfast\.aio"):
        transactional(redis.asyncio.Redis(), "a")(plain)
    with pytest.raises(ConfigError, match="use holdfast"):
        transactional(redis.Redis(), "a")(asynchronous)
    with pytest.raises(ConfigError, match=r"at least 1"):
        transaction(URL, "a").run(plain, tries=0)
    with pytest.raises(ConfigError, match="one slot"):
        transaction("redis+cluster://localhost:1", "a", "b")
    assert repr(transaction("redis://user:hidden@localhost:1/2", "a")) == "<holdfast.Transaction on 'a' at localhost:1/2>"
