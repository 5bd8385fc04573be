"""The renewals that one process sends to one server. `Renewing` is notified of events, and returns the renewals to send.

A lease is valid until its deadline. The deadline is the monotonic time at which the last confirmed request was sent, plus the
length of the lease, less the drift margin. If a renewal fails, the lease stays valid until its deadline. The lease is lost if
the deadline passes, or if the server replies that the key is gone or has another client's token. A renewal never acquires a
lock again, so a lost lease stays lost.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sized
from typing import Protocol

from holdfast._core.lock.records import INFINITY, HeldLease
from holdfast._core.lock.spec import GRID, Spec, answer_within, milliseconds, scripts, whole
from holdfast._core.requests import RunScript
from holdfast._core.retry import retry_idempotent
from holdfast._core.struct import NamedTuple
from holdfast._lua import codes

EARLY_HINTS_MAX = 100
"""Maximum number of messages to keep for tokens without a known lease. The lease may become known a moment later."""

QUESTION_EVERY_S = 1.0
"""Minimum seconds between two early renewals of a lease, which check whether the lease still exists.

Messages cause early renewals, and anybody may send such messages to flood the server. Waiting callers of this process cause
early renewals as well, and there may be thousands of such callers.
"""

CLAIM_LEFT_S = 0.7
"""Minimum seconds that are left of a claim window, the short lease of a hand-over, when the keeper wakes to renew the lease."""

BATCH = 100
"""Maximum number of leases that one script renews, because a longer script would block other clients of the server."""


def broken_by(whom: str) -> str:
    return f"it was broken by {whom}"


async def renew(spec: Spec, token: str, ttl: float, made: float) -> tuple[bool, float, bool]:
    """Renew the lease for ``ttl`` seconds.

    ``made``: monotonic time, in seconds, at which the renewal is requested; also its sequence number. Return whether the lease
    is still held, the monotonic time at which the request was sent, and whether the server recorded the sequence number. The
    time is minus infinity if the server had already carried out a later renewal. Raises WireError if the server is unreachable.
    """
    answer = await retry_idempotent(renewal(spec, token, ttl, made))
    (state,) = answer.value
    sent = float("-inf") if state == codes.NOT_NEWEST else answer.sent
    return state > 0, sent, state != codes.UNNUMBERED


def renewal(spec: Spec, token: str, ttl: float, made: float) -> RunScript[list[int]]:
    """Return the request that renews the lease for ``ttl`` seconds.

    ``made``: monotonic time, in seconds, at which the request is created; also its sequence number. If one renewal
    overtakes another, the server keeps the lease of the renewal with the higher number.
    """
    timeout = min(spec.timeout, answer_within(ttl))
    return RunScript(scripts(spec).renew, spec.keys, (token, milliseconds(ttl), int(made * 1e6)), timeout)


class Renew(NamedTuple):
    """A renewal to send, for a lease of ``ttl`` seconds.

    `Renewing.on_answer` gets the reply, or `Renewing.on_failed` is called.
    """

    held_lease: HeldLease
    ttl: float
    made: float


def renewals(batch: list[Renew]) -> RunScript[list[int]]:
    """Return one request for all these renewals. Plain locks and permits must not be mixed."""
    keys: list[bytes] = []
    args: list[str | int] = []
    for held_lease, ttl, made in batch:
        keys += held_lease.spec.keys
        args += held_lease.token, milliseconds(ttl), int(made * 1e6)
    timeout = min(renew.held_lease.spec.timeout for renew in batch)
    timeout = min(timeout, answer_within(min(renew.ttl for renew in batch)))
    return RunScript(scripts(batch[0].held_lease.spec).renew, tuple(keys), tuple(args), timeout)


class LeaseKeeper(Protocol):
    """The interface of the keeper (background thread) for the registration of a lease."""

    @property
    def wake_at(self) -> float:
        """Return the monotonic time, in seconds, at which the thread wakes next."""

    @property
    def looks(self) -> bool:
        """Return True while a check for leases that last for `LONG_S` (`_runtime.keeper.long_leases`) is scheduled."""

    @property
    def collected(self) -> Sized:
        """Return the references to garbage-collected owners of leases that the thread has not handled yet."""

    def attend(self, at: float) -> None:
        """Have the thread wake by monotonic time ``at``, in seconds, for a new lease. The caller holds the mutex.

        Also schedule the check for leases that last for `LONG_S`, unless it is scheduled (`looks`).
        """


class Registry(Protocol):
    """The interface of a node for the registration of a lease; see `_core.lock.node`."""

    renewing: Renewing

    @property
    def keeper(self) -> LeaseKeeper:
        """Return the keeper of the node."""

    @property
    def labels(self) -> Sized:
        """Return the labels that are written in the process record."""

    @property
    def record_at(self) -> float:
        """Return the monotonic time, in seconds, at which the process record is written next."""

    @property
    def records(self) -> Mapping[bytes, float]:
        """Return the monotonic time, in seconds, at which the process record of each prefix expires."""

    def want_record(self, now: float, prefix: bytes) -> None:
        """Have the process record for this prefix written soon."""

    def want_label(self, now: float, spec: Spec, label: str | None) -> None:
        """Have a new label of a lock written to the process record soon."""


def register(node: Registry, held_lease: HeldLease, now: float, *, hurry: bool = True) -> list[HeldLease]:
    """Renew a lease from monotonic time ``now`` on, until it is forgotten. The caller holds the mutex.

    The grant of this lease may prove that older leases are lost. Return these leases. The caller reports their loss after it
    has released the mutex. ``hurry``: True: wake the keeper (background thread) if it would sleep too long. False: do not
    wake it. A lease that was just handed over needs no wake-up, which would delay the holder: the keeper wakes in time.
    """
    spec, renewing, keeper = held_lease.spec, node.renewing, node.keeper
    known_until = node.records.get(spec.prefix, 0.0)
    if known_until <= now or known_until <= node.record_at:
        node.want_record(now, spec.prefix)
    if held_lease.label is not None or node.labels:
        node.want_label(now, spec, held_lease.label)
    outdated = renewing.outdated_by(held_lease) if spec.permits or spec.keys[0] in renewing.holders else []
    at = max(renewing.watch(held_lease), 0.0 if hurry else held_lease.deadline - CLAIM_LEFT_S)
    if at < keeper.wake_at or keeper.collected or not keeper.looks:
        keeper.attend(at)
    return outdated


class Renewing:
    """All leases of one process on one server, ordered by the time of their next renewal."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, HeldLease]] = {}
        self._numbers: list[int] = []
        """Heap of the numbers of the time slots that contain leases; a slot that has become empty may still be listed.

        The slot with number n contains leases to renew or check between n / `GRID` and (n + 1) / `GRID` seconds of monotonic
        time.
        """
        self._first: dict[int, float] = {}
        """For each time slot, the monotonic time, in seconds, at which its first lease must be renewed or checked.

        The time may be too early, never too late.
        """
        self._where: dict[str, int] = {}
        self.holders: dict[bytes, HeldLease] = {}
        """By key of a lock with a single holder: the latest lease of this lock that the server has granted to this process."""
        self._sharers: dict[bytes, dict[str, HeldLease]] = {}
        """Leases of read-write locks that this process holds, by key of the lock and token of the lease."""
        self._hints: dict[str, str] = {}
        """By token: name of the person who broke the lock, from a message that arrived before the lease was known here."""

    def __len__(self) -> int:
        return len(self._where)

    def get(self, token: str) -> HeldLease | None:
        return self._slots.get(self._where.get(token, -1), {}).get(token)

    def held_leases(self) -> list[HeldLease]:
        return [held_lease for slot in self._slots.values() for held_lease in slot.values()]

    def watch(self, held_lease: HeldLease) -> float:
        """Add a lease, or move it to the time slot of its next renewal.

        Return the monotonic time, in seconds, at which the lease must next be renewed or checked; infinity: never.
        """
        token = held_lease.token
        if held_lease.lost:
            return INFINITY
        if self._hints and token in self._hints:
            held_lease.hint, held_lease.question_at = self._hints.pop(token), 0.0
        at = held_lease.wants_at()
        number = int(at * GRID)
        slot: dict[str, HeldLease] | None = self._slots.get(number)
        if token in self._where:
            if self._where[token] == number and slot and token in slot:
                self._first[number] = min(self._first[number], at)
                return at
            self.forget(token)
        # An interrupt between these steps leaves an empty slot, which `next_at` removes. A signal handler that acquires a lock
        # here may have created the slot.
        if slot is None:
            heapq.heappush(self._numbers, number)
        self._first[number] = min(self._first.get(number, at), at)
        slot = self._slots.setdefault(number, {})
        self._where[token] = number
        slot[token] = held_lease
        if held_lease.spec.permits is None and held_lease.fence:
            self.holders[held_lease.spec.keys[0]] = held_lease
        elif held_lease.shares:
            self._sharers.setdefault(held_lease.spec.keys[0], {})[token] = held_lease
        return at

    def outdated_by(self, held_lease: HeldLease) -> list[HeldLease]:
        """Mark the older of two conflicting leases of one key as lost, and return the leases that were marked now.

        The server grants a key again only after the earlier lease has ended there. So if this process believes that it holds
        two leases of a key, the one with the lower fence is lost. That is ``held_lease`` if its reply was read late.
        Leases of a read-write lock conflict only if together they have more permits than exist.
        """
        key, permits = held_lease.spec.keys[0], held_lease.spec.permits
        if permits is None:
            other = self.holders.get(key)
            others = [] if other is None or not held_lease.fence else [other]
        else:
            sharers, limit = [*self._sharers.get(key, {}).values()], permits.limit or 0
            others = [other for other in sharers if other.shares + held_lease.shares > limit]
        older = [min(other, held_lease, key=lambda one: one.fence) for other in others if other.fence != held_lease.fence]
        why = "the server has granted its key again, so the key had expired, or was deleted or flushed"
        return [lost for lost in older if self._lost(lost, why)]

    def gone(self, key: bytes, sent: float) -> HeldLease | None:
        """Mark the lease of this key as lost, because a request sent at monotonic time ``sent`` found that the key is missing.

        Return the lease, whose owner the caller has to notify. Return None if there is no such lease, if it was granted after
        ``sent``, or if it is being released.
        """
        held_lease = self.holders.get(key)
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
        """Schedule an early renewal, because a message says that the person ``by`` broke the lock of this token.

        Anybody may have sent the message. So the lease stays valid until the server's reply confirms the loss. Such renewals
        are at least `QUESTION_EVERY_S` seconds apart.
        """
        held_lease = self.get(token)
        if held_lease is not None:
            held_lease.hint = by
            self.question(held_lease, now)
            return
        self._hints[token] = by
        if len(self._hints) > EARLY_HINTS_MAX:
            del self._hints[next(iter(self._hints))]

    def question(self, held_lease: HeldLease, now: float) -> float:
        """Schedule an early renewal of a lease, to learn whether the lease still exists on the server.

        Return the monotonic time, in seconds, at which the lease is next renewed or checked.
        """
        held_lease.question_at = min(held_lease.question_at, max(now, held_lease.questioned_at + QUESTION_EVERY_S))
        return self.watch(held_lease)

    def forget(self, token: str) -> None:
        number = self._where.pop(token, None)
        held_lease = None if number is None else self._slots.get(number, {}).pop(token, None)
        if held_lease is None:
            return
        key = held_lease.spec.keys[0]
        if self.holders.get(key) is held_lease:
            self.holders.pop(key, None)
        sharers = self._sharers.get(key)
        if sharers is not None:
            sharers.pop(token, None)
            if not sharers:
                self._sharers.pop(key, None)

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which `due` must be called next; infinity: there is no lease."""
        while self._numbers:
            number = self._numbers[0]
            if self._slots.get(number):
                return self._first[number]
            self._slots.pop(number, None)
            self._first.pop(number, None)
            heapq.heappop(self._numbers)
        return INFINITY

    def due(self, now: float) -> tuple[list[Renew], list[HeldLease]]:
        """Return up to `BATCH` renewals to send now, and the leases that have ended, which are marked as lost.

        If more renewals are due, `next_at` returns a time that is not later than ``now``, so that the caller can do other work
        first.
        """
        renewals: list[Renew] = []
        lost: list[HeldLease] = []
        while self.next_at() <= now and len(renewals) < BATCH:
            number = self._numbers[0]
            slot = self._slots[number]
            for held_lease in list(slot.values()):
                at = held_lease.wants_at()
                if at > now and not held_lease.over:
                    if at * GRID >= number + 1:
                        self.watch(held_lease)  # its holder reported progress; here it would delay the slot's other leases
                    continue
                if len(renewals) == BATCH:
                    return renewals, lost
                self.forget(held_lease.token)
                slot.pop(held_lease.token, None)  # an interrupt in the middle of `forget` may have left it
                self._attend(held_lease, now, renewals, lost)
            self._first[number] = min((held_lease.wants_at() for held_lease in slot.values()), default=INFINITY)
        return renewals, lost

    def _attend(self, held_lease: HeldLease, now: float, renewals: list[Renew], lost: list[HeldLease]) -> None:
        if held_lease.over or held_lease.lost:
            return
        if not held_lease.is_good(now):
            if held_lease.lose(held_lease.why_over):
                lost.append(held_lease)
            return
        if held_lease.question_at <= now:
            held_lease.question_at, held_lease.questioned_at = INFINITY, now
        if held_lease.spec.renew:
            ttl = min(held_lease.ttl, held_lease.ends_at - now)
            # Place the lease in the slot of its next renewal now, so that the reply to this one hardly ever has to move it.
            held_lease.renew_at = held_lease.due_at(now + held_lease.ttl * held_lease.spec.renew_part)
        else:
            ttl = whole(held_lease.deadline - now)  # keeps the deadline as it is, because only the holder may extend this lease
        renewals.append(Renew(held_lease, ttl, held_lease.note_request(now, ttl)))
        self.watch(held_lease)

    def on_answer(self, renewal: Renew, answer: int, sent: float, now: float) -> bool:
        """Handle the server's reply to a renewal. Return False if the lease is lost and the caller has to notify its owner."""
        held_lease = renewal.held_lease
        if held_lease.over or held_lease.lost:
            return True
        if answer == codes.NOT_NEWEST:
            return True  # overtaken by a renewal that the user called, whose reply says how long the lease is
        kept = answer in {1, codes.UNNUMBERED}
        if kept and now < held_lease.deadline:
            held_lease.hint = ""  # the message was forged, or was about another lease
            held_lease.renewed(renewal.made, sent, renewal.ttl, numbered=answer == 1)
            self.watch(held_lease)
            return True
        self.forget(held_lease.token)
        if kept:
            # The reply was read after the end of the lease. A late copy of the first request may have acquired the lock again,
            # after other holders.
            return not held_lease.lose(held_lease.why_over)
        if answer == codes.TAKEN_AWAY:
            return not held_lease.lose(broken_by(held_lease.hint) if held_lease.hint else "another client broke the lock")
        return not held_lease.lose(
            "its key has the value of another client"
            if answer == codes.NO_CLAIM
            else "its key is gone: expired, deleted or flushed"
        )

    def on_failed(self, renewal: Renew, now: float) -> None:
        """Schedule another renewal of a lease soon, because this renewal failed or got no reply."""
        held_lease = renewal.held_lease
        if held_lease.token in self._where:
            if held_lease.spec.renew:
                held_lease.renew_at = held_lease.due_at(now + max(0.05, held_lease.ttl / 20))
            else:
                held_lease.question_at = now + QUESTION_EVERY_S
            self.watch(held_lease)
