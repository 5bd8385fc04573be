"""Which leases of this process to renew when, on one server: a state object, told what happens, answering what to do.

A lease is good until its local deadline: the send time of the last confirmed request, plus the lease, less the drift
allowance. One failed renewal loses nothing; the deadline does, and so does the server saying that the lock is not ours.
A lost lock stays lost: renewal never creates one.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from holdfast._core.lock.records import GRID, INFINITY, Spec, Tenure, answer_within, milliseconds, scripts, whole
from holdfast._core.requests import Run
from holdfast._core.retry import retry_idempotent
from holdfast._lua import codes

EARLY = 100
"""Tokens remembered of which we were told something before we knew what they hold."""

QUESTION_EVERY = 1.0
"""Seconds between two questions about a lease, at least. Messages cause them, and whoever can publish could flood the server.
Callers of this process that want the lock cause them too, and there may be thousands."""

BATCH = 100
"""Renewals in one script: a run is kept short, so that the server serves others in between."""


def broken_by(whom: str) -> str:
    """Why a lease is lost that was taken away by order of a person."""
    return f"it was broken by {whom}"


async def renew(spec: Spec, token: str, ttl: float, made: float) -> tuple[bool, float]:
    """Set the lease to ``ttl`` seconds from now, local time ``made``: (still ours, when that was sent; minus infinity if a
    later request counts). Raises NotSent or Unknown when the server stays away, Refused when it refuses."""
    answer = await retry_idempotent(renewal(spec, token, ttl, made))
    (state,) = answer.value
    return state > 0, answer.sent if state == 1 else float("-inf")


def renewal(spec: Spec, token: str, ttl: float, made: float) -> Run[list[int]]:
    """The request for a lease of ``ttl`` seconds, made at local time ``made``, by hand or by the keeper.

    Its time is its number: of two that overtake each other, or come late, the server goes by the one that was made later.
    """
    timeout = min(spec.timeout, answer_within(ttl))
    return Run(scripts(spec).renew, spec.keys, (token, milliseconds(ttl), int(made * 1e6)), timeout)


class Renew(NamedTuple):
    """To do: ask for ``ttl`` seconds; then `Renewing.on_answer` or `Renewing.on_failed`."""

    tenure: Tenure
    ttl: float
    made: float


def renewals(batch: list[Renew]) -> Run[list[int]]:
    """One request for all of these, which are of one sort. As in `renewal`, the time at which each was made is its number."""
    keys: list[bytes] = []
    args: list[str | int] = []
    for tenure, ttl, made in batch:
        keys += tenure.spec.keys
        args += tenure.token, milliseconds(ttl), int(made * 1e6)
    timeout = min(renew.tenure.spec.timeout for renew in batch)
    timeout = min(timeout, answer_within(min(renew.ttl for renew in batch)))
    return Run(scripts(batch[0].tenure.spec).renew, tuple(keys), tuple(args), timeout)


class Renewing:
    """All leases of one process on one server."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, Tenure]] = {}
        self._numbers: list[int] = []
        """Of the slots, as a heap; perhaps of some more, that are gone."""
        self._first: dict[int, float] = {}
        """For each slot, when the first in it wants attention, or earlier."""
        self._where: dict[str, int] = {}
        self._holders: dict[bytes, Tenure] = {}
        """Of each key that only one can hold, the lease of it here that was granted last."""
        self._sharers: dict[bytes, dict[str, Tenure]] = {}
        """Of each key of so many permits, the leases of them here, by token."""
        self._hints: dict[str, str] = {}
        """Tokens from which something was taken away, as messages said before we knew what they hold, and by whom."""

    def __len__(self) -> int:
        return len(self._where)

    def get(self, token: str) -> Tenure | None:
        """The lease that this token holds."""
        return self._slots.get(self._where.get(token, -1), {}).get(token)

    def tenures(self) -> list[Tenure]:
        return [tenure for slot in self._slots.values() for tenure in slot.values()]

    def watch(self, tenure: Tenure) -> float:
        """Look after a lease, or look at it anew; answers when it wants attention (local seconds)."""
        token = tenure.token
        if tenure.lost:
            return INFINITY
        if self._hints and token in self._hints:
            tenure.hint, tenure.question_at = self._hints.pop(token), 0.0
        at = tenure.wants_at
        number = int(at * GRID)
        slot: dict[str, Tenure] | None = self._slots.get(number)
        before = self._where.get(token)
        if before == number and slot and token in slot:
            self._first[number] = min(self._first[number], at)
            return at
        if before is not None:
            self.forget(token)
        # An interrupt may come between any two of these: what is left then is empty, and `next_at` removes it. So may a signal
        # handler that takes a lock: what it has put there stays.
        if slot is None:
            heapq.heappush(self._numbers, number)
        self._first[number] = min(self._first.get(number, at), at)
        slot = self._slots.setdefault(number, {})
        self._where[token] = number
        slot[token] = tenure
        if tenure.spec.permits is None and tenure.fence:
            self._holders[tenure.spec.keys[0]] = tenure
        elif tenure.shares:
            self._sharers.setdefault(tenure.spec.keys[0], {})[token] = tenure
        return at

    def outdated_by(self, tenure: Tenure) -> list[Tenure]:
        """The leases that are lost by a new one of the same key, to be reported before the new one is used. The server grants
        a key again only after the earlier lease is over there: of two that are believed here, that with the lower fence is
        lost. That may be the new one, whose answer was read late. So it is with readers and writers."""
        key, permits = tenure.spec.keys[0], tenure.spec.permits
        if permits is None:
            other = self._holders.get(key)
            others = [] if other is None or not tenure.fence else [other]
        else:
            sharers, limit = [*self._sharers.get(key, {}).values()], permits.limit or 0
            others = [other for other in sharers if other.shares + tenure.shares > limit]
        older = [min(other, tenure, key=lambda one: one.fence) for other in others if other.fence != tenure.fence]
        why = "the server has granted its key again, so it was expired, deleted or flushed"
        return [lost for lost in older if self._lost(lost, why)]

    def gone(self, key: bytes, sent: float) -> Tenure | None:
        """The server answered a question sent at local time ``sent``: there is no such key. The lease that is lost with it, to
        be reported; None where it was taken later, or is being given back."""
        tenure = self._holders.get(key)
        if tenure is None or tenure.since >= sent:
            return None
        return self._lost(tenure, "its key is gone: expired, deleted or flushed")

    def _lost(self, tenure: Tenure, why: str) -> Tenure | None:
        by = tenure.hint or self._hints.pop(tenure.token, "")
        if not tenure.lose(broken_by(by) if by else why):
            return None
        self.forget(tenure.token)
        return tenure

    def hinted(self, token: str, by: str, now: float) -> None:
        """Ask the server about a lease, because a message says by whom it was taken away. Until the server confirms that, it is
        believed in as before: anybody may have sent the message. At most one question in `QUESTION_EVERY` seconds."""
        tenure = self.get(token)
        if tenure is not None:
            tenure.hint = by
            self.question(tenure, now)
            return
        self._hints[token] = by
        if len(self._hints) > EARLY:
            del self._hints[next(iter(self._hints))]

    def question(self, tenure: Tenure, now: float) -> float:
        """Renew a lease early, to learn whether the server knows it still; answers when that is due (local seconds)."""
        tenure.question_at = min(tenure.question_at, max(now, tenure.questioned_at + QUESTION_EVERY))
        return self.watch(tenure)

    def forget(self, token: str) -> None:
        number = self._where.pop(token, None)
        if number is None:
            return
        tenure = self._slots.get(number, {}).pop(token, None)
        if tenure is None:
            return
        key = tenure.spec.keys[0]
        if self._holders.get(key) is tenure:
            self._holders.pop(key, None)
        sharers = self._sharers.get(key)
        if sharers is not None:
            sharers.pop(token, None)
            if not sharers:
                self._sharers.pop(key, None)

    def next_at(self) -> float:
        """When `due` has something to do, at the earliest (local seconds; infinity: never)."""
        while self._numbers:
            number = self._numbers[0]
            if self._slots.get(number):
                return self._first[number]
            self._slots.pop(number, None)
            self._first.pop(number, None)
            heapq.heappop(self._numbers)
        return INFINITY

    def due(self, now: float) -> tuple[list[Renew], list[Tenure]]:
        """The renewals to send now in one batch, and the leases that are over: lost, each with its reason. If there is more to
        do, `next_at` is not later than now: others come between two batches."""
        renewals: list[Renew] = []
        lost: list[Tenure] = []
        while self.next_at() <= now and len(renewals) < BATCH:
            number = self._numbers[0]
            slot = self._slots[number]
            for tenure in list(slot.values()):
                at = tenure.wants_at
                if at > now and not tenure.over:
                    if at * GRID >= number + 1:
                        self.watch(tenure)  # its holder has checked in: or the others would have to wait for it
                    continue
                if len(renewals) == BATCH:
                    return renewals, lost
                self.forget(tenure.token)
                slot.pop(tenure.token, None)  # if an interrupt in the middle of `forget` has left it
                self._attend(tenure, now, renewals, lost)
            self._first[number] = min((tenure.wants_at for tenure in slot.values()), default=INFINITY)
        return renewals, lost

    def _attend(self, tenure: Tenure, now: float, renewals: list[Renew], lost: list[Tenure]) -> None:
        if tenure.over or tenure.lost:
            return
        if now >= tenure.good_until:
            if tenure.lose(tenure.why_over):
                lost.append(tenure)
            return
        if tenure.question_at <= now:
            tenure.question_at, tenure.questioned_at = INFINITY, now
        if tenure.spec.renew:
            ttl = min(tenure.ttl, tenure.ends_at - now)
            # It is looked at again when the next one is due: nearly always, the answer finds it in its place.
            tenure.renew_at = tenure.due_at(now + tenure.ttl * tenure.spec.renew_part)
        else:
            ttl = whole(tenure.deadline - now)  # only a question: its holder renews it, or nobody does
        renewals.append(Renew(tenure, ttl, tenure.asks(now, ttl)))
        self.watch(tenure)

    def on_answer(self, renewal: Renew, answer: int, sent: float, now: float) -> bool:
        """The server answered; False: the lease is lost."""
        tenure = renewal.tenure
        if tenure.over or tenure.lost:
            return True
        if answer == codes.NOT_NEWEST:
            return True  # overtaken by a renewal by hand, whose answer says how long the lease is
        if answer == 1 and now < tenure.deadline:
            tenure.hint = ""  # it was forged, or is about another lease
            tenure.renewed(renewal.made, sent, renewal.ttl)
            self.watch(tenure)
            return True
        self.forget(tenure.token)
        if answer == 1:
            # Read too late: it had ended. A late copy of our first request may have taken the lock again, after others.
            return not tenure.lose(tenure.why_over)
        if answer == codes.TAKEN_AWAY:
            return not tenure.lose(broken_by(tenure.hint) if tenure.hint else "it was taken away")
        return not tenure.lose(
            "somebody else's value is in its key"
            if answer == codes.NO_CLAIM
            else "its key is gone: expired, deleted or flushed"
        )

    def on_failed(self, renewal: Renew, now: float) -> None:
        """No answer: ask again soon, as long as the deadline allows."""
        tenure = renewal.tenure
        if tenure.token in self._where:
            if tenure.spec.renew:
                tenure.renew_at = tenure.due_at(now + max(0.05, tenure.ttl / 20))
            else:
                tenure.question_at = now + QUESTION_EVERY
            self.watch(tenure)
