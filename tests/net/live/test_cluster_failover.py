"""Locks on a Cluster whose primaries are killed, or give way to their replicas."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import aio
from support.clusters import Cluster, cluster

_numbers = itertools.count()

NODE_TIMEOUT = 0.6
"""Seconds after which a primary counts as failed; its replica is elected within about one more."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Three primaries with a replica each, and a password."""
    with cluster(replicas=1, password="se cret", node_timeout=NODE_TIMEOUT) as running:
        yield running
        holdfast.close()


@pytest.fixture
def whole(nodes: Cluster) -> Iterator[Cluster]:
    """The same, whole again before and after."""
    yield nodes
    for node in nodes.nodes:
        if node not in nodes.running():
            node.restart()
    nodes.wait_ok()
    until(lambda: all(len(nodes.replicas_of(node)) == 1 for node in nodes.primaries()))


@pytest.fixture
def name() -> str:
    return f"failover-{next(_numbers)}"


def until(done: Callable[[], bool], patience: float = 15) -> None:
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError, LookupError):  # nobody owns it just now
            if done():
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def replicated(nodes: Cluster, *keys: str) -> Callable[[], bool]:
    """The replica has them, so that it will not have forgotten the lock: a Cluster itself promises nothing."""

    def done() -> bool:
        (replica,) = nodes.replicas_of(nodes.primary_of(keys[0]))
        nodes.call(nodes.primary_of(keys[0]), "WAIT", "1", "1000")
        return all(key in nodes.call(replica, "KEYS", "*") for key in keys)

    return done


@pytest.mark.fault(53, 56)
def test_a_primary_is_killed_while_its_lock_is_held_and_waited_for(whole: Cluster, name: str) -> None:
    lock, other = (holdfast.FairLock(whole.url, name, ttl=6, wait=15) for _ in range(2))
    assert lock.acquire()
    lease = lock.lease
    assert lease is not None
    with ThreadPoolExecutor(1) as waiters:
        waiting = waiters.submit(other.__enter__)
        until(replicated(whole, lock.key, f"{lock.key}:queue"))
        whole.kill_primary_of(lock.key)
        end = time.monotonic() + lease.remaining()
        until(lambda: time.monotonic() + lease.remaining() > end + 0.1)  # renewed, by the server that has taken over
        assert lock.locked()
        assert not waiting.done()
        lock.release()
        following = waiting.result(timeout=5)
    assert following.fence > lease.fence
    following.release()


def test_a_lock_of_a_killed_primary_is_to_be_had_as_soon_as_another_has_taken_over(whole: Cluster, name: str) -> None:
    async def main() -> None:
        lock = aio.Lock(whole.url, name, ttl=3, wait=15)
        async with lock as lease:
            before = lease.fence
        whole.kill_primary_of(lock.key)
        with pytest.raises(holdfast.ServerError):
            await aio.Lock(whole.url, name, wait=0).acquire()
        began = time.monotonic()
        async with lock as lease:
            assert lease.fence > before
        assert time.monotonic() - began < NODE_TIMEOUT + 3

    asyncio.run(main())


@pytest.mark.fault(46, 56)
def test_a_primary_gives_way(whole: Cluster, name: str) -> None:
    """It lives on as a replica, and sends everybody on; nothing is lost, so nobody notices."""
    lock, other = (holdfast.FairLock(whole.url, name, ttl=3, wait=15) for _ in range(2))
    assert lock.acquire()
    assert lock.lease is not None
    fence = lock.lease.fence
    with ThreadPoolExecutor(1) as waiters:
        waiting = waiters.submit(other.__enter__)
        until(lambda: whole.call(whole.primary_of(lock.key), "ZCARD", f"{lock.key}:queue") == 1)
        whole.failover(lock.key)
        lock.lease.renew()
        lock.release()
        following = waiting.result(timeout=5)
    assert following.fence > fence
    following.release()


@pytest.mark.fault(21)
def test_a_primary_that_hangs(whole: Cluster, name: str) -> None:
    """It accepts connections, and answers nothing: others are asked who has taken over."""
    lock = holdfast.Lock(whole.url, name, ttl=3, wait=15)
    assert lock.acquire()
    lock.release()
    hung = whole.primary_of(lock.key)
    hung.pause()
    try:
        began = time.monotonic()
        taken = False
        while not taken and time.monotonic() - began < 10:
            with contextlib.suppress(holdfast.ServerError):  # typed, and within its time limits
                taken = lock.acquire(timeout=2)
        assert taken
        lock.release()
    finally:
        hung.resume()
