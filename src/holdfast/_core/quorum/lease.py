"""The lease of a lock that several servers have granted by their votes, and the part of it that is on one server."""

from __future__ import annotations

from holdfast._core.lock.owner import Owner
from holdfast._core.lock.records import BOUNDED, Grant, HeldLease, margin
from holdfast._core.quorum.votes import RELEASE_VOTE
from holdfast._core.requests import Run


class NodeLease(HeldLease):
    """The vote of one server in a `QuorumLease`, renewed like a lease on that server; it may be unconfirmed."""

    __slots__ = ("answered_at", "believed", "number", "server", "whole")

    def __init__(self, grant: Grant, whole: QuorumLease, number: int, server: str, believed: bool) -> None:
        super().__init__(grant)
        self.whole = whole
        self.local_queue = grant.attempt.local_queue
        self.number = number
        self.server = server
        self.answered_at = 0.0
        """Sequence number of the latest renewal that was answered.

        A later renewal, perhaps for a shorter lease, may still be under way.
        """
        self.believed = believed
        """True once the server has confirmed the vote. An unconfirmed vote does not count for the majority.
        Its first renewal is due early, as soon as the missing reply should have come, and shows whether the server has granted
        it."""
        if not believed and self.spec.renew:
            soon = min(self.spec.timeout, self.ttl * self.spec.renew_part / 2)
            self.renew_at = min(self.renew_at, self.due_at(grant.taken + soon))

    @property
    def counts(self) -> bool:
        return self.believed and not self.lost and not self.over

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        super().renewed(made, sent, ttl)
        self.answered_at = max(self.answered_at, made)
        self.believed = self.believed or made >= self.asked_at

    def holder(self) -> Owner | None:
        return self.whole.owner()

    def lost_with_it(self) -> HeldLease | None:
        return self.whole if self.whole.lost_majority() else None

    def giving_back(self, *, revoke: bool, timeout: float) -> Run[int]:
        return self.whole.giving_back_at(self.number, revoke=revoke, timeout=timeout)


class QuorumLease(HeldLease):
    """A lease on several servers, valid while a majority of its votes is valid. Each vote is renewed, not the lease as such."""

    __slots__ = ("_least", "doubtful", "listener_id", "listening_on", "majority", "node_leases")

    def __init__(self, grant: Grant, majority: int, listener_id: str, listening_on: set[int]) -> None:
        self.node_leases: dict[int, NodeLease] = {}
        """The votes, by index of the server in the server list."""
        self.majority = majority
        self.listener_id, self.listening_on = listener_id, listening_on
        """Id under which the holder subscribed when it waited, and indices of the servers that may still have the
        subscription."""
        self.doubtful: set[int] = set()
        """Indices of servers where a late copy of a vote request may still acquire the lock, or has done so after the grant."""
        self._least = grant.deadline
        super().__init__(grant)

    @property
    def deadline(self) -> float:
        """Monotonic time, in seconds, at which the votes stop being a majority; -infinity if too few are left."""
        if not self.node_leases:
            return self._least
        ends = sorted((node_lease.deadline for node_lease in self.node_leases.values() if node_lease.counts), reverse=True)
        return ends[self.majority - 1] if len(ends) >= self.majority else float("-inf")

    @deadline.setter
    def deadline(self, at: float) -> None:
        """Set the deadline that is valid until votes are added; after that the votes determine the deadline."""
        self._least = at

    def note_request(self, now: float, ttl: float) -> float:
        self.asked_at = made = max(now, *(at.asked_at + 2e-6 for at in (self, *self.node_leases.values())))
        for node_lease in self.node_leases.values():
            node_lease.asked_at = made
            node_lease.deadline = min(node_lease.deadline, now + ttl - margin(ttl))
            if node_lease.spec.renew:  # the reply may be lost
                node_lease.renew_at = min(node_lease.renew_at, node_lease.due_at(now + ttl * node_lease.spec.renew_part))
        return made

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """Do nothing: each vote is renewed by the reply of its own server."""

    def progressed(self, now: float) -> None:
        super().progressed(now)
        for node_lease in self.node_leases.values():
            node_lease.progressed(now)

    def end(self) -> None:
        super().end()
        for node_lease in self.node_leases.values():
            node_lease.end()

    def giving_back_at(self, server: int, *, revoke: bool, timeout: float) -> Run[int]:
        """Return the request that releases the vote of one server, even if the vote was never confirmed.

        ``revoke``: True: also make the server refuse late copies of the vote request.
        """
        node_lease = self.node_leases.get(server)
        doubt = revoke or server in self.doubtful or (node_lease is not None and not node_lease.believed)
        return Run(RELEASE_VOTE, self.spec.keys, (self.token, "bury" if doubt else "release", self.listener_id), timeout)

    def giving_back_to(self, server: int) -> tuple[Run[int], int, float]:
        """Return the arguments of a `GiveBack` request: release, index of the server, and the monotonic time at which to give
        up."""
        return self.giving_back_at(server, revoke=True, timeout=self.spec.timeout), server, self.latest

    @property
    def latest(self) -> float:
        """Monotonic time, in seconds, at which the last vote expires, as far as is known."""
        return max(node_lease.deadline for node_lease in self.node_leases.values())

    def servers(self) -> set[int]:
        """Return the indices of the servers that may have data of this lease. Other servers refused or were not asked."""
        return self.node_leases.keys() | self.doubtful | self.listening_on

    def lost_majority(self) -> bool:
        """Mark the lease as lost if too few votes are valid; return True only for the first caller to notice."""
        if sum(node_lease.counts for node_lease in self.node_leases.values()) >= self.majority:
            return False
        lost = [node_lease for node_lease in self.node_leases.values() if node_lease.lost]
        if {node_lease.lost for node_lease in lost} <= {self.why_stalled, BOUNDED}:
            return self.lose(lost[-1].lost)  # the reason is the holder's, not the servers'
        why = "; ".join(f"{node_lease.server}: {node_lease.lost}" for node_lease in lost)
        return self.lose(f"no majority of its servers grants it any more: {why}")
