"""Locks on the primary that Sentinels watch: found by URL and by client, followed when it is another one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel
import valkey.asyncio.sentinel
import valkey.sentinel

import holdfast
from holdfast import ConfigError, FairLock, LeaseLost, Lock, LockTimeout, ServerError, aio
from holdfast._core.lock.replies import ACQUIRE
from support.sentinels import Sentinels
from support.servers import PrivateServer
from support.witness import in_thread, lease_record, until, until_in_loop

SOON = 2.0
"""Seconds from when the Sentinels name a new primary, within which everything goes on; mostly a tenth of it."""


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    """Two replicas. One test kills one of the three: it takes seconds until a server has rejoined."""
    with Sentinels(replicas=2) as running:
        yield running
        holdfast.close()


def queue(sentinels: Sentinels, server: PrivateServer, name: str) -> int:
    return int(sentinels.command(server, "ZCARD", f"hf:{{{name}}}:queue"))


def take_and_leave(lock: Lock) -> int:
    with lock as lease:
        return lease.fence


# Sentinels and their answers


@pytest.mark.parametrize("package", [redis, valkey], ids=["redis", "valkey"])
def test_clients_and_urls_that_mean_the_same_share_their_connections(sentinels: Sentinels, package: Any, name: str) -> None:
    clients = [
        package.sentinel.Sentinel(addresses).master_for(Sentinels.service)
        for addresses in (sentinels.addresses, sentinels.addresses[::-1])
    ]
    first, second = (Lock(client, name) for client in clients)
    with first as lease:
        assert f"sentinel:main (at 127.0.0.1:{sentinels.primary.port})" in repr(second)
        assert not second.acquire(blocking=False)
    with Lock(sentinels.url, name) as later:
        assert later.fence > lease.fence
    assert first._endpoint is second._endpoint

    async def main() -> None:
        client = package.asyncio.sentinel.Sentinel(sentinels.addresses).master_for(Sentinels.service)
        async with aio.Lock(client, name) as of_client:
            assert of_client.fence > later.fence
            assert await aio.Lock(sentinels.url, name).locked()
        await client.aclose()

    asyncio.run(main())


def test_the_client_itself_is_not_used(sentinels: Sentinels, name: str) -> None:
    client: Any = redis.sentinel.Sentinel(sentinels.addresses).master_for(Sentinels.service)  # type: ignore[no-untyped-call]
    with Lock(client, name):
        assert client.connection_pool._available_connections == []


@pytest.mark.fault(55)
@pytest.mark.parametrize("package", [redis, valkey], ids=["redis", "valkey"])
def test_replicas_are_not_asked_who_holds_a_lock(sentinels: Sentinels, package: Any) -> None:
    reader = package.sentinel.Sentinel(sentinels.addresses).slave_for(Sentinels.service)
    with pytest.raises(ConfigError, match="master_for"):
        Lock(reader, "x")
    with pytest.raises(ConfigError, match="master_for"):
        aio.Lock(package.asyncio.sentinel.Sentinel(sentinels.addresses).slave_for(Sentinels.service), "x")


def test_a_service_that_no_sentinel_knows(sentinels: Sentinels) -> None:
    lock = Lock(sentinels.url.replace("/main", "/wrong"), "x", wait=30)
    started = time.monotonic()
    with pytest.raises(ServerError, match=r"sentinel:wrong.*knows a service of this name"):
        lock.acquire()
    assert time.monotonic() - started < 5

    async def main() -> None:
        with pytest.raises(ServerError, match="knows a service of this name"):
            await aio.Lock(sentinels.url.replace("/main", "/wrong"), "x", wait=30).acquire()

    asyncio.run(main())


def test_no_sentinel_answers() -> None:
    with pytest.raises(ServerError, match=r"no Sentinel answers.*127\.0\.0\.1:1[:;].*127\.0\.0\.1:2:") as caught:
        Lock("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", "x").acquire()
    assert caught.value.address == "sentinel:main"


@pytest.mark.parametrize("kind", [Lock, FairLock])
def test_a_sentinel_that_hangs_does_not_hold_up_the_others(sentinels: Sentinels, name: str, kind: type[Lock]) -> None:
    hangs = sentinels.watchers[0]
    hangs.pause()
    try:
        with kind(f"{sentinels.url}?socket_timeout={4 + len(kind.__name__) / 100}", name, wait=2):  # nobody has asked before
            pass
    finally:
        hangs.resume()


def test_a_sentinel_that_calls_a_replica_the_primary(sentinels: Sentinels, name: str) -> None:
    """Another service of the same servers, of which one Sentinel has a wrong idea."""
    wrong, right, _ = sentinels.watchers
    for watcher, server in ((wrong, sentinels.replicas[0]), (right, sentinels.primary)):
        sentinels.command(watcher, "SENTINEL", "MONITOR", "other", "127.0.0.1", str(server.port), "9")  # never elects
    try:
        with Lock(f"redis+sentinel://127.0.0.1:{wrong.port},127.0.0.1:{right.port}/other", name) as lease:
            assert lease.remaining() > 0
        with pytest.raises(ServerError, match="says that it is a replica"):
            Lock(f"redis+sentinel://127.0.0.1:{wrong.port}/other", name, wait=0).acquire()
    finally:
        for watcher in (wrong, right):
            sentinels.command(watcher, "SENTINEL", "REMOVE", "other")


def test_one_sentinel_alone_is_not_believed_where_the_client_says_so(sentinels: Sentinels, name: str) -> None:
    for others, ok in ((2, True), (3, False)):
        manager: Any = redis.sentinel.Sentinel(sentinels.addresses, min_other_sentinels=others)  # type: ignore[no-untyped-call]
        lock = Lock(manager.master_for(Sentinels.service), name, wait=0)
        if ok:
            with lock:
                pass
        else:
            with pytest.raises(ServerError, match="sees 2 other Sentinels, but the client wants 3"):
                lock.acquire()


# The primary is another one


@pytest.mark.fault(46)
def test_a_primary_is_made_a_replica_while_locks_are_held_and_waited_for(sentinels: Sentinels, name: str) -> None:
    """Nobody dies, so all that was granted is there still; both APIs, and the inbox moves as well."""

    async def main() -> None:
        lock = aio.Lock(sentinels.url, name, ttl=6, wait=20)
        async with lock as lease:
            waiting = in_thread(take_and_leave, FairLock(sentinels.url, name, ttl=6, wait=20))
            old = sentinels.primary
            await until_in_loop(lambda: queue(sentinels, old, name) == 1)
            sentinels.replicated()
            new = await asyncio.to_thread(sentinels.failover)
            started = time.monotonic()
            await lease.renew()
            lease.check()
            async with aio.Lock(sentinels.url, name + "-other") as other:
                assert other.fence > lease.fence
            assert time.monotonic() - started < SOON
            assert not waiting.done()
            assert queue(sentinels, new, name) == 1, "the place was replicated"
            # It can be handed over directly when its inbox listens at the new primary.
            channel = f"hf:inbox:{lease_record(lease).token.partition('.')[0]}"
            await until_in_loop(lambda: sentinels.command(new, "PUBSUB", "NUMSUB", channel)[1] == 1)
        assert await asyncio.to_thread(waiting.result, 10) > lease.fence

    asyncio.run(main())
    holdfast.close()


def test_a_hand_over_is_not_heard_at_a_replica(sentinels: Sentinels, name: str) -> None:
    """Servers forward published messages to their replicas, but count only their own subscribers.

    A client that still listens at the former primary would believe in a grant that the script has taken back, since it counted
    no subscriber.
    """
    primary, replica, channel = sentinels.primary, sentinels.replicas[0], f"hf:inbox:{'e' * 12}"
    with redis.Redis(port=replica.port or 0) as client, client.pubsub() as listener:
        listener.subscribe(channel)
        assert listener.get_message(timeout=5)
        with Lock(sentinels.url, name) as lease:
            keys = [key.decode() for key in lease_record(lease).spec.keys]
            waiter = f"{'e' * 12}.{'f' * 32}"
            sentinels.command(primary, "EVAL", ACQUIRE.body.decode(), "3", *keys, waiter, "6000", "1")
            assert queue(sentinels, primary, name) == 1
        sentinels.command(primary, "PUBLISH", channel, "the end")
        message = listener.get_message(timeout=5)
    assert message
    assert message["data"] == b"the end"
    assert queue(sentinels, primary, name) == 1, "it keeps its place, until it listens here"


@pytest.mark.fault(53)
def test_the_primary_dies_before_it_has_told_its_replicas(sentinels: Sentinels, name: str) -> None:
    """Data that the new primary has stays valid: leases, places.

    Data that it lacks is lost: another client gets the lock, with a higher fence. A lock with replicas= is refused before.
    """
    kept = Lock(sentinels.url, name, ttl=20)
    lease = kept.lease if kept.acquire() else None
    assert lease
    order: list[tuple[int, int]] = []

    def work(number: int) -> None:
        with FairLock(sentinels.url, name, ttl=6, wait=20) as mine:
            order.append((mine.fence, number))

    waiting = []
    for number in range(2):
        waiting.append(in_thread(work, number))
        until(lambda: queue(sentinels, sentinels.primary, name) == number + 1)  # noqa: B023
    sentinels.replicated()
    with Lock(sentinels.url, name + "-sure", replicas=2):
        pass
    holdfast.declare_new(sentinels.url, max_ttl=20)
    quarantined = FairLock(sentinels.url, name + "-quarantined", ttl=20, renew=False, quarantine=20)
    sentinels.replicated()
    for replica in sentinels.replicas:
        sentinels.command(replica, "REPLICAOF", "127.0.0.1", "1")  # cut off: there is nobody

    forgotten = FairLock(sentinels.url, name + "-forgotten", ttl=20, renew=False)
    with pytest.raises(ServerError, match=r"0 of 1 replicas acknowledged the lock within .* nothing is held"):
        Lock(sentinels.url, name + "-sure", ttl=6, replicas=1).acquire()
    assert not sentinels.command(sentinels.primary, "EXISTS", f"hf:{{{name}-sure}}")
    forgotten.acquire()
    quarantined.acquire()
    old = sentinels.kill_primary()
    asking = in_thread(take_and_leave, Lock(sentinels.url, name + "-other", ttl=6, wait=20))
    sentinels.await_primary(instead_of=old)
    started = time.monotonic()
    assert asking.result(SOON)
    with FairLock(sentinels.url, name + "-forgotten", ttl=6, wait=0) as second:
        first = forgotten.lease
        assert first
        assert first.lost.is_set(), "in one process, who had it is told before"
        assert second.fence > first.fence
        with pytest.raises(LeaseLost):
            forgotten.release()
    with pytest.raises(LockTimeout, match=r"may have lost data .*grants no lock for another (19|20)"):
        FairLock(sentinels.url, name + "-quarantined", ttl=6, wait=0, quarantine=20).__enter__()
    assert quarantined.lease
    assert quarantined.lease.remaining() > 1, "alone"
    with pytest.raises(LeaseLost):
        quarantined.release()
    lease.renew()
    assert time.monotonic() - started < SOON
    assert order == [], "they stand in line still"
    kept.release()
    for one in waiting:
        one.result(10)
    assert [number for _, number in sorted(order)] == [0, 1]
    assert min(order)[0] > lease.fence


@pytest.mark.fault(46)
def test_a_primary_that_became_a_replica_by_hand_is_left(name: str) -> None:
    """Nobody closes its connections: READONLY is all that says so. The one Sentinel is told by hand as well."""

    async def main() -> None:
        async with aio.Lock(pair.url, name + "-aio", ttl=6) as held, aio.Lock(pair.url, name, ttl=6):
            waiting = in_thread(take_and_leave, FairLock(pair.url, name, ttl=6, wait=20))
            await until_in_loop(lambda: queue(pair, old, name) == 1)
            pair.replicated()
            pair.command(new, "REPLICAOF", "NO", "ONE")
            pair.command(old, "REPLICAOF", "127.0.0.1", str(new.port))
            for attempt in ("a connection that is open", "a new one"):
                with pytest.raises(ServerError, match=r"READONLY|MASTERDOWN"):
                    await aio.Lock(pair.url, name + "-other", wait=0).acquire()
                with pytest.raises(ServerError, match=r"READONLY|MASTERDOWN"):
                    await asyncio.to_thread(Lock(pair.url, name + "-other", wait=0).acquire)
                assert attempt
            pair.command(pair.watchers[0], "SENTINEL", "REMOVE", pair.service)
            pair.watch(pair.watchers[0], new)
            started = time.monotonic()
            await held.renew()
            assert await asyncio.to_thread(take_and_leave, Lock(pair.url, name + "-other", wait=10)) > held.fence
            assert time.monotonic() - started < SOON
            assert not waiting.done()
        assert await asyncio.to_thread(waiting.result, 10) > held.fence

    with Sentinels(replicas=1, watchers=1) as pair:
        old, new = pair.servers
        asyncio.run(main())
        holdfast.close()


def test_time_that_a_failover_takes_counts_as_waiting(name: str) -> None:
    """The Sentinels name a primary that is not there, and have no other."""
    with Sentinels(replicas=0, watchers=1) as alone:
        lock = Lock(alone.url, name, ttl=2)
        lock.acquire()
        alone.kill_primary()
        for wait in (0.0, 0.3):
            started = time.monotonic()
            with pytest.raises((ServerError, LockTimeout), match=r"MASTERDOWN sentinel:main.*failover"):
                Lock(alone.url, name + "-other", wait=wait).acquire()
            assert wait <= time.monotonic() - started < wait + 1
        lease = lock.lease
        assert lease
        assert lease.lost.wait(4)
        holdfast.close()
