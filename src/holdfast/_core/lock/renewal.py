"""Which leases of this process to renew when, on one server: a state object, told what happens, answering what to do.

A lease is good until its local deadline: the send time of the last confirmed request, plus the lease, less the drift
allowance. One failed renewal loses nothing; the deadline does, and so does the server saying that the lock is not ours.
A lost lock stays lost: renewal never creates one.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from holdfast._core.lock.records import GRID, INFINITY, HeldLease, Spec, answer_within, milliseconds, scripts, whole
from holdfast._core.requests import Run
from holdfast._core.retry import retry_idempotent
from holdfast._lua import codes

EARLY_HINTS_MAX = 100
"""Tokens remembered of which we were told something before we knew what they hold."""

QUESTION_EVERY_S = 1.0
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
    """Return the request for a lease of ``ttl`` seconds, made at local time ``made``, by hand or by the keeper.

    Its time is its number: of two that overtake each other, or come late, the server goes by the one that was made later.
    """
    timeout = min(spec.timeout, answer_within(ttl))
    return Run(scripts(spec).renew, spec.keys, (token, milliseconds(ttl), int(made * 1e6)), timeout)


class Renew(NamedTuple):
    """To do: ask for ``ttl`` seconds; then `Renewing.on_answer` or `Renewing.on_failed`."""

    held_lease: HeldLease
    ttl: float
    made: float


def renewals(batch: list[Renew]) -> Run[list[int]]:
    """One request for all of these, which are of one sort. As in `renewal`, the time at which each was made is its number."""
    keys: list[bytes] = []
    args: list[str | int] = []
    for held_lease, ttl, made in batch:
        keys += held_lease.spec.keys
        args += held_lease.token, milliseconds(ttl), int(made * 1e6)
    timeout = min(renew.held_lease.spec.timeout for renew in batch)
    timeout = min(timeout, answer_within(min(renew.ttl for renew in batch)))
    return Run(scripts(batch[0].held_lease.spec).renew, tuple(keys), tuple(args), timeout)


class Renewing:
    """All leases of one process on one server."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, HeldLease]] = {}
        self._numbers: list[int] = []
        """Of the slots, as a heap; perhaps of some more, that are gone."""
        self._first: dict[int, float] = {}
        """For each slot, when the first in it wants attention, or earlier."""
        self._where: dict[str, int] = {}
        self._holders: dict[bytes, HeldLease] = {}
        """Of each key that only one can hold, the lease of it here that was granted last."""
        self._sharers: dict[bytes, dict[str, HeldLease]] = {}
        """Of each key of so many permits, the leases of them here, by token."""
        self._hints: dict[str, str] = {}
        """Tokens from which something was taken away, as messages said before we knew what they hold, and by whom."""

    def __len__(self) -> int:
        return len(self._where)

    def get(self, token: str) -> HeldLease | None:
        """The lease that this token holds."""
        return self._slots.get(self._where.get(token, -1), {}).get(token)

    def held_leases(self) -> list[HeldLease]:
        return [held_lease for slot in self._slots.values() for held_lease in slot.values()]

    def watch(self, held_lease: HeldLease) -> float:
        """Look after a lease, or look at it anew; answers when it wants attention (local seconds)."""
        token = held_lease.token
        if held_lease.lost:
            return INFINITY
        if self._hints and token in self._hints:
            held_lease.hint, held_lease.question_at = self._hints.pop(token), 0.0
        at = held_lease.wants_at
        number = int(at * GRID)
        slot: dict[str, HeldLease] | None = self._slots.get(number)
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
        slot[token] = held_lease
        if held_lease.spec.permits is None and held_lease.fence:
            self._holders[held_lease.spec.keys[0]] = held_lease
        elif held_lease.shares:
            self._sharers.setdefault(held_lease.spec.keys[0], {})[token] = held_lease
        return at

    def outdated_by(self, held_lease: HeldLease) -> list[HeldLease]:
        """The leases that are lost by a new one of the same key, to be reported before the new one is used. The server grants
        a key again only after the earlier lease is over there: of two that are believed here, that with the lower fence is
        lost. That may be the new one, whose answer was read late. So it is with readers and writers."""
        key, permits = held_lease.spec.keys[0], held_lease.spec.permits
        if permits is None:
            other = self._holders.get(key)
            others = [] if other is None or not held_lease.fence else [other]
        else:
            sharers, limit = [*self._sharers.get(key, {}).values()], permits.limit or 0
            others = [other for other in sharers if other.shares + held_lease.shares > limit]
        older = [min(other, held_lease, key=lambda one: one.fence) for other in others if other.fence != held_lease.fence]
        why = "the server has granted its key again, so it was expired, deleted or flushed"
        return [lost for lost in older if self._lost(lost, why)]

    def gone(self, key: bytes, sent: float) -> HeldLease | None:
        """The server answered a question sent at local time ``sent``: there is no such key. The lease that is lost with it, to
        be reported; None where it was taken later, or is being given back."""
        held_lease = self._holders.get(key)
        if held_lease is None or held_lease.since >= sent:
            return None
        return self._lost(held_lease, "its key is gone: expired, deleted or flushed")

    def _lost(self, held_lease: HeldLease, why: str) -> HeldLease | None:
        by = held_lease.hint or self._hints.pop(held_lease.token, "")
        if not held_lease.lose(broken_by(by) if by else why):
            return None
        self.forget(held_lease.token)
        return held_lease

    def hinted(self, token: str, by: str, now: float) -> None:
        """Ask the server about a lease, because a message says by whom it was taken away. Until the server confirms that, it is
        believed in as before: anybody may have sent the message. At most one question in `QUESTION_EVERY_S` seconds."""
        held_lease = self.get(token)
        if held_lease is not None:
            held_lease.hint = by
            self.question(held_lease, now)
            return
        self._hints[token] = by
        if len(self._hints) > EARLY_HINTS_MAX:
            del self._hints[next(iter(self._hints))]

    def question(self, held_lease: HeldLease, now: float) -> float:
        """Renew a lease early, to learn whether the server knows it still; answers when that is due (local seconds)."""
        held_lease.question_at = min(held_lease.question_at, max(now, held_lease.questioned_at + QUESTION_EVERY_S))
        return self.watch(held_lease)

    def forget(self, token: str) -> None:
        number = self._where.pop(token, None)
        if number is None:
            return
        held_lease = self._slots.get(number, {}).pop(token, None)
        if held_lease is None:
            return
        key = held_lease.spec.keys[0]
        if self._holders.get(key) is held_lease:
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

    def due(self, now: float) -> tuple[list[Renew], list[HeldLease]]:
        """The renewals to send now in one batch, and the leases that are over: lost, each with its reason. If there is more to
        do, `next_at` is not later than now: others come between two batches."""
        renewals: list[Renew] = []
        lost: list[HeldLease] = []
        while self.next_at() <= now and len(renewals) < BATCH:
            number = self._numbers[0]
            slot = self._slots[number]
            for held_lease in list(slot.values()):
                at = held_lease.wants_at
                if at > now and not held_lease.over:
                    if at * GRID >= number + 1:
                        self.watch(held_lease)  # its holder has checked in: or the others would have to wait for it
                    continue
                if len(renewals) == BATCH:
                    return renewals, lost
                self.forget(held_lease.token)
                slot.pop(held_lease.token, None)  # if an interrupt in the middle of `forget` has left it
                self._attend(held_lease, now, renewals, lost)
            self._first[number] = min((held_lease.wants_at for held_lease in slot.values()), default=INFINITY)
        return renewals, lost

    def _attend(self, held_lease: HeldLease, now: float, renewals: list[Renew], lost: list[HeldLease]) -> None:
        if held_lease.over or held_lease.lost:
            return
        if now >= held_lease.good_until:
            if held_lease.lose(held_lease.why_over):
                lost.append(held_lease)
            return
        if held_lease.question_at <= now:
            held_lease.question_at, held_lease.questioned_at = INFINITY, now
        if held_lease.spec.renew:
            ttl = min(held_lease.ttl, held_lease.ends_at - now)
            # It is looked at again when the next one is due: nearly always, the answer finds it in its place.
            held_lease.renew_at = held_lease.due_at(now + held_lease.ttl * held_lease.spec.renew_part)
        else:
            ttl = whole(held_lease.deadline - now)  # only a question: its holder renews it, or nobody does
        renewals.append(Renew(held_lease, ttl, held_lease.note_request(now, ttl)))
        self.watch(held_lease)

    def on_answer(self, renewal: Renew, answer: int, sent: float, now: float) -> bool:
        """The server answered; False: the lease is lost."""
        held_lease = renewal.held_lease
        if held_lease.over or held_lease.lost:
            return True
        if answer == codes.NOT_NEWEST:
            return True  # overtaken by a renewal by hand, whose answer says how long the lease is
        if answer == 1 and now < held_lease.deadline:
            held_lease.hint = ""  # it was forged, or is about another lease
            held_lease.renewed(renewal.made, sent, renewal.ttl)
            self.watch(held_lease)
            return True
        self.forget(held_lease.token)
        if answer == 1:
            # Read too late: it had ended. A late copy of our first request may have taken the lock again, after others.
            return not held_lease.lose(held_lease.why_over)
        if answer == codes.TAKEN_AWAY:
            return not held_lease.lose(broken_by(held_lease.hint) if held_lease.hint else "it was taken away")
        return not held_lease.lose(
            "somebody else's value is in its key"
            if answer == codes.NO_CLAIM
            else "its key is gone: expired, deleted or flushed"
        )

    def on_failed(self, renewal: Renew, now: float) -> None:
        """No answer: ask again soon, as long as the deadline allows."""
        held_lease = renewal.held_lease
        if held_lease.token in self._where:
            if held_lease.spec.renew:
                held_lease.renew_at = held_lease.due_at(now + max(0.05, held_lease.ttl / 20))
            else:
                held_lease.question_at = now + QUESTION_EVERY_S
            self.watch(held_lease)
