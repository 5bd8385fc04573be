"""A lease that several servers have granted together: the votes of each, and what they amount to."""

from __future__ import annotations

from holdfast._core.lock.records import BOUNDED, Grant, HeldLease, Owner, margin
from holdfast._core.quorum.votes import RELEASE_VOTE
from holdfast._core.requests import Run


class NodeLease(HeldLease):
    """The vote of one server, which may have granted it without our knowledge. Renewed as any lease on that server is."""

    __slots__ = ("answered_at", "believed", "number", "server", "whole")

    def __init__(self, grant: Grant, whole: QuorumLease, number: int, server: str, believed: bool) -> None:
        super().__init__(grant)
        self.whole = whole
        self.local_queue = grant.attempt.local_queue
        self.number = number
        self.server = server
        self.answered_at = 0.0
        """Number of the last renewal that was answered. Another one under way may ask for less, and arrive last."""
        self.believed = believed
        """The server has said so. Else it has not answered yet; the first renewal will tell, and comes as soon as the answer
        should have: until then the lease does not bear the loss of another one."""
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
    """The lease as a whole: good for as long as a majority of the votes is. Nothing renews it but them."""

    __slots__ = ("_least", "doubtful", "listener_id", "listening_on", "majority", "node_leases")

    def __init__(self, grant: Grant, majority: int, listener_id: str, listening_on: set[int]) -> None:
        self.node_leases: dict[int, NodeLease] = {}
        """By the number of the server."""
        self.majority = majority
        self.listener_id, self.listening_on = listener_id, listening_on
        """Under which the servers know that who took it has waited; these may remember that still."""
        self.doubtful: set[int] = set()
        """Servers that may still carry out a vote of ours, as they have not answered one, or have done so since the grant."""
        self._least = grant.deadline
        super().__init__(grant)

    @property
    def deadline(self) -> float:
        """When the last of the votes that make a majority ends (local seconds). Too few of them: it is over, even if nobody has
        said so yet."""
        if not self.node_leases:
            return self._least
        ends = sorted((node_lease.deadline for node_lease in self.node_leases.values() if node_lease.counts), reverse=True)
        return ends[self.majority - 1] if len(ends) >= self.majority else float("-inf")

    @deadline.setter
    def deadline(self, at: float) -> None:
        """The deadline believed while the lease is made; after that its votes decide."""
        self._least = at

    def note_request(self, now: float, ttl: float) -> float:
        self.asked_at = made = max(now, *(at.asked_at + 2e-6 for at in (self, *self.node_leases.values())))
        for node_lease in self.node_leases.values():
            node_lease.asked_at = made
            node_lease.deadline = min(node_lease.deadline, now + ttl - margin(ttl))
            if node_lease.spec.renew:  # its answer may get lost
                node_lease.renew_at = min(node_lease.renew_at, node_lease.due_at(now + ttl * node_lease.spec.renew_part))
        return made

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """Its votes are, each by its own answer."""

    def progressed(self, now: float) -> None:
        super().progressed(now)
        for node_lease in self.node_leases.values():
            node_lease.progressed(now)

    def end(self) -> None:
        super().end()
        for node_lease in self.node_leases.values():
            node_lease.end()

    def giving_back_at(self, server: int, *, revoke: bool, timeout: float) -> Run[int]:
        """The request that gives back what one server has granted, also without our knowledge. ``revoke``: see `HeldLease`."""
        node_lease = self.node_leases.get(server)
        doubt = revoke or server in self.doubtful or (node_lease is not None and not node_lease.believed)
        return Run(RELEASE_VOTE, self.spec.keys, (self.token, "bury" if doubt else "release", self.listener_id), timeout)

    def giving_back_to(self, server: int) -> tuple[Run[int], int, float]:
        """The same as a `GiveBack` has it: until the server answers, or all votes have ended."""
        return self.giving_back_at(server, revoke=True, timeout=self.spec.timeout), server, self.latest

    @property
    def latest(self) -> float:
        """When the last of the votes ends, as far as is known (local seconds)."""
        return max(node_lease.deadline for node_lease in self.node_leases.values())

    def servers(self) -> set[int]:
        """Those that may have anything of it. The others have said no, or were not asked as they owed an answer."""
        return self.node_leases.keys() | self.doubtful | self.listening_on

    def lost_majority(self) -> bool:
        """True if the lease is lost, and nobody has noticed before: too few of the votes are left."""
        if sum(node_lease.counts for node_lease in self.node_leases.values()) >= self.majority:
            return False
        lost = [node_lease for node_lease in self.node_leases.values() if node_lease.lost]
        if {node_lease.lost for node_lease in lost} <= {self.why_stalled, BOUNDED}:
            return self.lose(lost[-1].lost)  # which has nothing to do with the servers
        why = "; ".join(f"{node_lease.server}: {node_lease.lost}" for node_lease in lost)
        return self.lose(f"no majority of its servers has it any more: {why}")
