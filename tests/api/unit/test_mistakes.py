"""Mistakes of users of other libraries: each is refused before a server is asked, and the error names the remedy."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import operator
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Container, Coroutine, Iterable
from datetime import timedelta
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio
from holdfast._api import foreign_words
from holdfast.errors import ConfigError, HoldfastWarning

URL = "redis://127.0.0.1:1"
CLIENT, AIO_CLIENT = redis.Redis(port=1), redis.asyncio.Redis(port=1)
NOWHERE: Any = holdfast
"""The names of `holdfast`, for calls that a type checker refuses."""

LOCKS = ("Lock", "FairLock", "RLock", "Semaphore", "BoundedSemaphore", "RWLock", "Redlock")
WORDS = {
    "timeout": "ttl=.*wait=",
    "expire": "pass ttl=",
    "lease_time": "pass ttl=",
    "blocking_timeout": "pass wait=",
    "blocking": "pass wait=0 .*acquire",
    "sleep": "leave it out.*notified",
    "retry_times": "leave it out.*notified",
    "auto_renewal": "renewed by default.*renew=False",
    "thread_local": "leave it out: any thread",
    "raise_on_release_error": "leave it out.*LeaseLost",
    "id": "pass label=",
    "value": "pass limit=",
    "redis": "first argument",
    "key_prefix": "pass prefix=",
}
OTHERS = [
    ("Cache", "timeout", "ttl= for how long a stored value stays fresh.*wait="),
    ("Cache", "expire", "ttl= for how long a stored value stays fresh"),
    ("Cache", "lock_timeout", "pass load_ttl="),
    ("Cache", "serializer", "pass codec="),
    ("Election", "timeout", "ttl= for how long the leadership.*wait= for how long to campaign"),
    ("Election", "id", "pass candidate="),
    ("Schedule", "timeout", "max_runtime=.*ttl=.*finish_within="),
    ("Schedule", "max_workers", "pass concurrency="),
]
ONE_LOCK = [(cls, word, hint) for cls in LOCKS for word, hint in WORDS.items()]


@pytest.mark.parametrize("module", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("cls", "word", "hint"), ONE_LOCK + OTHERS)
def test_options_of_other_libraries(module: Any, cls: str, word: str, hint: str) -> None:
    servers: Any = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)] if cls == "Redlock" else URL
    with pytest.raises(TypeError, match=rf"^{cls}\(\) has no {word}=: .*{hint}") as caught:
        getattr(module, cls)(servers, "x", **{word: 1})
    is_one_line(caught.value)


@pytest.mark.parametrize("module", [holdfast, aio], ids=["sync", "asyncio"])
def test_options_of_functions(module: Any) -> None:
    for word, hint in WORDS.items():
        with pytest.raises(TypeError, match=rf"^locked\(\) has no {word}=: .*{hint}"):
            module.locked(URL, "x", **{word: 1})
    with pytest.raises(TypeError, match=r"^once\(\) has no expire=: pass keep= .*, ttl= .*, or wait= "):
        module.once(URL, "x", keep=60, expire=1)


@pytest.mark.parametrize("name", foreign_words.LOCK_METHODS)
@pytest.mark.parametrize("make", [holdfast.Lock, aio.Lock, holdfast.RLock], ids=["sync", "asyncio", "rlock"])
def test_methods_of_other_libraries(make: Callable[..., object], name: str) -> None:
    lock = make(URL, "x")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': (call|use) ") as caught:
        getattr(lock, name)
    is_one_line(caught.value)
    assert not hasattr(lock, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        lock.xyzzy  # type: ignore[attr-defined]  # noqa: B018


ACQUIRE = {
    "blocking_timeout": "pass timeout= .*, or wait= to the lock itself",
    "wait": "pass timeout= .*, or wait= to the lock itself",
    "ttl": "pass ttl= to the lock itself",
    "sleep": "leave it out: a waiter is notified",
    "token": "leave it out",
    "nonblocking": "pass blocking=False",
    "count": "pass weight= to the Semaphore itself",
}


@pytest.mark.parametrize("cls", ["Lock", "FairLock", "RLock", "Redlock", "Semaphore", "MultiLock"])
def test_arguments_of_acquire_of_other_libraries(cls: str) -> None:
    client: Any = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)] if cls == "Redlock" else URL
    named: Any = ["x"] if cls == "MultiLock" else "x"
    for word, hint in ACQUIRE.items():
        with pytest.raises(TypeError, match=rf"^acquire\(\) has no {word}=: {hint}") as caught:
            getattr(holdfast, cls)(client, named).acquire(**{word: 1})
        is_one_line(caught.value)
        with pytest.raises(TypeError, match=rf"^acquire\(\) has no {word}=: {hint}"):
            asyncio.run(getattr(aio, cls)(client, named).acquire(**{word: 1}))
    with pytest.raises(TypeError, match=r"^acquire\(\) got an unexpected .* 'blocknig'; did you mean blocking=\?"):
        getattr(holdfast, cls)(client, named).acquire(blocknig=False)


CALLED: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda api: api.Cache(URL, "x").set("a", 1, timeout=5),
        r"^Cache\.set\(\) has no timeout=: pass ttl= for how long a",
    ),
    (lambda api: api.Cache(URL, "x").get_or_load("a", int, expire=5), r"^Cache\.get_or_load\(\) has no expire=: pass ttl= "),
    (lambda api: api.Cache(URL, "x").memoize("a", tll=5), r"^Cache\.memoize\(\) got .* 'tll'; did you mean ttl=\?$"),
    (
        lambda api: api.Election(URL, "x").campaign(timeout=5),
        r"^campaign\(\) has no timeout=: .*wait= for how long to",
    ),
]


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("call", "hint"), CALLED)
def test_options_of_methods_of_other_libraries(api: Any, call: Callable[[Any], Any], hint: str) -> None:
    async def main() -> None:
        await call(api)

    with pytest.raises(TypeError, match=hint) as caught:
        asyncio.run(main()) if api is aio else call(api)
    assert "\n" not in str(caught.value)


JOB_OPTIONS = [
    ("timeout", "pass max_runtime="),
    ("max_instances", "pass overlap="),
    ("misfire_grace_time", "pass grace="),
    ("coalesce", "pass misfire="),
    ("timezone", "pass tz= to cron"),
    ("max_retries", "pass on_crash="),
    ("minutes", 'write @schedule.every("5m")'),
    ("day_of_week", 'write @schedule.cron("0 3 * * *")'),
    ("tll", "options are ttl, "),
]


@pytest.mark.parametrize(("option", "hint"), JOB_OPTIONS)
def test_options_of_jobs_of_other_schedulers(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NOWHERE.Schedule(URL, "x").every(5, **{option: 1})(print)
    assert str(caught.value).startswith(f"job 'print': there is no option '{option}'; {hint}")
    is_one_line(caught.value)


@pytest.mark.parametrize(("option", "meant"), [("tll", "ttl"), ("lable", "label"), ("on_loss", "on_lost"), ("prefx", "prefix")])
def test_an_option_with_a_typing_error(option: str, meant: str) -> None:
    for make in (NOWHERE.Lock, NOWHERE.aio.Lock, NOWHERE.RWLock, NOWHERE.locked):
        with pytest.raises(TypeError, match=rf"got an unexpected keyword argument '{option}'; did you mean {meant}=\?$"):
            make(URL, "x", **{option: 1})
    with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'xyzzy'$"):
        NOWHERE.Lock(URL, "x", xyzzy=1)


OBJECTS: dict[str, tuple[tuple[object, ...], foreign_words.Words]] = {
    "Semaphore": (("x", 3), foreign_words.SEMAPHORE_METHODS),
    "RWLock": (("x",), foreign_words.RWLOCK_METHODS),
    "Cache": (("x",), foreign_words.CACHE_METHODS),
    "Election": (("x",), foreign_words.ELECTION_METHODS),
    "Schedule": (("x",), foreign_words.SCHEDULE_METHODS),
    "Inspector": ((), foreign_words.INSPECTOR_METHODS),
    "Connection": (("hf:", 30.0, None), foreign_words.CONNECTION_METHODS),
    "Lease": ((), foreign_words.LEASE_METHODS),
    "Memoized": ((), foreign_words.MEMOIZED_METHODS),
    "Transaction": (("x",), foreign_words.TRANSACTION_METHODS),
}
"""Classes with a table of words of other libraries, and the arguments after the client."""


@pytest.mark.parametrize("module", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize("cls", OBJECTS)
def test_methods_of_other_libraries_in_other_classes(module: Any, cls: str) -> None:
    arguments, words = OBJECTS[cls]
    made = (
        object.__new__(getattr(module, cls)) if not arguments and cls != "Inspector" else getattr(module, cls)(URL, *arguments)
    )
    for word, hint in words.items():
        with pytest.raises(AttributeError, match=rf"^'{cls}' object has no attribute '{word}': {re.escape(hint)}$") as caught:
            getattr(made, word)
        is_one_line(caught.value)
        for called in re.findall(r"(?<![\w.(@])([a-z_]+)\(", hint):
            owner = {"Semaphore": module.Lease, "Memoized": module.Cache}.get(cls)
            assert hasattr(made, called) or hasattr(owner, called), called
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        made.xyzzy  # noqa: B018


def price(sku: str) -> str:
    return sku


UNFIT: list[tuple[Callable[[Any], object], str]] = [
    (lambda api: api.Lock(URL, "x")(price), r"^Lock: a lock is not callable; .* decorate it with @locked\(client, name\)$"),
    (lambda api: api.Semaphore(URL, "x", 3)(price), r"^Semaphore: a lock is not callable; "),
    (lambda api: api.Cache(URL, "x")(price), r"^Cache: a cache is not callable; .* decorate it with @cache\.memoize\(\"sku:"),
    (lambda api: api.Cache(URL, "x")["a"], r"^Cache: a cache has no items; call get\(key\) or get_or_load\(key, loader\), "),
    (lambda api: operator.setitem(api.Cache(URL, "x"), "a", 1), r"^Cache: a cache has no items; .* set\(key, value\)"),
    (lambda api: operator.delitem(api.Cache(URL, "x"), "a"), r"^Cache: a cache has no items; .* delete\(key\)$"),
    (lambda api: "a" in api.Cache(URL, "x"), r"^Cache: a cache has no items; "),
]


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("use", "hint"), UNFIT)
def test_a_lock_is_no_function_and_a_cache_no_dictionary(api: Any, use: Callable[[Any], object], hint: str) -> None:
    with pytest.raises(TypeError, match=hint) as caught:
        use(api)
    is_one_line(caught.value)


def test_several_locks_have_several_fences() -> None:
    for module in (NOWHERE, NOWHERE.aio):
        with pytest.raises(
            AttributeError, match=r"^'\w*MultiLease' object has no attribute 'fence': use fences, the fence of "
        ):
            object.__new__(module.MultiLease).fence  # noqa: B018


def test_a_cache_does_not_count_as_a_collection() -> None:
    cache: object = holdfast.Cache(URL, "x")
    assert not hasattr(cache, "__getitem__")
    assert not isinstance(cache, Iterable | Container)


@pytest.mark.parametrize("wrong", ["holdfast.Lock(URL, 'x').curent", "holdfast.lazzy", "holdfast.Cache(URL, 'x').calller"])
def test_python_suggests_no_private_name(wrong: str) -> None:
    code = f"import holdfast; URL = {URL!r}; {wrong}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(f"has no attribute '{wrong.rpartition('.')[2]}'")


def test_a_lock_with_two_sides_is_not_entered() -> None:
    async def main() -> None:
        async with NOWHERE.aio.RWLock(URL, "x"):
            raise AssertionError

    sides = r"^RWLock: use one of the two sides: `with lock\.read:` or `with lock\.write:`"
    with pytest.raises(TypeError, match=sides), NOWHERE.RWLock(URL, "x"):
        raise AssertionError
    with pytest.raises(TypeError, match=sides):
        asyncio.run(main())


@pytest.mark.parametrize("module", [holdfast, aio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(("name", "hint"), [(name, hint) for name, hint in foreign_words.NAMES.items() if name != "asyncio"])
def test_names_of_other_libraries(module: Any, name: str, hint: str) -> None:
    if name in vars(module):  # a submodule that was imported, or a module that this one imports
        return
    if module is aio:
        hint = re.sub(r"\bholdfast\.([A-Z]\w+|locked|once|connect)\b", r"holdfast.aio.\1", hint)
    text = f"module '{module.__name__}' has no attribute '{name}': {hint}"
    with pytest.raises(AttributeError, match=f"^{re.escape(text)}$") as caught:
        getattr(module, name)
    is_one_line(caught.value)
    for path in re.findall(r"holdfast\.([\w.]+)", hint):
        if "write" in hint:
            assert importlib.util.find_spec(f"holdfast.{path}")
        else:
            assert operator.attrgetter(path)(holdfast)


def test_a_name_of_asyncio_stays_in_asyncio() -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'holdfast\.aio' has no attribute 'Leader': use holdfast\.aio\.Election$"
    ):
        NOWHERE.aio.Leader  # noqa: B018


def test_a_name_with_a_typing_error() -> None:
    """Python itself suggests the right name, because the error has the module and the name."""
    done = subprocess.run(
        [sys.executable, "-c", "import holdfast; holdfast.Semaphor"], capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last == "AttributeError: module 'holdfast' has no attribute 'Semaphor'. Did you mean: 'Semaphore'?"


def is_one_line(error: BaseException) -> None:
    """Check the length of an error's text, and of the traceback that it makes."""
    assert "\n" not in str(error)
    assert len("".join(traceback.format_exception(error)).splitlines()) <= 15


# The client, and the name


IN_PYTHON = "in Python, the first argument is a client or a URL, and the name is the second"
ADDRESS = f"if it is the address of a server, pass 'redis://.*'; {IN_PYTHON}$"
CLIENTS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: NOWHERE.Lock("localhost:6379", "x"),
        f"'localhost:6379' is not a URL; if .*, pass 'redis://localhost:6379'; {IN_PYTHON}",
    ),
    (lambda: NOWHERE.Lock("db1.internal", "x"), f"'db1.internal' is not a URL; {ADDRESS}"),
    (lambda: NOWHERE.Lock("x", CLIENT), f"'x' is not a URL; {ADDRESS}"),
    (lambda: NOWHERE.aio.Lock("invoice:42", AIO_CLIENT), f"'invoice:42' is not a URL; {ADDRESS}"),
    (lambda: NOWHERE.Lock("an invoice", CLIENT), f"must start with redis://, .*{IN_PYTHON}"),
    (lambda: NOWHERE.Lock("http://localhost:6379", "x"), "not HTTP: pass redis://HOST:PORT"),
    (lambda: NOWHERE.Lock(CLIENT.pipeline(), "x"), "a pipeline only collects commands; pass the client that created it"),
    (lambda: NOWHERE.Lock(CLIENT.connection_pool, "x"), "client must be a redis.Redis .* or a URL"),
    (lambda: NOWHERE.Lock(CLIENT.connection_pool, "x"), r"ConnectionPool; pass redis\.Redis\(connection_pool=\.\.\.\)$"),
    (lambda: NOWHERE.Lock(type(CLIENT), "x"), "or a URL, not the class Redis$"),
    (
        lambda: NOWHERE.Lock("redis://localhost:port", "x"),
        "write redis://HOST:PORT/DB, and %40 for @, %2F for / in a password$",
    ),
    (lambda: NOWHERE.Lock(None, "x"), "client must be a redis.Redis .* or a URL"),
    (lambda: NOWHERE.Lock(AIO_CLIENT, "x"), "needs a synchronous client; for this one use holdfast.aio"),
    (lambda: NOWHERE.aio.Lock(CLIENT, "x"), "needs an asyncio client; for this one use holdfast$"),
    (lambda: NOWHERE.Lock(URL, 42), "name must be str or bytes, not int"),
    (lambda: NOWHERE.Lock([URL, URL], "x"), "use holdfast.Redlock"),
    (lambda: NOWHERE.Lock(URL, "x", ttl=0), "ttl must be between 0.05 and 31622400 seconds, not 0"),
    (lambda: NOWHERE.Lock(URL, "x", wait=-1), "wait must be between 0 and 9223372036 seconds, not -1"),
]


@pytest.mark.parametrize(("mistake", "hint"), CLIENTS, ids=lambda value: value if isinstance(value, str) else "")
def test_clients_and_names(mistake: Callable[[], object], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mistake()
    assert re.search(hint, str(caught.value)), caught.value
    is_one_line(caught.value)


@pytest.mark.parametrize("text", ["canary@localhost:6379", ":canary@localhost", "ftp://:canary@localhost", "canary pass"])
def test_what_may_be_a_password_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        holdfast.Lock(text, "x")
    assert "canary" not in str(caught.value)


# Decorators without their arguments

BARE: list[tuple[Callable[[], Any], str]] = [
    (lambda: NOWHERE.locked, "@locked(client, "),
    (lambda: NOWHERE.aio.locked, "@locked(client, "),
    (lambda: NOWHERE.once, "@once(client, "),
    (lambda: NOWHERE.aio.once, "@once(client, "),
    (lambda: NOWHERE.transactional, "@transactional(client, "),
    (lambda: NOWHERE.aio.transactional, "@transactional(client, "),
    (lambda: NOWHERE.Cache(CLIENT, "shop").memoize, '@cache.memoize("price:{sku}")'),
    (lambda: NOWHERE.aio.Cache(AIO_CLIENT, "shop").memoize, '@cache.memoize("price:{sku}")'),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("decorator", "form"), BARE)
def test_a_bare_decorator_is_refused_when_it_decorates(decorator: Callable[[], Any], form: str, is_async: bool) -> None:
    def price(sku: str) -> int:
        raise AssertionError

    async def aio_price(sku: str) -> int:
        raise AssertionError

    function = aio_price if is_async else price
    with pytest.raises(ConfigError) as caught:
        decorator()(function)
    assert f"{function.__qualname__} is decorated without arguments: write {form}" in str(caught.value)
    is_one_line(caught.value)


def test_a_decorated_class_is_refused() -> None:
    class Shop:
        pass

    for decorator in (holdfast.locked(URL, "x"), aio.locked(URL, "x"), holdfast.Cache(URL, "x").memoize("a")):
        with pytest.raises(ConfigError, match=r"Shop is a class: decorate one of its methods$"):
            decorator(Shop)


def test_a_loader_that_is_no_function() -> None:
    with pytest.raises(ConfigError, match=r"^loader must be a function without arguments, not 5$") as caught:
        NOWHERE.Cache(URL, "x").get_or_load("a", 5)
    assert caught.value.parameter == "loader"
    with pytest.raises(ConfigError, match=r"^loader must be a function"):
        asyncio.run(NOWHERE.aio.Cache(URL, "x").get_or_load("a", 5))


def test_a_decorator_without_its_template_names_it() -> None:
    for decorator in (NOWHERE.locked, NOWHERE.once, NOWHERE.aio.once):
        with pytest.raises(TypeError, match=rf"^{decorator.__name__.removeprefix('aio_')}\(\) missing .* 'template'"):
            decorator(CLIENT)


# Arguments that do not fit


CALLS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: NOWHERE.Lock("x"), "missing .* 'name'", "Lock(client, name, ttl=...)"),
    (NOWHERE.Lock, "missing .* 'client' and 'name'", "Lock(client, name, ttl=...)"),
    (lambda: NOWHERE.Lock("x", client=CLIENT), "multiple values for .* 'client'", "Lock(client, name, ttl=...)"),
    (lambda: NOWHERE.Lock(CLIENT, "x", 30), "takes 3 positional", "Lock(client, name, ttl=...)"),
    (lambda: NOWHERE.aio.Lock("x"), "missing .* 'name'", "Lock(client, name, ttl=...)"),
    (lambda: NOWHERE.Redlock([URL]), "missing .* 'name'", "Redlock(servers, name, ttl=...)"),
    (lambda: NOWHERE.MultiLock(URL, "a", "b"), "takes from 2 to 3", 'MultiLock(client, ["a", "b"])'),
    (lambda: NOWHERE.Barrier(URL, "x"), "missing .* 'parties'", "Barrier(client, name, parties, ttl=...)"),
    (lambda: NOWHERE.CountDownLatch(URL, "x"), "missing .* 'count'", "CountDownLatch(client, name, count, keep=...)"),
    (lambda: NOWHERE.once(URL, "x"), "missing .* 'keep'", "once(client, template, keep=...)"),
    (lambda: NOWHERE.aio.once(URL, "x"), "missing .* 'keep'", "once(client, template, keep=...)"),
    (lambda: NOWHERE.fencing.accept("k", 7), "missing .* 'fence'", "accept(client, key, fence, keep=...)"),
    (lambda: NOWHERE.Schedule(URL, "x").every(minutes=5), "missing .* 'seconds'", '@schedule.every("5m")'),
    (lambda: NOWHERE.aio.Schedule(URL, "x").every(minutes=5), "missing .* 'seconds'", '@schedule.every("5m")'),
    (lambda: NOWHERE.Schedule(URL, "x").cron(hour=3), "missing .* 'expression'", '@schedule.cron("0 3 * * *")'),
    (lambda: NOWHERE.Schedule(URL, "x").add(print, every=5), "missing .* 'when'", "schedule.add(function, Cron('0 3 * * *'))"),
    (lambda: NOWHERE.connect(host="db1"), "has no host=", 'connect("redis://HOST:PORT/DB", ttl=...)'),
    (lambda: NOWHERE.aio.connect(host="db1"), "has no host=", 'connect("redis://HOST:PORT/DB", ttl=...)'),
    (lambda: NOWHERE.connect(URL).lock(), "missing .* 'name'", "lock(name, ttl=...)"),
    (lambda: NOWHERE.connect(URL).lock(CLIENT, "x"), "takes 3 positional", "lock(name, ttl=...)"),
    (lambda: NOWHERE.connect(URL).once("x"), "missing .* 'keep'", "once(template, keep=...)"),
]


@pytest.mark.parametrize(("call", "what", "usage"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_arguments_that_do_not_fit(call: Callable[[], object], what: str, usage: str) -> None:
    with pytest.raises(TypeError, match=what) as caught:
        call()
    assert re.search(rf"; write (.* or )?{re.escape(usage)}$", str(caught.value))
    assert "Base" not in str(caught.value)
    is_one_line(caught.value)


def test_an_error_inside_a_function_stays_as_it_is() -> None:
    class Name(str):
        __slots__ = ()

        def encode(self, *_: object) -> bytes:
            raise TypeError("of the user")

    with pytest.raises(TypeError, match=r"^of the user$"):
        holdfast.Lock(URL, Name("x"))


# `with` and `async with`


ENTERED: dict[str, tuple[object, ...]] = {
    "Lock": ("x",), "RLock": ("x",), "Semaphore": ("x",), "MultiLock": (["x", "y"],), "Election": ("x",), "Barrier": ("x", 2),
    "Schedule": ("x",), "Transaction": ("x",), "Connection": ("hf:", 30.0, None),
}  # fmt: skip
"""Classes with a ``with`` statement, and the arguments after the client."""


@pytest.mark.parametrize(("cls", "arguments"), ENTERED.items())
def test_with_in_the_wrong_api(cls: str, arguments: tuple[object, ...]) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=f"^{cls}: this class is for threads: use `with`, or the class .* in holdfast.aio"):
            async with getattr(NOWHERE, cls)(URL, *arguments):
                raise AssertionError

    asyncio.run(main())
    with pytest.raises(TypeError, match=f"^{cls}: this class is for asyncio: use `async with`, or the class .* in holdfast "):  # noqa: SIM117
        with getattr(NOWHERE.aio, cls)(URL, *arguments):
            raise AssertionError


def test_with_in_the_wrong_api_is_printed_as_a_type_error() -> None:
    with pytest.raises(TypeError) as caught:
        NOWHERE.Lock(URL, "x")(price)
    assert traceback.format_exception_only(caught.value)[0].startswith("TypeError: Lock: a lock is not callable; ")


def test_an_object_has_only_the_methods_of_its_own_api() -> None:
    lock, aio_lock = holdfast.Lock(URL, "x"), aio.Lock(URL, "x")
    assert (hasattr(lock, "__enter__"), hasattr(lock, "__aenter__")) == (True, False)
    assert (hasattr(aio_lock, "__enter__"), hasattr(aio_lock, "__aenter__")) == (False, True)
    assert isinstance(lock, contextlib.AbstractContextManager)
    assert not isinstance(lock, contextlib.AbstractAsyncContextManager)
    assert isinstance(aio_lock, contextlib.AbstractAsyncContextManager)
    assert not isinstance(aio_lock, contextlib.AbstractContextManager)


# Event loops


async def enter(cls: str, *arguments: object) -> None:
    async with getattr(NOWHERE.aio, cls)(URL, "x", *arguments):
        raise AssertionError


@pytest.mark.parametrize(
    "use",
    [
        lambda: aio.Lock(URL, "x").acquire(),
        lambda: aio.Redlock([URL, "redis://127.0.0.1:2", "redis://127.0.0.1:3"], "x").acquire(),
        lambda: enter("Lock"),
        lambda: enter("Semaphore", 2),
        lambda: enter("Election"),
        lambda: aio.Event(URL, "x").wait(),
        lambda: aio.Cache(URL, "x").get("y"),
    ],
)
def test_without_asyncio(use: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """As in trio, which drives coroutines by itself."""
    coroutine = use()
    with pytest.raises(RuntimeError, match=r"holdfast\.aio works in asyncio .*, not in trio; .* use holdfast$"):
        coroutine.send(None)


# Units


@pytest.mark.parametrize("ttl", [30000, 5000, 60_000.0, 12_345_000])
def test_a_lease_in_milliseconds(ttl: float) -> None:
    with pytest.warns(HoldfastWarning, match=rf"^ttl={ttl:.0f} is a lease of .* hours, .*pass {ttl / 1000:.0f} for") as caught:
        holdfast.Lock(URL, "x", ttl=ttl)
    assert caught[0].filename == __file__
    meant = re.search(r'or "(.*)" if', str(caught[0].message))
    assert meant is not None
    holdfast.Lock(URL, "x", ttl=meant[1])


@pytest.mark.parametrize("ttl", [30, 900, 1000, 3600, 7200, 36_000, 86_400, 5001, "30000s", timedelta(seconds=30000)])
def test_a_long_lease_that_is_meant(ttl: Any) -> None:
    holdfast.Lock(URL, "x", ttl=ttl)
