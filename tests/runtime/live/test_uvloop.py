"""The asyncio API in an event loop that inherits nothing of asyncio's own. `make uvloop` runs all tests of that API so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import LeaseLost, aio
from holdfast.legacy.aio import TimestampLock
from net.faults.test_tls import CA, good
from quorum.live.test_redlock import Group
from support.servers import PrivateServer
from support.terminator import Terminator
from support.witness import connections, in_thread, nobody_else, queue_length, until, until_in_loop, waiting_here

if TYPE_CHECKING:
    from conftest import NewServer

uvloop = pytest.importorskip("uvloop", reason="there is no wheel of uvloop for this Python")

pytestmark = [
    pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore:TimestampLock is only as good:holdfast.HoldfastWarning"),
]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


async def mutual(lock: Callable[[], Any]) -> None:
    """Eight tasks take turns, and none of them is inside beside another one."""
    inside = entered = 0

    async def turn() -> None:
        nonlocal inside, entered
        async with lock():
            inside, entered = inside + 1, entered + 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(turn() for _ in range(8)))
    assert entered == 8


async def rlock(url: str, name: str) -> None:
    lock = aio.RLock(url, name)
    async with lock, lock:
        assert await lock.locked()
    assert not await lock.locked()


async def semaphore(url: str, name: str) -> None:
    first, second, third = (aio.Semaphore(url, name, 2, wait=5) for _ in range(3))
    async with first:
        async with second:
            assert not await third.acquire(False)
            waiting = asyncio.create_task(third.acquire())
            await asyncio.sleep(0.01)
        assert await waiting
        await third.release()


async def rwlock(url: str, name: str) -> None:
    lock = aio.RWLock(url, name, wait=5)
    async with lock.read:
        assert not await asyncio.create_task(aio.RWLock(url, name).write.acquire(False))
    await mutual(lambda: aio.RWLock(url, name, wait=5).write)


async def multilock(url: str, name: str) -> None:
    await mutual(lambda: aio.MultiLock([aio.Lock(url, f"{name}-{part}") for part in "ab"], wait=5))


async def leader(url: str, name: str) -> None:
    async with aio.Election(url, name, wait=5) as lease:
        assert lease.fence


async def event(url: str, name: str) -> None:
    event = aio.Event(url, name)
    waiting = asyncio.create_task(event.wait(5))
    await asyncio.sleep(0.02)
    await event.set()
    assert await waiting


async def latch(url: str, name: str) -> None:
    latch = aio.CountDownLatch(url, name, 2)
    waiting = asyncio.create_task(latch.wait(5))
    await latch.count_down()
    await latch.count_down()
    assert await waiting


async def barrier(url: str, name: str) -> None:
    async def come() -> int:
        return await aio.Barrier(url, name, 3, timeout=5).wait()

    assert sorted(await asyncio.gather(come(), come(), come())) == [0, 1, 2]


async def cache(url: str, name: str) -> None:
    loads = 0

    async def load() -> int:
        nonlocal loads
        loads += 1
        await asyncio.sleep(0.01)
        return 7

    cache = aio.Cache(url, name)
    assert await asyncio.gather(*(cache.get_or_load("x", load) for _ in range(20))) == [7] * 20
    assert loads == 1


async def once(url: str, name: str) -> None:
    runs = 0

    @aio.once(url, name + ":{order}", keep=5, wait=5)
    async def charge(order: int) -> int:
        nonlocal runs
        runs += 1
        return order

    assert await asyncio.gather(*(charge(3) for _ in range(5))) == [3] * 5
    assert runs == 1


async def locked(url: str, name: str) -> None:
    @aio.locked(url, name + ":{order}")
    async def charge(order: int) -> int:
        return order

    assert await asyncio.gather(*(charge(3) for _ in range(5))) == [3] * 5


async def schedule(url: str, name: str) -> None:
    schedule, ran = aio.Schedule(url, name), asyncio.Event()

    @schedule.every(0.1)
    async def tick() -> None:
        ran.set()

    async with schedule:
        await asyncio.wait_for(ran.wait(), 5)


async def transaction(url: str, name: str) -> None:
    async with redis.asyncio.Redis.from_url(url) as client:

        @aio.transactional(client, name)
        async def add(tx: aio.Transaction) -> None:
            tx.queue.set(name, int(await tx.read.get(name) or 0) + 1)

        await asyncio.gather(*(add() for _ in range(5)))
        assert await client.getdel(name) == b"5"


async def inspect(url: str, name: str) -> None:
    async with aio.Lock(url, name) as lease:
        seen = await aio.Inspector(url).show(name)
        assert seen.fence >= lease.fence


async def ticket(url: str, name: str) -> None:
    lock = aio.Lock(url, name)
    await lock.acquire()
    lease = lock.lease
    assert lease is not None
    handed = await lease.ticket()
    async with aio.redeem(url, handed) as taken:
        assert taken.fence > lease.fence


async def timestamp(url: str, name: str) -> None:
    await mutual(lambda: TimestampLock(url, name, ttl=20, wait=5))


FAMILY: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "Lock": lambda url, name: mutual(lambda: aio.Lock(url, name, wait=5)),
    "FairLock": lambda url, name: mutual(lambda: aio.FairLock(url, name, wait=5)),
    "linger": lambda url, name: mutual(lambda: aio.Lock(url, name, wait=5, linger=0.01)),
    "RLock": rlock,
    "Semaphore": semaphore,
    "RWLock": rwlock,
    "MultiLock": multilock,
    "Election": leader,
    "Event": event,
    "CountDownLatch": latch,
    "Barrier": barrier,
    "Cache": cache,
    "once": once,
    "locked": locked,
    "Schedule": schedule,
    "transactional": transaction,
    "inspect": inspect,
    "ticket": ticket,
    "TimestampLock": timestamp,
}


@pytest.mark.parametrize("kind", FAMILY)
def test_each_of_the_family(server: PrivateServer, runner: asyncio.Runner, name: str, kind: str) -> None:
    async def main() -> None:
        await FAMILY[kind](server.url, name)

    runner.run(main())


def test_a_client_of_redis_py(server: PrivateServer, runner: asyncio.Runner, name: str) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await mutual(lambda: aio.Lock(client, name, wait=5))

    runner.run(main())


def test_several_servers(new_server: NewServer, runner: asyncio.Runner, name: str) -> None:
    with closing(Group([new_server() for _ in range(3)])) as group:

        async def main() -> None:
            await mutual(lambda: aio.Redlock(group.urls, name, ttl=5, wait=5))

        runner.run(main())


def test_a_unix_socket_and_a_server_that_comes_back(new_server: NewServer, runner: asyncio.Runner, name: str) -> None:
    server = new_server(appendonly=True)

    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=5)
        async with lock as lease:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            assert await lock.locked()
            await lease.renew()
        assert not await lock.locked()

    runner.run(main())


def test_tls(new_server: NewServer, runner: asyncio.Runner, name: str, tmp_path: Path) -> None:
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    with Terminator(good(), new_server().socket) as server:
        url = f"rediss://localhost:{server.port}?ssl_ca_certs={tmp_path}/ca.pem"

        async def main() -> None:
            await mutual(lambda: aio.FairLock(url, name, wait=5))
            await aio.close()

        runner.run(main())
        holdfast.close()


def test_who_is_cancelled_leaves_nothing(server: PrivateServer, runner: asyncio.Runner, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        async with aio.FairLock(server.url, name) as lease:
            waiting = asyncio.create_task(aio.FairLock(server.url, name).acquire())
            await until_in_loop(lambda: queue_length(look, name) == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert queue_length(look, name) == 0
            with pytest.raises(TimeoutError):
                await asyncio.create_task(second())
            lease.check()

    async def second() -> None:
        async with asyncio.timeout(0.01), aio.Lock(server.url, name):
            pytest.fail("two have it")

    runner.run(main())
    assert not look.exists(f"hf:{{{name}}}")


def test_the_body_of_a_lease_that_is_lost_is_cancelled(
    server: PrivateServer, runner: asyncio.Runner, look: redis.Redis, name: str
) -> None:
    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=0.3)
        with pytest.raises(LeaseLost):
            async with lock:
                look.set(lock.key, "somebody else's", px=300)
                await asyncio.sleep(10)

    runner.run(main())


def test_connections_end_with_the_loop(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holdfast.close()
    before = nobody_else(look)
    lock = aio.Lock(server.url, name)
    for _ in range(2):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(lock.acquire())
            runner.run(lock.release())
        holdfast.close()
        until(lambda: connections(look) == before)


def test_a_closed_loop_keeps_nobody_waiting(server: PrivateServer, name: str) -> None:
    """Its task stood in line, and nobody has cancelled it."""
    holder, patient = (holdfast.Lock(server.url, name) for _ in range(2))
    holder.acquire()
    loop = uvloop.new_event_loop()
    task = loop.create_task(aio.Lock(server.url, name).acquire())
    while waiting_here(holder) == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    taken = in_thread(patient.acquire)
    until(lambda: waiting_here(holder) == 2)
    task._log_destroy_pending = False
    loop.run_until_complete(aio.close())
    loop.close()
    holder.release()
    assert taken.result(5)
    patient.release()
