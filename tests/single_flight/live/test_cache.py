"""A cache on a real server, in both APIs: who loads, who waits, what is stored and what is not, and who gets which error."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import pytest
import redis

import holdfast
from holdfast import ConfigError, LockTimeout, ServerError, aio
from holdfast._core.single_flight.entry import GET_OR_LEASE
from holdfast._runtime.process import current
from single_flight.live.either_cache import Make, either
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, until

if TYPE_CHECKING:
    from conftest import NewServer


@pytest.fixture(params=["sync", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with either(request.param) as made:
        yield made


class Slow:
    """A loader that says when it runs, and ends when it is told to."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.calls = 0
        self.runs = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> Any:
        self.calls += 1
        self.runs.set()
        assert self.go_on.wait(20)
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def ends(self) -> None:
        self.go_on.set()


def never() -> Any:
    pytest.fail("loaded")


def keys(look: redis.Redis, name: str) -> set[str]:
    """Return the data of a cache that is about single keys."""
    start = f"hf:cache:{{{name}}}:"
    found = {str(key).removeprefix(start) for key in look.scan_iter(f"{start}*")}
    return {key for key in found if ":" in key}


# Values


def test_a_value_that_is_too_large_is_given_and_not_stored(
    server: PrivateServer, name: str, look: redis.Redis, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cache, calls = make(server.url, name, max_size=100), []

    def load() -> str:
        calls.append(1)
        return "x" * 200

    slow = Slow("x" * 200)
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = [in_thread(cache.get_or_load, "a", load) for _ in range(5)]
    waiters(5)
    slow.ends()
    assert {len(future.result(10)) for future in [first, *waiting]} == {200}
    assert "the value has 202 bytes, and max_size is 100" in caplog.text
    assert len(calls) == 5, "each for itself: nobody waits for what nobody can store"
    assert cache.get("a", "none") == "none"
    assert cache.statistics().refused_writes == 1
    (mark,) = (str(look.get(key)) for key in look.scan_iter(f"hf:cache:{{{name}}}:value*"))
    assert int(mark.split()[5]) < 60_000_000, "microseconds that the load has taken"
    with pytest.raises(ConfigError, match="max_size") as caught:
        cache.set("a", "x" * 99)
    assert caught.value.parameter == "max_size"
    cache.set("a", "x" * 98)
    assert cache.get("a") == "x" * 98


def test_what_is_longer_on_the_server_counts_as_no_value(server: PrivateServer, name: str, make: Make) -> None:
    """Stored by one whose limit is higher; found at a glance, or by whoever looks."""
    roomy, narrow = make(server.url, name, beta=0), make(server.url, name, beta=0, max_size=100)
    roomy.set("a", "x" * 200)
    assert narrow.get("a", "none") == "none"
    assert narrow.get_or_load("a", lambda: "short") == "short"
    assert roomy.get("a") == "short"


@pytest.mark.parametrize("limit", ["maxmemory", "proto-max-bulk-len"])
def test_a_value_that_the_server_refuses_is_given(new_server: NewServer, name: str, make: Make, limit: str) -> None:
    server = new_server()
    cache = make(server.url, name)
    with redis.Redis.from_url(server.url) as admin:
        if limit == "proto-max-bulk-len":
            admin.config_set(limit, 1024 * 1024)

        def load() -> str:
            if limit == "maxmemory":
                admin.config_set("maxmemory", 1)
            return "x" * 3_000_000

        assert len(cache.get_or_load("a", load)) == 3_000_000
        admin.config_set("maxmemory", 0)
        assert cache.statistics().loads == 1


@pytest.mark.parametrize("value", [100, None, "ä", [1, {"a": None}], False, 0, ""])
def test_it_is_loaded_once(server: PrivateServer, name: str, make: Make, value: Any) -> None:
    cache = make(server.url, name)
    assert cache.get("a", "none") == "none"
    assert cache.get_or_load("a", lambda: value) == value
    assert cache.get_or_load("a", never) == value
    assert cache.get("a", "none") == value
    figures = cache.statistics()
    assert (figures.hits, figures.misses, figures.loads, figures.waits) == (2, 2, 1, 0)
    with either("sync") as other:
        assert other(server.url, name).get_or_load("a", never) == value


def test_set_get_delete(server: PrivateServer, name: str, make: Make, look: redis.Redis) -> None:
    cache = make(server.url, name)
    cache.set("a", 1)
    cache.set("a", 2)
    assert cache.get("a") == 2
    assert cache.delete("a") is True
    assert cache.delete("a") is False
    assert cache.get("a") is None
    cache.set("b", 1)
    cache.set("c", 1)
    cache.invalidate("b", "c")
    assert (cache.get("b"), cache.get("c")) == (None, None)


def test_tags(server: PrivateServer, name: str, make: Make) -> None:
    cache, other = make(server.url, name), make(server.url, f"{name}-other")
    for key, tags in {"a": ("red",), "b": ("red", "big"), "c": ("big", "s p a c e"), "d": ()}.items():
        assert cache.get_or_load(key, lambda: 1, tags=tags) == 1
    other.set("a", 1, tags=("red",))
    cache.invalidate(tags=("red",))
    assert [cache.get(key) for key in "abcd"] == [None, None, 1, 1]
    cache.set("a", 2, tags=("red",))
    assert cache.get("a") == 2
    cache.invalidate(tags=("s p a c e", "never seen"))
    assert [cache.get(key) for key in "abcd"] == [2, None, None, 1]
    cache.clear()
    assert [cache.get(key) for key in "abcd"] == [None] * 4
    assert other.get("a") == 1


def test_its_time_is_over(server: PrivateServer, name: str, make: Make, look: redis.Redis) -> None:
    cache = make(server.url, name, ttl=0.02)
    cache.get_or_load("a", lambda: 1)
    until(lambda: cache.get("a") is None)
    assert cache.get_or_load("a", lambda: 2, ttl=60) == 2
    assert cache.get_or_load("a", never) == 2


def test_one_of_another_codec_is_loaded_anew(
    server: PrivateServer, name: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make(server.url, name, codec="str").set("a", "1")
    cache = make(server.url, name)
    assert cache.get("a") is None
    assert cache.get_or_load("a", lambda: 2) == 2
    assert cache.get_or_load("a", never) == 2
    assert cache.statistics().unreadable == 2
    assert (
        f"cache '{name}', key 'a': the stored value is ignored: the value was stored with codec 'str', not 'json'"
        in caplog.text
    )


def test_a_value_that_the_codec_cannot_keep(server: PrivateServer, name: str, make: Make, look: redis.Redis) -> None:
    cache = make(server.url, name, load_ttl=60)
    with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': codec 'json' cannot store .*: the value is a tuple"):
        cache.get_or_load("a", lambda: (1, 2))
    assert cache.get_or_load("a", lambda: 1, wait=5) == 1, "the load was given back"
    with pytest.raises(ConfigError, match="key 'a': codec 'json'"):
        cache.set("a", {1, 2})
    assert cache.get("a") == 1


# Loads and waits


def test_those_who_wait_get_what_the_first_one_loads(
    server: PrivateServer, name: str, make: Make, monitor: Monitor, look: redis.Redis
) -> None:
    cache, other = make(server.url, name), make(server.url, name)
    slow = Slow([1])
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    monitor.commands()
    waiting = [in_thread(one.get_or_load, "a", never) for one in (cache, other) * 5]
    monitor.until(11, GET_OR_LEASE.sha)  # all of them have looked, and once more who is listed for this process
    assert look.zcard(f"hf:cache:{{{name}}}:waiters:a") == 1
    slow.ends()
    assert [future.result(10) for future in (first, *waiting)] == [[1]] * 11
    assert slow.calls == 1
    assert cache.statistics().waits + other.statistics().waits == 10


def test_who_waits_asks_for_nothing_meanwhile(server: PrivateServer, name: str, make: Make, monitor: Monitor) -> None:
    cache = make(server.url, name, load_ttl=60)
    slow = Slow(1)
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = in_thread(cache.get_or_load, "a", never)
    with redis.Redis.from_url(server.url) as look:
        until(lambda: look.zcard(f"hf:cache:{{{name}}}:waiters:a"))
    monitor.commands()
    time.sleep(0.3)
    assert [command for command in monitor.commands(name) if "ZCARD" not in command] == []
    slow.ends()
    assert (first.result(10), waiting.result(10)) == (1, 1)


def test_the_old_value_is_given_while_a_new_one_is_loaded(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, ttl=0.02, stale=60)
    cache.set("a", 1)
    slow = Slow(2)
    time.sleep(0.03)  # the server's clock, by which its time is over, is not to be had otherwise
    first = in_thread(cache.get_or_load, "a", slow, ttl=60)
    assert slow.runs.wait(10)
    assert [cache.get_or_load("a", never) for _ in range(3)] == [1, 1, 1]
    assert cache.get("a") == 1
    slow.ends()
    assert first.result(10) == 2
    assert cache.get_or_load("a", never) == 2
    figures = cache.statistics()
    assert (figures.stale_hits, figures.hits, figures.misses, figures.loads) == (4, 1, 1, 1)


def test_waiting_is_over(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, wait=0.05)
    slow = Slow(1)
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    loading = rf"cache '{name}', key 'a': \S+:{os.getpid()}.* has been loading it for \d+\.\d s; "
    with pytest.raises(LockTimeout, match=loading) as raised:
        cache.get_or_load("a", never)
    error = raised.value
    assert (error.name, error.key, error.waited) == (name, "a", 0.05)
    assert error.remaining is not None
    assert 0 < error.remaining <= 5
    assert cache.get_or_load("a", never, default=None) is None
    assert cache.get_or_load("a", never, wait=0, default=7) == 7
    assert cache.get_or_load("a", lambda: 3, busy="load") == 3
    assert cache.get("a") is None, "stored over what is being loaded"
    slow.ends()
    assert first.result(10) == 1
    figures = cache.statistics()
    assert (figures.timeouts, figures.loads) == (4, 2)
    assert cache.get_or_load("a", never) == 1


def test_early(server: PrivateServer, name: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    luck = 0.0
    monkeypatch.setattr("random.random", lambda: luck)
    cache = make(server.url, name, beta=10)
    slow = Slow(1)
    first = in_thread(cache.get_or_load, "a", slow, ttl=6)
    assert slow.runs.wait(10)
    time.sleep(0.05)  # what it costs
    slow.ends()
    assert first.result(10) == 1
    assert cache.get_or_load("a", never) == 1
    luck = 1 - 1e-6  # 138 times what it costs: sooner than in 6 s
    second = Slow(2)
    again = in_thread(cache.get_or_load, "a", second, ttl=600)
    assert second.runs.wait(10)
    second.ends()
    assert again.result(10) == 2
    assert cache.get_or_load("a", never) == 2, "in ten minutes is not soon"


def test_a_loop_that_is_blocked_holds_up_nobody_else(server: PrivateServer, name: str, make: Make, monitor: Monitor) -> None:
    cache, blocked, unblock = make(server.url, name, load_ttl=60), threading.Event(), threading.Event()
    slow = Slow(1)
    first = in_thread(holdfast.Cache(server.url, name, load_ttl=60).get_or_load, "a", slow)
    assert slow.runs.wait(10)

    async def main() -> Any:
        async def load() -> Any:
            never()

        monitor.commands()
        waiting = asyncio.create_task(aio.Cache(server.url, name).get_or_load("a", load))
        await asyncio.to_thread(monitor.until, 2, GET_OR_LEASE.sha)  # it is listed
        blocked.set()
        unblock.wait(10)  # as who computes something, and awaits nothing
        return await waiting

    other = in_thread(asyncio.run, main())
    assert blocked.wait(10)
    waiting = in_thread(cache.get_or_load, "a", never)
    monitor.until(2, GET_OR_LEASE.sha)
    slow.ends()
    try:
        assert (first.result(10), waiting.result(5)) == (1, 1)
    finally:
        unblock.set()
    assert other.result(10) == 1


# Failures


def test_a_loader_that_hangs_is_replaced(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, load_ttl=60, max_hold=0.1)
    slow = Slow(1)
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    assert make(server.url, name).get_or_load("a", lambda: 2) == 2
    slow.ends()
    assert first.result(10) == 1
    assert cache.get_or_load("a", never) == 2
    assert cache.statistics().refused_writes == 1


class NotFoundError(LookupError):
    def __init__(self, sku: str) -> None:
        super().__init__(f"no article {sku}")
        self.sku = sku


def waiters(count: int) -> None:
    """Return when so many wait with others of this process."""
    keeper = current().keeper
    while sum(bool(coalescer._leader) + len(coalescer.members) for coalescer in list(keeper._coalescers.values())) < count:
        time.sleep(0.002)


def test_all_who_waited_for_a_load_that_fails_get_its_failure(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, load_ttl=60)
    slow = Slow(NotFoundError("a"))
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = [in_thread(cache.get_or_load, "a", never) for _ in range(30)]
    waiters(30)
    slow.ends()
    with pytest.raises(NotFoundError) as own:
        first.result(10)
    errors = [future.exception(10) for future in waiting]
    assert len({id(error) for error in [own.value, *errors]}) == 31, "each has its own"
    for error in errors:
        assert isinstance(error, NotFoundError)
        assert (str(error), error.sku, error.__cause__) == ("no article a", "a", own.value)
    figures = cache.statistics()
    assert (figures.loads, figures.load_errors, figures.waits, figures.misses) == (1, 1, 30, 31)
    assert cache.get_or_load("a", lambda: 1) == 1, "who comes later tries again"


@pytest.mark.parametrize("how", ["tag", "all", "key", "set"])
def test_nobody_gets_the_failure_of_a_load_that_began_before_an_invalidation(
    server: PrivateServer, name: str, make: Make, how: str
) -> None:
    cache = make(server.url, name, load_ttl=60)
    slow = Slow(NotFoundError("a"))
    first = in_thread(cache.get_or_load, "a", slow, tags=("t",))
    assert slow.runs.wait(10)
    if how in {"tag", "all"}:
        before = in_thread(cache.get_or_load, "a", lambda: 1)
        waiters(1)
        cache.clear() if how == "all" else cache.invalidate(tags=("t",))
        after = in_thread(cache.get_or_load, "a", lambda: 1)
        waiters(2)
    else:
        cache.invalidate("a") if how == "key" else cache.set("a", 1)
        before = after = in_thread(cache.get_or_load, "a", lambda: 1)
    slow.ends()
    with pytest.raises(NotFoundError):
        first.result(10)
    assert [before.result(10), after.result(10)] == [1, 1]


class Twisted(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unique(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("there is only one of me")

    def __new__(cls, *args: object) -> Self:
        if args != ("real",):
            raise TypeError("not that one")
        return super().__new__(cls)

    def __init__(self, _: str) -> None:
        super().__init__("something else")


@pytest.mark.parametrize(
    "error",
    [Unique("real"), LockTimeout("busy"), concurrent.futures.CancelledError(), KeyboardInterrupt(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_answer_is_for_its_own_caller_and_the_next_one_loads(
    server: PrivateServer, name: str, error: BaseException
) -> None:
    cache = holdfast.Cache(server.url, name, load_ttl=60)
    slow = Slow(error)
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = [in_thread(cache.get_or_load, "a", lambda: 1) for _ in range(5)]
    waiters(5)
    slow.ends()
    assert first.exception(10) is error
    assert [future.result(10) for future in waiting] == [1] * 5


@pytest.mark.parametrize(
    "wrong", [Twisted(1, 2), UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"), FileNotFoundError(2, "no", "f"), {1, 2}]
)
def test_all_kinds_of_failures_are_shared(server: PrivateServer, name: str, make: Make, wrong: object) -> None:
    cache = make(server.url, name, load_ttl=60)
    slow = Slow(wrong)
    if isinstance(wrong, Exception):
        wrong.__notes__ = ["a note"]
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = in_thread(cache.get_or_load, "a", never)
    waiters(1)
    slow.ends()
    own, error = first.exception(10), waiting.exception(10)
    assert error is not own
    assert (type(error), str(error)) == (type(own), str(own))
    if isinstance(wrong, Exception):
        assert vars(error) == vars(own) == {"__notes__": ["a note"]}
        assert vars(error)["__notes__"] is not vars(own)["__notes__"]
    else:
        assert isinstance(error, ConfigError), "what the codec cannot keep"


def test_who_waits_while_a_process_dies_or_is_cancelled_loads(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        cache, begun = aio.Cache(server.url, name), asyncio.Event()

        async def hang() -> int:
            begun.set()
            await asyncio.sleep(60)
            return 0

        async def load() -> int:
            return 1

        first = asyncio.create_task(cache.get_or_load("a", hang))
        await begun.wait()
        waiting = [asyncio.create_task(cache.get_or_load("a", load)) for _ in range(5)]
        await asyncio.to_thread(waiters, 5)
        first.cancel()
        assert await asyncio.gather(*waiting) == [1] * 5
        await aio.close()

    asyncio.run(main())


def test_an_error_that_is_to_be_kept(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, errors=LookupError, error_ttl=60)
    slow = Slow(NotFoundError("a"))
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    waiting = in_thread(cache.get_or_load, "a", never)
    slow.ends()
    for ask in (first.result, waiting.result, lambda _: cache.get_or_load("a", never), lambda _: cache.get("a")):
        with pytest.raises(NotFoundError, match="no article a") as raised:
            ask(10)
        assert raised.value.sku == "a"
    assert make(server.url, name).get_or_load("a", lambda: 1) == 1, "one that does not keep errors reads none"
    with pytest.raises(ValueError, match="x"):
        cache.get_or_load("b", Slow.__call__.__get__(_ended(Slow(ValueError("x")))))
    assert cache.get_or_load("b", lambda: 1) == 1


def _ended(slow: Slow) -> Slow:
    slow.ends()
    return slow


def test_the_last_value_if_loading_fails(
    server: PrivateServer, name: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make(server.url, name, ttl=0.02, stale=60)
    cache.set("a", 1)
    time.sleep(0.03)
    assert cache.get_or_load("a", _ended(Slow(OSError("database away")))) == 1
    assert "key 'a': loading failed, the last value is returned again: OSError('database away')" in caplog.text
    with pytest.raises(OSError, match="database away"):
        cache.get_or_load("a", _ended(Slow(OSError("database away"))), stale=0)
    figures = cache.statistics()
    assert (figures.misses, figures.load_errors) == (2, 2)


def test_the_last_value_is_not_given_after_its_time(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, ttl=0.02, stale=0.4)
    cache.set("a", 1)
    time.sleep(0.03)

    def fails() -> Any:
        time.sleep(0.5)
        raise OSError("database away")

    with pytest.raises(OSError, match="database away"):
        cache.get_or_load("a", fails)


@pytest.mark.parametrize(
    ("what", "then"),
    [
        (lambda cache: cache.invalidate("a"), None),
        (lambda cache: cache.invalidate(tags=("red",)), None),
        (lambda cache: cache.clear(), None),
        (lambda cache: cache.set("a", 2), 2),
    ],
    ids=["invalidate", "tag", "clear", "set"],
)
def test_nothing_is_stored_over_what_is_newer(
    server: PrivateServer, name: str, make: Make, what: Callable[[Any], Any], then: Any
) -> None:
    cache = make(server.url, name)
    slow = Slow(1)
    first = in_thread(cache.get_or_load, "a", slow, tags=("red",))
    assert slow.runs.wait(10)
    what(make(server.url, name))
    slow.ends()
    assert first.result(10) == 1
    assert cache.get("a") == then
    assert cache.statistics().refused_writes == 1


def test_a_loader_that_asks_for_its_own_key(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, load_ttl=60)

    def nested() -> Any:
        return cache.cache.get_or_load("a", never)

    if isinstance(cache.cache, aio.Cache):
        with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': this call is made inside the loader of the same key"):
            cache._run(cache.cache.get_or_load("a", nested))
    else:
        with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': this call is made inside the loader of the same key"):
            cache.get_or_load("a", nested)
        assert cache.get_or_load("b", lambda: cache.get_or_load("a", lambda: 1)) == 1
    assert cache.get_or_load("a", lambda: 1, wait=5) == 1


def test_what_a_loader_has_started_may_ask_for_its_key_when_it_has_ended(server: PrivateServer, name: str, make: Make) -> None:
    """A thread or a task that the loader starts has a copy of its context, and may go on for long."""
    cache, copies = make(server.url, name), list[contextvars.Context]()

    def load() -> int:
        copies.append(contextvars.copy_context())
        return 1

    assert cache.get_or_load("a", load) == 1
    assert copies[0].run(cache.get_or_load, "a", never) == 1


def test_a_loader_that_is_cancelled_leaves_it_to_the_next(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        cache = aio.Cache(server.url, name, load_ttl=60)
        runs = asyncio.Event()

        async def slow() -> int:
            runs.set()
            await asyncio.sleep(60)
            return 1

        async def quick() -> int:
            return 2

        first = asyncio.create_task(cache.get_or_load("a", slow))
        await runs.wait()
        second = asyncio.create_task(cache.get_or_load("a", quick))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await asyncio.wait_for(second, 10) == 2

    asyncio.run(main())


def test_a_loader_that_is_interrupted_leaves_it_to_the_next(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name, load_ttl=60, wait=5)

    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_load("a", interrupted)
    assert cache.get_or_load("a", lambda: 2) == 2


# The other case's clients, and servers that are away


def test_clients(server: PrivateServer, name: str) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as text, redis.Redis.from_url(server.url) as plain:
        holdfast.Cache(text, name).set("a", "ä")
        assert holdfast.Cache(plain, name).get("a") == "ä"
    with pytest.raises(ConfigError):
        aio.Cache(redis.Redis(), name)  # type: ignore[arg-type]


def test_a_server_that_is_away_is_done_without(
    new_server: NewServer, name: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    cache = make(server.url, name)
    cache.set("a", 1)
    server.kill()
    assert [cache.get_or_load("a", lambda: 2) for _ in range(3)] == [2, 2, 2]
    assert cache.get("a", "none") == "none"
    for change in (lambda: cache.set("a", 1), lambda: cache.invalidate("a"), lambda: cache.delete("a"), cache.clear):
        with pytest.raises(ServerError, match=f"cache '{name}'"):
            change()
    assert cache.statistics().uncached == 4
    assert caplog.text.count("the server is away, loads go on without it until it is back") == 1
    server.restart()
    assert until(lambda: cache.get_or_load("a", lambda: 3) and cache.get("a")) == 3


def test_a_connection_that_was_closed_is_no_outage(new_server: NewServer, name: str, make: Make) -> None:
    server = new_server()
    cache = make(server.url, name)
    cache.set("a", 1)
    for _ in range(3):
        with redis.Redis.from_url(server.url) as look:
            look.client_kill_filter(_type="normal", skipme=True)
        assert cache.get_or_load("a", never) == 1
    assert cache.statistics().uncached == 0


def test_a_server_that_says_nothing_is_waited_for_once(new_server: NewServer, name: str, make: Make) -> None:
    server = new_server()
    cache = make(server.url, name)
    cache.get_or_load("a", lambda: 1)
    server.pause()
    started = time.monotonic()
    assert [cache.get_or_load("a", lambda: 2) for _ in range(20)] == [2] * 20
    assert time.monotonic() - started < 10, "each of them waited"
    server.resume()


def test_a_server_that_is_away_is_an_error_if_you_say_so(new_server: NewServer, name: str, make: Make) -> None:
    server = new_server()
    cache = make(server.url, name, down="raise")
    server.kill()
    with pytest.raises(ServerError, match=f"cache '{name}', key 'a': failed"):
        cache.get_or_load("a", never)
    with pytest.raises(ServerError, match="was away a moment ago, and is asked again in"):
        cache.get_or_load("a", never)


def test_a_key_that_is_somebody_elses(server: PrivateServer, name: str, make: Make, look: redis.Redis) -> None:
    cache, key = make(server.url, name), f"hf:cache:{{{name}}}:value:a"
    cache.set("b", "so that nothing else is missing")
    try:
        look.rpush(key, "1 x")
        with pytest.raises(ConfigError, match=f"cache '{name}' cannot be used"):
            cache.get_or_load("a", never)
    finally:
        look.delete(key)


def test_a_text_of_somebody_else_under_a_key_counts_as_no_value(
    server: PrivateServer, name: str, make: Make, look: redis.Redis
) -> None:
    cache, key = make(server.url, name), f"hf:cache:{{{name}}}:value:a"
    for theirs in ("1 x", "2 v 1 1 0 1\nx", "", "9" * 40_000):
        look.set(key, theirs)
        assert cache.get("a", "none") == "none"
        assert cache.get_or_load("a", lambda: 1) == 1
        assert cache.get("a") == 1


def test_a_forked_child_that_leaves_the_loader_takes_nothing_with_it(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name)

    def load() -> int:
        pid = os.fork()
        if not pid:
            raise SystemExit(3)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    parent = os.getpid()
    try:
        assert cache.get_or_load("a", load) == 3
    except SystemExit:
        if os.getpid() != parent:
            os._exit(3)
        raise
    assert cache.get("a") == 3


def test_a_forked_child_has_a_cache_of_its_own(server: PrivateServer, name: str) -> None:
    cache = holdfast.Cache(server.url, name)

    def load() -> int:
        pid = os.fork()
        if not pid:
            try:
                os._exit(cache.get_or_load("b", lambda: 3))
            finally:
                os._exit(99)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert cache.get_or_load("a", load) == 3
    assert (cache.get("a"), cache.get("b")) == (3, 3)
