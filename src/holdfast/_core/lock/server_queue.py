"""The waiters of one process on one server. `Waiting` is notified of events, and returns the requests to send.

When a holder releases a lock, the server hands it over to the first waiter and sends a message to the waiter's process. Such a
message may get lost, and anybody may forge one. So a request, the refresh, asks the server once a second which waiters have got
their locks. It also tells the server that they still wait. A waiter is refreshed earlier when the holder's lease ends, and when
the inbox (the channel for messages to this process) is subscribed again. While a client of another library holds the lock, the
waiter is refreshed ten times a second, because that client sends no message when it releases the lock.

The server keeps a handed-over lock for its new holder only during the claim window (`CLAIM_WINDOW_S`). Only within this window
does a waiter believe a hand-over message without asking the server. It counts the window from its last request with the reply
"waiting". That request was sent before the hand-over, so the waiter's window never ends later than the server's. A message is
ignored if its fence is not higher than the last fence that the waiter has seen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

from holdfast._core.lock.records import Attempt, Waiter
from holdfast._core.lock.replies import CLAIM_WINDOW_S, MUTEX, Busy, Held, Reply
from holdfast._core.lock.spec import margin, milliseconds, scripts
from holdfast._core.requests import Answer, Conflict, Down, Gone, Granted, Outcome, Refused, RunScript, TimedOut, WireError
from holdfast._core.struct import Struct

INFINITY = float("inf")

REFRESH_EVERY_S = 1.0
"""Seconds between two refreshes of all waiters. The server drops a waiter after three times as long without a refresh."""

REFRESH_OF_FOREIGN_LOCK_S = 0.1
"""Seconds between two refreshes of a waiter while a client of another lock library holds the lock, as redis-py's lock polls."""

SOONEST_S = 0.01
"""Minimum seconds from a reply to the refresh at the end of the holder's lease."""

USABLE_LEFT_S = 0.5
"""Minimum seconds that must be left of the claim window when a waiter accepts a hand-over message.

With less time left, the server is asked whether it has handed the lock over.
"""

BATCH = 100
"""Maximum number of waiters in one refresh script, because a longer script would block other clients of the server."""

REMEMBERED = 1000
"""Maximum number of ended attempts that are remembered.

If the lock is granted to one of them too late, the lock is handed over to the next client at once.
"""


class SlotMoved(WireError):
    """Raised if a lock's Cluster slot has moved away from the server that has this process's inbox.

    The caller begins to wait again, with an inbox on the other server.
    """


class Refresh(Struct):
    """A refresh to send, which asks the server whether these waiters have got their locks.

    `Waiting.on_refreshed` gets the replies, or `Waiting.on_failed` the error.
    """

    __slots__ = __match_args__ = ("batch",)

    def __init__(self, batch: list[Waiter]) -> None:
        self.batch = batch


def refreshment(batch: list[Waiter], channel: bytes, timeout: float) -> RunScript[tuple[bool, list[Reply]]]:
    """Return the request that refreshes these waiters, which must have the same kind of lock, inbox and ``quarantine=``.

    ``channel``: name of their inbox (pub/sub channel). ``timeout``: maximum seconds to wait for the reply.
    """
    spec = batch[0].attempt.spec
    keys = [key for waiter in batch for key in waiter.attempt.spec.keys]
    args: list[bytes | str | int] = [channel]
    for waiter in batch:
        args += waiter.attempt.token, milliseconds(waiter.requested_ttl)
    return RunScript(scripts(spec).refresh, (*keys, *spec.granting[3:]), (*args, *spec.quarantine_args), timeout)


class Waiting:
    """All waiters of one process in the queues of one server."""

    round_at: float

    def __init__(self) -> None:
        self._waiters: dict[str, Waiter] = {}
        self._departed: OrderedDict[str, Attempt] = OrderedDict()
        self._handed_on: dict[str, float] = {}
        """By token of an ended attempt: monotonic time, in seconds, of the last hand-over of its lock to the next client."""
        self.round_at = INFINITY
        """Monotonic time, in seconds, of the next refresh of all waiters."""
        self._listening: set[bytes] = set()
        """Prefixes whose inboxes are subscribed."""
        self._numbers: dict[bytes, int] = {}
        """Number of times that the inbox of each prefix was subscribed so far."""
        self._prefixes: set[bytes] = set()
        """Key prefixes of the locks that are waited for. A prefix stays here until no waiter of any prefix is left."""

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

    def departed(self) -> list[Attempt]:
        """Return the ended attempts that are remembered, because the server may still grant the lock to them."""
        return list(self._departed.values())

    @property
    def timeout(self) -> float:
        """Return the seconds to wait for the reply to a refresh, which is the shortest timeout of the waiters."""
        return min((w.attempt.spec.timeout for w in self._waiters.values()), default=1.0)

    def listens(self, prefix: bytes) -> bool:
        return prefix in self._listening

    @property
    def listening(self) -> bool:
        return bool(self._listening)

    def subscription(self, prefix: bytes) -> int:
        return self._numbers.get(prefix, 0)

    def prefixes(self) -> Collection[bytes]:
        """Return the prefixes whose inboxes must be subscribed for the waiters; some of them may have no waiters any more."""
        return self._prefixes if self._waiters else ()

    def register_waiter(self, waiter: Waiter, now: float) -> bool:
        """Register a waiter. Return True if the inbox of its prefix is subscribed.

        Otherwise the waiter is woken with the outcome None once the inbox is subscribed.
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
        """Remove a waiter whose wait has ended. Remember its attempt, to which the server may still grant the lock."""
        token = waiter.attempt.token
        if self._waiters.pop(token, None) is not None:
            self._departed[token] = waiter.attempt
            if len(self._departed) > REMEMBERED:
                self._handed_on.pop(self._departed.popitem(last=False)[0], None)

    def joined(self, waiter: Waiter, answer: Answer[Reply], now: float) -> None:
        """Note that the server has put this waiter into its queue. ``answer``: the server's reply."""
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
        # Counted from the reply, so that it is never too early. A refresh just before the lease ends would be wasted.
        waiter.refresh_at = INFINITY if busy.remaining is None else now + max(busy.remaining + 0.002, SOONEST_S)
        if not busy.process and scripts(waiter.attempt.spec) is MUTEX:  # for permits, it has another meaning
            waiter.refresh_at = min(waiter.refresh_at, now + REFRESH_OF_FOREIGN_LOCK_S)
        if waiter.asked_under != self.subscription(waiter.attempt.spec.prefix):
            waiter.refresh_at = now  # the inbox was not subscribed meanwhile, so a message may have been missed
        if not now <= self.round_at <= now + REFRESH_EVERY_S:
            self.round_at = now + REFRESH_EVERY_S

    def on_message(self, token: str, fence: int, now: float) -> RunScript[int] | None:
        """Handle the message that the lock was handed over to ``token`` with this fence.

        If the attempt with this token has ended, return a request that hands the lock over to the next client. Otherwise
        return None.
        """
        waiter = self._waiters.get(token)
        if waiter is None:
            attempt = self._departed.get(token)
            if attempt is None or (attempt.token == token and attempt.may_be_on_server):
                return None  # an attempt of another process, or an attempt that has read its grant in a reply
            if now < self._handed_on.get(token, -INFINITY) + REFRESH_EVERY_S:
                return None  # a copy of the message, or a forged one, whose sender must not make this process flood the server
            self._handed_on[token] = now
            spec = attempt.spec
            return RunScript(scripts(spec).release, spec.granting, (token, "leave", *spec.quarantine_args), spec.timeout)
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
        """Note that the inbox of this prefix is subscribed, for the first time or again.

        Waiters of this prefix may have missed messages, so the server is asked about these waiters at once.
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
        """Note that no inbox is subscribed any more. The waiters are still refreshed once a second."""
        self._listening.clear()

    def _told_by(self, prefix: bytes) -> list[Waiter]:
        return [waiter for waiter in self._waiters.values() if waiter.attempt.spec.prefix == prefix]

    def on_unreachable(self, error: WireError, now: float, prefix: bytes) -> None:
        """Note that the inbox of this prefix cannot be subscribed, because of ``error``.

        Waiters that are not in the server's queue yet fail with this error. They fail at once if the server forbids the
        subscription, and otherwise when their outage budget is used up.
        """
        for waiter in self._told_by(prefix):
            waiter.down = error
            forbidden = isinstance(error, Refused) and not error.transient
            if waiter.told is None and (forbidden or now - waiter.last_contact > waiter.attempt.outage_budget):
                self._settle(waiter, Down(error))

    def due(self, now: float) -> list[Refresh]:
        """Return the refreshes to send now, and wake the waiters whose time is up."""
        # The driver ends the wait itself, but its timer stops while the machine sleeps, so the timeout may be seen here first.
        # The place stays until the driver has seen it, too, because another attempt of this process may inherit the place.
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
            alike.setdefault((scripts(spec), spec.quarantine, spec.prefix), []).append(waiter)
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
                    # If another attempt has inherited the place since, it may want a longer lease than the server has granted.
                    # Then, as after a hand-over, the lease is short until it is renewed.
                    self._settle(waiter, Granted(fence, deadline, in_claim_window=ttl < wanted))
                case Held():
                    waiter.refresh_at = now  # the reply came so late that the lease may be over, so ask again
                case Busy():
                    self._waiting(waiter, reply, sent, now)
                case Gone() | Conflict():
                    self._settle(waiter, reply)

    def on_failed(self, batch: Iterable[Waiter], error: WireError, now: float) -> None:
        """Note that a refresh of these waiters got no reply.

        They are refreshed again soon, or fail if the outage lasts too long.
        """
        for waiter in batch:
            waiter.in_flight = False
            waiter.down = error
            waiter.refresh_at = now + min(REFRESH_EVERY_S, max(0.05, now - waiter.last_contact))
            if now - waiter.last_contact > waiter.attempt.outage_budget and self._waiters.get(waiter.attempt.token) is waiter:
                self._settle(waiter, Down(error))

    def close(self, error: Exception, waiters: Iterable[Waiter] | None = None) -> None:
        """End the wait of these waiters (None: of all) with ``error``, for example because this process stops."""
        for waiter in list(self._waiters.values()) if waiters is None else waiters:
            self._settle(waiter, Down(error))

    def end(self, waiter: Waiter, error: Exception) -> None:
        """Wake one waiter, so that its wait ends with ``error``.

        Its position in the server's queue is kept until the woken attempt runs, so that another attempt of the process can
        inherit it.
        """
        waiter.late = True
        waiter.put(Down(error))

    def _settle(self, waiter: Waiter, outcome: Outcome) -> None:
        self.unregister_waiter(waiter)
        waiter.put(outcome)
