"""A cache on a real server, in both faces: who loads, who waits, what is stored and what is not, and who gets which error."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, LockTimeout, ServerError, aio
from holdfast._core.site import LOOK
from holdfast._servers.process import PrivateServer
from live.either_cache import Make, either
from live.witness import Monitor, in_thread, until

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
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def ends(self) -> None:
        self.go_on.set()


def never() -> Any:
    pytest.fail("loaded")


def keys(look: redis.Redis, name: str) -> set[str]:
    """What a cache has stored that is about single keys."""
    start = f"hf:cache:{{{name}}}:"
    found = {str(key).removeprefix(start) for key in look.scan_iter(f"{start}*")}
    return {key for key in found if ":" in key}


# Values


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
    assert f"cache '{name}', key 'a': what is stored is ignored: it was stored with codec 'str', not 'json'" in caplog.text


def test_a_value_that_the_codec_cannot_keep(server: PrivateServer, name: str, make: Make, look: redis.Redis) -> None:
    cache = make(server.url, name, lease=60)
    with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': codec 'json' cannot store .*: it is a tuple"):
        cache.get_or_load("a", lambda: (1, 2))
    assert cache.get_or_load("a", lambda: 1, wait=5) == 1, "the load was given back"
    with pytest.raises(ConfigError, match="key 'a': codec 'json'"):
        cache.set("a", {1, 2})
    assert cache.get("a") == 1


# Who loads, and who waits


def test_those_who_wait_get_what_the_first_one_loads(
    server: PrivateServer, name: str, make: Make, monitor: Monitor, look: redis.Redis
) -> None:
    cache, other = make(server.url, name), make(server.url, name)
    slow = Slow([1])
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    monitor.commands()
    waiting = [in_thread(one.get_or_load, "a", never) for one in (cache, other) * 5]
    monitor.until(11, LOOK.sha)  # all of them have looked, and once more who is listed for this process
    assert look.zcard(f"hf:cache:{{{name}}}:waiters:a") == 1
    slow.ends()
    assert [future.result(10) for future in (first, *waiting)] == [[1]] * 11
    assert slow.calls == 1
    assert cache.statistics().waits + other.statistics().waits == 10


def test_who_waits_asks_for_nothing_meanwhile(server: PrivateServer, name: str, make: Make, monitor: Monitor) -> None:
    cache = make(server.url, name, lease=60)
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
    cache, blocked, unblock = make(server.url, name, lease=60), threading.Event(), threading.Event()
    slow = Slow(1)
    first = in_thread(holdfast.Cache(server.url, name, lease=60).get_or_load, "a", slow)
    assert slow.runs.wait(10)

    async def main() -> Any:
        async def load() -> Any:
            never()

        monitor.commands()
        waiting = asyncio.create_task(aio.Cache(server.url, name).get_or_load("a", load))
        await asyncio.to_thread(monitor.until, 2, LOOK.sha)  # it is listed
        blocked.set()
        unblock.wait(10)  # as who computes something, and awaits nothing
        return await waiting

    other = in_thread(asyncio.run, main())
    assert blocked.wait(10)
    waiting = in_thread(cache.get_or_load, "a", never)
    monitor.until(2, LOOK.sha)
    slow.ends()
    try:
        assert (first.result(10), waiting.result(5)) == (1, 1)
    finally:
        unblock.set()
    assert other.result(10) == 1


# What goes wrong


def test_a_loader_that_hangs_is_replaced(server: PrivateServer, name: str, make: Make) -> None:
    cache = make(server.url, name, lease=60, max_load=0.1)
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


def test_an_error_is_for_its_own_caller_and_the_next_one_loads(
    server: PrivateServer, name: str, make: Make, monitor: Monitor
) -> None:
    cache = make(server.url, name, lease=60)
    slow = Slow(NotFoundError("a"))
    first = in_thread(cache.get_or_load, "a", slow)
    assert slow.runs.wait(10)
    monitor.commands()
    waiting = [in_thread(cache.get_or_load, "a", lambda: 1) for _ in range(5)]
    monitor.until(6, LOOK.sha)
    slow.ends()
    with pytest.raises(NotFoundError):
        first.result(10)
    assert [future.result(10) for future in waiting] == [1] * 5
    figures = cache.statistics()
    assert (figures.loads, figures.load_errors) == (2, 1)


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
    assert "key 'a': loading failed, the last value is given once more: OSError('database away')" in caplog.text
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
    cache = make(server.url, name, lease=60)

    def nested() -> Any:
        return cache.cache.get_or_load("a", never)

    if isinstance(cache.cache, aio.Cache):
        with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': its own loader asks for it"):
            cache._run(cache.cache.get_or_load("a", nested))
    else:
        with pytest.raises(ConfigError, match=f"cache '{name}', key 'a': its own loader asks for it"):
            cache.get_or_load("a", nested)
        assert cache.get_or_load("b", lambda: cache.get_or_load("a", lambda: 1)) == 1
    assert cache.get_or_load("a", lambda: 1, wait=5) == 1


def test_a_loader_that_is_cancelled_leaves_it_to_the_next(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        cache = aio.Cache(server.url, name, lease=60)
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
    cache = holdfast.Cache(server.url, name, lease=60, wait=5)

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
        aio.Cache(redis.Redis(), name)


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
        for store in (look.rpush, look.set):
            store(key, "1 x")
            with pytest.raises(ConfigError, match=f"cache '{name}' cannot be used"):
                cache.get_or_load("a", never)
            look.delete(key)
    finally:
        look.delete(key)


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
