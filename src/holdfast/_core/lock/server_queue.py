"""The waiters of one process on one server: a state object that is notified of events and returns the requests to send.

Hand-over messages may get lost or be forged, so waiters rely on the refresh: one script for all waiters. It is sent once a
second, when a reported lease ends, and after each (re)subscription of the inbox (the channel for messages to this process).

A hand-over message is accepted without asking the server only inside the claim window. The window is counted from the time at
which the last request that was answered "waiting" was SENT: the server cannot have granted the lock before. A grant whose fence
is not higher than the last one seen is old, and ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from holdfast._core.lock.records import Attempt, Waiter, margin, milliseconds, scripts
from holdfast._core.lock.replies import CLAIM_WINDOW_S, Busy, Held, Reply
from holdfast._core.requests import Answer, Conflict, Down, Gone, Granted, Outcome, Refused, Run, TimedOut, WireError
from holdfast._core.struct import Struct

INFINITY = float("inf")

REFRESH_EVERY_S = 1.0
"""Seconds between two refreshes of the waiters of a process: a third of the time for which an entry counts on the server."""

SOONEST_S = 0.01
"""Minimum seconds from one reply to the next refresh of the same waiter."""

USABLE_LEFT_S = 0.5
"""Seconds of the claim window that must be left for a hand-over message to be accepted without asking the server."""

BATCH = 100
"""Maximum number of waiters in one refresh script; a longer script would block the server's other clients."""

REMEMBERED = 1000
"""Maximum number of ended attempts that are remembered, so that a late grant for one of them is handed over at once."""


class SlotMoved(WireError):
    """Raised if a lock's Cluster slot has left the server of the process's inbox; the wait begins again with another inbox."""


class Refresh(Struct):
    """A refresh to send for these waiters; its result goes to `Waiting.on_refreshed` or `Waiting.on_failed`."""

    __slots__ = __match_args__ = ("batch",)

    def __init__(self, batch: list[Waiter]) -> None:
        self.batch = batch


def refreshment(batch: list[Waiter], channel: bytes, timeout: float) -> Run[tuple[bool, list[Reply]]]:
    """Return one refresh request for waiters that share an inbox channel, a sort of lock, and the ``quarantine=`` option."""
    spec = batch[0].attempt.spec
    keys = [key for waiter in batch for key in waiter.attempt.spec.keys]
    args: list[bytes | str | int] = [channel]
    for waiter in batch:
        args += waiter.attempt.token, milliseconds(waiter.requested_ttl)
    return Run(scripts(spec).refresh, (*keys, *spec.granting[3:]), (*args, *spec.guarded), timeout)


class Waiting:
    """All waiters of one process on one server."""

    def __init__(self) -> None:
        self._waiters: dict[str, Waiter] = {}
        self._departed: OrderedDict[str, Attempt] = OrderedDict()
        self._handed_on: dict[str, float] = {}
        """Monotonic time, in seconds, at which a late grant for an ended attempt was last handed over, by token."""
        self.round_at = INFINITY
        """Monotonic time, in seconds, of the next refresh of all waiters."""
        self._listening: set[bytes] = set()
        """Prefixes whose inboxes are subscribed."""
        self._numbers: dict[bytes, int] = {}
        """Number of times that the inbox of each prefix was subscribed so far."""
        self._prefixes: set[bytes] = set()
        """Prefixes of the waiters. The prefixes of former waiters are removed only when there is no waiter."""

    def __len__(self) -> int:
        return len(self._waiters)

    def abandoned(self) -> list[Waiter]:
        """Return the waiters whose event loop was closed while they waited."""
        return [w for w in self._waiters.values() if w.attempt.slot is not None and w.attempt.slot.gone()]

    def is_waiting(self, waiter: Waiter) -> bool:
        """Return True if the waiter has a position in the server's queue and its wait has not ended."""
        return self._waiters.get(waiter.attempt.token) is waiter and waiter.told is not None

    def get(self, token: str) -> Waiter | None:
        return self._waiters.get(token)

    def waiters(self) -> list[Waiter]:
        return list(self._waiters.values())

    @property
    def timeout(self) -> float:
        """Return the timeout for a reply, in seconds, that is short enough for every waiter."""
        return min((w.attempt.spec.timeout for w in self._waiters.values()), default=1.0)

    def listens(self, prefix: bytes) -> bool:
        """Return whether the inbox of this prefix is subscribed."""
        return prefix in self._listening

    @property
    def listening(self) -> bool:
        """Return whether the inbox of any prefix is subscribed."""
        return bool(self._listening)

    def subscription(self, prefix: bytes) -> int:
        """Return the number of times that the inbox of this prefix was subscribed so far."""
        return self._numbers.get(prefix, 0)

    def prefixes(self) -> Collection[bytes]:
        """Return the prefixes whose inboxes the waiters need, and perhaps prefixes of former waiters."""
        return self._prefixes if self._waiters else ()

    def register_waiter(self, waiter: Waiter, now: float) -> bool:
        """Register a waiter.

        Return True if its inbox is subscribed; otherwise its slot gets None once the inbox is subscribed.
        """
        token, prefix = waiter.attempt.token, waiter.attempt.spec.prefix
        listens = prefix in self._listening
        waiter.last_contact = now
        waiter.awaits_inbox = not listens
        waiter.asked_under = self.subscription(prefix)
        if not self._waiters:
            self._prefixes = set()
        self._prefixes.add(prefix)
        self._waiters[token] = waiter
        return listens

    def unregister_waiter(self, waiter: Waiter) -> None:
        """Remove a waiter whose wait has ended, and remember its attempt for late grants."""
        token = waiter.attempt.token
        if self._waiters.pop(token, None) is not None:
            self._departed[token] = waiter.attempt
            if len(self._departed) > REMEMBERED:
                self._handed_on.pop(self._departed.popitem(last=False)[0], None)

    def joined(self, waiter: Waiter, answer: Answer[Reply], now: float) -> None:
        """Note the server's reply that this waiter is in the server's queue."""
        assert isinstance(answer.value, Busy)
        self._waiting(waiter, answer.value, answer.sent, now)
        if waiter.hint > answer.value.last_fence:
            # The hand-over message for this waiter arrived before the reply that put it into the queue.
            self.on_message(waiter.attempt.token, waiter.hint, now)

    def _waiting(self, waiter: Waiter, busy: Busy, sent: float, now: float) -> None:
        waiter.told = sent
        waiter.busy = busy
        waiter.last_contact = now
        waiter.down = None
        # Counted from the reply, to be never too early: a refresh just before the lease ends would be wasted.
        waiter.refresh_at = INFINITY if busy.remaining is None else now + max(busy.remaining + 0.002, SOONEST_S)
        if waiter.asked_under != self.subscription(waiter.attempt.spec.prefix):
            waiter.refresh_at = now  # the inbox was not subscribed meanwhile: a message may have been missed
        if not now <= self.round_at <= now + REFRESH_EVERY_S:
            self.round_at = now + REFRESH_EVERY_S

    def on_message(self, token: str, fence: int, now: float) -> Run[int] | None:
        """Handle a hand-over message.

        Return a request that hands the lock over to the next client, if the attempt named in the message has ended; otherwise
        None.
        """
        waiter = self._waiters.get(token)
        if waiter is None:
            attempt = self._departed.get(token)
            if attempt is None or (attempt.token == token and attempt.may_be_on_server):
                return None  # an attempt of another process; or one that learnt of its grant from a reply
            if now < self._handed_on.get(token, -INFINITY) + REFRESH_EVERY_S:
                return None  # a copy of the message, or a forged one: its sender could flood the server
            self._handed_on[token] = now
            spec = attempt.spec
            return Run(scripts(spec).release, spec.granting, (token, "leave", *spec.guarded), spec.timeout)
        if waiter.told is None:
            waiter.hint = max(waiter.hint, fence)
        elif fence > waiter.busy.last_fence:
            deadline = waiter.told + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S)
            if deadline - now >= USABLE_LEFT_S:
                self._settle(waiter, Granted(fence, deadline, in_claim_window=True))
            elif now >= waiter.hinted_at + REFRESH_EVERY_S:  # at most once a second, because anybody may have sent the message
                waiter.hinted_at = waiter.refresh_at = now
        return None

    def on_listening(self, now: float, prefix: bytes) -> None:
        """Note that the inbox of this prefix is subscribed (again).

        Its waiters may have missed messages, and are refreshed at once.
        """
        self._listening.add(prefix)
        self._numbers[prefix] = number = self.subscription(prefix) + 1
        for waiter in self._told_by(prefix):
            waiter.down = None
            if waiter.told is not None:
                waiter.refresh_at = now
            elif waiter.awaits_inbox:
                waiter.awaits_inbox = False
                waiter.asked_under = number
                waiter.put(None)

    def on_silence(self) -> None:
        """Note that all inboxes lost their subscription. Waiters are still refreshed."""
        self._listening.clear()

    def _told_by(self, prefix: bytes) -> list[Waiter]:
        return [waiter for waiter in self._waiters.values() if waiter.attempt.spec.prefix == prefix]

    def on_unreachable(self, error: WireError, now: float, prefix: bytes) -> None:
        """Note that the inbox of this prefix cannot be subscribed.

        Waiters that are not queued yet fail after their outage budget.
        """
        for waiter in self._told_by(prefix):
            waiter.down = error
            forbidden = isinstance(error, Refused) and not error.transient
            if waiter.told is None and (forbidden or now - waiter.last_contact > waiter.attempt.outage_budget):
                self._settle(waiter, Down(error))

    def due(self, now: float) -> list[Refresh]:
        """Return the refreshes to send now: of all waiters once a second, and of a waiter when the lease that it waits for
        ends."""
        # The driver ends the wait itself, but its timer stops while the machine sleeps, so the timeout may be seen here first.
        # The place stays until the driver has seen it, too: another attempt of this process may inherit the place.
        for waiter in self._waiters.values():
            if waiter.attempt.until is not None and now >= waiter.attempt.until and not waiter.late:
                waiter.late = True
                waiter.put(TimedOut())
        batch = [w for w in self._waiters.values() if w.told is not None and not w.in_flight]
        if now >= self.round_at:
            self.round_at = now + REFRESH_EVERY_S if batch else INFINITY
        else:
            batch = [waiter for waiter in batch if waiter.refresh_at <= now]
        for waiter in batch:
            waiter.in_flight = True
            waiter.requested_ttl = waiter.attempt.spec.first_ttl
            waiter.asked_under = self.subscription(waiter.attempt.spec.prefix)
        alike: dict[tuple[object, float, bytes], list[Waiter]] = {}
        for waiter in batch:  # one request is one script, with one quarantine and one inbox
            spec = waiter.attempt.spec
            alike.setdefault((scripts(spec), spec.guard, spec.prefix), []).append(waiter)
        return [Refresh(part[i : i + BATCH]) for part in alike.values() for i in range(0, len(part), BATCH)]

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which `due` next returns a refresh; infinity: never."""
        expiries = [w.refresh_at for w in self._waiters.values() if w.told is not None and not w.in_flight]
        return min(self.round_at, *expiries) if expiries else INFINITY

    def on_refreshed(self, batch: Iterable[Waiter], replies: list[Reply], sent: float, now: float) -> None:
        for waiter, reply in zip(batch, replies, strict=True):
            waiter.in_flight = False
            if self._waiters.get(waiter.attempt.token) is not waiter:
                continue
            wanted = waiter.attempt.spec.first_ttl
            ttl = min(waiter.requested_ttl, wanted)
            deadline = sent + ttl - margin(ttl)
            match reply:
                case Held(fence) if deadline > now:
                    # If another attempt has inherited the place since, the server may have granted less than that one wants:
                    # as after a hand-over, the lease is short until it is renewed.
                    self._settle(waiter, Granted(fence, deadline, in_claim_window=ttl < wanted))
                case Held():
                    waiter.refresh_at = now  # the reply came so late that the lease may be over: ask again
                case Busy():
                    self._waiting(waiter, reply, sent, now)
                case Gone() | Conflict():
                    self._settle(waiter, reply)

    def on_failed(self, batch: Iterable[Waiter], error: WireError, now: float) -> None:
        """Note that a refresh got no reply; the waiters are refreshed again soon."""
        for waiter in batch:
            waiter.in_flight = False
            waiter.down = error
            waiter.refresh_at = now + min(REFRESH_EVERY_S, max(0.05, now - waiter.last_contact))
            if now - waiter.last_contact > waiter.attempt.outage_budget and self._waiters.get(waiter.attempt.token) is waiter:
                self._settle(waiter, Down(error))

    def close(self, error: Exception, waiters: Iterable[Waiter] | None = None) -> None:
        """End the wait of ``waiters`` (None: all) with ``error``, for example because this process stops or gets no
        messages."""
        for waiter in list(self._waiters.values()) if waiters is None else waiters:
            self._settle(waiter, Down(error))

    def end(self, waiter: Waiter, error: Exception) -> None:
        """End a wait with ``error``.

        The queue position is kept until the driver has seen the error, so that another attempt can inherit the position.
        """
        waiter.late = True
        waiter.put(Down(error))

    def _settle(self, waiter: Waiter, outcome: Outcome) -> None:
        self.unregister_waiter(waiter)
        waiter.put(outcome)
