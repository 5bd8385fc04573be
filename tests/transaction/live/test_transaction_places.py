"""Transactions where the server has to be found first: in a Cluster, behind Sentinels, or this machine's own."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, ServerError, aio
from support.clusters import Cluster
from support.sentinels import Sentinels
from transaction.live.transactions import KINDS, Optimist, done


@pytest.fixture
def nodes(common_cluster: Cluster) -> Cluster:
    return common_cluster


class InCluster(Optimist):
    """With the client of a Cluster."""

    def __init__(self, kind: str, nodes: Cluster) -> None:
        package = importlib.import_module(f"{kind}.cluster")
        host, port = nodes.address
        make = getattr(package, "RedisCluster", None) or package.ValkeyCluster
        self.is_async = kind.endswith("asyncio")
        self.client = make(host=host, port=port, decode_responses=True)


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_slot_of_its_keys_wherever_that_is(nodes: Cluster, name: str, kind: str, look: redis.Redis) -> None:
    key = f"{{{name}:{kind}}}:count"

    async def play() -> None:
        me = InCluster(kind, nodes)
        with pytest.raises(ConfigError, match="in one slot"):
            me.on(key, "elsewhere")

        moves = False

        async def add_one(tx: Any) -> object:
            nonlocal moves
            number = await done(tx.read.get(key))
            if moves:
                moves = False
                nodes.move_slot(nodes.slot(key))
            tx.queue.set(key, int(number or 0) + 1)
            return number

        assert [await me.run(add_one, key) for _ in range(2)] == [None, "1"]
        moves = True  # between GET and EXEC
        assert await me.run(add_one, key) == "2"
        nodes.move_slot(nodes.slot(key))  # before WATCH
        assert await me.run(add_one, key) == "3"
        assert await me.run(add_one, key, client=nodes.url) == b"4"
        await me.close()

    asyncio.run(asyncio.wait_for(play(), 20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_that_moves_before_the_first_read_and_a_key_of_another_slot(nodes: Cluster, name: str, kind: str) -> None:
    """The first is done again; the second never succeeds."""
    key, more = f"{{{name}:{kind}:2}}:count", f"{{{name}:{kind}:2}}:more"
    others = ("a", "b", "c")
    tries = 0

    async def play() -> None:
        nonlocal tries
        me = InCluster(kind, nodes)

        async def moving(tx: Any) -> None:
            nonlocal tries
            tries += 1
            if tries % 2:
                nodes.move_slot(nodes.slot(key))
            await done(tx.read.get(key) if tries < 3 else tx.watch(more))
            tx.queue.incr(key)

        async def astray(tx: Any) -> None:
            nonlocal tries
            tries += 1
            for other in others:
                tx.queue.set(other, 1)

        await me.run(moving, key)
        await me.run(moving, key)
        assert tries == 4
        tries = 0
        with pytest.raises(ServerError, match=r"refused: .*another slot.*; nothing was carried out"):
            await me.run(astray, key)
        assert tries == 1
        await me.close()

    asyncio.run(asyncio.wait_for(play(), 20))


def test_apis(nodes: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"holdfast\.aio needs an asyncio client"):
        aio.transaction(redis.RedisCluster(*nodes.address), "x")  # type: ignore[arg-type]


def add_one(tx: holdfast.Transaction) -> None:
    tx.queue.set("key", int(tx.read.get("key") or 0) + 1)


async def add_one_more(tx: aio.Transaction) -> None:
    tx.queue.set("key", int(await tx.read.get("key") or 0) + 1)


async def added_in(url: str) -> None:
    await aio.transaction(url, "key").run(add_one_more)


def test_behind_sentinels() -> None:
    with Sentinels(replicas=0, watchers=1) as sentinels:
        holdfast.transaction(sentinels.url, "key").run(add_one)
        asyncio.run(added_in(sentinels.url))
        holdfast.close()
        with redis.Redis(unix_socket_path=sentinels.servers[0].socket) as look:
            assert look.get("key") == b"2"


def test_on_this_machines_own_server(local_url: str) -> None:
    """Started when it is needed."""
    holdfast.transaction(local_url, "key").run(add_one)
    asyncio.run(added_in(local_url))
    with holdfast.transaction(local_url, "key") as tx:
        assert tx.read.get("key") == b"2"
    holdfast.close()
