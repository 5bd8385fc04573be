"""Semaphores and read-write locks on servers that are full, restarted, or have forgotten scripts, or all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import LeaseLost, RWLock, Semaphore, ServerError
from holdfast._api import access
from permit.live.permit_apis import Api
from support.apis import Admin, until

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 1.0


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest, _fresh_process: None) -> Iterator[Api]:
    api = Api(request.param)
    yield api
    api.close()


def lost(api: Api, *leases: Any) -> None:
    """Each holder learns of it by its next renewal, and can do nothing any more."""
    until(lambda: all(lease.lost.is_set() for lease in leases))
    for lease in leases:
        for what in (lease.renew, lease.release):
            with pytest.raises(LeaseLost):
                api.do(what)


@pytest.mark.fault(44)
def test_when_memory_is_full_nobody_new_comes_in_and_all_else_goes_on(api: Api, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        semaphore, waiter = (api.make("Semaphore", server.url, name, 2, weight=n, ttl=5) for n in (1, 2))
        assert api.do(semaphore.acquire)
        assert api.do(semaphore.acquire)
        lock = api.make("RWLock", server.url, f"{name} both", ttl=5)
        written = api.held(lock.write)
        waits = api.start(waiter.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        admin.redis.config_set("maxmemory", 1)
        with pytest.raises(ServerError, match="OOM"):
            api.do(api.make("Semaphore", server.url, f"{name} new", 2).acquire)
        with pytest.raises(ServerError, match="OOM"):
            api.do(api.make("RWLock", server.url, f"{name} both").read.acquire)
        api.do(written.renew)
        api.do(written.downgrade)
        api.do(written.release)
        semaphore.lease.check()
        api.do(semaphore.lease.renew)
        api.do(semaphore.release, 2)
        assert waits.result(5), "handed over"
        api.do(waiter.lease.renew)
        api.do(waiter.release)
        assert admin.redis.zcard(waiter.key) == 0
        admin.redis.config_set("maxmemory", 0)


@pytest.mark.fault(49)
def test_a_right_that_is_missing_leaves_no_key_without_expiry(new_server: NewServer, name: str) -> None:
    """Without the right to set an expiry, the state stays: see the page on access control."""
    server = new_server()
    rights = set(access.commands(["permits"])) - {"EVAL", "EVALSHA"}
    stays, refused = set(), 0
    with closing(Admin(server, name)) as admin:
        for right in rights:
            for kind in ("Semaphore", "RWLock"):
                admin.redis.flushall()
                admin.redis.execute_command("ACL SETUSER", "patient", *access.rule(["permits"]), f"-{right}", ">canary-1")
                url = server.url.replace("//", "//patient:canary-1@")
                lock = RWLock(url, name).write if kind == "RWLock" else Semaphore(url, name, 2)
                try:
                    lock.acquire()
                    lock.release()
                except ServerError:
                    refused += 1
                stays |= {right for key in admin.redis.scan_iter() if admin.redis.pttl(key) == -1}
    assert stays == {"PEXPIRE"}
    assert refused > len(rights)


@pytest.mark.fault(41)
def test_scripts_are_forgotten_all_the_time(api: Api, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (api.make("RWLock", server.url, name, ttl=5) for _ in range(2))
        lease = api.held(lock.write)
        forgets = admin.redis.script_flush
        forgets()
        waits = api.start(other.read.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        for what in (lease.renew, lease.downgrade, lock.read.locked):
            forgets()
            api.do(what)
        assert waits.result(5)
        forgets()
        api.do(lease.release)
        forgets()
        assert api.do(other.read.release) is None
        assert admin.redis.zcard(lease.key) == 0


@pytest.mark.fault(29)
def test_killed_and_restarted_without_memory(api: Api, new_server: NewServer, name: str) -> None:
    """Readers hold, a writer waits, and readers wait behind it: the waiters join anew, and the holders are notified."""
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (api.make("RWLock", server.url, name, ttl=TTL, wait=10) for _ in range(2))
        held = [api.held(lock.read) for _ in range(2)]
        write = api.start(other.write.acquire)
        until(lambda: len(admin.places()) == 1)
        read = api.start(other.read.acquire)
        until(lambda: len(admin.places()) == 2)
        server.kill()
        server.restart()
        waiting = {"write": write, "read": read}
        while waiting:  # in whichever order they come
            until(lambda: any(future.done() for future in waiting.values()))
            side = next(side for side, future in waiting.items() if future.done())
            assert waiting.pop(side).result()
            assert getattr(other, side).lease.fence > held[0].fence, "by the server's clock"
            api.do(getattr(other, side).release)
        lost(api, *held)


@pytest.mark.fault(31)
def test_killed_and_restarted_with_its_memory(api: Api, new_server: NewServer, name: str) -> None:
    """A writer holds and readers wait: the writer goes on, the readers keep their places, and are admitted together."""
    server = new_server(appendonly=True)
    with closing(Admin(server, name)) as admin:
        lock, other = (api.make("RWLock", server.url, name, ttl=5, wait=10) for _ in range(2))
        lease = api.held(lock.write)
        reads = [api.start(other.read.acquire) for _ in range(2)]
        until(lambda: len(admin.places()) == 2)
        places = admin.places()
        server.kill()
        server.restart()
        until(lambda: admin.listeners(places[0].split(".")[0]) == 1)
        assert admin.places() == places
        api.do(lease.renew)
        api.do(lease.release)
        assert all(future.result(5) for future in reads)
        api.do(other.read.release)
        api.do(other.read.release)
        assert admin.redis.zcard(lease.key) == 0


@pytest.mark.fault(34)
def test_all_is_flushed(api: Api, new_server: NewServer, name: str) -> None:
    """Besides the holders, as many new clients as there are permits may come in, until the holders renew.

    A holder that has lost its permit takes none of another client.
    """
    server = new_server()
    with closing(Admin(server, name)) as admin:
        semaphore, other = (api.make("Semaphore", server.url, name, 2, ttl=ttl) for ttl in (TTL, 5))
        for _ in range(2):
            assert api.do(semaphore.acquire)
        held = [core.user_lease() for core in semaphore._held.live()]
        waits = api.start(other.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        admin.redis.flushall()
        assert waits.result(5)
        assert api.do(other.acquire)
        assert not api.do(other.acquire, blocking=False)
        lost(api, *held)
        assert min(lease.fence for lease in other._held.live()) > max(lease.fence for lease in held)
        assert api.do(other.available) == 0
        api.do(other.release, 2)
        assert api.do(other.available) == 2


@pytest.mark.fault(52)
def test_a_writer_whose_state_alone_is_lost_becomes_a_reader_all_the_same(api: Api, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (api.make("RWLock", server.url, name, ttl=5) for _ in range(2))
        lease = api.held(lock.write)
        fence = lease.fence
        admin.redis.delete(admin.state)
        api.do(lease.downgrade)
        assert api.do(other.read.acquire, blocking=False)
        assert other.read.lease.fence > fence == lease.fence
        assert not api.do(other.write.acquire, blocking=False)
        api.do(lease.renew)
        api.do(lease.release)


def test_the_permits_of_five_thousand_who_died_are_had_by_who_asks_once(api: Api, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        living = api.make("Semaphore", server.url, name, 5001)
        assert api.do(living.acquire)
        with admin.redis.pipeline() as pipe:
            for number in range(5000):
                dead = f"{'d' * 12}.{number:032x}*1"
                pipe.zadd(admin.lock, {dead: 1}).hset(admin.state, f"h:{dead}", "1 1 0")
            pipe.hset(admin.state, "used", 5001).execute()
        heavy = api.make("Semaphore", server.url, name, 5001, weight=5000)
        assert api.do(heavy.acquire, blocking=False)
        living.lease.check()
        assert api.do(living.available) == 0
