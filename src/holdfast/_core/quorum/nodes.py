"""The keeper's state for several servers that vote together, behind the interface that a local queue uses.

A local queue is the queue of a process for one lock, and its interface is `_core.lock.ports.QueuePort`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from holdfast._core.lock.idle_queues import Loose
from holdfast._core.lock.local_queue import LocalQueue
from holdfast._core.lock.node import Node
from holdfast._core.lock.ports import NodeKeeper
from holdfast._core.lock.records import Attempt, HeldLease, Queue
from holdfast._core.lock.server_queue import Waiting
from holdfast._core.lock.spec import Spec
from holdfast._core.quorum.lease import QuorumLease
from holdfast._core.quorum.votes import RELEASE_VOTE, QuorumAttempt
from holdfast._core.requests import RunScript, WireError


class QuorumNodes:
    """The nodes (the keeper's state for one server each) of all servers that vote together."""

    waiting: Waiting

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.waiting = Waiting()  # always empty, because these servers have no queue
        self._majority = len(nodes) // 2 + 1
        self._local_queues: Loose[tuple[bytes, bytes], LocalQueue] = Loose()

    def local_queue(self, spec: Spec) -> LocalQueue:
        """Return the queue of this process for a lock; create it if there is none. The caller holds the keeper's mutex."""
        which = spec.keys[0], spec.prefix
        local_queue = self._local_queues.get(which)
        if local_queue is None:
            local_queue = self._local_queues.setdefault(which, LocalQueue(self, spec.prefix))
        return local_queue

    @property
    def keeper(self) -> NodeKeeper:
        return self.nodes[0].keeper

    def register(self, held_lease: HeldLease, now: float, *, hurry: bool = True) -> list[HeldLease]:
        """Renew each vote of a lease until `forget` is called. The caller holds the mutex.

        Return the older leases that the grant of this one proves to be lost. ``hurry``: as in `_core.lock.renewal.register`.
        """
        assert isinstance(held_lease, QuorumLease)
        outdated: list[HeldLease] = []
        for number, node_lease in held_lease.node_leases.items():
            outdated += self.nodes[number].register(node_lease, now, hurry=hurry)
        return outdated

    def forget(self, held_lease: HeldLease) -> None:
        for node in self.nodes:
            node.forget(held_lease)

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

    def label_changed(self, held_lease: HeldLease) -> None:
        assert isinstance(held_lease, QuorumLease)
        for number, node_lease in held_lease.node_leases.items():
            node_lease.label = held_lease.label
            self.nodes[number].label_changed(node_lease)

    def asked_for(self, token: str) -> bool:
        return sum(node.asked_for(token) for node in self.nodes) > 0  # ask all, because each one forgets its message

    def look_at(self, local_queue: Queue, at: float) -> None:
        self.nodes[0].look_at(local_queue, at)

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        """Renew the lease on all servers that have granted it, to learn whether the lease is lost.

        Return the number of servers that are asked, and how many of them must confirm the lease to prove that it exists (a
        majority).
        """
        assert isinstance(held_lease, QuorumLease)
        return sum(
            self.nodes[number].question(node_lease)[0] for number, node_lease in held_lease.node_leases.items()
        ), self._majority

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        """Revoke an attempt's token on all servers. When a majority has replied or failed, let the next waiter ask for
        votes."""
        assert isinstance(attempt, QuorumAttempt)
        spec, back = attempt.spec, _Back(local_queue, self._majority)
        call = RunScript(RELEASE_VOTE, spec.keys, (attempt.token, "bury", attempt.listener_id), spec.timeout)
        for node in self.nodes:
            node.send_until_answered(call, self.clock() + spec.timeout + spec.first_ttl, back)

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        """Release the lease on all servers. When a majority has replied or failed, let the next waiter ask for votes.

        ``local_queue``: queue of this waiter; None: no waiter is notified.
        """
        assert isinstance(held_lease, QuorumLease)
        held_lease.end()
        back = _Back(local_queue, min(self._majority, len(held_lease.node_leases)))
        self.forget(held_lease)
        for number in held_lease.servers():
            give = held_lease.giving_back_at(number, revoke=False, timeout=held_lease.spec.timeout)
            self.nodes[number].send_until_answered(give, held_lease.latest, back)

    def close(self, error: WireError) -> None:
        """End the wait of all attempts, because this process stops. The caller holds the keeper's mutex."""
        for local_queue in self._local_queues.values():
            local_queue.close(error)


class _Back:
    """A counter of servers that have replied to a release, or failed. After a majority, the next waiter may ask for votes."""

    def __init__(self, local_queue: Queue | None, needed: int) -> None:
        self._local_queue = local_queue
        self._needed = needed

    def on_released(self) -> None:
        self._needed -= 1
        if not self._needed and self._local_queue is not None:
            self._local_queue.on_released()
