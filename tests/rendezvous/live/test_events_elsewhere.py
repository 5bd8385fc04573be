"""Events, latches and barriers on a Cluster, behind Sentinels, and by way of clients that cannot be done without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

import holdfast
from holdfast import BrokenBarrier, aio
from rendezvous.live.rendezvous_apis import APIS, Either
from single_flight.live.test_cache_elsewhere import Tunnelled
from support.clusters import Cluster, cluster
from support.sentinels import Sentinels
from support.servers import PrivateServer
from support.witness import until

apis = pytest.mark.parametrize("api", APIS)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster() as running:
        yield running
        holdfast.close()


def use(api: str, client: object, name: str) -> None:
    """All that they do, and who waits is told."""
    event = Either(api, "Event", client, f"{name} event")
    latch = Either(api, "CountDownLatch", client, f"{name} latch", 1)
    waiting = [event.later("wait", 20), latch.later("wait", 20)]
    until(lambda: not any(future.done() for future in waiting))
    event("set")
    event("clear")
    latch("count_down")
    assert waiting[1].result(10) is True
    assert waiting[0].done() or event("set") is None
    assert waiting[0].result(10) is True
    barrier = Either(api, "Barrier", client, f"{name} barrier", 2, lambda: None)
    assert sorted(barrier.at_once(2, "wait")) == [0, 1]
    other = barrier.later("wait")
    until(lambda: barrier("n_waiting"))
    barrier("abort")
    error = other.exception(10)
    assert isinstance(error, BrokenBarrier)
    assert ":" in str(error.by), "who it was"


@apis
def test_on_a_cluster(nodes: Cluster, api: str, name: str) -> None:
    for number in range(2):  # on different shards, as a rule
        use(api, nodes.url, f"{name}-{number}")


def test_behind_sentinels(name: str) -> None:
    with Sentinels(down_after=5) as running:
        for api in APIS:
            use(api, running.url, f"{name}-{api}")
        holdfast.close()


def test_by_way_of_a_client(server: PrivateServer, name: str) -> None:
    assert server.port is not None
    pool = redis.ConnectionPool(connection_class=Tunnelled, port=server.port)
    with redis.Redis(connection_pool=pool) as client:
        use("threads", client, name)
    holdfast.close()
    pool.disconnect()


def test_threads_and_tasks_meet(server: PrivateServer, name: str) -> None:
    thread = Either("threads", "Barrier", server.url, name, 2).later("wait")
    assert {asyncio.run(wait(server.url, name)), thread.result(10)} == {0, 1}


async def wait(url: str, name: str) -> int:
    return await aio.Barrier(url, name, 2).wait()
