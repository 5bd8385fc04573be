"""Semaphores of both APIs on a real server, as one knows them from threading, and what only leases have."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, LeaseLost, LockTimeout, NotHeld, aio
from permit.live.permit_apis import Api
from support.servers import PrivateServer
from support.witness import in_thread, lease_record, queue_length, until

pytestmark = pytest.mark.filterwarnings("ignore:ttl=:holdfast.errors.HoldfastWarning")


@pytest.fixture(params=["threads", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    api = Api(request.param)
    yield api
    api.close()


def make(api: Api, server: PrivateServer, name: str, limit: int | None = 2, **options: Any) -> Any:
    return api.make("Semaphore", server.url, name, limit, **options)


def crash(server: PrivateServer, what: str) -> None:
    """Another process holds what is said, and is killed."""
    program = f"import holdfast, os, signal; held = holdfast.{what}; held.acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=False, timeout=20)
    assert done.returncode == -signal.SIGKILL


# As one knows it


def test_as_many_as_the_limit_and_no_more(api: Api, server: PrivateServer, name: str) -> None:
    semaphore = make(api, server, name)
    assert api.do(semaphore.acquire)
    assert not api.do(semaphore.locked)
    assert api.do(semaphore.acquire, timeout=1)
    assert api.do(semaphore.locked)
    assert not api.do(semaphore.acquire, blocking=False)
    assert not api.do(semaphore.acquire, timeout=0.05)
    assert not api.do(semaphore.acquire, timeout=-1)
    api.do(semaphore.release)
    assert api.do(semaphore.available) == 1
    assert api.do(semaphore.acquire, False)
    api.do(semaphore.release, 2)
    assert api.do(semaphore.available) == api.do(semaphore.limit) == 2
    with pytest.raises(ValueError, match="released too often: this object holds 0 acquisitions, not 1"):
        api.do(semaphore.release)
    with pytest.raises(NotHeld):
        api.do(semaphore.release, 2)
    with pytest.raises(ValueError, match="one or more"):
        api.do(semaphore.release, 0)
    with pytest.raises(ValueError, match="timeout for non-blocking"):
        api.do(semaphore.acquire, False, 1)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2", 1_000_001])
@pytest.mark.parametrize("cls", [holdfast.Semaphore, aio.BoundedSemaphore])
def test_a_limit_is_a_whole_number_from_one(cls: Any, limit: object) -> None:
    with pytest.raises(ConfigError, match="limit must be a whole number"):
        cls("redis://127.0.0.1:1", "x", limit)


@pytest.mark.parametrize("cls", [holdfast.Semaphore, aio.Semaphore])
def test_what_can_never_be_had_and_what_is_not_offered_is_refused_at_once(cls: Any) -> None:
    with pytest.raises(ConfigError, match="weight=3 is more than limit=2"):
        cls("redis://127.0.0.1:1", "x", 2, weight=3)
    with pytest.raises(ConfigError, match=r"one server.*Redlock"):
        cls(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"], "x", 2)


def test_a_crowd_never_holds_more_than_there_are(server: PrivateServer, name: str) -> None:
    semaphore, inside, most = holdfast.BoundedSemaphore(server.url, name, 3), [], []

    def work(number: int) -> None:
        for _ in range(5):
            with semaphore as lease:
                inside.append(number)
                most.append(len(inside))
                lease.check()
                inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(most) == 40
    assert max(most) <= 3
    assert semaphore.available() == 3
    assert semaphore.statistics().acquisitions == 40


def test_threads_that_give_back_at_the_same_time_give_back_one_each(server: PrivateServer, name: str) -> None:
    semaphore = holdfast.Semaphore(server.url, name, 8)
    for _ in range(5):
        for _ in range(8):
            assert semaphore.acquire(timeout=5)
        together = threading.Barrier(8)

        def give_back(_: int) -> None:
            together.wait(5)  # noqa: B023
            semaphore.release()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(give_back, range(8)))
        assert semaphore.available() == 8


def test_it_fits_where_asyncio_and_threading_want_one(server: PrivateServer, name: str) -> None:
    condition = threading.Condition(holdfast.Semaphore(server.url, name, 1))  # type: ignore[arg-type]
    with condition:
        assert not condition.wait(0.01)

    async def main() -> None:
        async with aio.Semaphore(server.url, name) as lease:
            assert lease.fence > 0

    asyncio.run(main())


# Limit, weights, order


def test_users_who_disagree_are_told_both_numbers(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    with pytest.raises(ConfigError, match="the number of permits is not set yet"):
        api.do(make(api, server, name, None).acquire)
    assert look.keys(f"*{{{name}}}*") == []
    ours, theirs = make(api, server, name, 2), make(api, server, name, 5)
    assert api.do(ours.acquire)
    with pytest.raises(ConfigError, match="with limit=5 cannot be used: its other users have a limit of 2") as refused:
        api.do(theirs.acquire)
    assert name in str(refused.value)
    assert api.do(make(api, server, name, None).acquire, timeout=1)
    with pytest.raises(ConfigError, match="more permits were requested than its limit of 2"):
        api.do(make(api, server, name, None, weight=3).acquire)


def test_a_higher_limit_lets_in_who_waits_and_a_lower_one_takes_from_nobody(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    semaphore = make(api, server, name, 1)
    assert api.do(semaphore.acquire)
    waiter = make(api, server, name, 1)
    waits = api.start(waiter.acquire, timeout=10)
    until(lambda: queue_length(look, name) == 1)
    began = time.monotonic()
    api.do(semaphore.set_limit, 2)
    assert waits.result(5)
    assert time.monotonic() - began < 0.9, "it was told, and need not ask"
    api.do(semaphore.set_limit, 1)
    assert api.do(semaphore.available) == 0
    for lease in (semaphore.lease, waiter.lease):
        api.do(lease.renew)
    api.do(waiter.release)
    assert not api.do(waiter.acquire, blocking=False)
    api.do(semaphore.release)
    assert api.do(waiter.acquire, blocking=False), "who knows the limit before only is welcome"


def test_nobody_goes_before_who_wants_more_than_is_free(api: Api, server: PrivateServer, look: redis.Redis, name: str) -> None:
    small, large = make(api, server, name, 2), make(api, server, name, 2, weight=2)
    assert api.do(small.acquire)
    waits = api.start(large.acquire, timeout=10)
    until(lambda: queue_length(look, name) == 1)
    other = make(api, server, name, 2)
    assert not api.do(other.acquire, blocking=False), "one is free, for him who came before"
    behind = api.start(other.acquire, timeout=10)
    until(lambda: queue_length(look, name) == 2)
    api.do(small.release)
    assert waits.result(5)
    assert not behind.done()
    api.do(large.release)
    assert behind.result(5)


# Leases


def test_the_permits_of_who_is_killed_come_back_when_his_lease_ends(api: Api, server: PrivateServer, name: str) -> None:
    crash(server, f"Semaphore({server.url!r}, {name!r}, 2, weight=2, ttl=2)")
    semaphore = make(api, server, name)
    began = time.monotonic()
    assert api.do(semaphore.available) == 0
    assert not api.do(semaphore.acquire, blocking=False)
    assert api.do(semaphore.acquire, timeout=10)
    assert 0.5 < time.monotonic() - began < 4


def test_a_permit_that_was_lost_is_told_and_the_others_are_given_back(
    api: Api, server: PrivateServer, look: redis.Redis, name: str
) -> None:
    lost: list[Any] = []
    semaphore = make(api, server, name, ttl=1, on_lost=lost.append)
    assert api.do(semaphore.acquire)
    first = semaphore.lease
    assert api.do(semaphore.acquire)
    second = semaphore.lease
    assert second.fence > first.fence
    token = lease_record(second).token
    look.zrem(semaphore.key, token)
    until(lambda: lost == [second])
    first.check()
    with pytest.raises(LeaseLost, match="lost"):
        api.do(semaphore.release, 2)
    assert first.remaining() == 0
    assert look.zcard(semaphore.key) == 0


def test_with_says_who_holds_it_and_a_cancelled_one_leaves_nothing(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        semaphore = aio.Semaphore(server.url, name, 1, wait=0.05)
        async with semaphore:
            with pytest.raises(LockTimeout, match=name):
                async with semaphore:
                    pass
            waits = asyncio.create_task(aio.Semaphore(server.url, name, 1).acquire())
            while queue_length(look, name) != 1:
                await asyncio.sleep(0.002)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
        assert await semaphore.available() == 1

    asyncio.run(main())
    assert queue_length(look, name) == 0


def test_the_body_of_a_task_is_cancelled_when_its_permit_is_lost(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        async with aio.Semaphore(server.url, name, 2, ttl=0.3) as lease:
            look.delete(lease.key)
            await asyncio.sleep(10)

    began = time.monotonic()
    with pytest.raises(LeaseLost):
        asyncio.run(main())
    assert time.monotonic() - began < 5


def test_an_interrupt_while_it_waits_leaves_nothing(server: PrivateServer, look: redis.Redis, name: str) -> None:
    holder = holdfast.Semaphore(server.url, name, 1)
    assert holder.acquire()
    waiter = holdfast.Semaphore(server.url, name, 1)

    def interrupt() -> None:
        until(lambda: queue_length(look, name) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    interrupts = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        waiter.acquire()
    interrupts.result(5)
    until(lambda: queue_length(look, name) == 0)
    assert waiter.lease is None
    holder.release()
    assert holder.available() == 1


def test_a_forked_child_holds_nothing(server: PrivateServer, name: str) -> None:
    semaphore = holdfast.Semaphore(server.url, name, 1)
    assert semaphore.acquire()
    program = os.fork()
    if not program:
        try:
            semaphore.release()
        except NotHeld:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) == 7
    semaphore.lease.check()  # type: ignore[union-attr]
    semaphore.release()


def test_hung_holders_lose_their_permits(api: Api, server: PrivateServer, name: str) -> None:
    bounded = make(api, server, name, 3, ttl=2, max_hold=0.5)
    hung = make(api, server, name, 3, ttl=2, progress_within=0.7)
    for semaphore in (bounded, hung):
        assert api.do(semaphore.acquire)
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        time.sleep(0.05)
        hung.progress()
    with pytest.raises(LeaseLost, match="max_hold"):
        bounded.lease.check()
    hung.lease.check()
    until(lambda: hung.lease.remaining() == 0)
    with pytest.raises(LeaseLost, match="progress"):
        hung.progress()
    for semaphore in (bounded, hung):
        with pytest.raises(LeaseLost):
            api.do(semaphore.release)
        with pytest.raises(NotHeld):
            semaphore.progress()


# Clients, kinds


@pytest.mark.parametrize("decode", [False, True])
def test_with_the_users_client(server: PrivateServer, name: str, decode: bool) -> None:
    with redis.Redis.from_url(server.url, decode_responses=decode) as client:
        semaphore = holdfast.Semaphore(client, name.encode(), 2, weight=2)
        with semaphore as lease:
            lease.renew(5)
            assert semaphore.locked()
        semaphore.set_limit(3)
        assert (semaphore.limit(), semaphore.available()) == (3, 3)


KINDS: list[tuple[str, Any]] = [
    ("Lock", lambda api, url, name: api.make("Lock", url, name, wait=0)),
    ("Semaphore", lambda api, url, name: api.make("Semaphore", url, name, 2, wait=0)),
    ("reader", lambda api, url, name: api.make("RWLock", url, name, wait=0).read),
    ("writer", lambda api, url, name: api.make("RWLock", url, name, wait=0).write),
]


@pytest.mark.parametrize(
    ("first", "second"),
    [(a, b) for a in KINDS for b in KINDS if a[0] != b[0] and {a[0], b[0]} != {"reader", "writer"}],
    ids=lambda kind: kind[0],
)
def test_a_name_is_of_one_kind(api: Api, server: PrivateServer, look: redis.Redis, name: str, first: Any, second: Any) -> None:
    holder, other = (build(api, server.url, name) for _, build in (first, second))
    assert api.do(holder.acquire)
    before = {key: look.dump(key) for key in look.keys(f"*{{{name}}}*")}
    with pytest.raises(ConfigError, match=name):
        api.do(other.acquire)
    assert {key: look.dump(key) for key in look.keys(f"*{{{name}}}*")} == before
    api.do(holder.release)
    with pytest.raises(ConfigError, match=name):
        api.do(other.acquire)
