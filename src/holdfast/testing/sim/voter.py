"""A worker that asks several servers at the same time: the driver of what `_core.quorum` awaits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast._core.ballot import YIELD
from holdfast._core.requests import (
    Answer,
    Call,
    Enroll,
    GiveBack,
    Hark,
    NotSent,
    Poll,
    Refused,
    Run,
    WireError,
    Withdraw,
)
from holdfast.testing.sim.worker import LATER, Ticket, Worker

if TYPE_CHECKING:
    from holdfast.testing.sim.process import Process
    from holdfast.testing.sim.wire import Wire

PAUSE = 0.02
"""Seconds until a server that did not answer is told again to give something back; twice as many each time, up to one."""


class Voter(Worker):
    """One thread or task. The number of a server is its place among those of the world."""

    __slots__ = ()

    def __init__(self, process: Process, name: str) -> None:
        super().__init__(process, name)
        self._do |= {
            Poll: self._poll,
            Enroll: self._enroll,
            Hark: self._hark,
            Withdraw: self._withdraw,
            GiveBack: self._give_back,
        }

    def _poll(self, poll: Poll) -> Any:
        process = self.process
        self._asked = asked = Ticket(self)
        round_ = Round(self, asked, poll)
        wires: dict[int, Wire] = {}
        for number, call in enumerate(poll.calls):
            if call is not None:
                try:
                    wires[number] = self._wire_to(process.world.servers[number])
                except NotSent as error:
                    round_.told(number, error)
        for number, wire in wires.items():
            call = poll.calls[number]
            assert call is not None
            wire.send(call, partial(round_.answered, number))
        if round_.over:
            self._asked = None
            return None
        round_.waits = True
        self._timer = process.at(process.clock() + poll.within, self._on_timer, asked, None)
        return LATER

    def polled(self) -> None:
        """What it waited for is decided."""
        self._asked = None
        self._drop_timer()
        self.go(None)

    def _enroll(self, request: Enroll) -> Any:
        candidate, process = request.candidate, self.process
        nodes = [process.node_on(server) for server in process.world.servers]
        for node in nodes:
            node.hopes[candidate.hope] = candidate
        process.wake_by(process.clock())

        def enough(_outcome: object = None) -> bool:
            return sum(node.waiting.listening for node in nodes) >= candidate.panel.majority

        return None if enough() else self._get(candidate, request.until, enough, None)

    def _hark(self, request: Hark) -> Any:
        return self._get(request.candidate, request.until, lambda _outcome: True, None)

    def _withdraw(self, request: Withdraw) -> None:
        for node in self.process.nodes.values():
            node.hopes.pop(request.candidate.hope, None)

    def _give_back(self, request: GiveBack) -> None:
        candidate = request.candidate
        call = Run(YIELD, candidate.spec.keys, (candidate.token, request.mode, candidate.hope), candidate.spec.timeout)
        Return(self.process, request.server, call, request.until).send()


class Round:
    """What came of a poll so far."""

    __slots__ = ("_asked", "_open", "_tally", "_worker", "over", "waits")

    def __init__(self, worker: Voter, asked: Ticket, poll: Poll) -> None:
        self._worker = worker
        self._asked = asked
        self._tally = poll.tally
        self._open = sum(call is not None for call in poll.calls)
        self.over = not self._open
        self.waits = False
        """The worker waits for it to be over."""

    def told(self, number: int, answer: Answer[Any] | WireError) -> None:
        """A server's answer is there."""
        self._open -= 1
        if not self.over and (self._tally.on_answer(number, answer) or not self._open):
            self.over = True
            if self.waits:
                self._worker.polled()

    def answered(self, number: int, answer: Any, sent: float) -> None:
        """The same, from a wire. Who is late is not heard."""
        if self._asked.counts:
            clock = self._worker.process.clock
            self.told(number, answer if isinstance(answer, WireError) else Answer(answer, sent, clock()))


class Return:
    """What a server is told until it has answered."""

    __slots__ = ("_call", "_failures", "_process", "_server", "_until")

    def __init__(self, process: Process, server: int, call: Call, until: float) -> None:
        self._process = process
        self._server = server
        self._call = call
        self._until = until
        self._failures = 0

    def send(self) -> None:
        node = self._process.node_on(self._process.world.servers[self._server])
        node.commands.call(self._call, self._answered)

    def _answered(self, answer: Any, _sent: float) -> None:
        process = self._process
        if isinstance(answer, WireError) and not (isinstance(answer, Refused) and not answer.transient):
            pause = min(1.0, PAUSE * 2**self._failures)
            self._failures += 1
            if process.clock() + pause < self._until:
                process.at(process.clock() + pause, self.send)
