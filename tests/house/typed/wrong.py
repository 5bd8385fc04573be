"""Programs that type checkers refuse: each function has one mistake, on the line with ``type: ignore``.

Both checkers report a ``type: ignore`` on a line without an error, so these lines are errors for both. The functions are never
run. See `house.typed.test_typed`.
"""

from __future__ import annotations

import threading
from datetime import datetime

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
import valkey
import valkey.asyncio

import holdfast
from holdfast import aio, fencing
from holdfast.legacy import TimestampLock
from holdfast.legacy.aio import TimestampLock as AioTimestampLock
from holdfast.schedule import Every

URL = "redis://localhost:6379"


# Clients


def a_number() -> None:
    holdfast.Lock(42, "x")  # type: ignore[arg-type]


def nothing() -> None:
    holdfast.Lock(None, "x")  # type: ignore[arg-type]


def bytes_as_a_url() -> None:
    holdfast.Cache(b"redis://localhost", "x")  # type: ignore[arg-type]


def a_pool(client: redis.Redis) -> None:
    holdfast.Semaphore(client.connection_pool, "x", 3)  # type: ignore[arg-type]


def a_lock_of_threads() -> None:
    holdfast.Lock(threading.Lock(), "x")  # type: ignore[arg-type]


def swapped(client: redis.Redis) -> None:
    holdfast.Lock("x", client)  # type: ignore[arg-type]


def an_asyncio_client(client: redis.asyncio.Redis) -> None:
    holdfast.Lock(client, "x")  # type: ignore[arg-type]


def an_asyncio_client_of_a_cluster(client: redis.asyncio.cluster.RedisCluster) -> None:
    holdfast.Election(client, "x")  # type: ignore[arg-type]


def an_asyncio_client_of_valkey(client: valkey.asyncio.Valkey) -> None:
    holdfast.Schedule(client, "x")  # type: ignore[arg-type]


def a_synchronous_client(client: redis.Redis) -> None:
    aio.Lock(client, "x")  # type: ignore[arg-type]


def a_synchronous_client_of_a_cluster(client: redis.cluster.RedisCluster) -> None:
    aio.RWLock(client, "x")  # type: ignore[arg-type]


def a_synchronous_client_of_valkey(client: valkey.Valkey) -> None:
    aio.Event(client, "x")  # type: ignore[arg-type]


async def a_synchronous_client_for_a_fence_check(client: redis.Redis) -> None:
    await aio.find_deadlocks(client)  # type: ignore[arg-type]


def an_asyncio_client_for_a_fence_check(client: redis.asyncio.Redis) -> None:
    fencing.accept(client, "key", 7)  # type: ignore[arg-type]


def an_asyncio_client_for_a_transaction(client: redis.asyncio.Redis) -> None:
    holdfast.transaction(client, "key")  # type: ignore[arg-type]


def a_synchronous_client_for_a_decorator(client: redis.Redis) -> None:
    aio.once(client, "x", keep=60)  # type: ignore[call-overload]


def an_asyncio_client_for_a_connection(client: redis.asyncio.Redis) -> None:
    holdfast.connect(client)  # type: ignore[arg-type]


def clients_of_timestamp_locks(client: redis.asyncio.Redis, other: redis.Redis) -> None:
    TimestampLock(client, "x")  # type: ignore[arg-type]
    AioTimestampLock(other, "x")  # type: ignore[arg-type]


def several_servers_for_a_lock(client: redis.Redis) -> None:
    holdfast.Lock([client, client], "x")  # type: ignore[arg-type]


def one_server_for_a_redlock(client: redis.Redis) -> None:
    holdfast.Redlock(client, "x")  # type: ignore[arg-type]


def asyncio_clients_for_a_redlock(one: redis.asyncio.Redis, two: redis.asyncio.Redis) -> None:
    clients = [one, two]
    holdfast.Redlock(clients, "x")  # type: ignore[arg-type]


def locks_of_both_apis(client: redis.Redis, other: redis.asyncio.Redis) -> None:
    holdfast.MultiLock(client, [aio.Lock(other, "x")])  # type: ignore[list-item]


# Options


def a_point_in_time(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", ttl=datetime.now())  # type: ignore[arg-type]  # noqa: DTZ005


def bytes_as_a_duration(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", wait=b"5s")  # type: ignore[arg-type]


def no_duration_at_all(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", ttl=None)  # type: ignore[arg-type]


def a_list_of_durations() -> None:
    Every([5])  # type: ignore[arg-type]


def a_number_as_a_name(client: redis.Redis) -> None:
    holdfast.Lock(client, 42)  # type: ignore[arg-type]


def an_option_of_redis_py(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", timeout=5)  # type: ignore[arg-type]


def an_unknown_choice(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", deadlock="ignore")  # type: ignore[arg-type]


def options_by_position(client: redis.Redis) -> None:
    holdfast.Lock(client, "x", 30)  # type: ignore[call-arg]


def no_keep(client: redis.Redis) -> None:
    holdfast.once(client, "x")  # type: ignore[call-overload]


def a_loss_of_another_kind_of_lease(client: redis.Redis) -> None:
    def lost(lease: aio.LockLease) -> None:
        print(lease)

    holdfast.Lock(client, "x", on_lost=lost)  # type: ignore[arg-type]


# Uses


async def with_of_the_other_api(client: redis.Redis) -> None:
    async with holdfast.Lock(client, "x"):  # type: ignore[attr-defined]
        pass


def async_with_of_the_other_api(client: redis.asyncio.Redis) -> None:
    with aio.Lock(client, "x"):  # type: ignore[attr-defined]
        pass


def a_method_of_redis_py(client: redis.Redis) -> None:
    holdfast.Lock(client, "x").extend(5)  # type: ignore[attr-defined]


def a_lease_that_may_be_missing(client: redis.Redis) -> None:
    holdfast.Lock(client, "x").lease.check()  # type: ignore[union-attr]


def a_bare_decorator(client: redis.Redis) -> None:
    @holdfast.locked  # type: ignore[call-overload]
    def report() -> None: ...


def a_call_that_may_be_skipped(client: redis.Redis) -> None:
    @holdfast.locked(client, "x", busy="skip")
    def report() -> int:
        return 7

    number: int = report()  # type: ignore[assignment]
    print(number)


async def a_coroutine_that_may_be_skipped(client: redis.asyncio.Redis) -> None:
    @aio.once(client, "x", keep=60, busy="skip")
    async def report() -> int:
        return 7

    number: int = await report()  # type: ignore[assignment]
    print(number)


def a_bare_memoize(client: redis.Redis) -> None:
    @holdfast.Cache(client, "x").memoize  # type: ignore[arg-type]
    def price() -> int:
        return 7


def a_function_in_asyncio(client: redis.asyncio.Redis) -> None:
    @aio.Cache(client, "x").memoize("x")  # type: ignore[arg-type]
    def price() -> int:
        return 7


def a_wrong_argument_of_a_decorated_function(client: redis.Redis) -> None:
    @holdfast.locked(client, "x:{number}")
    def report(number: int) -> None: ...

    report("seven")  # type: ignore[arg-type]


def a_wrong_result_of_a_decorated_function(client: redis.Redis) -> None:
    @holdfast.once(client, "x:{number}", keep=60)
    def report(number: int) -> str:
        return str(number)

    number: int = report(7)  # type: ignore[assignment]
    print(number)
