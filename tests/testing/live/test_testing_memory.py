"""`holdfast.testing.memory()`: locks without a server, other clients on it, and what goes wrong on purpose."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey

import holdfast
from holdfast import HoldfastWarning, LeaseLost, Lock, LockTimeout, ServerError, aio, fencing, testing
from holdfast._core.lock.replies import ACQUIRE
from support.witness import PATIENCE, in_thread


def turn(lock: Lock) -> bool:
    """Take it and give it back; False if it stayed busy."""
    if lock.acquire():
        lock.release()
        return True
    return False


@pytest.fixture
def memory() -> Iterator[testing.Memory]:
    with testing.memory() as server:
        yield server


# Locks on it


def test_a_lock(memory: testing.Memory) -> None:
    lock = Lock(memory, "a")
    with lock as lease:
        assert lock.locked()
        assert lease.remaining() > 29
        lease.renew(60)
        assert lease.remaining() > 59
        with pytest.raises(LockTimeout, match="this thread holds it already"):
            Lock(memory, "a", wait=0.05).__enter__()
        assert not Lock(memory, "a").acquire(blocking=False)
    assert not lock.locked()
    with lock as later:
        assert later.fence > lease.fence


def test_a_lock_in_a_loop(memory: testing.Memory) -> None:
    async def main() -> None:
        lock, waiting = aio.Lock(memory, "a"), aio.Lock(memory, "a")
        async with lock as lease:
            assert await lock.locked()
            with pytest.raises(LockTimeout):
                await aio.Lock(memory, "a", wait=0.05).__aenter__()
            other = asyncio.create_task(waiting.acquire())
            await asyncio.to_thread(memory.until_waiting, lock)
            assert not other.done()
        assert await other
        holder = memory.holder("a")
        assert holder is not None
        assert holder.fence > lease.fence
        await waiting.release()

    asyncio.run(main())


def test_hand_over_in_the_order_of_arrival(memory: testing.Memory) -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with Lock(memory, "a"):
            order.append(number)

    with Lock(memory, "a"):
        waiting = []
        for number in range(5):
            waiting.append(in_thread(take, number))
            memory.until_waiting("a", number + 1)
        assert memory.waiters("a") == 5
    for each in waiting:
        each.result(PATIENCE)
    assert order == [0, 1, 2, 3, 4]


def test_many_threads(memory: testing.Memory) -> None:
    count = 0

    def work() -> None:
        nonlocal count
        for _ in range(50):
            with Lock(memory, "a"):
                seen = count
                time.sleep(0)
                count = seen + 1

    threads = [in_thread(work) for _ in range(6)]
    for each in threads:
        each.result(2 * PATIENCE)
    assert count == 300


def test_several_servers_do_not_meet(memory: testing.Memory) -> None:
    with testing.memory() as other, Lock(memory, "a"), Lock(other, "a"):
        assert memory.url != other.url


def test_a_server_that_nobody_keeps_serves_on_and_leaves_nothing() -> None:
    program = """
import gc, holdfast, holdfast.testing
lock = holdfast.Lock(holdfast.testing.memory(), "a")
gc.collect()
with lock as lease:
    print(lock._endpoint.path)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).parent.exists()


def test_nobody_else_can_get_at_it_and_nothing_is_left() -> None:
    with testing.memory() as memory:
        directory = Path(memory.socket).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    memory.close()
    assert not directory.exists()
    with pytest.raises(RuntimeError, match="was closed"):
        memory.flush()
    with pytest.raises(ServerError):
        Lock(memory, "a").acquire()


def test_closed_while_in_use() -> None:
    with testing.memory() as memory:
        lease = Lock(memory, "a").__enter__()
        waiter = in_thread(turn, Lock(memory, "a"))
        memory.until_waiting("a")
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost, match="was closed"):
        lease.release()
    with pytest.raises(ServerError):
        waiter.result(PATIENCE)


def test_a_forked_child_connects_but_has_no_say(memory: testing.Memory) -> None:
    with Lock(memory, "held"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Lock(memory, "a"):
                    assert not Lock(memory, "held").acquire(blocking=False)
                try:
                    memory.flush()
                except RuntimeError:
                    memory.close()
                    holdfast.close()
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert memory.holder("held") is not None
        memory.stop()
        memory.start()


def test_another_process(memory: testing.Memory) -> None:
    program = "import holdfast, sys; sys.exit(7 if holdfast.Lock(sys.argv[1], 'a').acquire(False) else 8)"
    with Lock(memory, "a"):
        assert subprocess.run([sys.executable, "-c", program, memory.url], check=False).returncode == 8
    assert subprocess.run([sys.executable, "-c", program, memory.url], check=False).returncode == 7


# Losing a lease


def test_an_expired_lease_is_noticed(memory: testing.Memory) -> None:
    told = threading.Event()
    with pytest.raises(LeaseLost), Lock(memory, "a", on_lost=lambda _: told.set()) as lease:
        memory.expire(lease)
        assert lease.lost.is_set()
        assert memory.holder("a") is None
        assert told.wait(PATIENCE)


def test_late_writes_are_refused_while_the_loss_is_not_noticed(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost), Lock(memory, "a") as lease:
        fence = memory.steal("a", notice=False)  # by somebody elsewhere: others of this process would wait until it is noticed
        assert fencing.fenced_set(memory, "page", "new", fence)
        assert not fencing.fenced_set(memory, "page", "old", lease.fence)
        assert not lease.lost.is_set()


def test_an_expired_lock_goes_to_who_waits(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost), Lock(memory, "a"):
        waiter = in_thread(turn, Lock(memory, "a"))
        memory.until_waiting("a")
        memory.expire("a")
        assert waiter.result(PATIENCE)


def test_a_stolen_lock(memory: testing.Memory) -> None:
    lock = Lock(memory, "a", ttl=5)
    with pytest.raises(LeaseLost, match="value of another client"), lock as lease:
        fence = memory.steal(lock)
        assert lease.lost.is_set()
        assert fence > lease.fence
        holder = memory.holder(lock)
        assert holder is not None
        assert holder.fence == fence
        assert holder.who is not None
        assert holder.remaining is not None
        assert 29 < holder.remaining <= 30
    assert not lock.acquire(blocking=False)
    memory.expire(lock)
    with lock as lease:
        assert lease.fence > fence


def test_a_lock_stolen_before_anybody_had_it(memory: testing.Memory) -> None:
    first, second = memory.steal("a"), memory.steal("a", ttl=7)
    assert second > first
    holder = memory.holder("a")
    assert holder is not None
    assert holder.remaining is not None
    assert holder.remaining <= 7
    with redis.Redis.from_url(memory.url) as client:
        assert [key for key in client.scan_iter() if client.pttl(key) == -1] == []


def test_all_data_lost(memory: testing.Memory) -> None:
    with Lock(memory, "a") as a, Lock(memory, "b", renew=False) as b:
        memory.flush()
        assert a.lost.is_set()
        assert not b.lost.is_set()  # nobody asks
        with pytest.raises(LeaseLost):
            a.release()
        with pytest.raises(LeaseLost):
            b.release()


def test_the_body_of_a_task_is_cancelled(memory: testing.Memory) -> None:
    async def main() -> None:
        reached = False
        with pytest.raises(LeaseLost):
            async with aio.Lock(memory, "a"):
                memory.expire("a")
                await asyncio.sleep(PATIENCE)
                reached = True
        assert not reached

    asyncio.run(main())


# Troubles


def test_a_server_that_is_away(memory: testing.Memory) -> None:
    lock = Lock(memory, "a", ttl=60)
    with lock as lease:
        with memory.down():
            with pytest.raises(ServerError, match="no server"):
                Lock(memory, "b").acquire()
            assert not lease.lost.is_set()
        lease.renew()
        with pytest.warns(HoldfastWarning, match="ends with its lease"), Lock(memory, "c"):
            memory.stop()
        memory.stop()
        memory.start()
        memory.start()
    assert memory.holder("a") is None
    assert memory.holder("c") is not None


def test_answers_that_get_lost(memory: testing.Memory) -> None:
    lock = Lock(memory, "a")
    with lock:
        pass
    memory.drop_replies(2)
    with lock as lease:
        holder = memory.holder(lock)
        assert holder is not None
        assert holder.fence == lease.fence
        memory.drop_replies()
    assert memory.holder(lock) is None


def test_slow_answers(memory: testing.Memory) -> None:
    lock = Lock(memory, "a", ttl=60)
    with lock:
        pass
    memory.slow(0.1)
    started = time.monotonic()
    assert lock.acquire()
    assert time.monotonic() - started >= 0.1
    memory.slow(0)
    lock.release()
    with pytest.raises(ValueError, match="delay"):
        memory.slow(-1)


def test_looking(memory: testing.Memory) -> None:
    assert memory.holder("a") is None
    assert memory.waiters("a") == 0
    with pytest.raises(TimeoutError, match="0 waiters for the lock"):
        memory.until_waiting("a", timeout=0.01)
    with redis.Redis.from_url(memory.url) as client:
        client.set("hf:{a}", "somebody's")
    assert memory.holder("a") == (None, 0, None)


# Other clients

CLIENTS: dict[str, Callable[[str], Any]] = {
    "redis, protocol 2": lambda path: redis.Redis(unix_socket_path=path, protocol=2),
    "redis, protocol 3": lambda path: redis.Redis(unix_socket_path=path, protocol=3),
    "redis, as it comes": lambda path: redis.Redis(unix_socket_path=path),
    "valkey": lambda path: valkey.Valkey(unix_socket_path=path),
}


@pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)
def test_clients(memory: testing.Memory, make: Callable[[str], Any]) -> None:
    with make(memory.socket) as client:
        assert client.ping()
        assert client.set("k", b"\r\n\0", px=60_000)
        assert client.get("k") == b"\r\n\0"
        assert client.get("none") is None
        client.hset("h", mapping={"a": "1", "b": "2"})
        assert client.hgetall("h") == {b"a": b"1", b"b": b"2"}
        client.sadd("s", "x", "y")
        assert set(client.smembers("s")) == {b"x", b"y"}
        client.zadd("z", {"one": 1.5, "two": 2})
        assert client.zscore("z", "one") == 1.5
        assert [tuple(pair) for pair in client.zrange("z", 0, -1, withscores=True)] == [(b"one", 1.5), (b"two", 2.0)]
        with pytest.raises((redis.ResponseError, valkey.ResponseError), match=r"WRONGTYPE|wrong kind"):
            client.incr("h")
        big = b"x" * 3_000_000
        client.set("big", big)
        assert client.get("big") == big
        lock = client.lock("theirs", timeout=5)
        assert lock.acquire(blocking=False)
        assert not Lock(memory, "a", key="theirs").acquire(blocking=False)
        lock.release()


@pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)
def test_transactions(memory: testing.Memory, make: Callable[[str], Any]) -> None:
    with make(memory.socket) as client:
        pipe = client.pipeline()
        pipe.set("k", 1).incr("k").get("k")
        assert pipe.execute() == [True, 2, b"2"]
        pipe.watch("k")
        pipe.multi()
        pipe.set("k", 9)
        client.set("k", 5)
        with pytest.raises((redis.WatchError, valkey.WatchError)):
            pipe.execute()
        assert client.get("k") == b"5"


@pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)
def test_messages(memory: testing.Memory, make: Callable[[str], Any]) -> None:
    with make(memory.socket) as client, client.pubsub() as listener:
        assert client.publish("news", "nobody hears") == 0
        listener.subscribe("news", "other")
        for _ in range(2):
            assert listener.get_message(timeout=PATIENCE)["type"] == "subscribe"
        assert client.publish("news", "hello") == 1
        assert client.pubsub_numsub("news") == [(b"news", 1)]
        message = listener.get_message(timeout=PATIENCE)
        assert (message["type"], message["channel"], message["data"]) == ("message", b"news", b"hello")
        listener.unsubscribe()
        for _ in range(2):
            assert listener.get_message(timeout=PATIENCE)["type"] == "unsubscribe"
        assert client.publish("news", "nobody hears") == 0


def test_a_client_for_asyncio(memory: testing.Memory) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=memory.socket) as client:
            assert await client.set("k", "v")
            assert await client.get("k") == b"v"
            async with aio.Lock(client, "a"):
                assert memory.holder("a") is not None

    asyncio.run(main())


def test_time_to_live(memory: testing.Memory) -> None:
    with redis.Redis(unix_socket_path=memory.socket) as client:
        client.set("k", "v", px=60_000)
        seconds, _ = client.time()
        assert abs(seconds - time.time()) < 2 + PATIENCE
        testing.clock.advance(59)
        assert client.get("k") == b"v"
        testing.clock.advance(1.1)
        assert client.get("k") is None
    testing.clock.reset()


def test_scripts_are_the_real_ones(memory: testing.Memory) -> None:
    with redis.Redis(unix_socket_path=memory.socket) as client:
        with Lock(memory, "a"):
            pass
        assert client.script_exists(ACQUIRE.sha) == [True]
        assert client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, "k", "v") == b"OK"
