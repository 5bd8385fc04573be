"""How tasks wait in the asyncio driver, without a server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast._clock import clock
from holdfast._core.requests import RegisterWaiter, Sleep
from holdfast._net.aio_connection import MAX_IN_FLIGHT, AioConnection, _Protocol
from holdfast._net.endpoint import Endpoint
from holdfast._net.system import SYSTEM
from holdfast._runtime.drivers import keep_alive
from holdfast._runtime.drivers.aio import AioSlot, Driver, Runner, _close_with_loop, _finalisers
from support.waiters import waiter


def test_a_slot_says_if_somebody_may_look_at_it() -> None:
    loop = asyncio.new_event_loop()
    slot = AioSlot(loop, clock)
    assert slot.put(None)
    loop.close()
    assert not slot.put(None)


def test_a_task_goes_on_when_the_inbox_of_its_process_listens() -> None:
    async def main() -> None:
        this = waiter()
        this.attempt.slot, this.awaits_inbox = AioSlot(asyncio.get_running_loop(), clock), True
        driver: Any = SimpleNamespace(
            process=SimpleNamespace(keeper=SimpleNamespace(register_waiter=lambda *_: False)), endpoint=Endpoint()
        )
        registering = asyncio.create_task(Driver._register_waiter(driver, RegisterWaiter(this, None)))
        await asyncio.sleep(0)
        assert not registering.done()
        this.attempt.slot.put(None)  # for another reason
        await asyncio.sleep(0)
        assert not registering.done()
        this.awaits_inbox = False
        this.attempt.slot.put(None)
        assert await registering is None

    asyncio.run(main())


class Never:
    """An awaitable that is never done."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Stuck(Runner):
    """A driver whose requests are never answered, and whose keeper does nothing until it is told to."""

    def __init__(self) -> None:
        self.calls = list[Callable[[], object]]()
        self.process: Any = SimpleNamespace(running_keeper=SimpleNamespace(ended=False, call=self.calls.append))
        self.running = set()

    def at_once(self, request: Any) -> Any:
        return request

    def awaited(self, request: Any) -> Any:
        return Never()


def test_a_coroutine_that_is_closed_leaves_its_operation_to_the_keeper() -> None:
    driver, ended = Stuck(), list[str]()

    async def operation() -> None:
        try:
            await Sleep(60)
        finally:
            ended.append("begins to clean up")
            await Sleep(1)

    running = driver.run(operation())
    running.send(None)
    running.close()  # by its owner, or the garbage collector: nothing can be awaited here
    assert (len(driver.calls), len(driver.running), ended) == (1, 1, [])
    driver.calls[0]()
    assert (len(driver.running), ended) == (0, ["begins to clean up"])


def test_a_task_that_is_cancelled_during_its_release_finishes_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = SimpleNamespace(size=5, before=b"", after=b"", timeout=1.0)
    monkeypatch.setattr("holdfast._runtime.drivers.aio.leave", lambda *_: frame)

    async def main() -> None:
        loop, cleaned = asyncio.get_running_loop(), list[object]()

        async def clean_up(operation: object) -> None:
            cleaned.append(operation)

        driver: Any = SimpleNamespace(
            loop=loop, running=set(), clean_up=clean_up, leave=None, _clock=clock, _watch=lambda _lease: None
        )
        driver.stream = SimpleNamespace(send=lambda *_: loop.create_future())
        driver._interrupted = lambda lease, error: Driver._interrupted(driver, lease, error)
        lease = Mock(finish_release=lambda: "the rest of the release")
        held_lease: Any = SimpleNamespace(token="token")
        attempt: Any = SimpleNamespace(is_direct=True, first=None)
        releasing = asyncio.create_task(Driver.release(driver, attempt, held_lease, lease))
        await asyncio.sleep(0)
        releasing.cancel()
        await asyncio.wait([releasing])
        assert releasing.cancelled()
        assert cleaned == ["the rest of the release"]

    asyncio.run(main())


def test_a_loop_that_has_ended_is_forgotten() -> None:
    loop = asyncio.new_event_loop()
    _close_with_loop(loop)
    assert loop in _finalisers
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(_finalisers[loop].aclose() if loop in _finalisers else asyncio.sleep(0))
    loop.close()
    assert loop not in _finalisers


class Greeting(list[str]):
    """The commands that open a connection."""

    def packed(self, _pack: object) -> bytes:
        return b"HELLO"


def test_a_server_has_its_time_to_greet() -> None:
    async def main() -> None:
        protocol = _Protocol(Endpoint(), Mock(), Mock(), SYSTEM)
        protocol.transport = Mock()
        before = SYSTEM.monotonic()
        protocol.greet(Greeting(["HELLO"]), 5.0)  # type: ignore[arg-type]
        ((_, deadline),) = protocol.in_flight
        assert before + 5.0 <= deadline <= SYSTEM.monotonic() + 5.0
        protocol._set_timer(float("inf"))

    asyncio.run(main())


def test_a_wait_may_end_when_the_keeper_has_ended() -> None:
    process: Any = SimpleNamespace(running_keeper=None)
    keep_alive.unregister_waiter(process, Endpoint(), waiter())


def test_a_lease_whose_owner_is_gone_is_released_until_no_server_can_keep_it() -> None:
    sent = list[tuple[object, ...]]()
    keeper: Any = SimpleNamespace(forget=lambda *_: None, send_until_answered=lambda *what: sent.append(what))
    held_lease: Any = SimpleNamespace(
        over=False, end=lambda: None, maybe_in_flight=False, deadline=7.0, latest=8.0, spec=SimpleNamespace(timeout=2.0)
    )
    held_lease.giving_back = lambda *, revoke, timeout: f"release, revoke={revoke}, within {timeout} s"
    endpoint = Endpoint()
    keep_alive._dropped(keeper, endpoint, held_lease)
    assert sent == [(endpoint, "release, revoke=False, within 2.0 s", 8.0)]


def test_no_more_requests_are_in_flight_than_may_be() -> None:
    async def main() -> None:
        protocol = SimpleNamespace(in_flight=[None] * (MAX_IN_FLIGHT - 1))
        protocol.send = lambda *_: protocol.in_flight.append(None)
        loop = asyncio.get_running_loop()
        waiting = deque(
            SimpleNamespace(future=loop.create_future(), limit=None, connects=False, packed=b"", timeout=1.0) for _ in range(3)
        )
        connection: Any = SimpleNamespace(_waiting=waiting, _clock=clock)
        AioConnection._send_waiting(connection, waiting, protocol)  # type: ignore[arg-type]
        assert (len(protocol.in_flight), len(waiting)) == (MAX_IN_FLIGHT, 2)

    asyncio.run(main())
