"""How drivers do what `_core.subscription` asks for, in both faces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast._core.requests import Enroll, Hark, Hopeful, Withdraw
from holdfast._net.endpoint import Endpoint

if TYPE_CHECKING:
    from holdfast._runtime.drivers import aio, sync
    from holdfast._runtime.drivers.aio import AioSlot
    from holdfast._runtime.keeper.inbox_wait import Slot


def in_threads(driver: sync.Driver, endpoints: tuple[Endpoint, ...]) -> dict[type, Callable[[Any], Any]]:
    """What is asked of those who can be told something by these servers."""

    def slot_of(listener: Hopeful) -> Slot:
        driver.may_wait()
        listener.slot = slot = listener.slot or driver.slot()
        return slot  # type: ignore[return-value]

    def enroll(request: Enroll) -> None:
        slot = slot_of(request.listener)
        while not driver.process.listening(endpoints, request.listener) and driver.process.clock() < request.until:
            slot.take(request.until)

    return {
        Enroll: enroll,
        Hark: lambda request: slot_of(request.listener).take(request.until),
        Withdraw: lambda request: driver.process.withdraw(endpoints, request.listener),
    }


def in_tasks(driver: aio.Driver, endpoints: tuple[Endpoint, ...]) -> dict[type, Callable[[Any], Awaitable[Any]]]:
    """The same for asyncio."""

    def slot_of(listener: Hopeful) -> AioSlot:
        listener.slot = slot = listener.slot or driver.slot()
        return slot  # type: ignore[return-value]

    async def enroll(request: Enroll) -> None:
        slot = slot_of(request.listener)
        while not driver.process.listening(endpoints, request.listener) and driver.process.clock() < request.until:
            await slot.get(request.until)

    return {Enroll: enroll, Hark: lambda request: slot_of(request.listener).get(request.until)}


def at_once(driver: aio.Driver, endpoints: tuple[Endpoint, ...]) -> dict[type, Callable[[Any], Any]]:
    """The rest of it for asyncio: what takes no time."""
    return {Withdraw: lambda request: driver.process.withdraw(endpoints, request.listener)}
