"""The nodes of several servers as if they were one, for the gates of their locks (`_core.lock.ports`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from holdfast._core.lock.idle_queues import Loose
from holdfast._core.lock.local_queue import Gate
from holdfast._core.lock.node import Node
from holdfast._core.lock.records import Attempt, Queue, Spec, Tenure
from holdfast._core.lock.server_queue import Waiting
from holdfast._core.quorum.lease import Mandate
from holdfast._core.quorum.votes import RELEASE_VOTE, QuorumAttempt
from holdfast._core.requests import Run, WireError


class Board:
    """The nodes of one process for the servers that vote together."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.waiting = Waiting()  # nobody stands in a queue: there is none
        self._majority = len(nodes) // 2 + 1
        self._gates: Loose[tuple[bytes, bytes], Gate] = Loose()

    def gate(self, spec: Spec) -> Gate:
        """The gate of a lock; the keeper's mutex is held."""
        which = spec.keys[0], spec.prefix
        gate = self._gates.get(which)
        if gate is None:
            gate = self._gates.setdefault(which, Gate(self, spec.prefix))
        return gate

    @property
    def mutex(self) -> AbstractContextManager[object]:
        return self.nodes[0].mutex

    def reachable(self, prefix: bytes) -> bool:
        return sum(node.reachable(prefix) for node in self.nodes) >= self._majority

    def in_change(self) -> bool:
        return self.nodes[0].in_change()

    def later(self, what: Callable[[], None]) -> None:
        self.nodes[0].later(what)

    def clock(self) -> float:
        return self.nodes[0].clock()

    def has_unread(self) -> bool:
        return any(node.has_unread() for node in self.nodes)

    def be_reachable(self, prefix: bytes) -> None:
        for node in self.nodes:
            node.be_reachable(prefix)

    def somebody_waits(self) -> None:
        for node in self.nodes:
            node.somebody_waits()

    def label_changed(self, tenure: Tenure) -> None:
        assert isinstance(tenure, Mandate)
        for number, vote in tenure.votes.items():
            vote.label = tenure.label
            self.nodes[number].label_changed(vote)

    def asked_for(self, token: str) -> bool:
        return sum(node.asked_for(token) for node in self.nodes) > 0  # all of them are asked: each is to forget it

    def look_at(self, gate: Queue, at: float) -> None:
        self.nodes[0].look_at(gate, at)

    def question(self, tenure: Tenure) -> tuple[int, int]:
        """On all servers that have granted it; a majority that knows it still settles the question."""
        assert isinstance(tenure, Mandate)
        return sum(self.nodes[number].question(vote)[0] for number, vote in tenure.votes.items()), self._majority

    def bury(self, gate: Queue, attempt: Attempt) -> None:
        """On all servers, as `give_back`."""
        assert isinstance(attempt, QuorumAttempt)
        spec, back = attempt.spec, _Back(gate, self._majority)
        call = Run(RELEASE_VOTE, spec.keys, (attempt.token, "bury", attempt.listener_id), spec.timeout)
        for node in self.nodes:
            node.send_until_answered(call, self.clock() + spec.timeout + spec.first_ttl, back)

    def give_back(self, gate: Queue | None, tenure: Tenure) -> None:
        """On all servers; it is back when a majority has answered, whatever that was, or failed to."""
        assert isinstance(tenure, Mandate)
        tenure.end()
        back = _Back(gate, min(self._majority, len(tenure.votes)))
        for node in self.nodes:
            node.renewing.forget(tenure.token)
        for number in tenure.servers():
            give = tenure.giving_back_at(number, bury=False, timeout=tenure.spec.timeout)
            self.nodes[number].send_until_answered(give, tenure.latest, back)

    def close(self, error: WireError) -> None:
        """This process stops: nobody waits any more; the keeper's mutex is held."""
        for gate in self._gates.values():
            gate.close(error)


class _Back:
    """Counts the servers that have answered, whatever that was, or failed to: a majority is enough."""

    def __init__(self, gate: Queue | None, needed: int) -> None:
        self._gate = gate
        self._needed = needed

    def left(self) -> None:
        self._needed -= 1
        if not self._needed and self._gate is not None:
            self._gate.left()
