"""A thread or task that would wait for a lock that it holds itself: an error at once, or a line in the log."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

import holdfast
from holdfast import aio
from support.servers import PrivateServer
from support.witness import in_thread, until

PAIRS = [
    ("Lock", "Lock"), ("FairLock", "FairLock"), ("Lock", "FairLock"), ("FairLock", "Lock"), ("Lock", "RLock"),
    ("RLock", "Lock"),
]  # fmt: skip
BUSY = "^lock '{name}' is held by this very {who}, in a `with` statement around this call, .* use holdfast.RLock"


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_nested_with(server: PrivateServer, look: redis.Redis, name: str, outer: str, inner: str) -> None:
    first, second = getattr(holdfast, outer)(server.url, name), getattr(holdfast, inner)(server.url, name)
    began = time.monotonic()
    with first as lease:
        for attempt in (second.__enter__, second.acquire):
            with pytest.raises(RuntimeError, match=BUSY.format(name=name, who="thread")):
                attempt()
        assert time.monotonic() - began < 5
        assert second.acquire(blocking=False) is False
        lease.check()
    assert not look.exists(f"hf:{{{name}}}"), "nothing is left behind"
    with second:
        pass


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_nested_async_with(server: PrivateServer, look: redis.Redis, name: str, outer: str, inner: str) -> None:
    async def main() -> None:
        first, second = getattr(aio, outer)(server.url, name), getattr(aio, inner)(server.url, name)
        async with asyncio.timeout(5), first as lease:
            for attempt in (second.__aenter__, second.acquire):
                with pytest.raises(RuntimeError, match=BUSY.format(name=name, who="task")):
                    await attempt()
            assert await second.acquire(blocking=False) is False
            lease.check()
        assert not look.exists(f"hf:{{{name}}}"), "nothing is left behind"
        async with second:
            pass

    asyncio.run(main())


MULTIPLE = "^lock '{name}' is held by this very {who}, in a `with` statement around this call, .* leave it out of the MultiLock"


@pytest.mark.parametrize("other", ["0", "zz"], ids=["last", "first"])
def test_a_multilock_inside_a_lock(server: PrivateServer, look: redis.Redis, name: str, other: str) -> None:
    with holdfast.Lock(server.url, name) as lease:
        for attempt in (
            lambda: holdfast.MultiLock(server.url, [name, other]).__enter__(),
            lambda: holdfast.MultiLock(server.url, [other, name]).acquire(),
        ):
            with pytest.raises(RuntimeError, match=MULTIPLE.format(name=name, who="thread")):
                attempt()
        assert holdfast.MultiLock(server.url, [name, other]).acquire(blocking=False) is False
        lease.check()
    assert not look.exists(f"hf:{{{other}}}"), "nothing is left behind"
    with holdfast.MultiLock(server.url, [name, other]):
        with pytest.raises(RuntimeError, match=BUSY.format(name=name, who="thread")):
            holdfast.Lock(server.url, name).acquire()
        with pytest.raises(RuntimeError, match=MULTIPLE.format(name=name, who="thread")):
            holdfast.MultiLock(server.url, [name]).acquire()


def test_an_asyncio_multilock_inside_a_lock(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            async with aio.Lock(server.url, name) as lease:
                for attempt in (
                    aio.MultiLock(server.url, [name, "q"]).__aenter__,
                    aio.MultiLock(server.url, ["q", name]).acquire,
                ):
                    with pytest.raises(RuntimeError, match=MULTIPLE.format(name=name, who="task")):
                        await attempt()
                lease.check()
            async with aio.MultiLock(server.url, [name, "q"]):
                with pytest.raises(RuntimeError, match=BUSY.format(name=name, who="task")):
                    await aio.Lock(server.url, name).acquire()

    asyncio.run(main())


def test_nested_with_clients_of_other_settings(server: PrivateServer, name: str) -> None:
    path = server.socket
    clients = redis.Redis(unix_socket_path=path), redis.Redis(unix_socket_path=path, socket_timeout=2)
    first, second = (holdfast.Lock(client, name) for client in clients)
    with first, pytest.raises(RuntimeError, match=BUSY.format(name=name, who="thread")):
        second.acquire()


def test_another_address_of_the_server_is_not_noticed(new_server: Callable[..., PrivateServer], name: str) -> None:
    """As the page docs/deadlocks.md says: only the addresses are compared."""
    server = new_server(port=True, password="secret-of-test")
    first, second = (
        holdfast.Lock(f"redis://:secret-of-test@{host}:{server.port}", name, wait=0.1) for host in ("127.0.0.1", "localhost")
    )
    with (
        first,
        pytest.raises(
            holdfast.LockTimeout, match=rf"^lock '{name}' is busy: held by this process, .*, try again later \(at .*\)$"
        ),
    ):
        second.__enter__()


def test_nested_with_the_same_object(server: PrivateServer, name: str) -> None:
    lock = holdfast.Lock(server.url, name)
    with lock:
        with pytest.raises(RuntimeError, match=r"use holdfast\.RLock"):
            lock.acquire()
        assert lock.lease is not None
    assert not lock.locked()


def test_nested_on_several_servers(name: str, new_server: Callable[..., PrivateServer]) -> None:
    urls = [new_server(port=True).url for _ in range(3)]
    holdfast.declare_new(urls)
    with holdfast.Redlock(urls, name), pytest.raises(RuntimeError, match=r"use holdfast\.RLock"):
        holdfast.Redlock(urls, name).acquire()
    assert not holdfast.Redlock(urls, name).locked()


def test_a_nested_wait_that_ends(server: PrivateServer, name: str) -> None:
    with holdfast.Lock(server.url, name):
        assert holdfast.Lock(server.url, name, wait=0.1).acquire() is False
        with (
            pytest.raises(holdfast.LockTimeout, match=r"this thread holds it already, .* use holdfast\.RLock"),
            holdfast.Lock(server.url, name, wait=0.1),
        ):
            pass

    async def main() -> None:
        async with aio.Lock(server.url, name):
            with pytest.raises(holdfast.LockTimeout, match=r"this task holds it already, .* use holdfast\.RLock"):
                await aio.Lock(server.url, name, wait=0.1).__aenter__()

    asyncio.run(main())


def test_the_holder_is_another_thread_or_task_of_this_process(server: PrivateServer, name: str) -> None:
    ours = rf"^lock '{name}' is busy: held by this process, \S+:{os.getpid()}, .* waited 0\.\d s, try again later \(at .*\)$"
    with holdfast.Lock(server.url, name), pytest.raises(holdfast.LockTimeout, match=ours):
        in_thread(holdfast.Lock(server.url, name, wait=0.1).__enter__).result(5)

    async def main() -> None:
        async with aio.Lock(server.url, name):
            with pytest.raises(holdfast.LockTimeout, match=ours):
                await asyncio.create_task(aio.Lock(server.url, name, wait=0.1).__aenter__())

    asyncio.run(main())
    permits = holdfast.Semaphore(server.url, f"{name}-s", limit=1, wait=0.1)
    with (
        permits,
        pytest.raises(
            holdfast.LockTimeout, match=r"^semaphore '\S+' is busy: held by this process, .*, try again later \(at .*\)$"
        ),
    ):
        permits.__enter__()


def test_others_wait_for_the_body_as_before(server: PrivateServer, name: str) -> None:
    """A thread or task that the body has started, and semaphores."""
    done: list[str] = []

    def other() -> None:
        with holdfast.Lock(server.url, name):
            done.append("thread")

    with holdfast.Lock(server.url, name):
        waiting = in_thread(other)
        time.sleep(0.2)
        assert done == []
    waiting.result(5)

    async def task() -> None:
        async with aio.Lock(server.url, name):
            done.append("task")

    async def main() -> None:
        async with asyncio.TaskGroup() as group, aio.Lock(server.url, name):
            group.create_task(task())
            await asyncio.sleep(0.2)
            assert done == ["thread"]

    asyncio.run(main())
    assert done == ["thread", "task"]
    with holdfast.Semaphore(server.url, f"{name}-s", 2), holdfast.Semaphore(server.url, f"{name}-s", 2):
        pass


def test_a_lease_that_was_released_in_the_body(server: PrivateServer, name: str) -> None:
    lock = holdfast.Lock(server.url, name)
    with lock:
        lock.release()
        lock.acquire()
        held = threading.Condition(holdfast.Lock(server.url, f"{name}-c"))  # type: ignore[arg-type]
        with held:
            held.wait(0.01)
    assert not lock.locked()


def test_acquire_here_and_release_there(server: PrivateServer, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is legal, as with a threading.Lock; the log says what may be wrong, once."""
    lock = holdfast.Lock(server.url, name)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "and holds this lock itself" in record.getMessage()]

    def release() -> None:
        until(said)
        lock.release()

    with caplog.at_level(logging.WARNING, "holdfast.keeper"):
        lock.acquire()
        began, releasing = time.monotonic(), in_thread(release)
        assert lock.acquire()
        releasing.result(5)
        assert 0.4 < time.monotonic() - began < 5
        lock.release()
    (warning,) = said()
    assert f"'hf:{{{name}}}'" in warning
    assert "The wait lasts until another thread or task releases the lock, or until its time limit, if it has one" in warning
    assert warning.endswith("use holdfast.RLock")


def test_the_same_in_asyncio(server: PrivateServer, name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        lock: Any = aio.Lock(server.url, name)

        async def release() -> None:
            await asyncio.to_thread(until, lambda: "and holds this lock itself" in caplog.text)
            await lock.release()

        await lock.acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(release())
            assert await lock.acquire()
        await lock.release()

    with caplog.at_level(logging.WARNING, "holdfast.keeper"):
        asyncio.run(main())
    assert caplog.text.count("and holds this lock itself") == 1


def test_an_election_inside_itself(server: PrivateServer, name: str) -> None:
    """The advice is not that of a lock."""
    election = holdfast.Election(server.url, name)
    again = "would wait for itself: this candidate leads already, until it resigns"
    with election, pytest.raises(RuntimeError, match=again), election:
        raise AssertionError
