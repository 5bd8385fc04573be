"""``@locked``: what is refused at decoration, which lock a call takes, and what becomes of a busy one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import Cache, aio, locked, once, transactional
from holdfast.errors import ConfigError, LockTimeout
from support.driver import OTHER
from support.stage import Stage, stage

__all__ = ["stage"]

URL = "redis://localhost:1"


def target(user: object, /, day: str = "today", *rest: object, size: int = 7, **more: object) -> str:
    """Doc."""
    return f"{user} {day} {size}"


def taken(stage: Stage) -> list[str]:
    """Names of the locks that were asked for."""
    from holdfast._core.requests import RunScript

    runs = [
        request for request in stage.script.trace if isinstance(request, RunScript) and request.script.name == "lock/acquire"
    ]
    return [run.keys[0].decode() for run in runs]


# Templates


@pytest.mark.parametrize(
    "template",
    [
        "{user.name}", "{user.__class__}", "{user[0]}", "{user[key]}", "{}", "{0}", "{user} {}", "{nobody}", "{User}",
        "{user.name!r}", "{", "}", "{user", "user}", "{user!x}", "{user:{size}}", "{user:{day}.{size}}", "{ user}",
        "{user }", "{self}", "", "x" * 513, 7, None, b"{user}", ["{user}"],
    ],
    ids=repr,
)  # fmt: skip
def test_refused_at_decoration(template: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        locked(URL, template)(target)
    assert caught.value.parameter in {"template", "name"}


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("plain", "hf:{plain}"),
        ("{user}", "hf:{u}"),
        ("{user}:{day}:{size}", "hf:{u:today:7}"),
        ("{user!r}", "hf:{'u'}"),
        ("{size:03d}", "hf:{007}"),
        ("{{{user}}}", "hf:{%7Bu%7D}"),
        ("{user}{user}", "hf:{uu}"),
    ],
)
def test_filled_from_the_arguments_defaults_included(stage: Stage, template: str, key: str) -> None:
    assert locked(URL, template)(target)("u") == "u today 7"
    assert taken(stage) == [key]


def test_one_lock_however_the_arguments_are_passed(stage: Stage) -> None:
    function = locked(URL, "{user}:{day}:{size}")(target)
    function("u", "today")
    function("u", day="today")
    function("u", size=7)
    assert set(taken(stage)) == {"hf:{u:today:7}"}


def test_a_plain_function_too(stage: Stage) -> None:
    def plain(user: object, /, day: str = "today") -> str:
        return f"{user} {day}"

    function: Callable[..., str] = locked(URL, "{day}:{user}")(plain)
    assert [function("u", "today"), function("u", day="today"), function("u")] == 3 * ["u today"]
    assert taken(stage) == 3 * ["hf:{today:u}"]
    with pytest.raises(TypeError, match="too many"):
        function("u", "today", "more")
    with pytest.raises(TypeError, match="positional"):
        function(user="u", day="today")


def test_values_are_never_looked_into(stage: Stage) -> None:
    function = locked(URL, "{user}")(target)
    function("{day} {0.__class__} %s")
    assert taken(stage) == ["hf:{%7Bday%7D %7B0.__class__%7D %25s}"]


def test_methods(stage: Stage) -> None:
    class Account:
        number = 42

        @locked(URL, "account:{amount}")
        def pay(self, amount: int) -> int:
            return self.number + amount

    assert Account().pay(8) == 50
    assert taken(stage) == ["hf:{account:8}"]


@pytest.mark.parametrize("value", ["", "x" * 513])
def test_a_name_that_is_no_name_is_refused_at_the_call(stage: Stage, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        locked(URL, "{user}")(target)(value)
    assert caught.value.parameter == "name"
    assert stage.script.trace == []


def test_wrong_arguments_are_a_type_error_as_always(stage: Stage) -> None:
    function: Callable[..., object] = locked(URL, "{user}")(target)
    with pytest.raises(TypeError, match="user"):
        function()
    assert stage.script.trace == []


# Functions that can be decorated


def test_generators_are_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def async_numbers() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, async_numbers):
        with pytest.raises(ConfigError, match=f"{function.__qualname__} is a generator") as caught:
            locked(URL, "x")(function)
        assert caught.value.parameter == "function"


class Called:
    """No function, and awaited like one."""

    async def __call__(self) -> int:
        return 7


async def seven() -> int:
    return 7


@pytest.mark.parametrize("function", [Called(), functools.partial(seven)], ids=["object", "partial"])
def test_what_is_awaited_is_told_by_more_than_its_name(function: Any) -> None:
    """Taken for a plain function, it would run when the lock is given back."""
    assert inspect.iscoroutinefunction(locked(URL, "x")(function))
    with pytest.raises(ConfigError, match="is a coroutine function"):
        once(URL, "x", keep=60)(function)
    with pytest.raises(ConfigError, match="needs a parameter tx"):
        transactional(URL, "x")(function)


def test_clients_of_the_wrong_api_are_refused_at_decoration() -> None:
    import redis
    import redis.asyncio

    async def coroutine() -> None: ...

    def function() -> None: ...

    with pytest.raises(ConfigError, match="client"):
        locked(redis.Redis(), "x")(coroutine)
    with pytest.raises(ConfigError, match="client"):
        locked(redis.asyncio.Redis(), "x")(function)
    locked(redis.Redis(), "x")(function)
    locked(redis.asyncio.Redis(), "x")(coroutine)


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"wait": -1}, {"busy": "block"}, {"label": "\n"}, {"prefix": "{"}, {"max_hold": 0}]
)
def test_bad_options_are_refused_at_decoration(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        locked(URL, "x", **options)(target)
    assert caught.value.parameter == next(iter(options))


def test_the_function_keeps_its_api() -> None:
    function = locked(URL, "{user}")(target)
    assert (function.__name__, function.__doc__) == ("target", "Doc.")
    assert inspect.signature(function) == inspect.signature(target)
    assert function.__wrapped__ is target  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(locked(URL, "x")(asyncio.sleep))
    assert aio.locked is locked


# Busy


def test_busy_raise_and_skip_do_not_wait(stage: Stage) -> None:
    stage.server.take(OTHER, 60)
    before = stage.server.now
    with pytest.raises(LockTimeout):
        locked(URL, "x", busy="raise")(target)("u")
    assert locked(URL, "x", busy="skip")(target)("u") is None
    assert stage.server.now - before < 0.1
    assert stage.server.queue == []


@pytest.mark.parametrize("busy", ["wait", "raise", "skip"])
def test_wait_bounds_all_of_them(stage: Stage, busy: Any) -> None:
    stage.server.take(OTHER, 60)
    before = stage.server.now
    function = locked(URL, "x", busy=busy, wait=2)(target)
    if busy == "skip":
        assert function("u") is None
    else:
        with pytest.raises(LockTimeout):
            function("u")
    assert 2 <= stage.server.now - before < 2.1


def test_busy_wait_waits_for_ever(stage: Stage) -> None:
    stage.server.take(OTHER, 500)
    assert locked(URL, "x")(target)("u") == "u today 7"
    assert stage.server.now >= 1500


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_out_inside_the_function_is_its_own_business(stage: Stage, is_async: bool) -> None:
    """Not taken for that of the decorator's lock, though it may even be about the same key."""

    def fails() -> None:
        raise LockTimeout("something else was busy", name="x", key="hf:{x}", waited=0, holder=None, remaining=None)

    async def fails_too() -> None:
        fails()

    skipping = locked(URL, "x", busy="skip")
    with pytest.raises(LockTimeout, match="something else"):
        asyncio.run(skipping(fails_too)()) if is_async else skipping(fails)()


def test_the_result_of_a_coroutine(stage: Stage) -> None:
    @locked(URL, "{n}")
    async def double(n: int) -> int:
        assert stage.server.current(b"hf:{4}") == stage.script.tokens[-1]
        return 2 * n

    assert asyncio.run(double(4)) == 8
    assert taken(stage) == ["hf:{4}"]
    assert stage.script.nothing_left()


def test_the_lock_is_given_back_when_the_function_fails(stage: Stage) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        locked(URL, "x")(fails)()
    assert stage.script.nothing_left()


# Recursion


def test_a_recursive_call_with_the_same_name_raises_instead_of_hanging(stage: Stage) -> None:
    @locked(URL, "x:{n}")
    def again(n: int, depth: int) -> int:
        return depth if depth == 0 else again(n, depth - 1)

    assert again(3, 0) == 0
    with pytest.raises(ConfigError, match="held by the same call stack"):
        again(3, 1)
    assert stage.script.nothing_left()
    assert again(3, 0) == 0, "what was noted is forgotten"


def test_a_recursive_coroutine_too(stage: Stage) -> None:
    @locked(URL, "x")
    async def again(depth: int) -> int:
        return depth if depth == 0 else await again(depth - 1)

    assert asyncio.run(again(0)) == 0
    with pytest.raises(ConfigError, match="held by the same call stack"):
        asyncio.run(again(1))


def test_through_another_function_with_the_same_lock(stage: Stage) -> None:
    @locked(URL, "x")
    def inner() -> None: ...

    @locked(URL, "x")
    def outer() -> None:
        inner()

    with pytest.raises(ConfigError, match="held by the same call stack"):
        outer()
    inner()


def test_a_thread_or_task_of_its_own_is_no_recursion(stage: Stage) -> None:
    """It waits for the lock like anybody else."""
    seen: list[object] = []

    @locked(URL, "x", busy="skip")
    def inner() -> bool:
        return True

    @locked(URL, "x")
    def outer() -> None:
        thread = threading.Thread(target=lambda: seen.append(inner()))
        thread.start()
        thread.join()

    @locked(URL, "x", busy="skip")
    async def inner_task() -> bool:
        return True

    @locked(URL, "x")
    async def outer_task() -> None:
        seen.append(await asyncio.create_task(inner_task()))

    outer()
    asyncio.run(outer_task())
    assert seen == [None, None]


def test_partials_and_lambdas(stage: Stage) -> None:
    assert locked(URL, "{day}")(functools.partial(target, "u", day="d"))() == "u d 7"
    assert locked(URL, "{n}")(lambda n: n)(3) == 3
    assert taken(stage) == ["hf:{d}", "hf:{3}"]


# A result that is kept belongs to all of its arguments


def charge(user: int, cents: int) -> str:
    return f"{user} {cents}"


async def aio_charge(user: int, cents: int) -> str:
    return f"{user} {cents}"


KEEPING: list[Callable[..., Any]] = [
    lambda template, **options: once(URL, template, keep=60, **options)(charge),
    lambda template, **options: aio.once(URL, template, keep=60, **options)(aio_charge),
    lambda template, **options: Cache(URL, "c").memoize(template, **options)(charge),
    lambda template, **options: aio.Cache(URL, "c").memoize(template, **options)(aio_charge),
]


@pytest.mark.parametrize("keep", KEEPING, ids=["once", "aio.once", "memoize", "aio.memoize"])
def test_a_key_that_leaves_out_an_argument_is_refused_when_decorated(keep: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"leaves out the argument 'cents' of (aio_)?charge") as caught:
        keep("charge:{user}")
    assert "put {cents} into the template" in str(caught.value)
    assert "ignore=('cents',)" in str(caught.value)
    with pytest.raises(ConfigError, match="leaves out the arguments 'user', 'cents'"):
        keep("charge")
    keep("charge:{user}:{cents}")
    for ignore in ("cents", ("cents",), ["cents"], {"cents"}, iter(["cents"])):
        keep("charge:{user}", ignore=ignore)
    for wrong in ("users", ("cents", "x"), b"cents", (7,), None, 7, "user"):
        with pytest.raises(ConfigError, match="ignore") as caught:
            keep("charge:{user}", ignore=wrong)
        assert caught.value.parameter == "ignore"
    with pytest.raises(ConfigError, match=r"has no parameter 'users' \(user, cents\)"):
        keep("charge:{user}", ignore="users")


def test_what_names_tags_is_no_part_of_the_key() -> None:
    with pytest.raises(ConfigError, match="leaves out the argument 'cents'"):
        Cache(URL, "c").memoize("charge:{user}", tags=("cents:{cents}",))(charge)


def test_a_key_has_all_kinds_of_arguments() -> None:
    with pytest.raises(ConfigError, match="'rest', 'size', 'more'"):
        once(URL, "{user}:{day}", keep=60)(target)
    once(URL, "{user}:{day}:{rest}:{size}:{more}", keep=60)(target)
    once(URL, "{user}:{day}", keep=60, ignore=("rest", "size", "more"))(target)


def test_a_method_says_whether_its_object_decides() -> None:
    class Shop:
        def price(self, sku: str) -> int:
            return len(sku)

    with pytest.raises(ConfigError, match="leaves out the argument 'self'"):
        Cache(URL, "c").memoize("price:{sku}")(Shop.price)
    assert Cache(URL, "c").memoize("price:{sku}", ignore="self")(Shop.price).cache_key(Shop(), "A1") == "price:A1"


def test_a_lock_may_protect_more_than_one_call_is_about() -> None:
    locked(URL, "charge:{user}")(charge)


# Bound arguments


class Priced:
    def price(self, sku: str) -> str:
        return sku

    async def aprice(self, sku: str) -> str:
        return sku


async def aprice(shop: int, sku: str) -> str:
    return f"{shop} {sku}"


def price(shop: int, sku: str) -> str:
    return f"{shop} {sku}"


WRAPPERS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "memoize": lambda: (Cache(URL, "x").memoize("p:{sku}"), Priced().price, price),
    "aio memoize": lambda: (aio.Cache(URL, "x").memoize("p:{sku}"), Priced().aprice, aprice),
    "once": lambda: (once(URL, "p:{sku}", keep=60), Priced().price, price),
    "aio once": lambda: (aio.once(URL, "p:{sku}", keep=60), Priced().aprice, aprice),
}
"""Decorators that store results under a key; a bound method and a function to wrap."""


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_bound_arguments_are_in_no_key(wrapper: str) -> None:
    """Two objects, or two bound values, would get each other's results."""
    wrap, method, function = WRAPPERS[wrapper]()
    for bound in (method, functools.partial(function, 2), functools.partial(function, shop=2)):
        with pytest.raises(ConfigError, match=r"has arguments bound to it that no template can name.*decorate") as failed:
            wrap(bound)
        assert failed.value.parameter == "function"
    locked(URL, "p:{sku}")(Priced().price)  # a lock may well protect more than one call is about


@pytest.mark.parametrize("wrap", [Cache(URL, "x").memoize("m"), once(URL, "m", keep=60), locked(URL, "m")])
def test_a_function_without_named_arguments(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError, match=r"arguments of max have no names.*wrap it in a function"):
        wrap(max)
