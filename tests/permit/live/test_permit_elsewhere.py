"""Semaphores and read-write locks in a Cluster whose slots are moved, and behind Sentinels whose primary dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import LeaseLost, ServerError
from permit.live.permit_apis import Face
from support.clusters import Cluster
from support.sentinels import Sentinels
from support.witness import until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.errors.HoldfastWarning")


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    face = Face(request.param)
    yield face
    face.close()
    holdfast.close()


def in_line(nodes: Cluster, key: str) -> int:
    return int(nodes.call(nodes.primary_of(key), "ZCARD", f"{key}:queue"))


@pytest.mark.fault(56)
def test_permits_are_held_and_given_back_while_their_slot_is_moving(face: Face, common_cluster: Cluster, name: str) -> None:
    nodes = common_cluster
    semaphore = face.make("Semaphore", nodes.url, name, 3, ttl=2)
    for _ in range(3):
        assert face.do(semaphore.acquire)
    first, second, third = [core.user_lease() for core in semaphore._held.live()]
    with nodes.migrating(nodes.slot(semaphore.key)) as migration:
        face.do(first.renew)  # there is no queue: refused with all keys
        face.do(third.release)
        migration.move_keys(semaphore.key)
        face.do(second.renew)
        end = time.monotonic() + first.remaining()
        until(lambda: time.monotonic() + first.remaining() > end + 0.1)  # by the keeper
        with pytest.raises(ServerError, match="TRYAGAIN"):
            face.do(semaphore.acquire, blocking=False)
        face.do(second.release)
    assert face.do(semaphore.available) == 2
    face.do(first.release)
    assert face.do(semaphore.available) == 3


@pytest.mark.fault(56)
@pytest.mark.parametrize("moved", [True, False], ids=["one key is there", "none is there yet"])
def test_who_waits_while_the_slot_is_moving_comes_in_when_it_has_arrived(
    face: Face, common_cluster: Cluster, name: str, moved: bool
) -> None:
    """As long as none has moved, a release is refused in its middle: the key of the holders is gone, as there was only one."""
    nodes = common_cluster
    lock, other = (face.make("RWLock", nodes.url, name, ttl=5) for _ in range(2))
    lease = face.held(lock.write)
    reads = face.start(other.read.acquire, timeout=15)
    until(lambda: in_line(nodes, lease.key) == 1)
    with nodes.migrating(nodes.slot(lease.key)) as migration:
        if moved:
            migration.move_keys(lease.key)
            with pytest.raises(ServerError, match="TRYAGAIN"):
                face.do(lease.downgrade)
            lease.check()
        face.do(lease.release)
        assert not reads.done()
    assert reads.result(10)
    assert other.read.lease.fence > lease.fence
    face.do(other.read.release)
    assert face.do(other.write.acquire, timeout=5), "nothing is counted that nobody holds"


@pytest.mark.fault(56)
def test_permits_are_handed_over_where_the_slot_was_moved_to(face: Face, common_cluster: Cluster, name: str) -> None:
    nodes = common_cluster
    holder, waiter = (face.make("Semaphore", nodes.url, name, 2, weight=2, ttl=5) for _ in range(2))
    assert face.do(holder.acquire)
    lease = holder.lease
    waits = face.start(waiter.acquire, timeout=15)
    until(lambda: in_line(nodes, holder.key) == 1)
    nodes.move_slot(nodes.slot(holder.key))
    face.do(lease.renew)
    face.do(lease.release)
    assert waits.result(10)
    assert waiter.lease.fence > lease.fence


@pytest.mark.soak
@pytest.mark.fault(53)
def test_a_primary_dies_before_its_replica_has_heard_of_all_permits(name: str) -> None:
    """Permits that the replica knows go on, and count.

    Permits that it does not know are granted to others, and no more than that: so many holders more believe in theirs, until
    they renew, and the fences distinguish them.
    """
    thread, task = faces = [Face("threads"), Face("asyncio")]
    with Sentinels(replicas=1, watchers=1) as pair:
        (replica,) = pair.replicas
        kept, waiter = (face.make("Semaphore", pair.url, name, 2, ttl=20, wait=15) for face in faces)
        forgotten = task.make("Semaphore", pair.url, name, 2, ttl=30, renew=False)
        assert thread.do(kept.acquire)
        pair.replicated()
        pair.command(replica, "REPLICAOF", "127.0.0.1", "1")  # cut off: there is nobody
        assert task.do(forgotten.acquire)
        waits = task.start(waiter.acquire)
        until(lambda: pair.command(pair.primary, "ZCARD", f"{waiter.key}:queue") == 1)
        lost = [face.held(face.make("RWLock", pair.url, f"{name} {face.name}", ttl=30, renew=False).write) for face in faces]
        pair.await_primary(instead_of=pair.kill_primary())
        assert waits.result(10), "the one that was forgotten is free there"
        assert not thread.do(kept.acquire, blocking=False), "and the other one is not"
        kept.lease.renew()
        for face, lease in zip(faces, lost, strict=True):
            assert face.held(face.make("RWLock", pair.url, f"{name} {face.name}", wait=15).read).fence > lease.fence
        assert waiter.lease.fence > forgotten.lease.fence
        lost.append(forgotten.lease)
        assert all(lease.remaining() > 1 for lease in lost), "they cannot know"
        for face, lease in zip([*faces, task], lost, strict=True):
            with pytest.raises(LeaseLost):
                face.do(lease.renew)
        assert thread.do(kept.available) == 0, "nothing of this makes room for others"
        for face in faces:
            face.close()
        holdfast.close()
