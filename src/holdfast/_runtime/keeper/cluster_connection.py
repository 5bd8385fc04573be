"""The connections of the keeper to a Cluster shard: one for requests, and one for notifications."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from holdfast._core.lock.ports import InboxAddress, Line, Then
from holdfast._core.requests import Answer, Call, NotSent, Refused, WireError
from holdfast._net.cluster import ASKING, ClusterEndpoint, Redirects, Shard
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._net.slots import slot_of
from holdfast._net.system import SYSTEM, System


class Drawing(Protocol):
    """The part of the process registry that makes new tokens."""

    id: str

    def token(self) -> str: ...


class Lines(Protocol):
    """The method of the keeper that these connections call."""

    def line_to(self, endpoint: Endpoint) -> Line: ...


def inbox_address_of(shard: Endpoint, process_id: str) -> InboxAddress:
    """Return the id of this process's inbox on a Cluster shard, and how to subscribe to it."""
    assert isinstance(shard, Shard)
    return InboxAddress(shard.identity(process_id), "SSUBSCRIBE" if shard.sharded else "SUBSCRIBE", slot_of, shard.near)


def token_in(process: Drawing, shard: Endpoint) -> str:
    """Return a new token. Its public part is the id under which this process receives notifications on the shard."""
    assert isinstance(shard, Shard)
    return shard.identity(process.id) + process.token()[len(process.id) :]


class ShardLine:
    """A connection of the keeper to a Cluster shard. It sends each request to the server that owns the request's slot."""

    sock: socket.socket | None = None
    busy = False

    def __init__(self, keeper: Lines, shard: Endpoint, system: System = SYSTEM) -> None:
        assert isinstance(shard, ClusterEndpoint)
        self._keeper = keeper
        self._clock = system.clock
        self._endpoint = shard
        self._cluster = shard.cluster

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:  # noqa: ARG002 - each step packs its own
        """Send a call. The keeper calls ``then`` exactly once, with the reply as its script's parser returns it, or a
        WireError."""
        self._go_on(self._cluster.redirects(call), None, then)

    def _go_on(self, redirects: Redirects, reply: Answer[Any] | WireError | bool | None, then: Then) -> None:
        try:
            hop = redirects.send(reply)  # type: ignore[arg-type]  # None starts it
            while hop is None:
                self._cluster.refresh_soon()
                hop = redirects.send(False)
        except StopIteration as stop:
            then(stop.value.value, stop.value.sent)
            return
        except WireError as error:
            then(error, self._clock())
            return

        def on_answer(answer: Any, sent: float) -> None:
            self._go_on(redirects, answer if isinstance(answer, WireError) else Answer(answer, sent, self._clock()), then)

        line = self._keeper.line_to(hop.endpoint)
        if hop.asking:
            line.call(ASKING, lambda _answer, _sent: None)
        line.call(hop.call, on_answer)

    def overdue(self, now: float) -> None:
        """Do nothing, because the connections to the servers check their own deadlines."""

    def next_at(self) -> float:
        return float("inf")

    def fail(self, why: str) -> None:
        """Do nothing, because the connections to the servers serve other shards, too, and must stay open."""

    def close(self) -> None:
        """Do nothing, because the keeper closes the connections to the servers."""

    def has_unread(self) -> bool:
        return False

    def reclaim(self) -> None:
        """Do nothing, because this connection has no socket to lend."""


class ShardInbox(PipelinedConnection):
    """The connection for notifications from a Cluster shard, opened anew when the shard's slot moves to another server."""

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:
        def on_answer(answer: Any, sent: float) -> None:
            if isinstance(answer, Refused) and answer.code == "MOVED":  # this process did not know of the move yet
                answer = NotSent(str(answer), answer.address)
                self.fail("its slot was moved")
            then(answer, sent)

        super().call(call, on_answer, packed)
