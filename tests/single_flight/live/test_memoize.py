"""Functions whose results a cache keeps, in both APIs."""

from __future__ import annotations

import asyncio

import holdfast
from holdfast import aio
from support.servers import PrivateServer


def test_a_function(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name)
    asked: list[str] = []

    @cache.memoize("price:{sku}", tags=("shop:{shop}",), ttl=30, ignore="shop")
    def price(sku: str, shop: int = 1) -> int:
        asked.append(sku)
        return len(asked)

    assert [price("A1"), price("A1", 2), price(sku="A1"), price("B2")] == [1, 1, 1, 2]
    assert cache.get(price.cache_key("A1")) == 1
    price.invalidate("A1")
    assert [price("A1"), price("B2")] == [3, 2]
    cache.invalidate(tags=("shop:1",))
    assert [price("A1", shop=2), price("B2")] == [4, 5]
    cache.invalidate(tags=("shop:1",))
    assert [price("A1"), price("B2")] == [4, 6]


def test_a_method(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name)

    class Shop:
        asked = 0

        @cache.memoize("price:{sku}", ignore="self")
        def price(self, sku: str) -> int:
            self.asked += 1
            return self.asked

    shop = Shop()
    assert [shop.price("A1"), shop.price("A1"), Shop.price(shop, "A1")] == [1, 1, 1]
    assert shop.price.cache_key("A1") == "price:A1"
    shop.price.invalidate("A1")
    assert shop.price("A1") == 2


def test_a_coroutine_function(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        cache = aio.Cache(server.url, name)
        asked: list[str] = []

        @cache.memoize("price:{sku}")
        async def price(sku: str) -> int:
            asked.append(sku)
            await asyncio.sleep(0)
            return len(asked)

        assert await asyncio.gather(*(price("A1") for _ in range(20))) == [1] * 20
        await price.invalidate("A1")
        assert await price("A1") == 2
        assert asked == ["A1", "A1"]

    asyncio.run(main())


def test_calls_that_need_each_other(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name)

    @cache.memoize("fibonacci:{n}")
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(15) == 610
    assert cache.statistics().loads == 16
