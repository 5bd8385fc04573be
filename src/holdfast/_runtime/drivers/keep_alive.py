"""How drivers do what `_core.keep_alive` asks for, in both faces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._core.lock.records import Held
from holdfast._core.requests import Leave, Meet, Send, Tend

if TYPE_CHECKING:
    from holdfast._core.lock.records import Tenure
    from holdfast._net.endpoint import Endpoint
    from holdfast._runtime.drivers import aio, sync
    from holdfast._runtime.keeper.thread import Keeper


def tending(driver: sync.Driver | aio.Driver, endpoint: Endpoint, loop: int = 0) -> dict[type, Callable[[Any], Any]]:
    """What is left to the keeper. None of it takes time. ``loop``: tells event loops apart."""
    process = driver.process

    def tend(request: Tend[Held]) -> None:
        tenure, keeper = request.held.tenure, process.keeper
        tenure.owner = keeper.refer(request.held, functools.partial(_dropped, keeper, endpoint, tenure))
        keeper.watch(endpoint, tenure)

    def leave(request: Leave[Tenure]) -> None:
        keeper = process.running_keeper
        if keeper is not None:
            keeper.forget(endpoint, request.tenure)

    return {
        Tend: tend,
        Leave: leave,
        Send: lambda request: process.keeper.insist(endpoint, request.call, request.until),
        Meet: lambda request: process.keeper.crowd(endpoint, request.key, loop),
    }


def _dropped(keeper: Keeper, endpoint: Endpoint, tenure: Tenure) -> None:
    """Nobody has ended what was held under this lease, and nobody can any more."""
    if tenure.over:
        return
    tenure.end()
    keeper.forget(endpoint, tenure)
    keeper.insist(endpoint, tenure.giving_back(bury=tenure.doubt, timeout=tenure.spec.timeout), tenure.deadline)
