"""Early renewals, which check whether a held lease still exists while other attempts of the process wait for its lock.

The server may lose the lock (FLUSHDB, DEL), and this process learns of the loss only from the reply to a renewal. So the lease
is renewed early while an attempt waits, or when an attempt with ``wait=0`` finds the lock held, but at most once a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.renewal import QUESTION_EVERY_S
from holdfast._core.struct import Struct

if TYPE_CHECKING:
    from holdfast._core.lock.ports import QueuePort
    from holdfast._core.lock.records import Attempt, HeldLease


class Question(Struct):
    """A renewal of a lease that is sent before it is due, to check whether the lease still exists on the server."""

    __slots__ = __match_args__ = ("token", "at", "unanswered", "enough", "callers")

    token: str
    at: float
    unanswered: int
    enough: int

    def __init__(self, token: str, at: float, unanswered: int, enough: int) -> None:
        self.token = token
        self.at = at
        """Monotonic time, in seconds, at which this renewal was requested. Replies to earlier renewals are ignored."""
        self.unanswered = unanswered
        """Number of servers that have not replied to this renewal yet."""
        self.enough = enough
        """Number of further servers whose confirmation is needed to know that the lease exists."""
        self.callers: list[Attempt] = []
        """Attempts that do not wait for the lock, but only for the reply to this renewal."""


class LeaseCheck:
    """The early renewals of the leases that one local queue holds. The caller of each method holds the mutex.

    The parameter ``held_lease`` is the lease that an attempt of this process holds now; None: no lease.
    """

    __slots__ = ("asked_at", "due_at", "node", "question")

    def __init__(self, node: QueuePort) -> None:
        self.node: QueuePort = node
        self.question: Question | None = None
        """The last early renewal, until its reply arrives; None: no reply is outstanding."""
        self.asked_at: float = float("-inf")
        """Monotonic time, in seconds, of the last early renewal; -infinity: never."""
        self.due_at: float = float("inf")
        """Monotonic time, in seconds, of the next early renewal for the first waiter; infinity: never."""

    def join(self, attempt: Attempt, held_lease: HeldLease | None, now: float) -> bool:
        """Renew the lease early for an attempt with ``wait=0``, to learn whether the lease still exists on the server.

        Return True if the attempt has to wait for the reply, although it does not wait for the lock. Return False if no renewal
        was started. The reason is that the last early renewal is less than a second old, or that there is no lease to renew.
        """
        question = self.question
        if question is None or held_lease is None or question.token != held_lease.token:
            question = self._ask(held_lease, now) if now >= self.asked_at + QUESTION_EVERY_S else None
        if question is None:
            return False
        question.callers.append(attempt)
        return True

    def answered(self, token: str, made: float, *, known: bool) -> list[Attempt]:
        """Note the result of a renewal that was requested at monotonic time ``made``. Return the attempts that waited for it.

        The list is empty if the reply is outdated, or if further servers have to reply before these attempts may go on.

        ``known``: True if the server confirmed the lease; False if it did not reply or the lease is lost.
        """
        question = self.question
        if question is None or question.token != token or made < question.at:
            return []
        question.unanswered -= 1
        question.enough -= known
        if question.unanswered and question.enough > 0:
            return []
        self.question = None
        return question.callers

    def wait(self, held_lease: HeldLease | None, now: float, until: float | None = None) -> None:
        """Renew the lease early for the first waiter, unless it was granted or renewed within the last second.

        ``until``: monotonic time at which the waiter stops waiting; None: never. If that is less than a second away, a recent
        grant or ordinary renewal does not prevent the early renewal.
        """
        known = self.asked_at
        if held_lease is not None and (until is None or until > now + QUESTION_EVERY_S):
            known = max(known, held_lease.since, held_lease.asked_at)
        if now >= known + QUESTION_EVERY_S:
            self._ask(held_lease, now)
            known = now
        self.due_at = known + QUESTION_EVERY_S

    def _ask(self, held_lease: HeldLease | None, now: float) -> Question | None:
        if held_lease is None or held_lease.lost or held_lease.over:
            return None
        asked, enough = self.node.question(held_lease)
        if not asked:
            return None
        self.question, self.asked_at = Question(held_lease.token, now, asked, enough), now
        return self.question
