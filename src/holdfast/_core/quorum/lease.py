"""The lease of a lock that several servers have granted by their votes, and the part of it that is on one server."""

from __future__ import annotations

from holdfast._core.lock.owner import Owner
from holdfast._core.lock.records import BOUNDED, Grant, HeldLease
from holdfast._core.lock.spec import margin
from holdfast._core.quorum.votes import RELEASE_VOTE
from holdfast._core.requests import RunScript


class NodeLease(HeldLease):
    """The vote of one server for a `QuorumLease`. It is renewed like a lease on that server."""

    __slots__ = ("answered_at", "believed", "number", "server", "whole")

    def __init__(self, grant: Grant, whole: QuorumLease, number: int, server: str, believed: bool) -> None:
        self.whole = whole
        super().__init__(grant)
        self.local_queue = grant.attempt.local_queue
        self.number = number
        self.server = server
        self.answered_at = 0.0
        """Sequence number of the latest renewal to which the server has replied.

        A later renewal, perhaps for a shorter lease, may still be under way.
        """
        self.believed = believed
        """True once the server has confirmed that it votes for the holder. Unconfirmed votes do not count for the majority.

        If the reply to the vote request is missing, the first renewal is sent early, to learn whether the server has voted for
        the holder.
        """
        if not believed and self.spec.renew:
            soon = min(self.spec.timeout, self.ttl * self.spec.renew_part / 2)
            self.renew_at = min(self.renew_at, self.due_at(grant.taken + soon))

    @property
    def counts(self) -> bool:
        return self.believed and not self.lost and not self.over

    def may_extend(self, now: float, ttl: float) -> None:
        super().may_extend(now, ttl)
        self.whole.may_extend(now, ttl)

    def renewed(self, made: float, sent: float, ttl: float, *, numbered: bool = True) -> None:
        super().renewed(made, sent, ttl, numbered=numbered)
        self.answered_at = max(self.answered_at, made)
        self.believed = self.believed or made >= self.asked_at

    def holder(self) -> Owner | None:
        return self.whole.owner()

    def lost_with_it(self) -> HeldLease | None:
        return self.whole if self.whole.lost_majority() else None

    def giving_back(self, *, revoke: bool, timeout: float) -> RunScript[int]:
        return self.whole.giving_back_at(self.number, revoke=revoke, timeout=timeout)


class QuorumLease(HeldLease):
    """A lease that several servers have granted by their votes. It is valid while a majority of the votes is valid.

    The keeper (background thread) renews each vote separately.
    """

    __slots__ = ("_least", "doubtful", "listener_id", "listening_on", "majority", "node_leases")

    def __init__(self, grant: Grant, majority: int, listener_id: str, listening_on: set[int]) -> None:
        self.node_leases: dict[int, NodeLease] = {}
        """The votes, by index of their server in the list of servers."""
        self.majority = majority
        self.listener_id, self.listening_on = listener_id, listening_on
        """Id under which the holder subscribed to notifications before it got the lock, and indices of the servers that may
        still list this id."""
        self.doubtful: set[int] = set()
        """Indices of the servers on which a late copy of a vote request may acquire the lock again, or has done so.

        The release makes these servers refuse such copies.
        """
        self._least = grant.deadline
        super().__init__(grant)

    @property
    def deadline(self) -> float:
        """Monotonic time, in seconds, at which the valid votes stop being a majority; -infinity: they are no majority."""
        if not self.node_leases:
            return self._least
        ends = sorted((node_lease.deadline for node_lease in self.node_leases.values() if node_lease.counts), reverse=True)
        return ends[self.majority - 1] if len(ends) >= self.majority else float("-inf")

    @deadline.setter
    def deadline(self, at: float) -> None:
        """Set the deadline of a lease that has no votes yet. Later, the deadline is computed from the votes."""
        self._least = at

    def note_request(self, now: float, ttl: float) -> float:
        self.asked_at = made = max(now, *(at.asked_at + 2e-6 for at in (self, *self.node_leases.values())))
        for node_lease in self.node_leases.values():
            node_lease.asked_at = made
            node_lease.may_extend(now, ttl)
            node_lease.deadline = min(node_lease.deadline, now + ttl - margin(ttl))
            if node_lease.spec.renew:  # now, because the reply may be lost
                node_lease.renew_at = min(node_lease.renew_at, node_lease.due_at(now + ttl * node_lease.spec.renew_part))
        return made

    def renewed(self, made: float, sent: float, ttl: float, *, numbered: bool = True) -> None:
        """Do nothing, because each vote is renewed by the reply of its own server."""

    def progressed(self, now: float) -> None:
        super().progressed(now)
        for node_lease in self.node_leases.values():
            node_lease.progressed(now)

    def end(self) -> None:
        super().end()
        for node_lease in self.node_leases.values():
            node_lease.end()

    def giving_back_at(self, server: int, *, revoke: bool, timeout: float) -> RunScript[int]:
        """Return the request that releases the vote of the server with index ``server``, even if that vote was never confirmed.

        ``revoke``: True to make the server refuse late copies of the vote request, too. ``timeout``: maximum seconds to wait
        for the reply.
        """
        node_lease = self.node_leases.get(server)
        doubt = revoke or server in self.doubtful or (node_lease is not None and not node_lease.believed)
        return RunScript(RELEASE_VOTE, self.spec.keys, (self.token, "bury" if doubt else "release", self.listener_id), timeout)

    def giving_back_to(self, server: int) -> tuple[RunScript[int], int, float]:
        """Return the arguments of a `GiveBack` request for the server with index ``server``."""
        return self.giving_back_at(server, revoke=True, timeout=self.spec.timeout), server, self.latest

    def servers(self) -> set[int]:
        """Return the indices of the servers that may store anything of this lease: a vote, or a subscription."""
        return self.node_leases.keys() | self.doubtful | self.listening_on

    def lost_majority(self) -> bool:
        """Mark the lease as lost if the valid votes are not a majority.

        Return True only to the caller that has marked the lease, and therefore has to notify the owner.
        """
        if sum(node_lease.counts for node_lease in self.node_leases.values()) >= self.majority:
            return False
        lost = [node_lease for node_lease in self.node_leases.values() if node_lease.lost]
        if {node_lease.lost for node_lease in lost} <= {self.why_stalled, BOUNDED}:
            return self.lose(lost[-1].lost)  # the holder is the cause, not a server
        why = "; ".join(f"{node_lease.server}: {node_lease.lost}" for node_lease in lost)
        return self.lose(f"no majority of its servers grants it any more: {why}")
