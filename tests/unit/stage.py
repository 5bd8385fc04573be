"""The faces on a stage: real Lock and Lease objects of either face, over the scripted driver, without threads or sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from holdfast import _face, aio, locks
from holdfast._core.mutex import renewal
from holdfast._core.renewing import Renewing, Tenure
from holdfast._wire.endpoint import Endpoint
from unit.driver import ME, Driver
from unit.server import Server

T = TypeVar("T")


@dataclass
class Keeper:
    """The books of a keeper, without its thread."""

    renewing: Renewing = field(default_factory=Renewing)

    def watch(self, endpoint: Endpoint, tenure: Tenure) -> None:
        self.renewing.watch(tenure)

    def forget(self, endpoint: Endpoint, tenure: Tenure) -> None:
        self.renewing.forget(tenure.token)

    def rewatch(self, endpoint: Endpoint, tenure: Tenure) -> None:
        self.renewing.forget(tenure.token)
        self.renewing.watch(tenure)

    def call(self, what: Callable[[], None]) -> None:
        what()


@dataclass
class Process:
    script: Driver
    keeper: Keeper = field(default_factory=Keeper)
    label: str | None = None

    @property
    def running_keeper(self) -> Keeper:
        return self.keeper

    here = True

    def clock(self) -> float:
        return self.script.server.now

    def set_label(self, label: str) -> None:
        self.label = label

    def token(self) -> str:
        self.script.tokens.append(f"{ME}.{len(self.script.tokens):032x}")
        return self.script.tokens[-1]


class SyncDriver:
    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process, self.endpoint = process, endpoint

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.process.script.run(operation)


class AioDriver(SyncDriver):
    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        super().__init__(process, endpoint)
        self.loop = asyncio.get_running_loop()

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        return self.process.script.run(operation)


class Stage:
    """One process, one server, one clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.server = Server()
        self.script = Driver(self.server)
        self.process = Process(self.script)
        for module in (locks, aio, _face):
            patch.setattr(module, "current", lambda: self.process)
        for module in (locks, aio):
            patch.setattr(module, "clock", lambda: self.server.now)
        patch.setattr(locks, "Driver", SyncDriver)
        patch.setattr(aio, "Driver", AioDriver)

    def scripts(self) -> list[tuple[object, ...]]:
        """What was sent: script, then its arguments without the token."""
        from holdfast._core.requests import Run

        return [(r.script.name, *r.args[1:]) for r in self.script.trace if isinstance(r, Run)]

    def keep(self) -> list[Tenure]:
        """What the keeper does now: the leases found lost are reported to their owners."""
        renewals, lost = self.process.keeper.renewing.due(self.server.now)
        for renew in renewals:
            tenure = renew.tenure
            answer = self.server.perform(renewal(tenure.spec, tenure.token, renew.ttl, renew.made))
            if not self.process.keeper.renewing.on_answer(renew, answer[0], self.server.now, self.server.now):
                lost.append(tenure)
        for tenure in lost:
            owner = tenure.owner()
            if owner is not None:
                owner.notice_loss()
        return lost


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)
