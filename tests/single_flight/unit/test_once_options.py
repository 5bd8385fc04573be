"""``once``: what is refused before anything is sent, in both APIs."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

from holdfast import HoldfastWarning, aio, once
from holdfast._api.once import AioOnce
from holdfast.errors import ConfigError

URL = "redis://localhost:1"
BOTH = pytest.mark.parametrize("make", [once, aio.once], ids=["threads", "asyncio"])


@BOTH
@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"keep": 0}, "keep"), ({"keep": "60"}, "keep"), ({"keep": float("nan")}, "keep"), ({"keep": None}, "keep"),
        ({"busy": "queue"}, "busy"), ({"wait": -1}, "wait"), ({"ttl": 0}, "ttl"), ({"max_hold": 0}, "max_hold"),
        ({"errors": BaseException}, "errors"), ({"errors": "ValueError"}, "errors"), ({"codec": "yaml"}, "codec"),
        ({"codec": None}, "codec"), ({"prefix": "a{b}"}, "prefix"), ({"prefix": ""}, "prefix"), ({"prefix": 7}, "prefix"),
    ],
    ids=repr,
)  # fmt: skip
def test_options(make: Any, options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(URL, "x", **{"keep": 60, **options})
    assert caught.value.parameter == parameter


@BOTH
def test_keep_has_to_be_said_and_timeout_is_explained(make: Any) -> None:
    with pytest.raises(TypeError, match="keep"):
        make(URL, "x")
    with pytest.raises(TypeError, match=r"once\(\) has no timeout="):
        make(URL, "x", keep=60, timeout=5)


@BOTH
@pytest.mark.parametrize("template", ["{a.b}", "{a[0]}", "{}", "{0}", "{", "", "x" * 513, 7, None, b"{a}", "{a!x}", "{a:{b}}"])
def test_templates(make: Any, template: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make(URL, template, keep=60)
    assert caught.value.parameter in {"template", "name"}


@BOTH
def test_what_cannot_be_decorated(make: Any) -> None:
    def plain(a: int) -> int:
        return a

    async def coroutine(a: int) -> int:
        return a

    def generator(a: int) -> Iterator[int]:
        yield a

    async def async_generator(a: int) -> AsyncIterator[int]:
        yield a

    good, other = (plain, coroutine) if make is once else (coroutine, plain)
    for function in (other, generator, async_generator):
        with pytest.raises(ConfigError) as caught:
            make(URL, "x", keep=60)(function)
        assert caught.value.parameter == "function"
    if make is once:
        with pytest.raises(ConfigError, match=r"is a coroutine function: use holdfast\.aio\.once"):
            make(URL, "x", keep=60).run(functools.partial(coroutine, 1))
    with pytest.raises(ConfigError, match=r"\{b\} must name a parameter \(a\)"):
        make(URL, "{b}", keep=60)(good)
    decorated = make(URL, "{a}", keep=60)(good)
    assert inspect.iscoroutinefunction(decorated) is (make is aio.once), "what frameworks ask"
    assert inspect.signature(decorated) == inspect.signature(good)


def test_the_api_of_the_client() -> None:
    with pytest.raises(ConfigError):
        once(redis.asyncio.Redis(), "x", keep=60)  # type: ignore[call-overload]
    with pytest.raises(ConfigError):
        aio.once(redis.Redis(), "x", keep=60)  # type: ignore[call-overload]


@pytest.mark.parametrize("fields", [{}, {"a": 1, "b": 2}, {"b": 1}], ids=repr)
def test_fields_that_do_not_fill_the_key(fields: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"filled from \['a'\]"):
        once(URL, "x:{a}", keep=60).run(int, **fields)
    with pytest.raises(TypeError, match=r"filled from \['a'\]"):
        once(URL, "x:{a}", keep=60).forget(**fields)

    async def main() -> None:
        with pytest.raises(TypeError, match=r"filled from \['a'\]"):
            await aio.once(URL, "x:{a}", keep=60).forget(**fields)

    asyncio.run(main())


def test_values_are_never_looked_into() -> None:
    """A value that is filled in is not a template again."""
    job = once(URL, "x:{a}", keep=60)
    assert job._named({"a": "{a.__class__}"}).name == "x:{a.__class__}"
    assert job._named({"a": [1, {}]}).name == "x:[1, {}]"
    assert once(URL, "{{x}}", keep=60)._named({}).name == "{x}"


@BOTH
def test_a_short_lease_is_warned_of(make: Any) -> None:
    with pytest.warns(HoldfastWarning, match="ttl=0.5: a lease of less than 2 s") as caught:
        make(URL, "x", keep=60, ttl=0.5)
    assert caught[0].filename == __file__


@BOTH
@pytest.mark.parametrize("several", [[URL, URL], (), {"a": URL}], ids=repr)
def test_several_servers(make: Any, several: object) -> None:
    with pytest.raises(ConfigError, match="not several independent"):
        make(several, "x", keep=60)


def test_pickle_only_by_that_word() -> None:
    with pytest.warns(HoldfastWarning, match="can run code"):
        once(URL, "x", keep=60, codec="pickle")


def test_it_says_what_it_is() -> None:
    assert repr(once(URL, "x:{a}", keep=60)) == "<holdfast once 'x:{a}' on localhost:1>"


def test_a_loss_noticed_as_the_function_ends_cancels_nothing_else() -> None:
    job: Any = SimpleNamespace(what="once 'x'")
    load: Any = SimpleNamespace(on_lost=None)

    async def function() -> int:
        load.on_lost(load)
        return 7

    async def main() -> int:
        value: int = await AioOnce._call_leased(job, load, function)
        for _ in range(3):
            await asyncio.sleep(0)  # where a cancellation would arrive
        return value

    assert asyncio.run(main()) == 7
