"""Our locks do what threading's and asyncio's locks do: the same steps, the same answers, the same errors.

The steps are those of CPython's own tests of Lock, RLock and asyncio.Lock. The page Threading lists the differences on purpose.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast import FairLock, Lock, RLock, aio
from support.owners import done
from support.servers import PrivateServer
from support.witness import in_thread, queue_length, until, until_in_loop

LOCKS = [Lock, FairLock, RLock]
THEIRS: dict[type, Callable[[], Any]] = {Lock: threading.Lock, FairLock: threading.Lock, RLock: threading.RLock}
AIO_LOCKS = [aio.Lock, aio.FairLock, aio.RLock]


def outcome(step: Callable[[Any], object], lock: object) -> object:
    """Return the answer, or the builtin error that is raised."""
    try:
        return step(lock)
    except Exception as error:
        return next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins")


def elsewhere(what: Callable[..., object], *args: Any) -> object:
    """By another thread."""
    return in_thread(what, *args).result(10)


ARGUMENTS: list[Callable[[Any], object]] = [
    lambda lock: lock.acquire(False, 5),
    lambda lock: lock.acquire(blocking=False, timeout=0),
    lambda lock: lock.acquire(True, -2),
    lambda lock: lock.acquire(timeout=-100),
    lambda lock: lock.acquire(timeout=1e100),
    lambda lock: lock.acquire(timeout=threading.TIMEOUT_MAX + 1),
    lambda lock: lock.acquire(timeout="1"),
    lambda lock: lock.acquire(True, 0.01, None),
]
LIFE: list[Callable[[Any], object]] = [
    lambda lock: lock.release(),
    lambda lock: lock.acquire(),
    *ARGUMENTS,
    lambda lock: elsewhere(lock.acquire, False),
    lambda lock: elsewhere(lock.acquire, True, 0.01),
    lambda lock: elsewhere(lock.acquire, True, 0),
    lambda lock: lock.release(),
    lambda lock: lock.release(),
    lambda lock: lock.acquire(timeout=threading.TIMEOUT_MAX),
    lambda lock: lock.release(),
    *ARGUMENTS,
    lambda lock: lock.release(),
    lambda lock: lock.acquire(True, 0),
    lambda lock: lock.release(),
    lambda lock: elsewhere(lambda: (lock.acquire(False), lock.release())),
    lambda lock: lock.acquire(blocking=False),
    lambda lock: elsewhere(lock.release),
    lambda lock: elsewhere(lambda: lock.acquire(False) and lock.release()),
    lambda lock: lock.release(),
    lambda lock: lock.release(),
]
AGAIN: list[Callable[[Any], object]] = [
    lambda lock: lock._is_owned(),
    lambda lock: lock._release_save(),
    lambda lock: [lock.acquire() for _ in range(3)],
    *ARGUMENTS,
    lambda lock: lock.acquire(False),
    lambda lock: lock.acquire(True, 0.01),
    lambda lock: lock._is_owned(),
    lambda lock: elsewhere(lock._is_owned),
    lambda lock: elsewhere(lock.release),
    lambda lock: elsewhere(lock.acquire, False),
    lambda lock: lock._acquire_restore(lock._release_save()),
    lambda lock: [lock.release() for _ in range(4)],
    lambda lock: elsewhere(lock.acquire, False),
    lambda lock: lock._is_owned(),
    lambda lock: lock.release(),
    lambda lock: lock._is_owned(),
    lambda lock: lock.release(),
    lambda lock: lock._release_save(),
    lambda lock: elsewhere(lambda: (lock.acquire(False), lock.release())),
]


@pytest.mark.parametrize("cls", LOCKS)
def test_the_same_life(cls: type, server: PrivateServer, name: str) -> None:
    ours, theirs = cls(server.url, name), THEIRS[cls]()
    for number, step in enumerate(LIFE):
        assert outcome(step, ours) == outcome(step, theirs), f"step {number}"


@pytest.mark.filterwarnings("ignore:lease of .* was dropped without release:ResourceWarning")
@pytest.mark.filterwarnings("ignore:ttl=.*less than 2 s:holdfast.HoldfastWarning")
def test_the_same_life_of_what_is_taken_again(server: PrivateServer, name: str) -> None:
    ours, theirs = RLock(server.url, name), threading.RLock()
    for number, step in enumerate(AGAIN):
        if number != AGAIN.index(AGAIN[-7]):  # a thread that ends while it has it gives up ours, and never theirs
            assert outcome(step, ours) == outcome(step, theirs), f"step {number}"


@pytest.mark.parametrize("cls", LOCKS)
def test_many_wait_and_all_get_it(cls: type, server: PrivateServer, name: str) -> None:
    lock, inside = cls(server.url, name), []

    def work(number: int) -> None:
        with lock:
            inside.append(number)

    lock.acquire()
    waiting = [in_thread(work, number) for number in range(5)]
    until(lambda: lock.statistics().waiting == 5)
    assert inside == []
    lock.release()
    for one in waiting:
        one.result(10)
    assert sorted(inside) == list(range(5))
    assert not lock.locked()


@pytest.mark.parametrize("cls", LOCKS)
def test_a_with_that_fails_and_a_wait_that_ends(cls: type, server: PrivateServer, name: str) -> None:
    lock = cls(server.url, name)
    with pytest.raises(TypeError), lock:
        raise TypeError
    lock.acquire()
    assert elsewhere(lock.acquire, True, 0.01) is False
    lock.release()
    assert elsewhere(lambda: lock.acquire(timeout=5) and lock.release() is None) is True


@pytest.mark.parametrize("cls", [*LOCKS, *AIO_LOCKS])
def test_a_lock_is_collected(cls: type, server: PrivateServer, name: str) -> None:
    lock = cls(server.url, name)
    ref = weakref.ref(lock)
    assert ref() is lock
    assert name in repr(lock)
    assert cls.__name__ in repr(lock)
    del lock
    assert ref() is None


@pytest.mark.parametrize("cls", [Lock, RLock])
def test_inside_a_condition(cls: Any, server: PrivateServer, name: str) -> None:
    """All of Condition: its wait gives the lock back, and has it again; who does not have the lock is refused."""
    condition = threading.Condition(cls(server.url, name))
    for method in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(RuntimeError):
            method()
    ready: list[int] = []

    def work() -> bool:
        with condition:
            return condition.wait_for(lambda: ready, 10) == [1]

    waiting = [in_thread(work) for _ in range(3)]
    until(lambda: len(condition._waiters) == 3)  # type: ignore[attr-defined]
    with condition:
        assert condition.wait(0.01) is False
        ready.append(1)
        condition.notify_all()
    assert [one.result(10) for one in waiting] == [True] * 3


# asyncio


@pytest.mark.parametrize("cls", AIO_LOCKS)
def test_the_same_life_in_a_loop(cls: Any, server: PrivateServer, name: str) -> None:
    async def live(lock: Any) -> list[object]:
        answers: list[object] = []

        async def step(what: Callable[[], Any]) -> None:
            try:
                answers.append(await done(what()))
            except Exception as error:
                answers.append(next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins"))

        async def within() -> object:
            async with lock:
                return await done(lock.locked())

        async def failing() -> None:
            async with lock:
                raise ZeroDivisionError

        for what in (lock.locked, lock.release, lock.acquire, lock.locked, lock.release, lock.locked, lock.release):
            await step(what)
        for what in (within, lock.locked, failing, lock.locked):
            await step(what)
        assert not hasattr(lock, "__enter__")
        return answers

    async def main() -> None:
        assert await live(cls(server.url, name)) == await live(asyncio.Lock())

    asyncio.run(main())


@pytest.mark.parametrize("cls", AIO_LOCKS)
def test_tasks_get_it_in_order_and_cancelled_ones_do_not(cls: Any, server: PrivateServer, look: redis.Redis, name: str) -> None:
    """Also one that is cancelled when it has been given the lock and has not gone on yet: the next one gets it."""

    async def live(lock: Any) -> list[int]:
        order: list[int] = []

        async def work(number: int) -> None:
            async with lock:
                order.append(number)

        await lock.acquire()
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(work(number)))
            if isinstance(lock, asyncio.Lock):
                await asyncio.sleep(0)
            else:
                await until_in_loop(lambda: lock.statistics().waiting == len(tasks))
            if cls is aio.FairLock and not isinstance(lock, asyncio.Lock):
                await until_in_loop(lambda: queue_length(look, name) == len(tasks))
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        await done(lock.release())
        tasks[0].cancel()
        await asyncio.wait(tasks, timeout=10)
        assert not await done(lock.locked())
        return order

    async def main() -> None:
        ours, theirs = await live(cls(server.url, name)), await live(asyncio.Lock())
        assert [number for number in ours if number] == theirs == [2, 3, 4]

    asyncio.run(main())
