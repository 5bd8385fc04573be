"""Drives operations on several servers, on the calling thread. `_runtime.drivers.aio_quorum` is its twin for asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast._clock import clock
from holdfast._core.requests import Draw, GiveBack, Now, Park, Poll, Sleep
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers import sync
from holdfast._runtime.drivers.subscriptions import in_threads
from holdfast._runtime.process import Process


class Driver(sync.Driver):
    """Does what operations ask, on several servers, for one process."""

    def __init__(self, process: Process, endpoints: tuple[Endpoint, ...]) -> None:
        self.process = process
        self.endpoint = endpoints
        self._fleets = process.fleets(endpoints)
        self._do: dict[type, Callable[[Any], Any]] = {
            Poll: self._fleets.poll,
            Now: lambda _: clock(),
            Draw: lambda _: process.token(),
            Sleep: lambda request: time.sleep(request.seconds),
            Park: self._park,
            **in_threads(self, endpoints),
            GiveBack: lambda request: process.insist(endpoints, request),
        }
