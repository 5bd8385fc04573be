"""The waiters of this process on one server: a state object that is told what happened, and answers what to do.

Messages are hints. The refresh is what counts: one script for all waiters, at most one a second, plus one when a lease that was
reported ends, plus one at once after every (re)subscription. A hand-over is believed without asking again only
inside the claim window counted from the SEND time of the last answer that said "waiting": the server cannot have granted
before that. A grant whose fence is not greater than the last one seen is old, and ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from holdfast._core.lock.records import Attempt, Waiter, margin, scripts
from holdfast._core.lock.replies import CLAIM_WINDOW_S, Busy, Held, Reply
from holdfast._core.requests import Answer, Conflict, Down, Gone, Granted, Outcome, Refused, Run, TimedOut, WireError
from holdfast._core.struct import Struct

INFINITY = float("inf")

REFRESH_EVERY_S = 1.0
"""Seconds between two signs of life of a waiting process; a third of what a place counts on the server."""

SOONEST_S = 0.01
"""Seconds from one answer to the next question, at least."""

USABLE_LEFT_S = 0.5
"""Seconds of the claim window that must be left for a grant to be used without asking again."""

BATCH = 100
"""Waiters in one refresh script: a run is kept short, so that the server serves others in between."""

REMEMBERED = 1000
"""Attempts that ended lately: a grant that still comes for one that was given up is handed on at once."""


class SlotMoved(WireError):
    """In a Cluster: the lock is on another server now than the inbox under whose name we wait. Wait under another one."""


class Refresh(Struct):
    """To do: one refresh script for these waiters; then `Waiting.on_refreshed` or `Waiting.on_failed`."""

    __slots__ = __match_args__ = ("batch",)

    def __init__(self, batch: list[Waiter]) -> None:
        self.batch = batch


def refreshment(batch: list[Waiter], channel: bytes, timeout: float) -> Run[tuple[bool, list[Reply]]]:
    """One request for all of these, whom one channel tells. Their locks are of one sort, and have the same ``guard``, or none
    has any."""
    spec = batch[0].attempt.spec
    keys = [key for waiter in batch for key in waiter.attempt.spec.keys]
    args: list[bytes | str | int] = [channel]
    for waiter in batch:
        args += waiter.attempt.token, waiter.attempt.spec.first_ms
    return Run(scripts(spec).refresh, (*keys, *spec.granting[3:]), (*args, *spec.guarded), timeout)


class Waiting:
    """All waiters of one process on one server."""

    def __init__(self) -> None:
        self._waiters: dict[str, Waiter] = {}
        self._departed: OrderedDict[str, Attempt] = OrderedDict()
        self._handed_on: dict[str, float] = {}
        """When a grant for one of these was handed on last (local seconds)."""
        self.round_at = INFINITY
        """When all waiters are refreshed next."""
        self._listening: set[bytes] = set()
        """The prefixes whose inboxes are subscribed."""
        self._numbers: dict[bytes, int] = {}
        """How often the inbox of a prefix was subscribed."""
        self._prefixes: set[bytes] = set()
        """Prefixes of the waiters. Prefixes of former waiters are removed when the last waiter has gone."""

    def __len__(self) -> int:
        return len(self._waiters)

    def abandoned(self) -> list[Waiter]:
        """Those behind whom nobody is any more."""
        return [w for w in self._waiters.values() if w.attempt.slot is not None and w.attempt.slot.gone()]

    def is_waiting(self, waiter: Waiter) -> bool:
        """It waits still: nothing has become of it."""
        return self._waiters.get(waiter.attempt.token) is waiter and waiter.told is not None

    def get(self, token: str) -> Waiter | None:
        return self._waiters.get(token)

    def waiters(self) -> list[Waiter]:
        return list(self._waiters.values())

    @property
    def timeout(self) -> float:
        """Longest wait for an answer that suits all waiters, in seconds."""
        return min((w.attempt.spec.timeout for w in self._waiters.values()), default=1.0)

    def listens(self, prefix: bytes) -> bool:
        """Whether the inbox of this prefix is subscribed."""
        return prefix in self._listening

    @property
    def listening(self) -> bool:
        """Whether any inbox is."""
        return bool(self._listening)

    def subscription(self, prefix: bytes) -> int:
        """How often the inbox of this prefix was subscribed."""
        return self._numbers.get(prefix, 0)

    def prefixes(self) -> Collection[bytes]:
        """The prefixes whose inboxes tell those who wait; perhaps some more."""
        return self._prefixes if self._waiters else ()

    def register_waiter(self, waiter: Waiter, now: float) -> bool:
        """Make a waiter known. True if its inbox listens; else the slot gets None once it does."""
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
        """This waiter waits no more."""
        token = waiter.attempt.token
        if self._waiters.pop(token, None) is not None:
            self._departed[token] = waiter.attempt
            if len(self._departed) > REMEMBERED:
                self._handed_on.pop(self._departed.popitem(last=False)[0], None)

    def joined(self, waiter: Waiter, answer: Answer[Reply], now: float) -> None:
        """The server said that this waiter is in its queue."""
        assert isinstance(answer.value, Busy)
        self._waiting(waiter, answer.value, answer.sent, now)
        if waiter.hint > answer.value.last_fence:
            # The message of our hand-over overtook the answer that put us into the queue.
            self.on_message(waiter.attempt.token, waiter.hint, now)

    def _waiting(self, waiter: Waiter, busy: Busy, sent: float, now: float) -> None:
        waiter.told = sent
        waiter.busy = busy
        waiter.last_contact = now
        waiter.down = None
        # Counted from the answer, never too early: asking a moment before the lease ends would only ask twice.
        waiter.refresh_at = INFINITY if busy.remaining is None else now + max(busy.remaining + 0.002, SOONEST_S)
        if waiter.asked_under != self.subscription(waiter.attempt.spec.prefix):
            waiter.refresh_at = now  # the inbox was away while this was asked: a message may have been missed
        if not now <= self.round_at <= now + REFRESH_EVERY_S:
            self.round_at = now + REFRESH_EVERY_S

    def on_message(self, token: str, fence: int, now: float) -> Run[int] | None:
        """A hand-over was published for this token. Perhaps to do: hand on what nobody here waits for any more."""
        waiter = self._waiters.get(token)
        if waiter is None:
            attempt = self._departed.get(token)
            if attempt is None or (attempt.token == token and attempt.may_be_on_server):
                return None  # not one of ours; or one that learnt of its grant by asking
            if now < self._handed_on.get(token, -INFINITY) + REFRESH_EVERY_S:
                return None  # a copy, or forged: whoever can publish could flood the server
            self._handed_on[token] = now
            spec = attempt.spec
            return Run(scripts(spec).release, spec.granting, (token, "leave", *spec.guarded), spec.timeout)
        if waiter.told is None:
            waiter.hint = max(waiter.hint, fence)
        elif fence > waiter.busy.last_fence:
            deadline = waiter.told + CLAIM_WINDOW_S - margin(CLAIM_WINDOW_S)
            if deadline - now >= USABLE_LEFT_S:
                self._settle(waiter, Granted(fence, deadline, in_claim_window=True))
            elif now >= waiter.hinted_at + REFRESH_EVERY_S:  # else all are refreshed soon: anybody may have sent the message
                waiter.hinted_at = waiter.refresh_at = now
        return None

    def on_listening(self, now: float, prefix: bytes) -> None:
        """The inbox of this prefix is (again) subscribed: messages may have been missed, so those it tells ask at once."""
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
        """The inboxes are lost. The refresh goes on without them."""
        self._listening.clear()

    def _told_by(self, prefix: bytes) -> list[Waiter]:
        return [waiter for waiter in self._waiters.values() if waiter.attempt.spec.prefix == prefix]

    def on_unreachable(self, error: WireError, now: float, prefix: bytes) -> None:
        """The inbox of this prefix cannot be opened. A waiter without a place waits for one as long as its patience allows."""
        for waiter in self._told_by(prefix):
            waiter.down = error
            forbidden = isinstance(error, Refused) and not error.transient
            if waiter.told is None and (forbidden or now - waiter.last_contact > waiter.attempt.outage_budget):
                self._settle(waiter, Down(error))

    def due(self, now: float) -> list[Refresh]:
        """Return the refreshes to send now: all waiters once a second, and one when the lease that it waits for ends."""
        # A driver ends its wait itself, but its timer stands still while the machine sleeps: then we are the first to see. The
        # place stays until the driver has seen it too: somebody else of this process may inherit it.
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
            waiter.asked_under = self.subscription(waiter.attempt.spec.prefix)
        alike: dict[tuple[object, float, bytes], list[Waiter]] = {}
        for waiter in batch:  # one request is one script, and goes by one guard and one inbox
            spec = waiter.attempt.spec
            alike.setdefault((scripts(spec), spec.guard, spec.prefix), []).append(waiter)
        return [Refresh(part[i : i + BATCH]) for part in alike.values() for i in range(0, len(part), BATCH)]

    def next_at(self) -> float:
        """When `due` has something to send (local seconds; infinity: nothing to wait for)."""
        expiries = [w.refresh_at for w in self._waiters.values() if w.told is not None and not w.in_flight]
        return min(self.round_at, *expiries) if expiries else INFINITY

    def on_refreshed(self, batch: Iterable[Waiter], replies: list[Reply], sent: float, now: float) -> None:
        for waiter, reply in zip(batch, replies, strict=True):
            waiter.in_flight = False
            if self._waiters.get(waiter.attempt.token) is not waiter:
                continue
            ttl = waiter.attempt.spec.first_ttl
            match reply:
                case Held(fence) if sent + ttl - margin(ttl) > now:
                    self._settle(waiter, Granted(fence, sent + ttl - margin(ttl), in_claim_window=False))
                case Held():
                    waiter.refresh_at = now  # answered so late that the lease may be over: ask again
                case Busy():
                    self._waiting(waiter, reply, sent, now)
                case Gone() | Conflict():
                    self._settle(waiter, reply)

    def on_failed(self, batch: Iterable[Waiter], error: WireError, now: float) -> None:
        """A refresh got no answer."""
        for waiter in batch:
            waiter.in_flight = False
            waiter.down = error
            waiter.refresh_at = now + min(REFRESH_EVERY_S, max(0.05, now - waiter.last_contact))
            if now - waiter.last_contact > waiter.attempt.outage_budget and self._waiters.get(waiter.attempt.token) is waiter:
                self._settle(waiter, Down(error))

    def close(self, error: Exception, waiters: Iterable[Waiter] | None = None) -> None:
        """This process stops, or these cannot be told anything here: they wait no more."""
        for waiter in list(self._waiters.values()) if waiters is None else waiters:
            self._settle(waiter, Down(error))

    def end(self, waiter: Waiter, error: Exception) -> None:
        """Tell a waiter why its wait ends now. As when its time is up, the place stays until the driver has seen it: another
        attempt of this process may inherit the place."""
        waiter.late = True
        waiter.put(Down(error))

    def _settle(self, waiter: Waiter, outcome: Outcome) -> None:
        self.unregister_waiter(waiter)
        waiter.put(outcome)
