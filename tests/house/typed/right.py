"""Programs that type checkers accept: each function is one. They are checked, and never run. See `house.typed.test_typed`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Never, Protocol, Self, assert_type

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
import valkey
import valkey.asyncio

import holdfast
from holdfast import aio, fencing
from holdfast.doctor import examine
from holdfast.legacy import Migrating, TimestampLock
from holdfast.schedule import Every, current
from holdfast.testing import Memory

URL = "redis://localhost:6379"


class Acquirable(Protocol):
    """Code that takes any lock of threads."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


class AioAcquirable(Protocol):
    """The same for asyncio."""

    async def acquire(self) -> bool: ...
    async def release(self) -> None: ...


class OtherClient:
    """A client of another library, with the methods of those of redis-py and valkey-py."""

    def execute_command(self, *args: object, **options: object) -> object:
        return args, options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


class OtherAioClient:
    """The same for asyncio."""

    async def execute_command(self, *args: object, **options: object) -> object:
        return args, options

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


# Clients


def a_url() -> None:
    with holdfast.Lock(URL, "x") as lease:
        assert_type(lease, holdfast.LockLease)
        assert_type(lease.fence, int)


def a_client(client: redis.Redis) -> None:
    with holdfast.Lock(client, "x"), holdfast.RLock(client, "x"), holdfast.Semaphore(client, "x", 3):
        pass


def a_subclass() -> None:
    class Mine(redis.Redis):
        pass

    holdfast.Cache(Mine(), "shop")


def a_cluster(client: redis.cluster.RedisCluster) -> None:
    holdfast.Lock(client, "x")
    holdfast.Schedule(client, "jobs")


def valkey_clients(client: valkey.Valkey, cluster: valkey.ValkeyCluster) -> None:
    holdfast.Lock(client, "x")
    holdfast.Election(cluster, "x")
    holdfast.Inspector(client)


def a_client_that_is_known_by_its_methods(client: OtherClient) -> None:
    holdfast.Lock(client, "x")
    holdfast.transaction(client, "key")


def a_server_for_tests(server: Memory) -> None:
    holdfast.Event(server, "x").wait("5s")


async def an_asyncio_client(client: redis.asyncio.Redis, cluster: redis.asyncio.cluster.RedisCluster) -> None:
    async with aio.Lock(client, "x") as lease, aio.RWLock(cluster, "y").write:
        assert_type(lease.fence, int)


async def asyncio_clients_of_valkey(client: valkey.asyncio.Valkey, other: OtherAioClient) -> None:
    await aio.Semaphore(client, "x", 2).acquire()
    await aio.Barrier(other, "x", 2).wait()


def several_servers(one: redis.Redis, two: redis.Redis, three: redis.Redis) -> None:
    clients = [one, two, three]
    holdfast.Redlock(clients, "x")
    holdfast.Redlock({"a": one, "b": two, "c": three}, "x")
    holdfast.Redlock((URL, one, two), "x")
    holdfast.RLock(clients, "x")
    holdfast.Election(clients, "x")
    holdfast.declare_new(clients)
    examine(clients)


def clients_of_both_apis(client: redis.Redis, other: redis.asyncio.Redis) -> None:
    examine([client, other])


def a_function_of_a_program(client: holdfast.SyncClient, ttl: holdfast.Seconds) -> holdfast.Lock:
    return holdfast.Lock(client, "x", ttl=ttl)


async def the_same_for_asyncio(client: holdfast.AsyncClient) -> aio.Lock:
    return aio.Lock(client, "x")


def connections(client: redis.Redis, other: redis.asyncio.Redis) -> None:
    with holdfast.connect(client, ttl="30s") as holds:
        assert_type(holds.lock("x", wait=5), holdfast.Lock)
        assert_type(holds.find_deadlocks(), list[holdfast.Cycle])
        assert_type(holds.fenced_set("key", "value", 7, ttl="1h") or holds.accept("key", 7), bool)
    aio.connect(other)
    holdfast.connect()


# Durations


def durations(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", ttl="30s", wait=timedelta(minutes=5), max_hold=3600, quarantine="1m")
    holdfast.Lock(client, "x", quarantine=True).acquire(timeout="5m")
    holdfast.Cache(client, "shop", ttl=timedelta(hours=1), wait=None)
    holdfast.Schedule(client, "jobs").every("5m", jitter="10s")
    fencing.fenced_set(client, "key", "value", 7, ttl="1h")


# Wherever a lock is expected


def as_a_context_manager(client: redis.Redis, stack: contextlib.ExitStack) -> None:
    lock: contextlib.AbstractContextManager[holdfast.Lease, Any] = holdfast.Lock(client, "x")
    assert_type(stack.enter_context(holdfast.Semaphore(client, "x", 3)), holdfast.Lease)
    with lock as lease:
        lease.check()


async def as_an_asyncio_context_manager(client: redis.asyncio.Redis, stack: contextlib.AsyncExitStack) -> None:
    lock: contextlib.AbstractAsyncContextManager[aio.Lease, Any] = aio.Lock(client, "x")
    await stack.enter_async_context(lock)


def as_a_lock_of_threads(client: redis.Redis) -> None:
    locks: list[Acquirable] = [holdfast.Lock(client, "x"), holdfast.FairLock(client, "x"), holdfast.RLock(client, "x")]
    locks += [TimestampLock(client, "x"), Migrating(client, "x"), holdfast.MultiLock(client, ["a", b"b"])]
    for lock in locks:
        lock.release()


async def as_a_lock_of_tasks(client: redis.asyncio.Redis) -> None:
    locks: list[AioAcquirable] = [aio.Lock(client, "x"), aio.RLock(client, "x"), aio.Redlock([client], "x")]
    for lock in locks:
        await lock.release()


def several_locks(client: redis.Redis) -> None:
    holdfast.MultiLock(client, ["a", holdfast.Lock(client, "b")])
    with holdfast.MultiLock([holdfast.Lock(client, "a"), holdfast.Lock(client, "b")]) as lease:
        assert_type(lease, holdfast.MultiLease)


def told_of_a_loss(client: redis.Redis) -> None:
    def lost(lease: holdfast.LockLease) -> None:
        print(lease.fence)

    holdfast.Lock(client, "x", on_lost=lost)
    holdfast.Semaphore(client, "x", 3, on_lost=print)


# Decorators


def a_function_under_a_lock(client: redis.Redis) -> None:
    @holdfast.locked(client, "report:{user}", ttl="1m")
    def report(user: int, *, full: bool = False) -> str:
        return f"{user} {full}"

    assert_type(report(7, full=True), str)


async def a_coroutine_function_under_a_lock(client: redis.asyncio.Redis) -> None:
    @aio.locked(client, "report:{user}", busy="raise")
    async def report(user: int) -> str:
        return str(user)

    assert_type(await report(7), str)


def a_function_that_runs_once(client: redis.Redis) -> None:
    @holdfast.once(client, "pay:{order}", keep="1d")
    def pay(order: int) -> list[str]:
        return [str(order)]

    assert_type(pay(7), list[str])
    assert_type(pay.run(7), holdfast.Outcome[list[str]])
    assert_type(pay.run(7).how == "ran" and pay.forget(7), bool)


def skipped_calls_return_none(client: redis.Redis) -> None:
    @holdfast.locked(client, "report", busy="skip")
    def report() -> str:
        return "done"

    @holdfast.once(client, "pay:{order}", keep="1d", busy="skip")
    def pay(order: int) -> str:
        return str(order)

    assert_type(report(), str | None)
    assert_type(pay(7), str | None)
    assert_type(pay.run(7).value, str | None)
    assert_type(holdfast.connect(client).locked("x", busy="skip")(lambda: 7)(), int | None)


async def skipped_coroutines_return_none(client: redis.asyncio.Redis) -> None:
    @aio.locked(client, "report", busy="skip")
    async def report() -> str:
        return "done"

    @aio.once(client, "pay:{order}", keep="1d", busy="skip")
    async def pay(order: int) -> str:
        return str(order)

    assert_type(await report(), str | None)
    assert_type(await pay(7), str | None)


def decorators_that_are_kept(client: redis.Redis) -> None:
    waiting: holdfast.Once[Never] = holdfast.once(client, "x", keep=60)
    skipping: holdfast.Once[None] = holdfast.once(client, "x", keep=60, busy="skip")
    assert_type(waiting.run(lambda: 7).value, int)
    assert_type(skipping.run(lambda: 7).value, int | None)


def a_cached_function(client: redis.Redis) -> None:
    cache = holdfast.Cache(client, "shop")

    @cache.memoize("price:{sku}", ttl="5m")
    def price(sku: str) -> float:
        return len(sku)

    assert_type(price("apple"), float)
    price.invalidate("apple")
    assert_type(cache.get_or_load("key", lambda: 7), int)


async def a_cached_coroutine_function(client: redis.asyncio.Redis) -> None:
    cache = aio.Cache(client, "shop")

    @cache.memoize("price:{sku}")
    async def price(sku: str) -> float:
        return len(sku)

    assert_type(await price("apple"), float)


def a_cached_method(client: redis.Redis) -> None:
    cache = holdfast.Cache(client, "shop")

    class Shop:
        @cache.memoize("price:{sku}", ignore="self")
        def price(self, sku: str) -> float:
            return len(sku)

    Shop().price("apple")


def a_transaction(client: redis.Redis) -> None:
    @holdfast.transactional(client, "stock:{sku}")
    def sell(tx: holdfast.Transaction, sku: str) -> bool:
        tx.queue.set(f"stock:{sku}", 1)
        return True

    assert_type(sell("apple"), bool)


def jobs(client: redis.Redis) -> None:
    schedule = holdfast.Schedule(client, "jobs")

    @schedule.cron("@daily", max_runtime="1h")
    def backup() -> None:
        run = current()
        if run is not None:
            run.lease.check()

    schedule.add(backup, Every("5m"), name="often")


# Results


def results(client: redis.Redis, called: Callable[[holdfast.LockInfo, holdfast.Holder | None], object]) -> None:
    inspector = holdfast.Inspector(client)
    info = inspector.show("x")
    called(info, info.holder)
    assert_type(inspector.locks("*"), Iterator[holdfast.LockInfo])
    assert_type(holdfast.Lock(client, "x").statistics(), holdfast.LockStatistics)
    assert_type(holdfast.Lock(client, "x").lease, holdfast.LockLease | None)


async def a_ticket(client: redis.asyncio.Redis, send: Callable[[holdfast.Ticket], Awaitable[None]]) -> None:
    lock = aio.Lock(client, "x")
    await lock.acquire()
    await send(await lock.ticket("1m"))


def an_election(client: redis.Redis) -> None:
    election = holdfast.Election(client, "x", candidate="me")
    assert_type(election.campaign("5m"), holdfast.Term)
    for elected in election.observe():
        assert_type(elected, holdfast.Elected | None)
