"""Semaphores and read-write locks in a Cluster whose slots are moved, and behind Sentinels whose primary dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import LeaseLost, ServerError
from permit.live.permit_apis import Api
from support.clusters import Cluster
from support.sentinels import Sentinels
from support.witness import until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.errors.HoldfastWarning")


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api = Api(request.param)
    yield api
    api.close()
    holdfast.close()


def in_line(nodes: Cluster, key: str) -> int:
    return int(nodes.call(nodes.primary_of(key), "ZCARD", f"{key}:queue"))


@pytest.mark.fault(56)
def test_permits_are_held_and_given_back_while_their_slot_is_moving(api: Api, common_cluster: Cluster, name: str) -> None:
    nodes = common_cluster
    semaphore = api.make("Semaphore", nodes.url, name, 3, ttl=2)
    for _ in range(3):
        assert api.do(semaphore.acquire)
    first, second, third = [core.user_lease() for core in semaphore._held.live()]
    with nodes.migrating(nodes.slot(semaphore.key)) as migration:
        api.do(first.renew)  # there is no queue: refused with all keys
        api.do(third.release)
        migration.move_keys(semaphore.key)
        api.do(second.renew)
        end = time.monotonic() + first.remaining()
        until(lambda: time.monotonic() + first.remaining() > end + 0.1)  # by the keeper
        with pytest.raises(ServerError, match="TRYAGAIN"):
            api.do(semaphore.acquire, blocking=False)
        api.do(second.release)
    assert api.do(semaphore.available) == 2
    api.do(first.release)
    assert api.do(semaphore.available) == 3


@pytest.mark.fault(56)
@pytest.mark.parametrize("moved", [True, False], ids=["one key is there", "none is there yet"])
def test_who_waits_while_the_slot_is_moving_comes_in_when_it_has_arrived(
    api: Api, common_cluster: Cluster, name: str, moved: bool
) -> None:
    """As long as none has moved, a release is refused in its middle: the key of the holders is gone, as there was only one."""
    nodes = common_cluster
    lock, other = (api.make("RWLock", nodes.url, name, ttl=5) for _ in range(2))
    lease = api.held(lock.write)
    reads = api.start(other.read.acquire, timeout=15)
    until(lambda: in_line(nodes, lease.key) == 1)
    with nodes.migrating(nodes.slot(lease.key)) as migration:
        if moved:
            migration.move_keys(lease.key)
            with pytest.raises(ServerError, match="TRYAGAIN"):
                api.do(lease.downgrade)
            lease.check()
        api.do(lease.release)
        assert not reads.done()
    assert reads.result(10)
    assert other.read.lease.fence > lease.fence
    api.do(other.read.release)
    assert api.do(other.write.acquire, timeout=5), "nothing is counted that nobody holds"


@pytest.mark.fault(56)
def test_permits_are_handed_over_where_the_slot_was_moved_to(api: Api, common_cluster: Cluster, name: str) -> None:
    nodes = common_cluster
    holder, waiter = (api.make("Semaphore", nodes.url, name, 2, weight=2, ttl=5) for _ in range(2))
    assert api.do(holder.acquire)
    lease = holder.lease
    waits = api.start(waiter.acquire, timeout=15)
    until(lambda: in_line(nodes, holder.key) == 1)
    nodes.move_slot(nodes.slot(holder.key))
    api.do(lease.renew)
    api.do(lease.release)
    assert waits.result(10)
    assert waiter.lease.fence > lease.fence


@pytest.mark.soak
@pytest.mark.fault(53)
def test_a_primary_dies_before_its_replica_has_heard_of_all_permits(name: str) -> None:
    """Permits that the replica knows go on, and count.

    Permits that it does not know are granted to others, and no more than that: so many holders more believe in theirs, until
    they renew, and the fences distinguish them.
    """
    thread, task = apis = [Api("threads"), Api("asyncio")]
    with Sentinels(replicas=1, watchers=1) as pair:
        (replica,) = pair.replicas
        kept, waiter = (api.make("Semaphore", pair.url, name, 2, ttl=20, wait=15) for api in apis)
        forgotten = task.make("Semaphore", pair.url, name, 2, ttl=30, renew=False)
        assert thread.do(kept.acquire)
        pair.replicated()
        pair.command(replica, "REPLICAOF", "127.0.0.1", "1")  # cut off: there is nobody
        assert task.do(forgotten.acquire)
        waits = task.start(waiter.acquire)
        until(lambda: pair.command(pair.primary, "ZCARD", f"{waiter.key}:queue") == 1)
        lost = [api.held(api.make("RWLock", pair.url, f"{name} {api.name}", ttl=30, renew=False).write) for api in apis]
        pair.await_primary(instead_of=pair.kill_primary())
        assert waits.result(10), "the one that was forgotten is free there"
        assert not thread.do(kept.acquire, blocking=False), "and the other one is not"
        kept.lease.renew()
        for api, lease in zip(apis, lost, strict=True):
            assert api.held(api.make("RWLock", pair.url, f"{name} {api.name}", wait=15).read).fence > lease.fence
        assert waiter.lease.fence > forgotten.lease.fence
        lost.append(forgotten.lease)
        assert all(lease.remaining() > 1 for lease in lost), "they cannot know"
        for api, lease in zip([*apis, task], lost, strict=True):
            with pytest.raises(LeaseLost):
                api.do(lease.renew)
        assert thread.do(kept.available) == 0, "nothing of this makes room for others"
        for api in apis:
            api.close()
        holdfast.close()
