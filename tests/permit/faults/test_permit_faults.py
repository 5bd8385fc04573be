"""Semaphores and read-write locks on servers that are full, restarted, or have forgotten scripts, or all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import LeaseLost, RWLock, Semaphore, ServerError
from holdfast._api import access
from permit.live.permit_apis import Face
from support.faces import Admin, until

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")

TTL = 1.0


@pytest.fixture(params=["threads", "asyncio"])
def face(request: pytest.FixtureRequest, _fresh_process: None) -> Iterator[Face]:
    face = Face(request.param)
    yield face
    face.close()


def lost(face: Face, *leases: Any) -> None:
    """Each holder learns of it by its next renewal, and can do nothing any more."""
    until(lambda: all(lease.lost.is_set() for lease in leases))
    for lease in leases:
        for what in (lease.renew, lease.release):
            with pytest.raises(LeaseLost):
                face.do(what)


@pytest.mark.fault(44)
def test_when_memory_is_full_nobody_new_comes_in_and_all_else_goes_on(face: Face, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        semaphore, waiter = (face.make("Semaphore", server.url, name, 2, weight=n, ttl=5) for n in (1, 2))
        assert face.do(semaphore.acquire)
        assert face.do(semaphore.acquire)
        lock = face.make("RWLock", server.url, f"{name} both", ttl=5)
        written = face.held(lock.write)
        waits = face.start(waiter.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        admin.redis.config_set("maxmemory", 1)
        with pytest.raises(ServerError, match="OOM"):
            face.do(face.make("Semaphore", server.url, f"{name} new", 2).acquire)
        with pytest.raises(ServerError, match="OOM"):
            face.do(face.make("RWLock", server.url, f"{name} both").read.acquire)
        face.do(written.renew)
        face.do(written.downgrade)
        face.do(written.release)
        semaphore.lease.check()
        face.do(semaphore.lease.renew)
        face.do(semaphore.release, 2)
        assert waits.result(5), "handed over"
        face.do(waiter.lease.renew)
        face.do(waiter.release)
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
def test_scripts_are_forgotten_all_the_time(face: Face, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (face.make("RWLock", server.url, name, ttl=5) for _ in range(2))
        lease = face.held(lock.write)
        forgets = admin.redis.script_flush
        forgets()
        waits = face.start(other.read.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        for what in (lease.renew, lease.downgrade, lock.read.locked):
            forgets()
            face.do(what)
        assert waits.result(5)
        forgets()
        face.do(lease.release)
        forgets()
        assert face.do(other.read.release) is None
        assert admin.redis.zcard(lease.key) == 0


@pytest.mark.fault(29)
def test_killed_and_restarted_without_memory(face: Face, new_server: NewServer, name: str) -> None:
    """Readers hold, a writer waits, and readers wait behind it: the waiters join anew, and the holders are notified."""
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (face.make("RWLock", server.url, name, ttl=TTL, wait=10) for _ in range(2))
        held = [face.held(lock.read) for _ in range(2)]
        write = face.start(other.write.acquire)
        until(lambda: len(admin.places()) == 1)
        read = face.start(other.read.acquire)
        until(lambda: len(admin.places()) == 2)
        server.kill()
        server.restart()
        waiting = {"write": write, "read": read}
        while waiting:  # in whichever order they come
            until(lambda: any(future.done() for future in waiting.values()))
            side = next(side for side, future in waiting.items() if future.done())
            assert waiting.pop(side).result()
            assert getattr(other, side).lease.fence > held[0].fence, "by the server's clock"
            face.do(getattr(other, side).release)
        lost(face, *held)


@pytest.mark.fault(31)
def test_killed_and_restarted_with_its_memory(face: Face, new_server: NewServer, name: str) -> None:
    """A writer holds and readers wait: the writer goes on, the readers keep their places, and are admitted together."""
    server = new_server(appendonly=True)
    with closing(Admin(server, name)) as admin:
        lock, other = (face.make("RWLock", server.url, name, ttl=5, wait=10) for _ in range(2))
        lease = face.held(lock.write)
        reads = [face.start(other.read.acquire) for _ in range(2)]
        until(lambda: len(admin.places()) == 2)
        places = admin.places()
        server.kill()
        server.restart()
        until(lambda: admin.listeners(places[0].split(".")[0]) == 1)
        assert admin.places() == places
        face.do(lease.renew)
        face.do(lease.release)
        assert all(future.result(5) for future in reads)
        face.do(other.read.release)
        face.do(other.read.release)
        assert admin.redis.zcard(lease.key) == 0


@pytest.mark.fault(34)
def test_all_is_flushed(face: Face, new_server: NewServer, name: str) -> None:
    """Besides the holders, as many new clients as there are permits may come in, until the holders renew.

    A holder that has lost its permit takes none of another client.
    """
    server = new_server()
    with closing(Admin(server, name)) as admin:
        semaphore, other = (face.make("Semaphore", server.url, name, 2, ttl=ttl) for ttl in (TTL, 5))
        for _ in range(2):
            assert face.do(semaphore.acquire)
        held = [core.user_lease() for core in semaphore._held.live()]
        waits = face.start(other.acquire, timeout=10)
        until(lambda: len(admin.places()) == 1)
        admin.redis.flushall()
        assert waits.result(5)
        assert face.do(other.acquire)
        assert not face.do(other.acquire, blocking=False)
        lost(face, *held)
        assert min(lease.fence for lease in other._held.live()) > max(lease.fence for lease in held)
        assert face.do(other.available) == 0
        face.do(other.release, 2)
        assert face.do(other.available) == 2


@pytest.mark.fault(52)
def test_a_writer_whose_state_alone_is_lost_becomes_a_reader_all_the_same(face: Face, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        lock, other = (face.make("RWLock", server.url, name, ttl=5) for _ in range(2))
        lease = face.held(lock.write)
        fence = lease.fence
        admin.redis.delete(admin.state)
        face.do(lease.downgrade)
        assert face.do(other.read.acquire, blocking=False)
        assert other.read.lease.fence > fence == lease.fence
        assert not face.do(other.write.acquire, blocking=False)
        face.do(lease.renew)
        face.do(lease.release)


def test_the_permits_of_five_thousand_who_died_are_had_by_who_asks_once(face: Face, new_server: NewServer, name: str) -> None:
    server = new_server()
    with closing(Admin(server, name)) as admin:
        living = face.make("Semaphore", server.url, name, 5001)
        assert face.do(living.acquire)
        with admin.redis.pipeline() as pipe:
            for number in range(5000):
                dead = f"{'d' * 12}.{number:032x}*1"
                pipe.zadd(admin.lock, {dead: 1}).hset(admin.state, f"h:{dead}", "1 1 0")
            pipe.hset(admin.state, "used", 5001).execute()
        heavy = face.make("Semaphore", server.url, name, 5001, weight=5000)
        assert face.do(heavy.acquire, blocking=False)
        living.lease.check()
        assert face.do(living.available) == 0
