"""Drives operations on several servers, on the calling thread. `_drive.aio_several` is its twin for asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast._core.ballot import Candidate
from holdfast._core.polling import Enroll, GiveBack, Hark, Poll, Withdraw
from holdfast._core.requests import Draw, Now, Park, Sleep
from holdfast._drive import sync
from holdfast._drive.clock import clock
from holdfast._drive.ear import Slot
from holdfast._drive.process import Process
from holdfast._wire.endpoint import Endpoint


def listening(process: Process, endpoints: tuple[Endpoint, ...], candidate: Candidate) -> bool:
    """True if a majority of the servers can tell the candidate something."""
    return sum(process.keeper.hope(endpoint, candidate) for endpoint in endpoints) >= candidate.panel.majority


def withdraw(process: Process, endpoints: tuple[Endpoint, ...], candidate: Candidate) -> None:
    """Tell the candidate nothing any more."""
    keeper = process.running_keeper
    if keeper is not None and candidate.hope:
        for endpoint in endpoints:
            keeper.despair(endpoint, candidate)


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
            Enroll: self._enroll,
            Hark: self._hark,
            Withdraw: lambda request: withdraw(process, endpoints, request.candidate),
            GiveBack: lambda request: process.keeper.insist(endpoints[request.server], request.call, request.until),
        }

    def _enroll(self, request: Enroll) -> None:
        self._may_wait()
        slot = request.candidate.slot
        assert isinstance(slot, Slot)
        while not listening(self.process, self.endpoint, request.candidate) and clock() < request.until:
            slot.take(request.until)

    def _hark(self, request: Hark) -> None:
        self._may_wait()
        slot = request.candidate.slot
        assert isinstance(slot, Slot)
        slot.take(request.until)
