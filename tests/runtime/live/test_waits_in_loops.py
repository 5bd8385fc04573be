"""A sync wait in a thread that runs an event loop is refused: it would block the tasks, among them perhaps the holder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import redis

import holdfast
from support.servers import PrivateServer
from support.witness import queue_length

REFUSED = "would block the event loop that runs in this thread"


def held(url: str, name: str) -> Callable[[], object]:
    """A wait that lasts until another task of the loop goes on."""
    return lambda: holdfast.Lock(url, name, wait=5).acquire()


WAITS: dict[str, Callable[[str, str], Callable[[], Any]]] = {
    "lock": held,
    "fair": lambda url, name: lambda: holdfast.FairLock(url, name).acquire(timeout=5),
    "rlock": lambda url, name: holdfast.RLock(url, name).__enter__,
    "election": lambda url, name: holdfast.Election(url, f"{name}:other", wait=5).campaign,
    "event": lambda url, name: lambda: holdfast.Event(url, f"{name}:event").wait(5),
    "barrier": lambda url, name: lambda: holdfast.Barrier(url, f"{name}:barrier", 2).wait(5),
}


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_is_refused_and_leaves_nothing(kind: str, server: PrivateServer, look: redis.Redis, name: str) -> None:
    wait = WAITS[kind](server.url, name)

    async def main() -> None:
        lock = holdfast.aio.Lock(server.url, name)
        leader = holdfast.aio.Election(server.url, f"{name}:other")
        async with lock as lease, leader:
            with pytest.raises(RuntimeError, match=REFUSED):
                wait()
            lease.check()
            assert queue_length(look, name) == 0

    asyncio.run(main())


def test_what_need_not_wait_goes_on_as_with_any_client(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        with holdfast.Lock(server.url, name) as lease:
            assert not holdfast.Lock(server.url, name, wait=0).acquire()
            lease.renew()
        assert await asyncio.to_thread(holdfast.Lock(server.url, name).acquire)

    asyncio.run(main())


def test_in_jupyter_all_code_runs_in_a_loop(server: PrivateServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))

    async def main() -> None:
        with holdfast.Lock(server.url, name):
            assert not holdfast.Lock(server.url, name, wait=0.05).acquire()

    asyncio.run(main())
