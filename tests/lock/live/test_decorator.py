"""``@locked`` on a real server: one lock per rendered name, in both APIs, over threads, tasks and processes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from holdfast import FairLock, LeaseLost, Lock, LockTimeout, aio, locked, once
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import in_thread, queue_length, until


def test_calls_with_one_name_take_turns(server: PrivateServer, name: str) -> None:
    inside = 0
    most = 0
    mutex = threading.Lock()

    @locked(server.url, name + ":{user}")
    def work(user: int) -> int:
        nonlocal inside, most
        with mutex:
            inside += 1
            most = max(most, inside)
        time.sleep(0.001)
        with mutex:
            inside -= 1
        return user

    futures = [in_thread(work, 7) for _ in range(8)]
    assert [future.result(10) for future in futures] == [7] * 8
    assert most == 1


def test_calls_with_different_names_do_not_wait_for_each_other(server: PrivateServer, name: str) -> None:
    together = threading.Barrier(3, timeout=10)

    @locked(server.url, name + ":{user}")
    def work(user: int) -> int:
        together.wait()
        return user

    assert sorted(future.result(10) for future in [in_thread(work, n) for n in range(3)]) == [0, 1, 2]


def test_excluded_by_another_process(server: PrivateServer, name: str) -> None:
    ran: list[int] = []

    @locked(server.url, name + ":{n}", busy="skip")
    def skipping(n: int) -> str:
        ran.append(n)
        return "done"

    @locked(server.url, name + ":{n}", busy="raise")
    def raising(n: int) -> str:
        return "done"

    with Peer("sync", server.url, f"{name}:1") as peer:
        assert peer.ask("lock.acquire()") is True
        assert skipping(1) is None
        with pytest.raises(LockTimeout) as caught:
            raising(1)
        assert caught.value.name == f"{name}:1"
        assert skipping(2) == raising(2) == "done"
        peer.ask("lock.release()")
        assert skipping(1) == raising(1) == "done"
    assert ran == [2, 1]


def test_busy_wait_waits(server: PrivateServer, look: redis.Redis, name: str) -> None:
    @locked(server.url, name)
    def work() -> str:
        return "done"

    with FairLock(server.url, name):
        future = in_thread(work)
        until(lambda: queue_length(look, name) == 1)
    assert future.result(5) == "done"


def test_coroutines(server: PrivateServer, name: str) -> None:
    client = redis.asyncio.Redis.from_url(server.url)
    inside = most = 0

    @locked(client, name + ":{user!r}")
    async def work(user: str = "nobody") -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(work())
        assert await aio.Lock(client, f"{name}:'nobody'").locked() is False

    asyncio.run(main())
    assert most == 1


@pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")
def test_a_loss_comes_out_of_the_call(server: PrivateServer, look: redis.Redis, name: str) -> None:
    told: list[Any] = []

    @locked(server.url, name, ttl=0.3, on_lost=told.append)
    def work() -> None:
        look.delete(f"hf:{{{name}}}")
        until(lambda: told)

    @locked(server.url, name, ttl=0.3)
    async def work_in_loop() -> None:
        look.delete(f"hf:{{{name}}}")
        await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        work()
    with pytest.raises(LeaseLost):
        asyncio.run(work_in_loop())


def test_the_label_is_shown(server: PrivateServer, look: redis.Redis, name: str) -> None:
    @locked(server.url, name, label="from a decorator")
    def work() -> None:
        until(lambda: any("from a decorator" in str(look.get(key)) for key in look.keys("hf:proc:*")))

    work()


def test_a_method_on_many_objects(server: PrivateServer, name: str) -> None:
    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        @locked(server.url, name + ":{amount:04d}")
        def pay(self, amount: int, *, note: str = "") -> tuple[int, int, str]:
            return self.number, amount, note

    assert [Account(n).pay(n, note="x") for n in range(3)] == [(0, 0, "x"), (1, 1, "x"), (2, 2, "x")]


def test_stop_iteration_of_a_function_is_its_own(server: PrivateServer, name: str) -> None:
    """A flow in between, which is a coroutine, must not make a RuntimeError of it."""

    def last() -> None:
        raise StopIteration("last")

    for run in (locked(server.url, name)(last), once(server.url, f"{name}:once", keep=5)(last)):
        with pytest.raises(StopIteration, match="last"):
            run()
    with pytest.raises(StopIteration), Lock(server.url, name, wait=0):
        last()
