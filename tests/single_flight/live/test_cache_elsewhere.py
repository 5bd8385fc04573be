"""A cache on a Cluster, and by way of clients whose connections cannot be opened without them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import aio
from holdfast._core.single_flight import flight
from holdfast._net.slots import slot_of
from single_flight.live.either_cache import Either, either
from support.clusters import Cluster
from support.servers import PrivateServer
from support.witness import in_thread, until


class Tunnelled(redis.Connection):
    """Stands for one that reaches its server in a way of its own."""


class TunnelledAsync(redis.asyncio.Connection):
    """The same for asyncio."""


@pytest.fixture
def nodes(common_cluster: Cluster) -> Cluster:
    return common_cluster


def use(cache: Either, other: Either) -> None:
    """One loads, the others are told; nothing stale is stored."""
    runs, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        runs.set()
        assert go_on.wait(10)
        return 1

    first = in_thread(cache.get_or_load, "a", slow, tags=("red",))
    assert runs.wait(10)
    waiting = [in_thread(other.get_or_load, "a", lambda: 2) for _ in range(3)]
    until(lambda: other.get_or_load("a", lambda: 2, wait=0, default="busy") == "busy")
    go_on.set()
    assert [future.result(10) for future in (first, *waiting)] == [1] * 4
    other.invalidate(tags=("red",))
    assert cache.get("a") is None
    runs.clear()
    go_on.clear()
    late = in_thread(cache.get_or_load, "a", slow)
    assert runs.wait(10)
    other.set("a", 3)
    go_on.set()
    assert (late.result(10), other.get("a")) == (1, 3)
    other.clear()
    assert cache.get("a") is None


@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_on_a_cluster(nodes: Cluster, api: str, name: str) -> None:
    with either(api) as make:
        for number in range(3):  # on different shards, or nearly surely
            use(make(nodes.url, f"{name}-{number}"), make(nodes.url, f"{name}-{number}"))


@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_a_hit_is_one_command_also_where_its_slot_has_moved_to(
    nodes: Cluster, api: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that was looked after together, as by a fail-over in which both servers live on."""
    with either(api) as make:
        cache = make(nodes.url, name)
        cache.set("a", 1)
        assert cache.get("a") == 1
        slot = slot_of(cache.cache._entry_of("a").value)
        to = nodes.move_slot(slot)
        anchor = cache.cache._caller.endpoint.cluster.shard(slot).anchor
        if nodes.primary_of(anchor) is not to:  # an earlier test may have moved it there, and nobody been told
            nodes.move_slot(anchor, to)
        assert cache.get("a") == 1
        monkeypatch.setattr(flight, "get_or_lease", None)  # what is asked where a plain command has not shown it
        assert cache.get("a") == 1


@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_by_way_of_a_client(server: PrivateServer, api: str, name: str) -> None:
    with either(api) as make:
        assert server.port is not None
        if api == "sync":
            pool = redis.ConnectionPool(connection_class=Tunnelled, port=server.port)
            with redis.Redis(connection_pool=pool) as client:
                use(make(client, name), make(server.url, name))
                use(make(server.url, f"{name}-2"), make(client, f"{name}-2"))
            holdfast.close()  # it listens by way of the client, which would connect anew
            pool.disconnect()
            return
        theirs: Any = redis.asyncio.ConnectionPool(connection_class=TunnelledAsync, port=server.port)
        other: Any = redis.asyncio.Redis(connection_pool=theirs)
        ours = make(other, name)
        try:
            use(ours, make(server.url, name))
        finally:
            ours._run(aio.close())
            ours._run(other.aclose())
            ours._run(theirs.disconnect())
