"""Options that a cache refuses before it sends anything, its templates, and its figures."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast._api.cache.options import Figures
from holdfast._api.cache.outage import Away, Outage
from holdfast._api.error_map import told
from holdfast._core.requests import Refused
from holdfast.errors import ConfigError, ServerError

URL = "redis://localhost:1"
BAD: dict[str, list[Any]] = {
    "ttl": [0, -1, math.nan, math.inf, True, "60", None],
    "stale": [-1, math.nan, True, "60", None],
    "wait": [-1, math.nan, True, "5"],
    "beta": [-1, 1001, True, None],
    "load_ttl": [0, 0.01, None, True],
    "max_hold": [0, True, "5"],
    "error_ttl": [0, None, True],
    "busy": ["wait", None, True],
    "down": ["ignore", None],
    "codec": ["yaml", None],
    "errors": ["KeyError", (KeyError, 7), BaseException],
    "prefix": ["{", "", 7],
}


@pytest.mark.parametrize("make", [holdfast.Cache, aio.Cache], ids=["sync", "asyncio"])
def test_bad_options_are_refused_by_name(make: Any) -> None:
    for parameter, values in BAD.items():
        for value in values:
            with pytest.raises(ConfigError) as raised:
                make(URL, "shop", **{parameter: value})
            assert raised.value.parameter == parameter, value
    for name in ("", "x" * 513, 7):
        with pytest.raises(ConfigError):
            make(URL, name)
    with pytest.raises(TypeError, match=r"Cache\(\) has no timeout="):
        make(URL, "shop", timeout=5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'"):
        make(URL, "shop", tll=5)


@pytest.mark.parametrize("make", [holdfast.Cache, aio.Cache], ids=["sync", "asyncio"])
def test_an_answer_is_waited_for_for_less_than_a_lease(make: Any) -> None:
    assert make(URL, "x", load_ttl=0.3)._describe("a").spec.timeout == pytest.approx(0.1)
    assert make(URL, "x")._describe("a").spec.timeout == 1.0


def test_bad_arguments_of_a_call_are_refused_by_name() -> None:
    cache = holdfast.Cache(URL, "shop", down="raise")
    for parameter, value in {"ttl": 0, "stale": -1, "wait": -1, "busy": "wait", "tags": "red"}.items():
        with pytest.raises(ConfigError) as raised:
            cache.get_or_load("a", list, **{parameter: value})  # type: ignore[arg-type]
        assert raised.value.parameter == parameter
    for tags in ([7], [""]):
        with pytest.raises(ConfigError, match="a tag must be a str"):
            cache.invalidate(tags=tags)  # type: ignore[arg-type]
    for key in ("", "x" * 513, 7):
        with pytest.raises(ConfigError):
            cache.get(key)  # type: ignore[arg-type]


def test_keys_are_made_from_arguments() -> None:
    cache = holdfast.Cache(URL, "shop")

    @cache.memoize("price:{sku}:{currency}", tags=("shop:{shop}",), ignore="shop")
    def price(sku: str, *, shop: int = 1, currency: str = "EUR") -> int:
        """Its cost."""
        return 1

    assert price.cache_key("A1") == "price:A1:EUR"
    assert price.cache_key(sku="A1", currency="USD") == "price:A1:USD"
    assert (price.__name__, price.__doc__) == ("price", "Its cost.")  # type: ignore[attr-defined]
    assert list(inspect.signature(price).parameters) == ["sku", "shop", "currency"]
    with pytest.raises(TypeError, match="missing a required argument: 'sku'"):
        price.cache_key()  # type: ignore[call-arg]


@pytest.mark.parametrize("template", ["price:{size}", "price:{sku.x}", "price:{}", "price:{sku", 7])
def test_templates_are_checked_at_once(template: Any) -> None:
    def price(sku: str) -> int:
        return 1

    for how in ({"template": template}, {"template": "x", "tags": (template,)}):
        with pytest.raises(ConfigError):
            holdfast.Cache(URL, "shop").memoize(**how)(price)


def test_functions_of_the_other_api_are_refused() -> None:
    def plain(sku: str) -> int:
        return 1

    async def other(sku: str) -> int:
        return 1

    def generator(sku: str) -> Iterator[int]:
        yield 1

    async def generates(sku: str) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(ConfigError, match=r"other is a coroutine function: use holdfast.aio.Cache"):
        holdfast.Cache(URL, "shop").memoize("x")(other)
    with pytest.raises(ConfigError, match=r"plain is not a coroutine function: use holdfast.Cache"):
        aio.Cache(URL, "shop").memoize("x")(plain)  # type: ignore[arg-type]
    for wrong in (generator, generates):
        for cache in (holdfast.Cache(URL, "shop"), aio.Cache(URL, "shop")):
            with pytest.raises(ConfigError, match="is a generator"):
                cache.memoize("x")(wrong)  # type: ignore[arg-type]


def test_a_partial_is_named_as_well_as_it_can_be() -> None:
    async def other(sku: str) -> int:
        return 1

    def generator(sku: str) -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigError, match=r"functools\.partial.* is a coroutine function: use holdfast.aio.Cache"):
        holdfast.Cache(URL, "shop").memoize("x")(functools.partial(other, "a"))
    with pytest.raises(ConfigError, match=r"functools\.partial.* is a generator"):
        holdfast.Cache(URL, "shop").memoize("x")(functools.partial(generator, "a"))

    def plain(sku: str, count: int) -> int:
        return count

    with pytest.raises(ConfigError, match=r"^functools\.partial\(<function .*plain.*has arguments bound"):
        holdfast.Cache(URL, "shop").memoize("{count}")(functools.partial(plain, "a"))


@pytest.mark.parametrize("down", ["load", "raise"])
def test_loaders_of_the_other_api_are_refused(down: Any) -> None:
    async def other() -> int:
        return 1

    async def main() -> None:
        with pytest.raises(ConfigError, match="the loader is not a coroutine function"):
            await aio.Cache(URL, "shop").get_or_load("a", lambda: 1)  # type: ignore[arg-type, return-value]

    with pytest.raises(ConfigError, match="the loader is a coroutine function"):
        holdfast.Cache(URL, "shop").get_or_load("a", other)  # type: ignore[unused-coroutine]
    asyncio.run(main())


def test_figures_of_many_threads() -> None:
    figures = Figures()

    def count() -> None:
        for _ in range(2000):
            figures.count("hits", "loads")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = figures.now()
    assert (now.hits, now.loads, now.misses) == (8000, 8000, 0)


def test_a_signal_handler_may_count_in_the_middle_of_it() -> None:
    figures = Figures()

    class Interrupted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            figures.count("loads")
            return hash(str(self))

    counting = threading.Thread(target=figures.count, args=(Interrupted("hits"),), daemon=True)
    counting.start()
    counting.join(5)
    assert not counting.is_alive(), "it waits for itself"
    assert figures.now().hits == 1
    assert figures.now().loads >= 1


def test_what_it_says_of_itself() -> None:
    assert repr(holdfast.Cache("redis://:secret@localhost:1/2", "shop")) == "<holdfast.Cache 'shop' on localhost:1/2>"
    assert repr(aio.Cache(URL, "shop")) == "<holdfast.aio.Cache 'shop' on localhost:1>"
    assert holdfast.Cache(URL, "shop").name == "shop"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None, "1", 512 * 1024 * 1024])
def test_sizes_are_limited(wrong: Any) -> None:
    for make in (holdfast.Cache, aio.Cache):
        with pytest.raises(ConfigError) as caught:
            make(URL, "shop", max_size=wrong)
        assert caught.value.parameter == "max_size"
        make(URL, "shop", max_size=1)
    for once in (holdfast.once, aio.once):
        with pytest.raises(ConfigError) as caught:
            once(URL, "x", keep=60, max_size=wrong)
        assert caught.value.parameter == "max_size"


def test_tags_of_a_value_are_limited_together() -> None:
    cache = holdfast.Cache(URL, "shop")
    many = [f"{number:0500}" for number in range(8)]
    for given in (many, ["%" * 400] * 4):
        with pytest.raises(ConfigError, match=r"may take 4,000 bytes; these take [4-5],\d\d\d") as caught:
            cache.get_or_load("a", lambda: 1, tags=given)
        assert caught.value.parameter == "tags"

    @cache.memoize("{tag}", tags=tuple("{tag}" + str(number) for number in range(9)))
    def load(tag: str) -> int:
        return 1

    with pytest.raises(ConfigError, match="may take 4,000 bytes"):
        load("x" * 500)


def test_while_the_server_is_away_one_caller_a_second_asks_it() -> None:
    outage, error = Outage("cache 'x'", "raise"), ServerError("no server", address="a:1")
    with pytest.raises(ServerError, match="no server"):
        outage.begins(error)
    with pytest.raises(ServerError, match="is asked again in"):
        outage.keep_off(error)
    outage._until = 0.0
    outage.keep_off(error)
    with pytest.raises(ServerError, match="is asked again in"):
        outage.keep_off(error)


@pytest.mark.parametrize(("refusal", "away"), [("LOADING", True), ("OOM", True), ("WRONGTYPE", False)])
def test_a_server_that_refuses_for_a_while_is_away(refusal: str, away: bool) -> None:
    outage = Outage("cache 'x'", "load")
    error = told(Refused(f"{refusal} of the server"), "cache 'x'", "x")
    with pytest.raises(Away if away else ServerError):
        outage.begins(error)
