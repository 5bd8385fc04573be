"""Locks on a Cluster: the packaged server, with sharded pub/sub, and one from before that."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

import holdfast
from holdfast import aio
from holdfast._api import access
from support.clusters import Cluster, cluster
from support.servers import PrivateServer, redis_6_2

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.errors.HoldfastWarning")

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[None, redis_6_2() or "none"], ids=["sharded", "plain"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three primaries."""
    if request.param == "none":
        pytest.skip("NO CLUSTER WITH PLAIN PUB/SUB IS TESTED: there is no server from before 7.0 here")
    with cluster(binary=request.param) as running:
        yield running
        holdfast.close()


@pytest.fixture
def name() -> str:
    return f"cluster-{next(_numbers)}"


def until(done: Callable[[], bool], patience: float = 10) -> None:
    deadline = time.monotonic() + patience
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def in_line(nodes: Cluster, lock: holdfast.Lock | aio.Lock) -> int:
    count: int = nodes.call(nodes.primary_of(lock.key), "ZCARD", f"{lock.key}:queue")
    return count


SYNC = [redis.RedisCluster, valkey.ValkeyCluster]
ASYNC = [redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster]


@pytest.mark.turns
@pytest.mark.parametrize("kind", [None, *SYNC], ids=lambda kind: kind.__name__ if kind else "url")
def test_many_locks_over_many_shards(nodes: Cluster, kind: Any) -> None:
    client: Any = kind(host=nodes.address[0], port=nodes.address[1]) if kind else nodes.url
    locks = [holdfast.Lock(client, f"many-{number}") for number in range(30)]
    assert len({nodes.primary_of(lock.key).port for lock in locks}) == 3
    for lock in locks:
        with lock as lease:
            assert lock.locked()
            assert lease.fence > 0
            assert not holdfast.FairLock(client, lock.name).acquire(blocking=False)
        assert not lock.locked()
    if kind:
        client.close()


@pytest.mark.parametrize("kind", [None, *ASYNC], ids=lambda kind: f"{kind.__module__.split('.')[0]}" if kind else "url")
def test_many_tasks(nodes: Cluster, kind: Any) -> None:
    async def main() -> None:
        client: Any = kind(host=nodes.address[0], port=nodes.address[1]) if kind else nodes.url
        fences: dict[str, list[int]] = {}

        async def work(number: int) -> None:
            name = f"tasks-{number % 10}"
            lock = (aio.FairLock if number % 3 else aio.Lock)(client, name, wait=10)
            async with lock as lease:
                fences.setdefault(name, []).append(lease.fence)

        await asyncio.gather(*(work(number) for number in range(60)))
        assert len(fences) == 10
        assert all(len(numbers) == 6 and sorted(numbers) == numbers for numbers in fences.values())
        if kind:
            await client.aclose()

    asyncio.run(main())


HOLD = """
import sys, holdfast
with holdfast.FairLock(sys.argv[1], sys.argv[2], label="the other"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.turns
@pytest.mark.fault(58)
def test_handed_over_between_processes(nodes: Cluster, name: str) -> None:
    lock = holdfast.FairLock(nodes.url, name)
    quickest = float("inf")
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, nodes.url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            until(lambda: nodes.call(nodes.primary_of(lock.key), "EXISTS", lock.key) == 1)
            with ThreadPoolExecutor(1) as waiters:
                waiting = waiters.submit(lock.acquire)
                until(lambda: in_line(nodes, lock) == 1)
                (place,) = nodes.call(nodes.primary_of(lock.key), "ZRANGE", f"{lock.key}:queue", "0", "-1")
                kind = "SHARDCHANNELS" if len(place.split(".")[0]) == 18 else "CHANNELS"
                assert f"hf:inbox:{place.split('.')[0]}" in nodes.call(nodes.primary_of(lock.key), "PUBSUB", kind, "hf:inbox:*")
                began = time.monotonic()
                holder.stdin.write("\n")
                holder.stdin.flush()
                assert waiting.result()
                quickest = min(quickest, time.monotonic() - began)
            lock.release()
    assert quickest < 0.5, "by a message: the next refresh would come after a second"


def test_handed_over_by_a_ticket(nodes: Cluster, name: str) -> None:
    async def take_over(ticket: str) -> int:
        async with aio.redeem(nodes.url, ticket) as lease:
            return lease.fence

    fences = []
    for number in range(4):  # on several shards
        with holdfast.Lock(nodes.url, f"{name}-{number}", ttl=5) as lease:
            fences.append((lease.fence, asyncio.run(take_over(lease.ticket()))))
    assert all(before < after for before, after in fences)


def test_who_holds_it_is_said(nodes: Cluster, name: str) -> None:
    with holdfast.Lock(nodes.url, name), pytest.raises(holdfast.LockTimeout) as caught:
        holdfast.FairLock(nodes.url, name, wait=0).__enter__()
    assert caught.value.holder is not None
    assert ":" in caught.value.holder, "host:pid, not the bare id"


def test_an_election(nodes: Cluster, name: str) -> None:
    one, two = (holdfast.Election(nodes.url, name, candidate=who) for who in ("one", "two"))
    changes = holdfast.Election(nodes.url, name).observe()
    assert next(changes) is None
    with ThreadPoolExecutor(2) as others:
        seen = others.submit(next, changes)
        term = one.campaign()
        assert seen.result(20) == ("one", term.fence, "")
        following = others.submit(two.campaign)
        state = f"{one.key}:state"
        until(lambda: "two" in nodes.call(nodes.primary_of(one.key), "HVALS", state))
        began = time.monotonic()
        one.hand_over("two")
        assert following.result(20).fence > term.fence
        assert next(changes) == ("two", two.term, "")
        assert time.monotonic() - began < 0.9, "by messages: the next refresh would come after a second"
        two.resign()
    assert next(changes) is None


@pytest.mark.fault(56)
def test_a_slot_that_was_moved(nodes: Cluster, name: str) -> None:
    """While the lock is held and waited for. The inbox may be in that slot, or in another."""
    lock, other = (holdfast.FairLock(nodes.url, name, ttl=3) for _ in range(2))
    for _ in range(2):
        assert lock.acquire()
        lease = lock.lease
        assert lease is not None
        with ThreadPoolExecutor(1) as waiters:
            waiting = waiters.submit(other.acquire)
            until(lambda: in_line(nodes, lock) == 1)
            nodes.move_slot(nodes.slot(lock.key))
            lease.renew()
            lock.release()
            assert waiting.result(timeout=5)
        assert other.lease is not None
        assert other.lease.fence > lease.fence
        other.release()


def test_a_slot_that_was_moved_while_several_locks_are_waited_for(nodes: Cluster, name: str) -> None:
    lock = holdfast.FairLock(nodes.url, name, ttl=3)
    several = holdfast.MultiLock([holdfast.FairLock(nodes.url, each, ttl=3) for each in (name, f"{name}-more")], wait=10)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as waiters:
        waiting = waiters.submit(several.acquire)
        until(lambda: in_line(nodes, lock) == 1)
        nodes.move_slot(nodes.slot(lock.key))
        lock.release()
        assert waiting.result(timeout=5)
    several.release()


def test_taken_again_by_who_has_it(nodes: Cluster, name: str) -> None:
    """By another object of the same name, which finds the slot elsewhere."""
    with holdfast.RLock(nodes.url, name, ttl=3) as lease:
        nodes.move_slot(nodes.slot(lease.key))
        lease.renew()
        with holdfast.RLock(nodes.url, name, wait=1) as again:
            assert again is lease
    assert not holdfast.RLock(nodes.url, name).locked()


@pytest.mark.fault(58)
def test_inboxes_that_were_moved_away(nodes: Cluster) -> None:
    """The first lock of each server lends its slot to the inbox: when it moves alone, the others are told nothing there."""
    locks = [holdfast.FairLock(nodes.url, f"away-{number}") for number in range(12)]
    for lock in locks:
        assert lock.acquire()
    with ThreadPoolExecutor(len(locks)) as waiters:
        others = [holdfast.FairLock(nodes.url, lock.name, wait=10) for lock in locks]
        waiting = [waiters.submit(other.acquire) for other in others]
        until(lambda: all(in_line(nodes, lock) == 1 for lock in locks))
        for anchor in {other._endpoint.anchor for other in others}:
            nodes.move_slot(anchor)
        for lock in locks:
            lock.release()
        assert all(got.result() for got in waiting)
    for other in others:
        other.release()


@pytest.mark.fault(56)
def test_held_while_the_slot_is_moving(nodes: Cluster, name: str) -> None:
    lock = holdfast.Lock(nodes.url, name, ttl=2)
    with lock as lease, nodes.migrating(nodes.slot(lock.key)) as migration:
        lease.renew()  # the queue does not exist: refused with all keys
        migration.move_keys(lock.key)
        lease.renew()
        end = time.monotonic() + lease.remaining()
        until(lambda: time.monotonic() + lease.remaining() > end + 0.1)  # by the keeper
        assert lock.locked()
    with lock as again:
        assert again.fence > lease.fence


@pytest.mark.fault(56)
def test_given_back_while_the_slot_is_moving(nodes: Cluster, name: str) -> None:
    lock, other = holdfast.FairLock(nodes.url, name), holdfast.FairLock(nodes.url, name, wait=10)
    assert lock.acquire()
    with ThreadPoolExecutor(1) as waiters:
        waiting = waiters.submit(other.__enter__)
        until(lambda: in_line(nodes, lock) == 1)
        with nodes.migrating(nodes.slot(lock.key)) as migration:
            migration.move_keys(f"{lock.key}:state")
            lock.release()
            with pytest.raises(holdfast.ServerError, match="TRYAGAIN"):
                holdfast.FairLock(nodes.url, name).acquire(blocking=False)
            migration.move_keys(f"{lock.key}:queue")
        lease = waiting.result(timeout=10)
    assert lease.fence > 0
    lease.release()


@pytest.mark.fault(56)
def test_taken_by_a_task_while_the_slot_is_moving(nodes: Cluster, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(nodes.url, name, ttl=3, wait=10)
        async with lock:
            pass
        moving = nodes.migrating(nodes.slot(lock.key))
        migration = moving.__enter__()
        taking = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0)
        migration.move_keys()
        moving.__exit__(None, None, None)
        assert await taking
        with nodes.migrating(nodes.slot(lock.key)) as migration:
            migration.move_keys(lock.key)
            assert lock.lease is not None
            await lock.lease.renew()
            assert await lock.locked()
            await lock.release()

    asyncio.run(main())


@pytest.mark.turns
@pytest.mark.fault(56)
def test_resharding_under_load(nodes: Cluster) -> None:
    """No error reaches the user, no lease is lost, and fences rise."""
    names = [f"load-{number}" for number in range(4)]
    fences = dict.fromkeys(names, 0)
    holders = dict.fromkeys(names, 0)
    over = threading.Event()
    taken = itertools.count()

    def note(name: str, fence: int) -> None:
        assert fence > fences[name]
        assert not holders[name]
        fences[name], holders[name] = fence, 1
        next(taken)

    def thread(number: int) -> None:
        while not over.is_set():
            name = names[next(taken) % len(names)]
            with (holdfast.FairLock if number % 2 else holdfast.Lock)(nodes.url, name, ttl=3, wait=10) as lease:
                note(name, lease.fence)
                lease.check()
                holders[name] = 0

    async def tasks() -> None:
        async def task() -> None:
            while not over.is_set():
                name = names[next(taken) % len(names)]
                async with aio.Lock(nodes.url, name, ttl=3, wait=10) as lease:
                    note(name, lease.fence)
                    await asyncio.sleep(0)
                    holders[name] = 0

        await asyncio.gather(*(task() for _ in range(4)))

    with ThreadPoolExecutor(5) as pool:
        working = [pool.submit(thread, number) for number in range(4)] + [pool.submit(lambda: asyncio.run(tasks()))]
        try:
            for number in range(12):
                with nodes.migrating(nodes.slot(f"hf:{{{names[number % 4]}}}")) as migration:
                    migration.move_keys(count=1)
                    over.wait(0.05)
        finally:
            over.set()
        for work in working:
            work.result()
    assert next(taken) > 100


def test_the_rights_that_are_printed_are_enough(nodes: Cluster, name: str) -> None:
    version = (6, 2) if nodes.call(nodes.nodes[0], "INFO", "server").find("redis_version:6.") >= 0 else (7, 2)
    for node in nodes.nodes:
        nodes.call(node, "ACL", "SETUSER", "limited", *access.rule(("lock", "cluster"), version=version), ">secret")
    lock, other = (holdfast.FairLock(nodes.url.replace("//", "//limited:secret@"), name, ttl=3) for _ in range(2))
    with ThreadPoolExecutor(1) as waiters:
        with lock as lease:
            waiting = waiters.submit(other.acquire)
            until(lambda: in_line(nodes, lock) == 1)
            with nodes.migrating(nodes.slot(lock.key)) as migration:
                migration.move_keys(lock.key)
                lease.renew()
        assert waiting.result(timeout=5)
    assert other.locked()
    other.release()
    for node in nodes.nodes:
        assert nodes.call(node, "ACL", "LOG") == []


# Servers that are no Cluster, or an incomplete one


def test_one_server_of_a_cluster_is_not_enough(nodes: Cluster, name: str) -> None:
    others = [node for node in nodes.nodes if node is not nodes.primary_of(f"hf:{{{name}}}")]
    lock = holdfast.Lock(others[0].url, name)
    with pytest.raises(holdfast.ServerError, match=r"redis\+cluster://"):
        lock.acquire()


def test_a_server_that_is_no_cluster(server: PrivateServer, name: str) -> None:
    lock = holdfast.Lock(f"redis+cluster://127.0.0.1:{server.port}", name)
    with pytest.raises(holdfast.ServerError, match="cluster support disabled"):
        lock.acquire()


def test_a_cluster_that_is_not_there(name: str) -> None:
    url = "redis+cluster://127.0.0.1:1,127.0.0.1:2"
    with pytest.raises(holdfast.ServerError, match="no server answers"):
        holdfast.Lock(url, name).acquire()
    with pytest.raises(holdfast.ServerError, match="no server answers"):
        asyncio.run(aio.Lock(url, name).acquire())


def test_a_subclass_of_the_client_is_refused() -> None:
    class Own(redis.RedisCluster):
        """It may connect in a way of its own."""

    client = Own.__new__(Own)
    client.nodes_manager = redis.cluster.NodesManager.__new__(redis.cluster.NodesManager)
    client.nodes_manager.connection_kwargs = {}
    with pytest.raises(holdfast.ConfigError, match="Own"):
        holdfast.Lock(client, "x")


def test_once_on_all_shards(nodes: Cluster, name: str) -> None:
    """A waiter is notified, whichever shard the key is on, and whichever API it uses."""
    client: Any = redis.RedisCluster(host=nodes.address[0], port=nodes.address[1])
    inside, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    @holdfast.once(client, name + ":{n}", keep=60, busy="wait", wait=10)
    def work(n: int) -> int:
        ran.append(n)
        if len(ran) == 9:
            inside.set()
        assert go_on.wait(10)
        return n

    @aio.once(nodes.url, name + ":{n}", keep=60, busy="wait", wait=10)
    async def work_too(n: int) -> int:
        ran.append(-1)
        return -1

    async def all_at_once() -> list[int]:
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        return list(await asyncio.gather(*(work_too(n) for n in range(9))))

    with ThreadPoolExecutor(18) as threads:
        running = [threads.submit(work, n) for n in range(9)]
        assert inside.wait(10)
        waiting = [threads.submit(work, n) for n in range(9)]
        assert asyncio.run(all_at_once()) == list(range(9))
        assert [future.result(5) for future in running + waiting] == [*range(9)] * 2
    assert sorted(ran) == list(range(9))
    assert all(work.forget(n) for n in range(9))
    client.close()
