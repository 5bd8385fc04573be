"""A lease that several servers have granted together: the votes of each, and what they amount to."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._core.attempt import Grant, margin
from holdfast._core.renewing import Tenure


class Vote(Tenure):
    """What one server has granted; or may have, without our knowledge. Renewed as any lease on that server is."""

    __slots__ = ("believed", "server")

    def __init__(self, grant: Grant, server: str, believed: bool) -> None:
        super().__init__(grant)
        self.server = server
        self.believed = believed
        """The server has said so. Else it has not answered yet; the first renewal will tell."""

    @property
    def counts(self) -> bool:
        return self.believed and not self.lost and not self.over

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        super().renewed(made, sent, ttl)
        self.believed = self.believed or made >= self.asked_at


class Mandate(Tenure):
    """The lease as a whole: good for as long as a majority of the votes is. Nothing renews it but them."""

    __slots__ = ("_least", "majority", "votes")

    def __init__(self, grant: Grant, majority: int) -> None:
        self.votes: dict[int, Vote] = {}
        """By the number of the server."""
        self.majority = majority
        self._least = grant.deadline
        super().__init__(grant)

    def add(self, number: int, vote: Vote) -> None:
        self.votes[number] = vote
        vote.owner = lambda: self

    @property
    def deadline(self) -> float:
        """When the last of the votes that make a majority ends (local seconds)."""
        ends = sorted((vote.deadline for vote in self.votes.values() if vote.counts), reverse=True)
        return ends[self.majority - 1] if len(ends) >= self.majority else self._least

    @deadline.setter
    def deadline(self, at: float) -> None:
        """What was believed before there were votes, or when there are too few."""
        self._least = at

    def asks(self, now: float, ttl: float) -> float:
        self.asked_at = made = max(now, *(at.asked_at + 2e-6 for at in (self, *self.votes.values())))
        for vote in self.votes.values():
            vote.asked_at = made
            vote.deadline = min(vote.deadline, now + ttl - margin(ttl))
        return made

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """Its votes are, each by its own answer."""

    def end(self) -> None:
        super().end()
        for vote in self.votes.values():
            vote.end()

    def notice_loss(self) -> None:
        """A vote is lost. What is left may still be a majority."""
        if sum(vote.counts for vote in self.votes.values()) >= self.majority:
            return
        if self.lose(f"no majority of its servers has it any more: {'; '.join(self._losses())}"):
            owner = self.owner()
            if owner is not None:
                owner.notice_loss()

    def _losses(self) -> Iterable[str]:
        return (f"{vote.server}: {vote.lost}" for vote in self.votes.values() if vote.lost)
