"""The keeper's part for the locks of a Cluster: its inbox, and its connections, which go to the owner of a slot."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from holdfast._clock import clock
from holdfast._core.lock.ports import InboxAddress, Line, Then
from holdfast._core.requests import Answer, Call, NotSent, Refused, WireError
from holdfast._net.cluster import ASKING, Part, Redirects, Shard
from holdfast._net.endpoint import Endpoint
from holdfast._net.pipelined_connection import PipelinedConnection
from holdfast._net.slots import slot_of


class Drawing(Protocol):
    """The process, as it draws tokens."""

    id: str

    def token(self) -> str:
        """A new token: a public part, which says whose it is, and a secret one."""


class Lines(Protocol):
    """The keeper, as a line that uses others sees it."""

    def line_to(self, endpoint: Endpoint) -> Line:
        """The line to a server, for requests."""


def inbox_address_of(shard: Endpoint, process_id: str) -> InboxAddress:
    """The inbox of a shard's node."""
    assert isinstance(shard, Shard)
    return InboxAddress(shard.identity(process_id), "SSUBSCRIBE" if shard.sharded else "SUBSCRIBE", slot_of, shard.near)


def token_in(process: Drawing, shard: Endpoint) -> str:
    """A new token, of one who listens there."""
    assert isinstance(shard, Shard)
    return shard.identity(process.id) + process.token()[len(process.id) :]


class ShardLine:
    """A line of the keeper for requests: sends each over its line to the server that is to answer it."""

    sock: socket.socket | None = None
    busy = False

    def __init__(self, keeper: Lines, shard: Endpoint) -> None:
        assert isinstance(shard, Part)
        self._keeper = keeper
        self._endpoint = shard
        self._cluster = shard.cluster

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:  # noqa: ARG002 - each leg packs its own
        """Send a call. ``then`` is called exactly once, by the keeper thread."""
        self._go_on(self._cluster.redirects(call), None, then)

    def _go_on(self, journey: Redirects, reply: Answer[Any] | WireError | bool | None, then: Then) -> None:
        try:
            hop = journey.send(reply)  # type: ignore[arg-type]  # None starts it
            while hop is None:
                self._cluster.refresh_soon()
                hop = journey.send(False)
        except StopIteration as stop:
            then(stop.value.value, stop.value.sent)
            return
        except WireError as error:
            then(error, clock())
            return

        def on_answer(answer: Any, sent: float) -> None:
            self._go_on(journey, answer if isinstance(answer, WireError) else Answer(answer, sent, clock()), then)

        line = self._keeper.line_to(hop.endpoint)
        if hop.asking:
            line.call(ASKING, lambda _answer, _sent: None)
        line.call(hop.call, on_answer)

    def overdue(self, now: float) -> None:
        """The lines it uses look after that."""

    def next_at(self) -> float:
        return float("inf")

    def fail(self, why: str) -> None:
        """They are others' too."""

    def close(self) -> None:
        """They are closed by the keeper."""

    def has_unread(self) -> bool:
        return False

    def reclaim(self) -> None:
        """Nobody has borrowed anything."""


class ShardInbox(PipelinedConnection):
    """The inbox of a shard: on the server that owns its slot, wherever that goes."""

    def call(self, call: Call, then: Then, packed: bytes | None = None) -> None:
        def on_answer(answer: Any, sent: float) -> None:
            if isinstance(answer, Refused) and answer.code == "MOVED":  # the one we were sent to knew of it before we did
                answer = NotSent(str(answer), answer.address)
                self.fail("its slot was moved")
            then(answer, sent)

        super().call(call, on_answer, packed)
