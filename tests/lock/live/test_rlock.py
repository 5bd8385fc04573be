"""`RLock`: taken again by the thread or task that has it, under the same lease; given back when that was done as often."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast import ConfigError, LeaseLost, LockTimeout, NotHeld, RLock, aio, declare_new, locked
from support.owners import OWNERS, Either, Owners, done
from support.servers import PrivateServer
from support.witness import Monitor, in_thread, until, warned_of_drop

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")

each = pytest.mark.parametrize("owners", OWNERS, ids=lambda owners: type(owners).__name__)


@each
def test_taken_again_by_who_has_it(owners: Owners, server: PrivateServer, monitor: Monitor, name: str) -> None:
    """No trip, no other fence, one release; by any object of the name."""

    async def steps() -> None:
        lock, same = (Either(owners.api.RLock(server.url, name)) for _ in range(2))
        async with lock as outer:
            monitor.commands()
            async with lock as inner, same as third:
                assert inner is outer is third is lock.lock.lease is same.lock.lease
                assert await lock.acquire()
                assert await same.acquire(blocking=False)
                assert await same.acquire(timeout=1)
                assert lock.lock._recursion_count() == 6
                for _ in range(3):
                    await lock.release()
            assert lock.lock._recursion_count() == 1
            assert monitor.names(name) == []
            outer.check()
        assert monitor.names(name) == ["EVALSHA"]
        assert not await lock.locked()
        with pytest.raises(NotHeld):
            await lock.release()
        async with lock as later:
            assert later.fence > outer.fence

    owners.run(steps())


@each
def test_it_belongs_to_who_took_it(owners: Owners, server: PrivateServer, name: str) -> None:
    async def steps() -> None:
        lock = Either(owners.api.RLock(server.url, name, wait=0.01))

        async def other() -> None:
            assert lock.lock.lease is None
            assert not lock.lock._is_owned()
            assert await lock.acquire(False) is False
            with pytest.raises(LockTimeout):
                async with lock:
                    pass
            for end in (lock.release(), lock.__aexit__(None, None, None)):
                with pytest.raises(RuntimeError, match="cannot release un-acquired lock"):
                    await end

        async with lock, lock:
            await owners.other(other)
            assert lock.lock._recursion_count() == 2

    owners.run(steps())


def test_who_dies_with_it_holds_it_no_more(server: PrivateServer, name: str) -> None:
    """A thread or a task that ended without giving it back: nobody renews it, and there is a warning, as for Lock."""
    lock, theirs = RLock(server.url, name, ttl=0.8), aio.RLock(server.url, f"{name}-task", ttl=0.8)

    async def main() -> None:
        assert await asyncio.create_task(theirs.acquire())

    def in_a_thread() -> None:
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()

    def in_a_task() -> None:
        asyncio.run(main())
        gc.collect()

    with warned_of_drop(f"{name}-task"):
        in_a_task()
    with warned_of_drop(name):
        in_a_thread()
    assert lock.statistics().held == theirs.statistics().held == 0
    started = time.monotonic()
    with lock:
        assert time.monotonic() - started < 4


@each
def test_a_lost_lease_is_not_taken_again(owners: Owners, server: PrivateServer, look: redis.Redis, name: str) -> None:
    async def steps() -> None:
        lock = Either(owners.api.RLock(server.url, name, ttl=0.3, renew=False))
        with pytest.raises(LeaseLost) as outer:
            async with lock as lease:
                with pytest.raises(LeaseLost) as inner:
                    async with lock:
                        until(lambda: lease.remaining() == 0)
                for again in (lock.acquire, lock.__aenter__):
                    with pytest.raises(LeaseLost):
                        await again()
                assert lock.lock._recursion_count() == 1
        assert outer.value.fence == inner.value.fence == lease.fence
        async with lock as later:
            assert later.fence > lease.fence

    owners.run(steps())


@each
def test_given_back_by_hand_inside(owners: Owners, server: PrivateServer, name: str) -> None:
    """By the lease, which is given back whoever has it how often; leaving is quiet, as with Lock."""

    async def steps() -> None:
        lock = Either(owners.api.RLock(server.url, name))
        async with lock as lease, lock:
            await done(lease.release())
            assert not await lock.locked()
            with pytest.raises(NotHeld):
                await lock.release()
        async with lock:
            assert await lock.locked()

    owners.run(steps())


@each
def test_errors_of_the_body_change_nothing(owners: Owners, server: PrivateServer, name: str) -> None:
    async def steps() -> None:
        lock = Either(owners.api.RLock(server.url, name))
        async with lock:
            with pytest.raises(ZeroDivisionError):
                async with lock:
                    raise ZeroDivisionError
            assert lock.lock._recursion_count() == 1
            for bad in ({"timeout": -2}, {"blocking": False, "timeout": 1}):
                with pytest.raises(ValueError, match="timeout"):
                    await lock.acquire(**bad)
            assert lock.lock._recursion_count() == 1
        assert not await lock.locked()

    owners.run(steps())


def test_over_several_servers(server: PrivateServer, new_server: NewServer, name: str) -> None:
    urls = [server.url, new_server().url, new_server().url]
    declare_new(urls)
    for owners in OWNERS:
        lock = Either(owners.api.RLock(urls, name, wait=0.01, answer_within=0.5))
        owners.run(_taken_twice(lock, owners))


async def _taken_twice(lock: Either, owners: Owners) -> None:
    async with lock as outer, lock as inner:
        assert inner is outer
        assert await owners.other(lock.acquire) is False
    assert not await lock.locked()


@pytest.mark.parametrize("cls", [RLock, aio.RLock])
def test_options_of_the_other_kind_are_refused(cls: Any) -> None:
    several = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
    options: dict[str, Any]
    for options in ({"max_ttl": 60.0}, {"answer_within": 0.1}):
        with pytest.raises(ConfigError, match="with an RLock on several servers"):
            cls(several[0], "x", **options)
    for options in ({"linger": 1.0}, {"replicas": 1}, {"quarantine": True}):
        with pytest.raises(ConfigError, match="with an RLock on one server"):
            cls(several, "x", **options)
    assert "RLock 'x' on 127.0.0.1:1, 127.0.0.1:2" in repr(cls(several, "x"))


def test_contexts_that_are_copied_own_nothing(server: PrivateServer, name: str) -> None:
    """A task is an owner of its own, whatever context it was started with."""

    async def main() -> None:
        lock = aio.RLock(server.url, name, wait=0)
        async with lock:
            task = asyncio.get_running_loop().create_task(lock.acquire(), context=contextvars.copy_context())
            assert await task is False
            assert await asyncio.to_thread(RLock(server.url, name, wait=0).acquire) is False

    asyncio.run(main())


def test_a_body_is_cancelled_once(server: PrivateServer, look: redis.Redis, name: str) -> None:
    """By the loss, at whatever depth; the cancellation ends with the innermost body, and LeaseLost goes on."""

    async def main() -> None:
        lock = aio.RLock(server.url, name, ttl=0.3)
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LeaseLost):
            async with lock:
                with pytest.raises(LeaseLost):
                    async with lock:
                        look.delete(f"hf:{{{name}}}")
                        await asyncio.Event().wait()
                assert task.cancelling() == 0
                await asyncio.sleep(0)
        await lock.acquire()  # the body that is cancelled may be entered later than the lock is taken
        with pytest.raises(LeaseLost):
            async with lock:
                look.delete(f"hf:{{{name}}}")
                await asyncio.Event().wait()
        with pytest.raises(LeaseLost):
            await lock.release()
        assert task.cancelling() == 0

    asyncio.run(main())


def test_a_condition_gives_all_of_it_back(server: PrivateServer, name: str) -> None:
    """While a nested one waits, others have the lock; after that it is nested as before."""
    lock = RLock(server.url, name)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    for method in (condition.wait, condition.notify):
        with pytest.raises(RuntimeError, match="un-acquired lock"):
            method()
    items: list[int] = []

    def consume() -> tuple[int, int]:
        with condition, condition:
            condition.wait_for(lambda: items, 5)
            return items.pop(), lock._recursion_count()

    consumer = in_thread(consume)
    until(lambda: len(condition._waiters))  # type: ignore[attr-defined]
    with condition:
        items.append(7)
        condition.notify()
    assert consumer.result(10) == (7, 2)
    assert not lock.locked()


def test_a_condition_on_a_lost_lease(server: PrivateServer, look: redis.Redis, name: str) -> None:
    condition = threading.Condition(RLock(server.url, name))  # type: ignore[arg-type]
    with pytest.raises(LeaseLost), condition, condition:
        look.delete(f"hf:{{{name}}}")
        condition.wait(0.01)


def test_taken_anew_after_its_lease_was_released(server: PrivateServer, name: str) -> None:
    lock = RLock(server.url, name)
    assert lock.acquire()
    assert lock.lease is not None
    lock.lease.release()
    assert lock.acquire()
    lock.release()
    assert not lock.locked()


def test_what_a_callback_of_a_loop_takes_belongs_to_the_thread(server: PrivateServer, name: str) -> None:
    lock = RLock(server.url, name)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lock.acquire)
        await asyncio.sleep(0)

    asyncio.run(main())
    lock.release()
    assert not lock.locked()


def test_a_signal_handler_takes_what_it_has_interrupted(server: PrivateServer, name: str) -> None:
    lock, counts = RLock(server.url, name), []

    def handle(*_: object) -> None:
        with lock:
            counts.append(lock._recursion_count())

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert counts == [2]
    assert not lock.locked()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_has_none_of_it(server: PrivateServer, name: str) -> None:
    lock = RLock(server.url, name)
    with lock, lock as lease:
        if not (pid := os.fork()):
            failed = 1
            try:
                assert not lock._is_owned()
                assert lock.lease is None
                assert lock.acquire(False) is False
                with pytest.raises(NotHeld):
                    lock.release()
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitpid(pid, 0)[1] == 0
        assert lock._recursion_count() == 2
        lease.check()
    assert not lock.locked()


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_function_under_a_lock_calls_itself(server: PrivateServer, look: redis.Redis, name: str, coroutine: bool) -> None:
    @locked(server.url, name + ":{user}", reentrant=True, wait=0)
    def visit(user: str, depth: int) -> int:
        assert look.exists(f"hf:{{{name}:{user}}}")
        return 1 + visit(user, depth - 1) if depth else 1

    @locked(server.url, name + ":{user}", reentrant=True, wait=0)
    async def visit_in_task(user: str, depth: int) -> int:
        if depth == 3:
            with pytest.raises(LockTimeout):
                await asyncio.create_task(visit_in_task(user, 0))
        return 1 + await visit_in_task(user, depth - 1) if depth else 1

    assert (asyncio.run(visit_in_task("ann", 3)) if coroutine else visit("ann", 3)) == 4
    assert not look.exists(f"hf:{{{name}:ann}}")


def test_what_may_not_be_taken_again_is_refused_still(server: PrivateServer, name: str) -> None:
    """One of the two decorators is not enough."""

    @locked(server.url, name)
    def plain() -> None:
        again()

    @locked(server.url, name, reentrant=True)
    def again() -> None:
        plain()

    for function in (plain, again):
        with pytest.raises(ConfigError, match="reentrant=True"):
            function()
