"""`holdfast.testing.clock`: leases end, waits time out and waiters are served when the test says so, not later."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast import LeaseLost, Lock, LockTimeout, ServerError, aio, testing
from holdfast.testing import clock
from support.servers import PrivateServer
from support.witness import PATIENCE, in_thread, lease_record

if TYPE_CHECKING:
    from conftest import NewServer


def turn(lock: Lock) -> bool:
    """Take it and give it back; False if it stayed busy."""
    if lock.acquire():
        lock.release()
        return True
    return False


async def turn_in_loop(lock: aio.Lock) -> bool:
    if await lock.acquire():
        await lock.release()
        return True
    return False


@pytest.fixture
def memory() -> Iterator[testing.Memory]:
    with testing.memory() as server:
        yield server


@pytest.fixture(autouse=True)
def real_time() -> Iterator[None]:
    yield
    clock.reset()


def test_a_lease_ends(memory: testing.Memory) -> None:
    told = threading.Event()
    other = Lock(memory, "a", wait=0)
    with pytest.raises(LeaseLost, match="ran out") as caught, Lock(memory, "a", on_lost=lambda _: told.set()) as lease:
        assert not other.acquire(blocking=False)
        clock.advance(31)
        assert lease_record(lease).lost
        assert lease.lost.is_set()
        assert lease.remaining() == 0
        assert told.wait(PATIENCE)
        with other as next_one:
            assert next_one.fence > lease.fence
    assert caught.value.fence == lease.fence


def test_every_time(memory: testing.Memory) -> None:
    lock = Lock(memory, "a")
    for _ in range(100):
        lease = lock.__enter__()
        clock.advance(31)
        assert lease_record(lease).lost
        with pytest.raises(LeaseLost):
            lock.__exit__(None, None, None)


def test_a_step_within_the_lease_costs_nothing(memory: testing.Memory) -> None:
    with Lock(memory, "a") as lease:
        for _ in range(10):
            clock.advance(25)
            assert lease.remaining() > 29  # renewed on return
        lease.check()


def test_without_renewal(memory: testing.Memory) -> None:
    with Lock(memory, "a", renew=False) as lease:
        clock.advance(20)
        assert 9 < lease.remaining() < 10
        clock.run(9)
        lease.check()
        clock.run(1)
        with pytest.raises(LeaseLost):
            lease.check()
        with pytest.raises(LeaseLost):
            lease.release()


def test_time_that_passes_with_everybody_awake(memory: testing.Memory) -> None:
    started = time.process_time()  # a busy machine has no say in it
    with Lock(memory, "a") as lease, Lock(memory, "b", ttl=2) as short:
        waiter = in_thread(turn, Lock(memory, "a"))
        memory.until_waiting("a")
        clock.run(300)
        lease.check()
        short.check()
        assert memory.waiters("a") == 1
    assert waiter.result(PATIENCE)
    assert time.process_time() - started < 10


def test_max_hold(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost, match="max_hold"), Lock(memory, "a", max_hold=100) as lease:
        clock.run(99)
        lease.check()
        clock.run(1)
        assert lease_record(lease).lost


def test_waiters_get_what_became_free(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost), Lock(memory, "a", ttl=5):
        waiters = [in_thread(turn, Lock(memory, "a", wait=60))]
        memory.until_waiting("a")
        clock.advance(6)
        assert waiters[0].result(PATIENCE)


def test_a_wait_times_out(memory: testing.Memory) -> None:
    with Lock(memory, "a", ttl=60):
        waiters = [in_thread(turn, Lock(memory, "a", wait=wait)) for wait in (10, 20, None)]
        memory.until_waiting("a", 3)
        started = time.monotonic()
        clock.advance(9)
        assert not any(waiter.done() for waiter in waiters)
        clock.advance(2)
        assert waiters[0].result(PATIENCE) is False
        clock.advance(10)
        assert waiters[1].result(PATIENCE) is False
        assert time.monotonic() - started < 5
    assert waiters[2].result(PATIENCE)


def test_what_a_timeout_says(memory: testing.Memory) -> None:
    with Lock(memory, "a", ttl=60):
        waiter = in_thread(Lock(memory, "a", wait=10).__enter__)
        memory.until_waiting("a")
        clock.advance(11)
        with pytest.raises(LockTimeout) as caught:
            waiter.result(PATIENCE)
        assert 11 <= caught.value.waited < 12


def test_in_a_loop(memory: testing.Memory) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLost):
            async with aio.Lock(memory, "a") as lease:
                bounded = asyncio.create_task(turn_in_loop(aio.Lock(memory, "a", wait=10)))
                patient = asyncio.create_task(turn_in_loop(aio.Lock(memory, "a")))
                await asyncio.to_thread(memory.until_waiting, "a", 2)
                clock.advance(12)
                assert await asyncio.wait_for(bounded, PATIENCE) is False
                lease.check()
                clock.advance(31)
                assert lease.lost.is_set()
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    assert await asyncio.shield(patient)

    asyncio.run(main())


def test_a_day_later_everything_of_the_lock_is_forgotten(memory: testing.Memory) -> None:
    with Lock(memory, "a") as early:
        pass
    clock.advance(86_400)
    with Lock(memory, "a") as late:
        assert late.fence - early.fence >= 86_400_000_000
    lock = Lock(memory, "a")
    with pytest.raises(LeaseLost), lock:
        waiter = in_thread(turn, Lock(memory, "a"))
        memory.until_waiting("a")
        clock.advance(86_400)
        assert waiter.result(PATIENCE)


def test_while_the_server_is_away(memory: testing.Memory) -> None:
    with pytest.raises(LeaseLost), Lock(memory, "a", ttl=30) as lease, memory.down():
        clock.run(25)
        lease.check()
        clock.run(6)
        assert lease_record(lease).lost


def test_a_real_server_knows_nothing_of_it(server: PrivateServer) -> None:
    with pytest.raises(LeaseLost), Lock(server, "moved") as lease:
        clock.advance(20)
        assert lease.remaining() > 29
        clock.advance(31)
        assert lease_record(lease).lost
        assert not Lock(server, "moved").acquire(blocking=False)


def test_reset_ends_what_is_held(memory: testing.Memory) -> None:
    clock.reset()  # nothing was moved: nothing is ended
    with Lock(memory, "a"):
        clock.reset()
    clock.advance(5)
    lease = Lock(memory, "a").__enter__()
    waiter = in_thread(turn, Lock(memory, "a"))
    memory.until_waiting("a")
    clock.reset()
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lease.release()
    with pytest.raises(ServerError):
        waiter.result(PATIENCE)
    with Lock(memory, "a") as lease:
        assert lease.remaining() > 29


def test_time_goes_forward() -> None:
    holdfast.close()
    clock.advance(1)  # no keeper is needed
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="forward"):
            clock.advance(wrong)
        with pytest.raises(ValueError, match="forward"):
            clock.run(wrong)
    assert "1 s ahead" in repr(clock)


@pytest.mark.turns
@pytest.mark.parametrize("pass_time", [clock.advance, clock.run], ids=["advance", "run"])
def test_a_server_that_hangs_holds_up_no_test(new_server: NewServer, pass_time: Callable[[float], None]) -> None:
    server = new_server()
    with Lock(server, "a", ttl=60) as lease:
        server.pause()
        started = time.monotonic()
        pass_time(61)
        assert time.monotonic() - started < 20, "it is waited for once, and not at each of 61 steps"
        assert lease_record(lease).lost
        server.resume()
        with pytest.raises(LeaseLost):
            lease.release()
