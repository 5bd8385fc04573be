"""A worker that sends requests to several servers at the same time, as a Redlock does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast._core.requests import Answer, AskPlace, GiveBack, NotSent, Poll, QuorumRequest, ServerRequest, WireError
from holdfast_lab.sim.worker import LATER, WaitId, Worker

if TYPE_CHECKING:
    from holdfast_lab.sim.network import Wire
    from holdfast_lab.sim.server import Server


class QuorumWorker(Worker):
    """A worker that can poll several servers. Its requests name a server by its index in ``World.servers``."""

    __slots__ = ()

    def do(self, request: ServerRequest | AskPlace | QuorumRequest) -> Any:
        match request:
            case Poll():
                return self._poll(request)
            case GiveBack():
                return self.give_back(request)
            case _:
                return super().do(request)

    def _poll(self, poll: Poll) -> Any:
        process = self.process
        self.pending = asked = WaitId(self)
        round_ = PollRound(self, asked, poll)
        wires: dict[int, Wire] = {}
        for number, call in enumerate(poll.calls):
            if call is not None:
                try:
                    wires[number] = self._ready(number, poll)
                except NotSent as error:
                    round_.answered(number, error, process.clock())
        for number, wire in wires.items():
            call = poll.calls[number]
            assert call is not None
            wire.send(call, partial(round_.answered, number))
        if round_.over:
            self.pending = None
            return None
        round_.waits = True
        self._timer = process.at(process.clock() + poll.within, self._on_timer, asked, None)
        return LATER

    def _ready(self, number: int, poll: Poll) -> Wire:
        """Return a connection to a server.

        Raises NotSent if the server is unreachable. If the poll asks for votes, also raises NotSent if the server has owed the
        reply to an earlier request for more than ``poll.within`` seconds.
        """
        server = self.process.world.servers[number]
        wire = self._wire_to(server)
        if poll.begins and wire.in_flight and wire.in_flight[0].sent < self.process.clock() - poll.within:
            raise NotSent("has not answered for long", server.name)
        return wire

    def polled(self) -> None:
        self.pending = None
        self._drop_timer()
        self.go(None)

    def _told_by(self) -> list[Server]:
        return self.process.world.servers

    def give_back(self, request: GiveBack) -> None:
        """Let the keeper withdraw a vote. It repeats the request until a reply arrives or ``request.until`` has come."""
        node = self.process.node_on(self.process.world.servers[request.server])
        node.send_until_answered(request.call, request.until)


class PollRound:
    """The progress of one poll: how many replies are missing, and whether it is over."""

    __slots__ = ("_asked", "_open", "_otherwise", "_tally", "_worker", "over", "waits")

    def __init__(self, worker: QuorumWorker, asked: WaitId, poll: Poll) -> None:
        self._worker = worker
        self._asked = asked
        self._tally = poll.counter
        self._otherwise = poll.otherwise
        self._open = sum(call is not None for call in poll.calls)
        self.over = not self._open
        self.waits = False
        """True once all requests were sent and the worker waits for the end of the poll."""

    @property
    def counts(self) -> bool:
        """True until the worker stops waiting for this poll. Later replies do not count."""
        return self._asked.counts

    def _told(self, number: int, answer: Answer[Any] | WireError) -> None:
        self._open -= 1
        if not self.over and (self._tally.on_answer(number, answer) or not self._open):
            self.over = True
            if self.waits:
                self._worker.polled()

    def answered(self, number: int, answer: Any, sent: float) -> None:
        """Count the reply of a server. If the request failed, let the keeper send the poll's request ``otherwise``, if any."""
        if self._asked.counts:
            clock = self._worker.process.clock
            self._told(number, answer if isinstance(answer, WireError) else Answer(answer, sent, clock()))
        if self._otherwise is not None and isinstance(answer, WireError):
            self._worker.give_back(self._otherwise(number))
