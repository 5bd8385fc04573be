"""Requests in a Cluster: each to the server that owns its key's slot, in the thread that asks, or by the keeper.

`_runtime.drivers.aio_cluster` has the same for asyncio; the way of a request is decided in `_net.cluster`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from holdfast._clock import clock
from holdfast._core.lock.ports import Place, Then
from holdfast._core.requests import Answer, Call, Command, Draw, NotSent, Refused, Run, WireError
from holdfast._net.cluster import ASKING, LEAST, Journey, Shard, Step
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import Link
from holdfast._net.protocol import pack, value
from holdfast._net.slots import slot_of
from holdfast._net.sync_connection import Connection
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._runtime.keeper.thread import Keeper


def place_of(shard: Endpoint, process_id: str) -> Place:
    """Where the node of a shard listens."""
    assert isinstance(shard, Shard)
    return Place(shard.identity(process_id), "SSUBSCRIBE" if shard.sharded else "SUBSCRIBE", slot_of, shard.near)


def token_in(process: Process, shard: Endpoint) -> str:
    """A new token, of one who listens there."""
    assert isinstance(shard, Shard)
    return shard.identity(process.id) + process.token()[len(process.id) :]


class ShardDriver(Driver):
    """Does what operations ask about the locks of a shard."""

    def __init__(self, process: Process, shard: Endpoint) -> None:
        assert isinstance(shard, Shard)
        super().__init__(process, shard)
        self._cluster = shard.cluster
        self._drivers: dict[Endpoint, Driver] = {}
        self._do |= {Run: self._travel, Command: self._travel, Draw: lambda _: token_in(process, shard)}

    def ask(self, command: Command) -> Any:
        """Goes the way of all requests: connections of the shard itself would stay with a server that owned its slots once."""
        return self._travel(command).value

    def _travel(self, call: Call) -> Answer[Any]:
        journey, deadline = self._cluster.journey(call), clock() + call.timeout
        reply: Answer[Any] | WireError | bool | None = None
        try:
            while True:
                step = journey.send(reply)  # type: ignore[arg-type]  # None starts it
                left = max(LEAST, deadline - clock() - (LEAST if step is None else 0.0))  # the step behind it has that
                reply = self._find_out(left) if step is None else self._take(step.within(left))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def _find_out(self, timeout: float) -> bool:
        try:
            self._cluster.refresh(timeout)
        except WireError:
            return False
        return True

    def _take(self, step: Step) -> Answer[Any] | WireError:
        try:
            if step.asking:
                return _ask(step)
            driver = self._drivers.get(step.endpoint)
            if driver is None:
                driver = self._drivers[step.endpoint] = Driver(self.process, step.endpoint)
            return driver.call(step.call)
        except WireError as error:
            return error


def _ask(step: Step) -> Answer[Any]:
    """On a connection of its own: nothing may come between. Slots move for a moment only."""
    connection = Connection(step.endpoint, step.call.timeout)
    try:
        connection.set_timeout(step.call.timeout)
        connection.exchange(pack(ASKING))
        sent = clock()
        return Answer(value(step.call, connection.exchange(pack(step.call)), step.endpoint), sent, clock())
    finally:
        connection.close()


class ShardLine:
    """A line of the keeper for requests: sends each over its line to the server that is to answer it."""

    sock: socket.socket | None = None
    busy = False

    def __init__(self, keeper: Keeper, shard: Endpoint) -> None:
        assert isinstance(shard, Shard)
        self._keeper = keeper
        self._endpoint = shard
        self._cluster = shard.cluster

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:  # noqa: ARG002 - each leg packs its own
        """Send a call. ``then`` is called exactly once, by the keeper thread."""
        self._go_on(self._cluster.journey(call), None, then)

    def _go_on(self, journey: Journey, reply: Answer[Any] | WireError | bool | None, then: Then) -> None:
        try:
            step = journey.send(reply)  # type: ignore[arg-type]  # None starts it
            while step is None:
                self._cluster.refresh_soon()
                step = journey.send(False)
        except StopIteration as stop:
            then(stop.value.value, stop.value.sent)
            return
        except WireError as error:
            then(error, clock())
            return

        def on_answer(answer: Any, sent: float) -> None:
            self._go_on(journey, answer if isinstance(answer, WireError) else Answer(answer, sent, clock()), then)

        line = self._keeper.line_to(step.endpoint)
        if step.asking:
            line.call(ASKING, lambda _answer, _sent: None)
        line.call(step.call, on_answer)

    def overdue(self, now: float) -> None:
        """The lines it uses look after that."""

    def next_at(self) -> float:
        return float("inf")

    def fail(self, why: str) -> None:
        """They are others' too."""

    def close(self) -> None:
        """They are closed by the keeper."""

    def stirs(self) -> bool:
        return False

    def take_back(self) -> None:
        """Nobody has borrowed anything."""


class ShardInbox(Link):
    """The inbox of a shard: on the server that owns its slot, wherever that goes."""

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:
        def on_answer(answer: Any, sent: float) -> None:
            if isinstance(answer, Refused) and answer.code == "MOVED":  # the one we were sent to knew of it before we did
                answer = NotSent(str(answer), answer.address)
                self.fail("its slot was moved")
            then(answer, sent)

        super().call(call, on_answer, packed)
