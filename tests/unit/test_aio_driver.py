"""How tasks wait in the asyncio driver, without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from holdfast._clock import clock
from holdfast._core.requests import RegisterWaiter
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.aio import AioSlot, Driver
from unit.waiters import waiter


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
