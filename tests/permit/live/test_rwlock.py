"""Read-write locks of both APIs on a real server: who shares, who is next, and what is refused and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import holdfast
from holdfast import LeaseLost, LockTimeout, RWLock, aio
from holdfast._core.permit import RELEASE
from permit.live.permit_apis import Api
from permit.live.test_semaphore import crash
from support.servers import PrivateServer
from support.witness import lease_record, queue_length, until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.errors.HoldfastWarning")


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api = Api(request.param)
    yield api
    api.close()


def make(api: Api, server: PrivateServer, name: str, **options: Any) -> Any:
    return api.make("RWLock", server.url, name, **options)


def test_readers_share_and_a_writer_is_alone(api: Api, server: PrivateServer, name: str) -> None:
    lock = make(api, server, name)
    for _ in range(3):
        assert api.do(lock.read.acquire)
    assert not api.do(lock.write.acquire, blocking=False)
    for _ in range(3):
        api.do(lock.read.release)
    assert api.do(lock.write.acquire, timeout=1)
    assert not api.do(lock.write.acquire, blocking=False)
    assert not api.do(lock.read.acquire, blocking=False)
    assert api.do(lock.read.locked)
    api.do(lock.write.release)
    assert api.do(lock.read.acquire, timeout=1)


def test_a_writer_who_waits_stops_new_readers_and_fifty_of_them_come_in_together(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    lock = make(api, server, name)
    assert api.do(lock.read.acquire)
    writer = make(api, server, name).write
    waits = api.start(writer.acquire, timeout=20)
    until(lambda: queue_length(look, name) == 1)
    assert not api.do(lock.read.acquire, blocking=False), "a writer waits"
    readers = [api.start(lock.read.acquire, timeout=20) for _ in range(50)]
    until(lambda: queue_length(look, name) == 51)
    api.do(lock.read.release)
    assert waits.result(5)
    assert not any(reader.done() for reader in readers)
    api.do(writer.release)
    until(lambda: look.zcard(lock.key) == 50)
    assert all(reader.result(5) for reader in readers)
    fences = sorted(core.fence for core in lock.read._held.live())
    assert fences == list(range(fences[0], fences[0] + 50)), "drawn by one run: within it, time stands still"


def test_a_writer_becomes_a_reader_and_not_the_other_way(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    lock, other = make(api, server, name), make(api, server, name)
    lease = api.held(lock.write)
    fence = lease.fence
    reads = api.start(other.read.acquire, timeout=10)
    until(lambda: queue_length(look, name) == 1)
    api.do(lease.downgrade)
    assert reads.result(5)
    api.do(lease.downgrade)
    api.do(lease.renew)
    assert lease.fence == fence
    api.do(other.read.release)
    assert not api.do(other.write.acquire, blocking=False)
    api.do(lease.release)
    assert api.do(other.write.acquire, timeout=1)
    with pytest.raises(holdfast.NotHeld):
        api.do(lease.downgrade)


def test_what_would_wait_for_ever_is_refused_with_the_reason(server: PrivateServer, name: str) -> None:
    lock = holdfast.RWLock(server.url, name)
    with lock.read:
        for side, why in ((lock.write, "a reader cannot become a writer"), (lock.read, "already: a second acquisition")):
            with pytest.raises(RuntimeError, match=why):
                side.acquire()
    with lock.write as lease:
        for side, why in ((lock.write, "not re-entrant"), (lock.read, "downgrade")):
            with pytest.raises(RuntimeError, match=why):
                side.acquire()
        assert isinstance(lease, holdfast.WriteLease)
        lease.downgrade()
        with pytest.raises(RuntimeError, match="a reader cannot become a writer"):
            lock.write.acquire()


def test_the_same_in_a_task_and_other_tasks_are_welcome(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock = aio.RWLock(server.url, name)
        async with lock.read:
            with pytest.raises(RuntimeError, match="a reader cannot become a writer"):
                await lock.write.acquire()
            assert await asyncio.create_task(lock.read.acquire(timeout=5))
            await lock.read.release()

    asyncio.run(main())


def test_a_dead_reader_keeps_a_writer_out_for_his_own_lease_and_no_longer(api: Api, server: PrivateServer, name: str) -> None:
    other = make(api, server, name, ttl=2)
    assert api.do(other.read.acquire)
    crash(server, f"RWLock({server.url!r}, {name!r}, ttl=2).read")
    began = time.monotonic()
    writer = make(api, server, name).write
    waits = api.start(writer.acquire, timeout=15)
    time.sleep(0.5)  # a living reader goes on reading; a while
    other.read.lease.check()
    api.do(other.read.release)
    assert waits.result(10)
    assert 0.5 < time.monotonic() - began < 4


def test_neither_side_starves(api: Api, server: PrivateServer, name: str) -> None:
    """Each side is wanted all the time, and each has its turns."""
    sides = [make(api, server, name).read, make(api, server, name).write, make(api, server, name).read]
    turns = [0, 0, 0]

    def more(number: int) -> None:
        for _ in range(20):
            with sides[number]:
                turns[number] += 1

    async def more_aio(number: int) -> None:
        for _ in range(20):
            async with sides[number]:
                turns[number] += 1

    work = [api.start(more if api.name == "threads" else more_aio, number) for number in range(3)]
    for future in work:
        future.result(15)
    assert turns == [20, 20, 20]


def test_a_writer_who_has_lost_his_lease_cannot_go_on_as_a_reader(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    lease = api.held(make(api, server, name).write)
    look.zrem(lease.key, lease_record(lease).token)
    with pytest.raises(LeaseLost, match="another client broke the lock"):
        api.do(lease.downgrade)
    assert not lease.downgraded


def test_who_waits_in_vain_is_told_who_holds_it(server: PrivateServer, name: str) -> None:
    lock = holdfast.RWLock(server.url, name, wait=0.05)
    other = holdfast.RWLock(server.url, name)
    with other.write, pytest.raises(LockTimeout, match=name), lock.read:
        pass  # another object, but the same thread: nothing is known of that


def test_one_that_was_given_up_before_it_was_there_leaves_the_name_to_all(
    server: PrivateServer, look: redis.Redis, name: str
) -> None:
    key = f"hf:{{{name}}}"
    look.eval(RELEASE.body.decode(), 3, key, f"{key}:state", f"{key}:queue", "nobody.00", "bury")
    assert 0 < int(look.pttl(f"{key}:state")) <= 120_000
    with RWLock(server.url, name).read as lease:
        lease.check()
    assert look.hget(f"{key}:state", "v") == "rwlock 1"
