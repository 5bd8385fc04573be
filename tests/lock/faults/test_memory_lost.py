"""Servers that forget, all or the latest, or remember what is over: restarts, cut files, FLUSHALL, eviction."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast._core.lock.server_queue import REFRESH_EVERY_S
from support.apis import Admin, Aio, Api, Sync, stays, until

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 0.9
BY_RENEWAL = r"gone|value of another client"
"""Why a lease is lost, where the server said so: it has not just run out."""


def taken_by_another(api: Api, admin: Admin, url: str, lock: Any, fence: int, reason: str | None = BY_RENEWAL) -> None:
    """A lock that the server has forgotten: its holder knows, its renewals do not bring it back, and others get it."""
    until(lock.lease.lost.is_set)
    stays(lambda: admin.token() is None, 0.1)
    other = api.Lock(url, lock.name, ttl=5)
    assert api.call(other.acquire, blocking=False)
    assert other.lease.fence > fence, "by the server's clock, as its counter is gone"
    with pytest.raises(holdfast.LeaseLost, match=reason):
        api.call(lock.release)
    assert admin.token(), "the next holder's lock stays"
    api.call(other.release)
    admin.nothing_left()


@pytest.mark.fault(30)
def test_a_snapshot_brings_back_what_was_given_back(any_api: Api, new_server: NewServer, name: str) -> None:
    """Killed, it remembers its last snapshot: a lock that was free again is held by nobody until that lease ends. The counter
    has gone back, too, and the fence rises all the same."""
    server = new_server("--save", "3600 1000")
    with closing(Admin(server, name)) as admin:
        first, second = any_api.Lock(server.url, name, ttl=30), any_api.Lock(server.url, name, ttl=TTL)
        assert any_api.call(first.acquire)
        token = admin.token()
        admin.redis.save()
        any_api.call(first.release)
        assert any_api.call(second.acquire)
        fence = second.lease.fence
        any_api.call(second.release)
        server.kill()
        server.restart()
        assert admin.token() == token
        assert any_api.call(second.acquire, blocking=False) is False
        admin.redis.pexpire(admin.lock, 300)  # that lease is nearly over
        assert any_api.call(second.acquire, timeout=5)
        assert second.lease.fence > fence
        any_api.call(second.release)
        admin.nothing_left()


@pytest.mark.fault(30)
def test_an_orderly_end_with_snapshots_loses_nothing(any_api: Api, new_server: NewServer, name: str) -> None:
    """SHUTDOWN writes a snapshot: the lease goes on."""
    server = new_server("--save", "3600 1000")
    with closing(Admin(server, name)) as admin:
        lock = any_api.Lock(server.url, name, ttl=3)
        assert any_api.call(lock.acquire)
        token = admin.token()
        admin.redis.shutdown()
        server.wait()
        server.restart()
        admin.renewed()
        assert admin.token() == token
        any_api.call(lock.release)
        admin.nothing_left()


@pytest.mark.fault(32, 33)
@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_the_tail_of_the_append_only_file_is_lost(
    both_apis: tuple[Sync, Aio], new_server: NewServer, name: str, fsync: str
) -> None:
    """A power cut, or a disk that only says it has written: the latest locks are forgotten, those before are not."""
    server = new_server("--appendfsync", fsync, appendonly=True)
    (file,) = (server.directory / "appendonlydir").glob("*.incr.aof")
    api = both_apis[0]
    with closing(Admin(server, name)) as admin, closing(Admin(server, f"{name} early")) as early:
        kept = api.Lock(server.url, f"{name} early", ttl=3)
        lock, spoilt = api.Lock(server.url, name, ttl=TTL), both_apis[1].Lock(server.url, f"{name} late", ttl=TTL)
        assert api.call(kept.acquire)
        before = file.stat().st_size
        assert api.call(lock.acquire)
        fence = lock.lease.fence
        whole = file.stat().st_size
        assert both_apis[1].call(spoilt.acquire)
        server.kill()
        # In the middle of what the first of the two wrote: half a transaction is none.
        with file.open("r+b") as opened:
            opened.truncate(before + (whole - before) // 2)
        server.restart()
        taken_by_another(api, admin, server.url, lock, fence, None)  # it may have run out while the server was away
        until(spoilt.lease.lost.is_set)
        with pytest.raises(holdfast.LeaseLost):
            both_apis[1].call(spoilt.release)
        early.renewed()
        api.call(kept.release)
        early.nothing_left()


@pytest.mark.fault(34)
@pytest.mark.parametrize("how", ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"])
def test_everything_is_flushed(api: Api, new_server: NewServer, name: str, how: str) -> None:
    """Nothing tells a client: the connection and the server are the same.

    The holder learns of it by its next renewal, a waiter by its next refresh.
    """
    server = new_server()
    with closing(Admin(server, name)) as admin, closing(Admin(server, f"{name} busy")) as busy:
        lock = api.Lock(server.url, name, ttl=TTL)
        holder, waiter = (api.FairLock(server.url, f"{name} busy", ttl=TTL) for _ in range(2))
        assert api.call(lock.acquire)
        assert api.call(holder.acquire)
        fence, busy_fence = lock.lease.fence, holder.lease.fence
        taken = api.start(waiter.acquire, timeout=5)
        until(lambda: len(busy.places()) == 1)
        admin.redis.execute_command(*how.split())
        taken_by_another(api, admin, server.url, lock, fence)
        assert taken.result(REFRESH_EVERY_S + 1)
        assert waiter.lease.fence > busy_fence
        until(holder.lease.lost.is_set)
        with pytest.raises(holdfast.LeaseLost, match=BY_RENEWAL):
            api.call(holder.release)
        assert busy.token(), "the next holder's lock stays"
        api.call(waiter.release)
        busy.nothing_left()


@pytest.mark.fault(35)
def test_a_lock_is_evicted(api: Api, new_server: NewServer, name: str) -> None:
    """A server that may throw away keys throws away locks: whose time ends first, goes first."""
    server = new_server("--maxmemory-policy", "volatile-ttl", "--maxmemory-samples", "64")
    with closing(Admin(server, name)) as admin:
        lock = api.Lock(server.url, name, ttl=TTL)
        assert api.call(lock.acquire)
        fence = lock.lease.fence
        admin.redis.config_set("maxmemory", admin.redis.info("memory")["used_memory"] + 100_000)
        number = 0
        while admin.redis.exists(admin.lock):
            with admin.redis.pipeline(transaction=False) as pipe:
                for _ in range(20):
                    pipe.set(f"data {(number := number + 1)}", "x" * 2000, ex=3600)
                pipe.execute(raise_on_error=False)
        admin.redis.config_set("maxmemory", 0)
        taken_by_another(api, admin, server.url, lock, fence)


@pytest.mark.fault(43)
def test_a_server_that_loads_its_data(both_apis: tuple[Sync, Aio], new_server: NewServer, name: str) -> None:
    """Restarted with much to read: it refuses all, for a while. Leases outlive it; who came, who waits, gets the lock."""
    server = new_server("--loading-process-events-interval-bytes", "1024", "--key-load-delay", "200", appendonly=True)
    sync, aio = both_apis
    with closing(Admin(server, name)) as admin:
        with admin.redis.pipeline(transaction=False) as pipe:
            for number in range(15_000):
                pipe.set(f"data {number}", "x" * 20)
            pipe.execute()
        holder, waiter, newcomer = (api.FairLock(server.url, name, ttl=5) for api in (sync, aio, sync))
        assert sync.call(holder.acquire)
        taken = aio.start(waiter.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        place = admin.places()
        server.kill()
        restarted = threading.Thread(target=server.restart)
        restarted.start()
        said = ""
        while said != "LOADING":
            with pytest.raises(holdfast.ServerError) as error:
                newcomer.acquire(blocking=False)
            said = error.value.code
        admin.redis.config_set("key-load-delay", 0)  # it was seen: the rest may go fast
        restarted.join()
        assert newcomer.acquire(blocking=False) is False
        assert admin.places() == place
        assert not holder.lease.lost.is_set()
        sync.call(holder.release)
        assert taken.result(REFRESH_EVERY_S + 1)
        aio.call(waiter.release)
        admin.nothing_left()
