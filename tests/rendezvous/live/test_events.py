"""`Event` and `CountDownLatch` on a real server: what CPython's own tests of events check, and what processes add to that."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import ConfigError, CountDownLatch, Event, ServerError, aio
from holdfast._core.rendezvous import latch as core
from rendezvous.live.rendezvous_apis import APIS, Either
from support.peer import Peer
from support.proxy import Proxy
from support.witness import Monitor, in_thread, until, until_in_loop

if TYPE_CHECKING:
    from conftest import NewServer
    from support.servers import PrivateServer

apis = pytest.mark.parametrize("api", APIS)


def listed(look: redis.Redis, name: str) -> int:
    """How many are to be told."""
    return int(look.zcard(f"hf:{{{name}}}:waiters"))


# As threading.Event


@apis
def test_it_is_set_until_it_is_cleared(api: str, server: PrivateServer, name: str) -> None:
    event = Either(api, "Event", server.url, name)
    assert not event("is_set")
    for _ in range(2):
        event("set")
        assert event("is_set")
    assert Either(api, "Event", server.url, name)("is_set"), "for another one of this name"
    for _ in range(2):
        event("clear")
        assert not event("is_set")


@apis
def test_all_who_wait_are_released(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    event = Either(api, "Event", server.url, name)
    waiting = [event.later("wait") for _ in range(5)]
    until(lambda: listed(look, name))
    assert not any(future.done() for future in waiting)
    event("set")
    assert [future.result(10) for future in waiting] == [True] * 5
    assert event("wait"), "at once"
    assert event("wait", 0.0) is True


@apis
def test_a_wait_ends_when_its_time_is_over(api: str, server: PrivateServer, name: str) -> None:
    event = Either(api, "Event", server.url, name)
    assert event("wait", 0.0) is False
    assert event("wait", -1.0) is False
    started = time.monotonic()
    assert event("wait", 0.3) is False
    assert 0.3 <= time.monotonic() - started < 3


@apis
def test_who_waits_is_released_even_if_it_is_cleared_at_once(
    api: str, server: PrivateServer, name: str, monitor: Monitor
) -> None:
    event, setter = Either(api, "Event", server.url, name), Event(server.url, name)
    assert not setter.is_set()
    monitor.commands()
    waiting = [event.later("wait", 10.0) for _ in range(5)]
    monitor.until(10, name)  # each looks twice
    setter.set()
    setter.clear()
    assert [future.result(5) for future in waiting] == [True] * 5
    assert not setter.is_set()


def test_a_thousand_waiters_cost_one_connection_and_are_listed_once(new_server: NewServer) -> None:
    with redis.Redis.from_url(new_server().url, decode_responses=True) as look:
        url = "unix://" + str(look.connection_pool.connection_kwargs["path"])

        async def main() -> None:
            event = aio.Event(url, "stop")
            waiting = [asyncio.create_task(event.wait()) for _ in range(1000)]
            async with asyncio.timeout(20):
                while int(look.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)) < 1900:
                    await asyncio.sleep(0.01)
            await until_in_loop(lambda: listed(look, "stop"))  # who is to be told looks later: the inbox is subscribed to first
            assert listed(look, "stop") == 1
            assert len(look.client_list()) <= 4, "this one, the tasks', and two of the keeper"
            started = time.monotonic()
            await event.set()
            assert all(await asyncio.gather(*waiting))
            assert time.monotonic() - started < 5, "they were told"

        asyncio.run(main())


def test_who_waits_polls_nothing(server: PrivateServer, name: str, look: redis.Redis, monitor: Monitor) -> None:
    event = Event(server.url, name)
    waiting = in_thread(event.wait, 5)
    until(lambda: listed(look, name))
    monitor.commands()
    time.sleep(0.5)
    assert monitor.commands(name) == []
    event.set()
    assert waiting.result(5) is True


@apis
def test_a_message_that_got_lost_is_made_good(
    api: str, server: PrivateServer, name: str, look: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "LISTEN_S", 0.2)
    event = Either(api, "Event", server.url, name)
    waiting = event.later("wait", 10.0)
    until(lambda: listed(look, name))
    look.delete(f"hf:{{{name}}}:waiters")
    Event(server.url, name).set()
    assert waiting.result(5) is True


def test_when_who_looks_for_all_gives_up_another_one_does(server: PrivateServer, name: str, look: redis.Redis) -> None:
    async def main() -> None:
        event = aio.Event(server.url, name)
        tasks = [asyncio.create_task(event.wait()) for _ in range(3)]
        await until_in_loop(lambda: listed(look, name) == 1)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await until_in_loop(lambda: listed(look, name) == 2)  # the place of the first ends by itself
        await event.set()
        assert await asyncio.gather(*tasks[1:]) == [True, True]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.Event(server.url, f"{name} other").wait()

    asyncio.run(main())


@apis
def test_a_stop_flag_reaches_another_process(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    module = "holdfast.aio" if api == "asyncio" else "holdfast"
    with Peer("asyncio" if api == "asyncio" else "sync", server.url, "x") as peer:
        peer.tell(f"{module}.Event(url, {name!r}).wait()")
        until(lambda: listed(look, name))
        Either(api, "Event", server.url, name)("set")
        assert peer.answer(10) is True


def test_it_is_kept_for_as_long_as_it_is_used(server: PrivateServer, name: str, look: redis.Redis) -> None:
    event = Event(server.url, name, keep=1000)
    assert not event.is_set()
    assert not look.exists(event.key), "asking makes nothing"
    event.set()
    look.pexpire(event.key, 5000)
    assert event.is_set()
    assert 900_000 < int(look.pttl(event.key)) <= 1_000_000
    assert {int(look.pttl(key)) > 0 for key in look.scan_iter(f"hf:{{{name}}}*")} == {True}


def test_it_is_kept_while_somebody_waits(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """Also where it would be forgotten before who waits looks for lost messages."""
    latch = Either("threads", "CountDownLatch", server.url, name, 2, keep=2)
    waiting = latch.later("wait", 20)
    until(lambda: listed(look, name))
    assert latch("count_down") == 1
    with pytest.raises(FutureTimeout):
        waiting.result(2.5)
    assert latch("count_down") == 0
    assert waiting.result(5) is True


# As Java's CountDownLatch


@apis
def test_it_opens_when_all_are_done(api: str, server: PrivateServer, name: str, look: redis.Redis) -> None:
    latch = Either(api, "CountDownLatch", server.url, name, 3)
    assert latch("count") == 3
    waiting = latch.later("wait")
    until(lambda: listed(look, name))
    assert latch("count_down") == 2
    assert latch("wait", 0.05) is False
    assert not waiting.done()
    assert latch("count_down", 5) == 0
    assert waiting.result(10) is True
    assert latch("count_down") == 0, "no lower"
    assert (latch("wait"), latch("count")) == (True, 0)
    latch("reset")
    assert (latch("wait", 0.0), latch("count")) == (False, 3)


@apis
def test_what_has_a_name_counts_once(api: str, server: PrivateServer, name: str) -> None:
    latch = Either(api, "CountDownLatch", server.url, name, 3)
    assert [latch("count_down", by=by) for by in ("a", "b", "a")] == [2, 1, 1]
    latch("reset")
    assert latch("count_down", by="a") == 2


@apis
@pytest.mark.parametrize("action", ["lose", "cut"])
def test_a_call_counts_once_though_its_answer_gets_lost(api: str, action: Any, server: PrivateServer, name: str) -> None:
    with Proxy(server) as proxy:
        latch = Either(api, "CountDownLatch", proxy.url, name, 3)
        lost = proxy.on("other", action=action)
        assert latch("count_down") == 2
        assert len(lost.requests) == 1
        assert latch("count") == 2
        holdfast.close()


def test_users_that_disagree_are_told_so(server: PrivateServer, name: str) -> None:
    CountDownLatch(server.url, name, 3).count_down()
    other = CountDownLatch(server.url, name, 4)
    calls: list[Callable[[], object]] = [other.count_down, other.wait, lambda: other.count]
    for call in calls:
        with pytest.raises(ConfigError, match=r"created elsewhere with count=3: all users must pass the same") as caught:
            call()
        assert caught.value.parameter == "count"
    with pytest.raises(ConfigError, match=r"it is the name of a latch; .*nothing was changed"):
        Event(server.url, name).set()
    other.reset()
    assert CountDownLatch(server.url, name, 4).count == 4


@apis
def test_who_waits_is_told_when_the_server_has_lost_what_was_counted(
    api: str, server: PrivateServer, name: str, look: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "LISTEN_S", 0.2)
    latch = Either(api, "CountDownLatch", server.url, name, 3)
    latch("count_down")
    waiting = latch.later("wait", 10.0)
    until(lambda: listed(look, name))
    look.delete(f"hf:{{{name}}}", f"hf:{{{name}}}:waiters")
    assert isinstance(error := waiting.exception(5), ServerError)
    assert "the server has lost the count" in str(error)


def test_workers_count_down_from_several_processes(server: PrivateServer, name: str) -> None:
    latch = CountDownLatch(server.url, name, 4)
    with Peer("sync", server.url, "a") as a, Peer("sync", server.url, "b") as b:
        for peer in (a, b):
            peer.tell(f"[holdfast.CountDownLatch(url, {name!r}, 4).count_down() for _ in range(2)][-1]")
        assert latch.wait(10)
        assert min(a.answer(), b.answer()) == 0


# Obstacles


@pytest.mark.parametrize("kind", ["Event", "CountDownLatch", "Barrier"])
@apis
def test_several_servers_are_refused_with_the_reason(api: str, kind: str) -> None:
    more = () if kind == "Event" else (2,)
    with pytest.raises(ConfigError, match=f"{kind} needs one server, not several independent ones") as caught:
        Either(api, kind, ["redis://a", "redis://b", "redis://c"], "x", *more)
    assert caught.value.parameter == "client"
    with pytest.raises(ConfigError, match=r"keep must be between 1 and"):
        Either(api, kind, "redis://a", "x", *more, keep=0)
    made: Any = Either(api, kind, "redis://a", "x", *more).made
    assert kind in repr(made)
    with pytest.raises(TypeError, match=r"cannot be pickled: make another one"):
        pickle.dumps(made)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3", None])
def test_a_count_is_a_whole_number_from_one(count: Any) -> None:
    with pytest.raises(ConfigError, match="count must be a whole number from 1"):
        CountDownLatch("redis://a", "x", count)
    with pytest.raises(ConfigError, match="n must be a whole number from 1"):
        CountDownLatch("redis://a", "x", 3).count_down(count)


@apis
def test_a_lock_of_the_same_name_is_left_alone(api: str, server: PrivateServer, name: str) -> None:
    held = "it is the name of a lock that is held"
    with holdfast.Lock(server.url, name), pytest.raises(ConfigError, match=held):
        Either(api, "Event", server.url, name)("set")
    Event(server.url, name).set()
    with pytest.raises(ConfigError, match="it is the name of an event"):
        holdfast.Lock(server.url, name, wait=0).acquire()


@apis
def test_without_a_server_an_error_says_so(api: str, new_server: NewServer) -> None:
    server = new_server()
    event = Either(api, "Event", server.url, "x")
    server.kill()
    for method in ("is_set", "set", "wait"):
        with pytest.raises(ServerError, match=r"Event 'x': "):
            event(method)


@apis
def test_a_server_that_goes_away_and_comes_back_is_waited_for(api: str, new_server: NewServer) -> None:
    server = new_server(appendonly=True)
    event = Either(api, "Event", server.url, "x")
    waiting = event.later("wait", 20.0)
    with redis.Redis.from_url(server.url, decode_responses=True) as look:
        until(lambda: listed(look, "x"))
    server.kill()
    server.restart()
    Event(server.url, "x").set()
    assert waiting.result(15) is True


@pytest.mark.parametrize("decode", [False, True])
def test_whatever_the_client_decodes(decode: bool, server: PrivateServer, name: str) -> None:
    with redis.Redis.from_url(server.url, decode_responses=decode) as client:
        latch = CountDownLatch(client, name.encode(), 1)
        assert latch.count_down() == 0
        assert latch.wait()

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url, decode_responses=decode) as client:
            assert await aio.CountDownLatch(client, name, 1).count == 0

    asyncio.run(main())


def test_a_forked_child_waits_for_itself(server: PrivateServer, name: str, look: redis.Redis) -> None:
    event = Event(server.url, name)
    waiting = in_thread(event.wait, 10)
    until(lambda: listed(look, name))
    child = os.fork()
    if not child:
        os._exit(0 if event.wait(10) else 1)
    until(lambda: listed(look, name) == 2)
    event.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert waiting.result(5) is True


def test_an_interrupted_wait_leaves_nobody_behind(server: PrivateServer, name: str, look: redis.Redis) -> None:
    """As by Ctrl-C: the main thread is interrupted while it waits, and another one goes on waiting."""
    event = Event(server.url, name)

    def interrupt() -> None:
        until(lambda: listed(look, name))
        os.kill(os.getpid(), 2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        event.wait()
    thread.join()
    waiting = in_thread(event.wait, 10)
    until(lambda: listed(look, name) == 2)
    event.set()
    assert waiting.result(5) is True
