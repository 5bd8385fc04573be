"""The dangers of handing a lock over directly, as the design names them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast import aio
from support.apis import Admin, Api, at_most, stays, until
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 2.0


def test_danger_stale_grant_after_a_re_ask(  # the order of events is the test
    api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Joined, granted, not told of either; the grant ended, another one holds; asked again, in line again under the same
    token; and now the old message comes. Its fence is not greater than the last one issued, so it is ignored."""
    holder = holdfast.Lock(server.url, name, ttl=1)
    holder.acquire()
    lock = api.Lock(proxy.url, name, ttl=TTL)
    joined, again = proxy.on("join", action="lose"), proxy.on("join", action="hold", times=100)
    message = proxy.on("message", action="stall")
    taken = api.start(lock.acquire, timeout=10)
    assert joined.done.wait(5)
    (token,) = admin.places()
    holder.release()
    assert message.seen.wait(5)
    assert admin.token() == token
    admin.redis.delete(admin.lock)  # as when the claim window ends
    assert holder.acquire(blocking=False)
    assert again.seen.wait(5)
    again.go()
    until(lambda: admin.places() == [token])
    until(lambda: "refresh" in proxy.names())
    message.go()
    assert message.done.wait(5)
    stays(lambda: not taken.done(), 0.1)
    assert holder.lease is not None
    fence = holder.lease.fence
    holder.release()
    assert taken.result(5)
    assert lock.lease.fence > fence
    api.call(lock.release)
    admin.nothing_left()


def silence(admin: Admin, user: str) -> None:
    """A user who may do anything except use channels."""
    admin.redis.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], reset_channels=True, categories=["+@all"])


@pytest.mark.fault(49)
def test_danger_publish_refused(api: Api, new_server: NewServer, name: str) -> None:
    """The user of the holder may not publish: it counts as 0 listeners; the place stays, and asking gets the lock."""
    server = new_server()
    admin = Admin(server, name)
    silence(admin, "mute")
    holder = api.Lock(server.url.replace("unix://", "unix://mute:secret@"), name, ttl=0.8)
    lock = api.Lock(server.url, name, ttl=TTL)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    api.call(holder.release)
    assert taken.result(5)
    api.call(lock.release)
    admin.nothing_left()
    admin.close()


@pytest.mark.fault(49)
def test_danger_subscribe_refused(api: Api, new_server: NewServer, name: str) -> None:
    """The user of the waiter may not subscribe: an error that says so, at once, and no place in the queue."""
    server = new_server()
    admin = Admin(server, name)
    silence(admin, "deaf")
    holder = api.Lock(server.url, name, ttl=5)
    lock = api.Lock(server.url.replace("unix://", "unix://deaf:secret@"), name, ttl=TTL)
    assert api.call(holder.acquire)
    with at_most(1), pytest.raises(holdfast.ServerError, match="NOPERM"):
        api.call(lock.acquire, timeout=5)
    assert admin.places() == []
    api.call(holder.release)
    assert api.call(lock.acquire), "a free lock needs no inbox"
    api.call(lock.release)
    admin.nothing_left()
    admin.close()


def test_danger_publish_answered_0(api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str) -> None:
    """A waiter whose inbox is being reconnected is passed over and keeps its place; the next one is served at once."""
    holder, first, second = (api.FairLock(url, name, ttl=5) for url in (server.url, proxy.url, server.url))
    assert api.call(holder.acquire)
    first_taken = api.start(first.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    (token,) = admin.places()
    second_taken = api.start(second.acquire, timeout=10)
    until(lambda: len(admin.places()) == 2)
    # Both listen on the one inbox of this process: the first is made deaf together with its place's process.
    process = token.split(".")[0]
    stranger = f"{'0' * len(process)}.{token.split('.')[1]}"
    deadline = int(admin.redis.hget(admin.state, f"at:{token}")) + 60_000
    admin.redis.hset(admin.state, f"at:{stranger}", str(deadline))
    admin.redis.zadd(admin.queue, {stranger: 1})
    with at_most(1):  # and not after the claim of somebody who does not listen
        api.call(holder.release)
        assert first_taken.result(5)
    assert admin.places()[0] == stranger, "passed over, and still in its place"
    api.call(first.release)
    assert second_taken.result(5)
    assert admin.places() == [stranger]
    api.call(second.release)
    assert admin.token() is None
    assert admin.places() == [stranger]


def test_danger_a_reconnecting_waiter_keeps_its_place(
    any_api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Its inbox is away at the hand-over; it asks as soon as it listens again, and has the lock."""
    holder, lock = any_api.Lock(server.url, name, ttl=5), any_api.Lock(proxy.url, name, ttl=TTL)
    assert any_api.call(holder.acquire)
    taken = any_api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    process = admin.places()[0].split(".")[0]
    rule = proxy.on("SUBSCRIBE", action="refuse", times=100)
    admin.redis.client_kill_filter(_type="pubsub")
    assert rule.seen.wait(5)
    until(lambda: admin.listeners(process) == 0)
    refreshes = len(proxy.names("refresh"))
    any_api.call(holder.release)
    found = len(admin.places()), admin.token()
    if len(proxy.names("refresh")) == refreshes:  # then it had not asked when that was looked at
        assert found == (1, None)
    assert taken.result(5), "the refresh goes on without the inbox"
    rule.go()
    any_api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(44)
@pytest.mark.parametrize("renew", [True, False])
def test_danger_memory_is_full(api: Api, new_server: NewServer, name: str, renew: bool) -> None:
    """Full memory: release and renewal still work, and hand over; acquire is an error that says so."""
    server = new_server("--maxmemory-policy", "noeviction")
    admin = Admin(server, name)
    holder, lock = api.FairLock(server.url, name, ttl=TTL, renew=renew), api.FairLock(server.url, name, ttl=5)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    (token,) = admin.places()
    admin.redis.config_set("maxmemory", 1)
    with pytest.raises(holdfast.ServerError, match="OOM"):
        api.call(api.FairLock(server.url, f"{name} new", ttl=5).acquire)
    api.call(holder.lease.renew)
    if renew:
        admin.renewed()
    assert not holder.lease.lost.is_set()
    api.call(holder.release)
    assert admin.token() == token, "it was handed over"
    assert taken.result(5)
    assert lock.lease.fence > holder._current.fence
    until(lambda: admin.ttl_ms() > 2000)  # the claim window became the lease
    api.call(lock.release)
    admin.redis.config_set("maxmemory", 0)
    admin.nothing_left()
    admin.close()


def test_danger_a_place_that_is_gone(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Refresh never inserts: it is told "gone", starts over under a new token, and gets the lock in the end."""
    holder, lock = api.FairLock(server.url, name, ttl=0.8), api.FairLock(server.url, name, ttl=TTL)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=10)
    until(lambda: len(admin.places()) == 1)
    (token,) = admin.places()
    admin.redis.delete(admin.queue, admin.state)
    until(lambda: len(admin.places()) == 1)
    assert admin.places() != [token]
    fence = holder.lease.fence
    api.call(holder.release)
    assert taken.result(5)
    assert lock.lease.fence > fence, "by the server's clock, though its counter is lost"
    api.call(lock.release)
    admin.nothing_left()


def test_danger_barging(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Strict order of arrival: whoever comes by while others wait stands behind them."""
    holder = api.FairLock(server.url, name, ttl=5)
    assert api.call(holder.acquire)
    waiters = [api.FairLock(server.url, name, ttl=5) for _ in range(4)]
    taken = []
    for number, lock in enumerate(waiters, 1):
        taken.append(api.start(lock.acquire, timeout=10))
        until(lambda number=number: len(admin.places()) == number)  # type: ignore[misc]
    fences = [holder.lease.fence]
    api.call(holder.release)
    assert api.call(holder.acquire, blocking=False) is False
    for number, lock in enumerate(waiters):
        assert taken[number].result(5)
        assert not any(future.done() for future in taken[number + 1 :])
        fences.append(lock.lease.fence)
        api.call(lock.release)
    assert fences == sorted(set(fences))
    admin.nothing_left()


def test_danger_with_of_a_shared_lock_object(server: PrivateServer, admin: Admin, name: str) -> None:
    """The lease inside a `with` was lost, and another thread took the same object: leaving the `with` gives back nothing
    of theirs."""
    lock = holdfast.Lock(server.url, name, ttl=1)

    def other() -> None:
        assert lock.acquire(timeout=5)

    with pytest.raises(holdfast.LeaseLost), lock as lease:
        admin.redis.delete(admin.lock)
        until(lease.lost.is_set)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        theirs = lock.lease
        assert theirs is not None
    assert lock.lease is theirs
    assert theirs is not None
    assert theirs is not lease
    assert admin.token() == lease_record(theirs).token
    lock.release()
    admin.nothing_left()


def test_danger_async_with_of_a_shared_lock_object(server: PrivateServer, admin: Admin, name: str) -> None:
    """The same with two tasks."""

    async def main() -> None:
        lock = aio.Lock(server.url, name, ttl=1)
        others: list[aio.Lease | None] = []

        async def other() -> None:
            assert await lock.acquire(timeout=5)
            others.append(lock.lease)

        with pytest.raises(holdfast.LeaseLost):
            async with lock as lease:
                admin.redis.delete(admin.lock)
                try:
                    await asyncio.sleep(60)
                finally:
                    await asyncio.create_task(other())
        (theirs,) = others
        assert theirs is not None
        assert lock.lease is theirs is not lease
        assert admin.token() == lease_record(theirs).token
        await lock.release()

    asyncio.run(main())
    admin.nothing_left()


def test_danger_with_entered_here_and_left_there(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """As a fixture does that is torn down in another thread or task: the lease is given back all the same."""
    lock = api.Lock(server.url, name, ttl=30)
    enter, leave = ("__enter__", "__exit__") if api.name == "sync" else ("__aenter__", "__aexit__")
    api.start(getattr(lock, enter)).result(5)
    api.start(getattr(lock, leave), None, None, None).result(5)
    admin.nothing_left()


def test_danger_the_message_overtakes_the_answer(
    api: Api, proxy: Proxy, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Handed over before it knows that it stands in line (servers differ in the order of a push and a reply)."""
    holder, lock = api.Lock(server.url, name, ttl=5), api.Lock(proxy.url, name, ttl=5)
    assert api.call(holder.acquire)
    joined, message = proxy.on("join", action="stall"), proxy.on("message", action="pass")
    taken = api.start(lock.acquire, timeout=5)
    assert joined.done.wait(5)
    api.call(holder.release)
    assert message.seen.wait(5)
    stays(lambda: not taken.done(), 0.02)
    joined.go()
    assert taken.result(5)
    assert "refresh" not in proxy.names(), "it was not asked for again"
    until(lambda: admin.ttl_ms() > 2000)
    api.call(lock.release)
    admin.nothing_left()


def test_danger_nobody_renews_the_claim_window(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """With ``renew=False`` the claim window is turned into the full lease before acquire returns."""
    holder, lock = api.FairLock(server.url, name, ttl=5), api.FairLock(server.url, name, ttl=10, renew=False)
    assert api.call(holder.acquire)
    taken = api.start(lock.acquire, timeout=5)
    until(lambda: len(admin.places()) == 1)
    api.call(holder.release)
    assert taken.result(5)
    assert admin.ttl_ms() > 9000
    assert lock.lease.remaining() > 9
    assert lock.lease.fence == admin.fence()
    api.call(lock.release)
    admin.nothing_left()
