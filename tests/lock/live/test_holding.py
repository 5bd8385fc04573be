"""How long a lock is held: ``max_hold``, and holders that have to check in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from holdfast import ConfigError, FairLock, LeaseLost, Lock, MultiLock, NotHeld, Redlock, RLock, aio, declare_new, testing
from holdfast.testing import clock
from support.apis import Aio, Sync
from support.servers import PrivateServer, private
from support.witness import PATIENCE, lease_record

Api = Sync | Aio


@pytest.fixture(params=[Sync, Aio])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with contextlib.closing(request.param()) as api:
        yield api


@pytest.fixture(scope="module")
def three() -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(private(port=True, password="")).url for _ in range(3)]
        declare_new(urls)
        yield urls


@pytest.fixture
def memory() -> Iterator[testing.Memory]:
    with testing.memory() as server:
        yield server
    clock.reset()


def test_who_checks_in_keeps_it_for_as_long_as_he_likes(memory: testing.Memory) -> None:
    with Lock(memory, "import", ttl=30, progress_within=20) as lease:
        for _ in range(20):
            clock.run(15)
            lease.progress()
            assert 19 < lease.remaining() <= 20


def test_who_does_not_is_held_to_be_hung(memory: testing.Memory, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    lock = Lock(memory, "import", ttl=30, progress_within=20, on_lost=lambda _: told.set())
    other = Lock(memory, "import", wait=0)
    caplog.set_level(logging.INFO, "holdfast")
    with pytest.raises(LeaseLost, match="no progress for 20 s") as caught, lock as lease:
        clock.run(15)
        lock.progress()
        clock.run(19)
        lease.check()
        clock.run(1)
        assert lease.lost.is_set()
        assert told.wait(PATIENCE)
        for late in (lease.progress, lock.progress, lease.check):
            with pytest.raises(LeaseLost, match="no progress for 20 s"):
                late()
        assert not lease.remaining()
        assert not other.acquire(), "who hangs may write still: nobody else has it before the lease is over"
    assert caught.value.reason == "no progress for 20 s"
    assert "lock 'import' lost: no progress for 20 s" in caplog.text
    with other:
        pass  # given back at the end of the with, by who was not hung after all


def test_it_ends_with_its_lease_if_the_holder_never_comes_back(memory: testing.Memory) -> None:
    lock = Lock(memory, "import", ttl=30, progress_within=20)
    other = Lock(memory, "import", wait=0)
    lock.acquire()
    clock.run(20)
    clock.run(30)
    assert other.acquire()
    other.release()
    with pytest.raises(LeaseLost):
        lock.release()


def test_a_pause_of_the_whole_process_counts(memory: testing.Memory) -> None:
    """No other code had the time to notice: the holder finds out itself, when it reports progress too late."""
    with pytest.raises(LeaseLost), Lock(memory, "import", ttl=30, progress_within=5) as lease:
        now = lease_record(lease).stalled_at
        lease_record(lease).stalled_at = now - 5  # as if the clock had jumped while all threads stood still
        with pytest.raises(LeaseLost, match="no progress for 5 s"):
            lease.progress()


def test_all_ends_when_the_first_bound_is_reached(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost, match="max_hold"), Lock(memory, "import", max_hold=50, progress_within=20) as lease:
        for _ in range(5):
            clock.run(9)
            lease.progress()
        clock.run(5)
        assert lease.lost.is_set()


def test_the_body_of_a_task_that_hangs_is_cancelled(server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def main() -> None:
        this = aio.Lock(server.url, name, ttl=10, progress_within=0.2)
        with pytest.raises(LeaseLost, match=r"no progress for 0\.2 s"):
            async with this:
                for _ in range(5):
                    await asyncio.sleep(0.1)
                    this.progress()
                async with asyncio.timeout(PATIENCE):
                    await asyncio.Event().wait()
        assert not look.exists(this.key), "given back at once, although ten seconds of the lease were left"

    asyncio.run(main())


@pytest.mark.parametrize("bound", [{"max_hold": 0.7}, {"progress_within": 0.7}])
def test_over_several_servers(three: list[str], api: Api, bound: dict[str, float], name: str) -> None:
    told = threading.Event()
    lock = api.Redlock(three, name, ttl=10, on_lost=lambda _: told.set(), **bound)
    other = api.Redlock(three, name, ttl=10, wait=PATIENCE)
    api.call(lock.acquire)
    lease = lock.lease
    lock.progress()
    assert told.wait(PATIENCE)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == ("no progress for 0.7 s" if "progress_within" in bound else "max_hold has passed")
    with pytest.raises(LeaseLost):
        api.call(lock.release)
    assert api.call(other.acquire)
    api.call(other.release)


def test_over_several_servers_who_checks_in_keeps_it(three: list[str], name: str) -> None:
    with Redlock(three, name, ttl=10, progress_within=0.8) as lease:
        before = lease_record(lease).stalled_at
        while lease_record(lease).stalled_at < before + 1:
            lease.progress()
            time.sleep(0.01)
        assert not lease.lost.is_set()


@pytest.mark.parametrize("kind", ["Lock", "FairLock"])
def test_progress_of_what_is_not_held(server: PrivateServer, api: Api, kind: str, name: str) -> None:
    lock = getattr(api, kind)(server.url, name, progress_within=20)
    with pytest.raises(NotHeld):
        lock.progress()
    api.call(lock.acquire)
    lock.progress()
    api.call(lock.release)
    with pytest.raises(NotHeld):
        lock.progress()


def test_who_has_a_reentrant_lock_checks_in_for_all_of_it(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        lock = aio.RLock(server.url, name, progress_within=20)
        async with lock as outer, lock as inner:
            before = lease_record(inner).stalled_at
            lock.progress()
            assert lease_record(outer).stalled_at > before

    asyncio.run(main())
    with RLock(server.url, name, progress_within=20) as lease:
        lease.progress()


@pytest.mark.parametrize("kind", ["Lock", "Redlock"])
def test_one_of_several_locks_counts_from_when_all_are_held(three: list[str], api: Api, kind: str, name: str) -> None:
    """The holder cannot report progress before the body begins. If it does not do so then, it counts as hung."""
    last = max(three)  # in the order in which they are taken
    part = getattr(api, kind)(three if kind == "Redlock" else last, f"{name}-a", ttl=10, progress_within=0.3)
    holder = Lock(last, f"{name}-b", ttl=10)
    told = threading.Event()
    several = MultiLock if isinstance(api, Sync) else aio.MultiLock
    lock: Any = several([part, api.Lock(last, f"{name}-b", ttl=10)], wait=PATIENCE, on_lost=lambda _: told.set())
    holder.acquire()
    taken = api.start(lock.acquire)
    time.sleep(1.0)
    holder.release()
    assert taken.result(PATIENCE)
    assert (part.statistics().acquisitions, part.statistics().losses) == (1, 0), "it was held all the time"
    lock.progress()
    assert told.wait(PATIENCE)
    with pytest.raises(LeaseLost, match=r"no progress for 0\.3 s"):
        api.call(lock.release)


def test_progress_asks_no_server_and_needs_no_option(new_server: Callable[[], PrivateServer], name: str) -> None:
    server = new_server()
    with Lock(server.url, name) as lease, redis.Redis.from_url(server.url) as look:
        look.config_resetstat()
        for _ in range(100):
            lease.progress()
        assert "cmdstat_evalsha" not in look.info("commandstats")
        assert lease.remaining() > 20, "nothing is bounded"


@pytest.mark.parametrize("make", [Lock, FairLock, aio.Lock, aio.FairLock])
def test_who_renews_by_hand_need_not_check_in(make: Callable[..., Any], server: PrivateServer, name: str) -> None:
    with pytest.raises(ConfigError, match="the holder shows progress by renewing") as caught:
        make(server.url, name, renew=False, progress_within=20)
    assert caught.value.parameter == "progress_within"
