"""A message that a script publishes wakes its listener, on real servers, in both APIs."""

from __future__ import annotations

import asyncio
import threading
import time

import redis

from holdfast._api.caller import AioCaller, Caller
from holdfast._api.flow import complete
from holdfast._core.requests import Now, Unsubscribe
from holdfast._core.subscription import Listener, await_notice, subscribed
from holdfast._runtime.process import current
from support.servers import PrivateServer


def tell(server: PrivateServer, listener_id: str) -> None:
    with redis.Redis.from_url(server.url) as client:
        assert client.publish(f"hf:inbox:{listener_id.partition('.')[0]}", f"3 {listener_id}") == 1


async def be_told(known: list[Listener], within: float) -> float:
    """Seconds until it was told something."""
    listener = await subscribed(await Now() + 5, b"hf:")
    known.append(listener)
    try:
        started = await Now()
        await await_notice(listener, started + within)
        return await Now() - started
    finally:
        await Unsubscribe(listener)


def once(known: list[Listener]) -> Listener:
    while not known:
        time.sleep(0.001)
    return known[0]


def test_a_thread_is_told(server: PrivateServer) -> None:
    known: list[Listener] = []
    thread = threading.Thread(target=lambda: tell(server, once(known).listener_id))
    thread.start()
    assert complete(Caller(server.url).run(be_told(known, 30.0), b"x", "test")) < 10
    thread.join()
    assert not any(node.listeners for node in current().keeper._nodes.values())


def test_a_task_is_told(server: PrivateServer) -> None:
    known: list[Listener] = []

    async def main() -> float:
        teller = asyncio.get_running_loop().run_in_executor(None, lambda: tell(server, once(known).listener_id))
        seconds = await AioCaller(server.url).run(be_told(known, 30.0), b"x", "test")
        await teller
        return seconds

    assert asyncio.run(main()) < 10


def test_nobody_tells(server: PrivateServer) -> None:
    assert 0.04 < complete(Caller(server.url).run(be_told([], 0.05), b"x", "test")) < 5
    assert 0.04 < asyncio.run(AioCaller(server.url).run(be_told([], 0.05), b"x", "test")) < 5


def test_what_was_told_before_the_wait_ends_it(server: PrivateServer) -> None:
    async def told_early() -> float:
        listener = await subscribed(await Now() + 5, b"hf:")
        tell(server, listener.listener_id)
        while not listener.hints:
            time.sleep(0.001)
        started = await Now()
        await await_notice(listener, started + 30)
        await Unsubscribe(listener)
        return await Now() - started

    assert complete(Caller(server.url).run(told_early(), b"x", "test")) < 10
