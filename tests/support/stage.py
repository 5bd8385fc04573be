"""The APIs on a stage: real Lock and Lease objects of either API, over the scripted driver, without threads or sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from holdfast._api import acquisition, base_lock, error_map
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.owner import Reference
from holdfast._core.lock.records import HeldLease, Queue
from holdfast._core.lock.renewal import Renewing, renewal
from holdfast._core.lock.replies import RELEASE
from holdfast._core.lock.spec import Spec
from holdfast._core.requests import RunScript
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers import aio_choice
from support.driver import ME, Driver, Slot
from support.memory_server import Server
from support.node import Node

T = TypeVar("T")


class Collected(list[Reference]):
    """The references to owners that were collected."""

    def append(self, reference: Reference) -> None:
        reference.on_collected()


class StageNode(Node):
    """Run the calls now that the keeper would make soon."""

    def __init__(self, script: Driver) -> None:
        super().__init__(waiting=script.waiting, servers=0, collected=Collected())
        self._server = script.server

    def clock(self) -> float:
        return self._server.now

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        super().give_back(local_queue, held_lease)
        self._server.perform(RunScript(RELEASE, held_lease.spec.keys, (held_lease.token, "release"), 1.0))
        if local_queue is not None:
            local_queue.on_released()


class NoForeignLocks:
    """Of a keeper that looks for no locks of other libraries."""

    def note(self, endpoint: Endpoint, spec: Spec) -> None:
        pass


class Keeper:
    """The books of a keeper, without its thread."""

    closing = False

    def __init__(self, script: Driver) -> None:
        self._node = StageNode(script)
        self.renewing: Renewing = self._node.renewing
        self._local_queues: dict[bytes, LocalQueue] = {}
        self.foreign_locks = NoForeignLocks()

    def local_queue(self, _endpoint: Endpoint, spec: Spec) -> LocalQueue:
        return self._local_queues.setdefault(spec.keys[0], LocalQueue(self._node, spec.prefix))

    def node(self, _endpoint: Endpoint) -> StageNode:
        return self._node

    def lease_of(self, _endpoint: Endpoint, key: bytes) -> HeldLease | None:
        return self.renewing.holders.get(key)

    def watch(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        self.renewing.watch(held_lease)

    def label_of(self, _key: bytes) -> str | None:
        return None

    def forget(self, endpoint: Endpoint, held_lease: HeldLease) -> None:
        self.renewing.forget(held_lease.token)

    def call(self, what: Callable[[], None]) -> None:
        what()


class Drivers:
    """Of asyncio: there is one for each loop."""

    def __contains__(self, loop: object) -> bool:
        return True


@dataclass
class Process:
    script: Driver
    label: str | None = None

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.script)

    @property
    def running_keeper(self) -> Keeper:
        return self.keeper

    here = True
    id = ME
    drivers = Drivers()

    def facts(self) -> dict[str, object]:
        return {"host": "here", "pid": 1}

    def clock(self) -> float:
        return self.script.server.now

    def set_label(self, label: str) -> None:
        self.label = label

    def token(self) -> str:
        self.script.tokens.append(f"{ME}.{len(self.script.tokens):032x}")
        return self.script.tokens[-1]


class SyncDriver:
    is_direct = False

    def release(self, *_: object) -> bool:
        return False

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self.process, self.endpoint = process, endpoint

    def slot(self) -> Slot:
        return Slot()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        return self.process.script.run(operation)


class AioDriver(SyncDriver):
    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        super().__init__(process, endpoint)
        self.loop = asyncio.get_running_loop()
        self.running: set[object] = set()

    async def run(self, operation: Coroutine[Any, Any, T]) -> T:  # type: ignore[override]
        return self.process.script.run(operation)

    clean_up = run

    def runs_here(self) -> bool:
        return asyncio.get_running_loop() is self.loop

    def begin(self, *_: object) -> None:
        """Only the operations are on stage."""

    async def release(self, *_: object) -> bool:  # type: ignore[override]
        return False


class Stage:
    """One process, one server, one clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.server = Server()
        self.script = Driver(self.server)
        self.process = Process(self.script)
        for module in (acquisition, base_lock, error_map):
            patch.setattr(module, "current", lambda: self.process)
        patch.setattr(acquisition, "driver_for", SyncDriver)
        patch.setattr(aio_choice, "aio_driver_for", AioDriver)

    def scripts(self) -> list[tuple[object, ...]]:
        """Return the requests that were sent: script, then its arguments without the token."""
        return [(r.script.name.rpartition("/")[2], *r.args[1:]) for r in self.script.trace if isinstance(r, RunScript)]

    def keep(self) -> list[HeldLease]:
        """Run the keeper now: the owners of lost leases are notified."""
        renewals, lost = self.process.keeper.renewing.due(self.server.now)
        for renew in renewals:
            held_lease = renew.held_lease
            answer = self.server.perform(renewal(held_lease.spec, held_lease.token, renew.ttl, renew.made))
            if not self.process.keeper.renewing.on_answer(renew, answer[0], self.server.now, self.server.now):
                lost.append(held_lease)
        for held_lease in lost:
            owner = held_lease.owner()
            if owner is not None:
                owner.notice_loss()
        return lost


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)
