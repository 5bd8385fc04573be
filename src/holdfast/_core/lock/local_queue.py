"""The queue of the threads and tasks of one process that wait for the same lock.

One attempt at a time has the turn: it holds the lock, or asks the server for the lock. When the holder releases the lock, the
next attempt in the queue gets the lease without a request to the server (the lock is handed on). With each grant, the server
reserves several fences for this process, and each new holder gets the next of them.

The queue is changed only while the keeper's mutex is held. A change appends the attempts that must be woken to `untold`, and
`wake_changed` wakes them after the mutex is released. A signal handler or finaliser may run in the middle of a change, in the
same thread. Its own changes are postponed until the interrupted change is complete.

Waiters of other processes must not starve. If this process knows of such a waiter, it hands the lock on at most ``max_passes``
times after the server's grant, and for at most ``max_pass_time`` seconds after it. Then it releases the lock on the server.
Source: D. Dice, V. Marathe, N. Shavit, "Lock Cohorting", PPoPP 2012.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from holdfast._core.lock.lease_check import LeaseCheck
from holdfast._core.lock.owner import nobody
from holdfast._core.lock.records import INFINITY, AskServer, Attempt, Extend, Grant, Turn
from holdfast._core.lock.replies import BLOCK, NO_ANSWER, Busy, Held
from holdfast._core.lock.spec import Spec, margin
from holdfast._core.requests import Answer, Outcome, TimedOut, WireError

if TYPE_CHECKING:
    from holdfast._core.lock.ports import QueuePort
    from holdfast._core.lock.records import HeldLease, Waiter

PASS_LIMIT_S = 1.0
"""Maximum seconds after the server's grant for which the lock is handed on inside this process. Then it is released on the
server.

The limit is needed because the message that another process waits for the lock may be lost.
"""

USEFUL_LEFT_S = 1.0
"""A lease is handed on only if it is valid for at least this many more seconds; half of its ttl, if that is less.

A lease that is valid for less time is renewed first.
"""

UNREAD_CHECK_EVERY_S = 0.0002
"""Minimum seconds between two checks for unread messages, which are made when the lock is released.

A message may say that another process waits for the lock. The keeper (background thread) reads messages too, but up to 5 ms
late in a busy process.
"""

RECALL_WITHIN_S = 0.25
"""Maximum seconds for which an attempt with ``wait=0`` waits for a lock that will probably be free in a moment.

Either the lock lingers in another process, which hands it over when asked. Or this process is about to release the lock, or is
checking whether its lease is lost.
"""

MORE_FENCES = 1000
"""Maximum number of fences to request in one renewal if no reserved fence is left and no other process waits.

The number requested is the number of times that the lock was handed on since its grant, but at least `BLOCK`. There is a
maximum because the server makes fences from its clock, and more fences would run ahead of the clock.
"""


class _KeeperTurn:
    """The type of `KEEPER_TURN`, the value of `LocalQueue.turn_of` while the keeper (background thread) releases the lock."""


KEEPER_TURN = _KeeperTurn()


class LocalQueue:
    """The queue of this process for one lock, with the attempt that holds the lock or asks for it. Thread-safe."""

    __slots__ = (
        "__weakref__",
        "asked",
        "check",
        "clock",
        "crowded",
        "held_lease",
        "in_change",
        "last_reply",
        "late_at",
        "linger_until",
        "mutex",
        "next_look",
        "node",
        "passing",
        "prefix",
        "queue",
        "trouble",
        "turn_of",
        "untold",
    )

    node: QueuePort
    prefix: bytes
    mutex: AbstractContextManager[object]
    in_change: Callable[[], bool]
    clock: Callable[[], float]
    last_reply: Busy
    crowded: bool
    late_at: float
    next_look: float
    linger_until: float
    asked: bool

    def __init__(self, node: QueuePort, prefix: bytes) -> None:
        self.node = node
        self.prefix = prefix
        """Prefix of the inbox, the pub/sub channel on which other processes report that they wait."""
        self.mutex = node.mutex
        self.in_change = node.in_change
        self.clock = node.clock
        self.turn_of: Attempt | _KeeperTurn | None = None
        """The attempt that has the turn, because it holds the lock or asks the server for the lock.

        `KEEPER_TURN`: the keeper (background thread) is releasing the lock. None: nobody has the turn.
        """
        self.queue: deque[Attempt] = deque()
        """Attempts that wait for the turn, in order of arrival."""
        self.untold: deque[tuple[Attempt, Outcome | None]] = deque()
        """Attempts to wake after the current change of this queue, each with the outcome of its wait.

        The outcome None makes the attempt read `Attempt.turn`.
        """
        self.passing: Attempt | None = None
        """Attempt whose release is in progress; None: no release is in progress."""
        self.held_lease: HeldLease | None = None
        """Lease that this process holds; None: no lease.

        If `turn_of` is None, the lease lingers, which means that it was released and is kept for quick reuse.
        """
        self.asked = False
        """True if a client outside this queue waits for the lock, or if an unread or lost message may have said so."""
        self.crowded = False
        """True if clients of other processes probably waited when the server last granted the lock to this process."""
        self.late_at = INFINITY
        """Monotonic time, in seconds, before which no waiter times out; infinity: no waiter has a timeout."""
        self.linger_until = self.next_look = 0.0
        self.check: LeaseCheck = LeaseCheck(node)
        self.last_reply = NO_ANSWER
        """The latest reply with which the server reported another holder of the lock; `NO_ANSWER` before such a reply."""
        self.trouble: Exception | None = None
        """Error of the last request with which this process asked for the lock; None: the server replied to that request."""

    @property
    def reachable(self) -> bool:
        """Return True if the inbox is subscribed, so that messages of waiters in other processes arrive."""
        return self.node.reachable(self.prefix)

    # Called by an attempt, to learn its next step

    def enter(self, attempt: Attempt, now: float, *, at_once: bool = False) -> Turn | Busy | None:
        """Return the next step of an attempt that wants the lock from monotonic time ``now`` on.

        Return Busy if the lock is held in this process, and the attempt does not wait. Return None if the attempt is queued.
        The attempt then waits until `Attempt.turn` is set, or until monotonic time `Attempt.until`, and calls `received`.
        ``at_once``: True if the attempt does not wait for a holder. It may still be queued for at most `RECALL_WITHIN_S`, while
        the keeper releases the lock or finds its lease lost; `Attempt.until` is set to that time.
        """
        if self.in_change():
            # A signal handler has interrupted a change of the queue in this thread, so its attempt bypasses the queue.
            attempt.local_queue, attempt.hasty = None, at_once
            return AskServer()
        if at_once:
            attempt.until = now + RECALL_WITHIN_S  # the keeper may be about to release the lock, or to find the lease lost
            busy = self._busy(attempt)
            if busy is not None and not self._await_check(attempt, now):
                attempt.until = now
                return busy
            if busy is None and self._is_asking():
                attempt.local_queue, attempt.until = None, now  # the attempt that asks now may wait for long, so ask, too
                return AskServer()
        with self.mutex:
            entered = self._enter(attempt)
            turn = None if entered is None else self._checked(entered, now)
        self.wake_changed()
        return turn

    def park(self, attempt: Attempt) -> bool:
        """Queue an attempt that waits, if another attempt of this process has the turn. Return False if none has the turn."""
        with self.mutex:
            if not isinstance(self.turn_of, Attempt):
                return False
            attempt.entered = True
            self._enter(attempt)
        if self.untold:
            self.wake_changed()
        return True

    def received(self, attempt: Attempt, now: float) -> Turn | Busy:
        """Return the next step of a queued attempt after its wait, at monotonic time ``now``.

        An attempt that got no turn in time has left the queue. It gets Busy with the last reply of the server to this process,
        or the error if the server does not reply.
        """
        attempt.waited = True
        with self.mutex:
            turn_of = self.turn_of
            leader = self.node.waiting.get(turn_of.token) if isinstance(turn_of, Attempt) else None
            turn = self._received(attempt) or self._busy(attempt)
            if turn is not None:
                return self._checked(turn, now)
            trouble = self.trouble if leader is None else leader.down
            if trouble is not None:
                return trouble  # the attempt that asks the server for this process gets no reply
            return self.last_reply if leader is None else leader.busy

    def accept(self, attempt: Attempt, grant: Grant, now: float) -> bool:
        """Accept the grant that a queued attempt has got in `Attempt.turn`, if it is valid at monotonic time ``now``.

        Return False, with nothing changed, if the grant is not valid. The attempt then calls `received`.
        """
        held_lease = grant.held_lease
        assert held_lease is not None
        with self.mutex:
            first = self.queue[0] if self.queue else None
            if self.turn_of is not attempt or first is attempt or held_lease.lost or now >= held_lease.deadline:
                return False
            attempt.turn = None
        attempt.waited = True
        return True

    def retake(self, attempt: Attempt) -> Grant | None:
        """Return a grant of the lease that lingers (was released and is kept for quick reuse).

        Return None if no lease lingers, if its options differ, or if the server must be asked. The attempt then calls `enter`.
        """
        held_lease = self.held_lease
        if held_lease is None or self.turn_of is not None or self.in_change():
            return None
        with self.mutex:
            if (
                self.turn_of is not None
                or self.held_lease is not held_lease
                or held_lease.lost
                or not held_lease.compatible_with(attempt.spec)
            ):
                return None
            grant = self._grant(attempt, held_lease, self.clock())
            if not grant.fence:
                return None
            self.turn_of = attempt
            return grant

    @property
    def is_free(self) -> bool:
        return self.turn_of is None and self.held_lease is None

    def lead(self, attempt: Attempt) -> None:
        """Let an attempt ask the server for the lock. The queue must be free (`is_free`). The caller holds the mutex."""
        self.turn_of, self.asked = attempt, False

    def _busy(self, attempt: Attempt) -> Busy | None:
        """Return Busy if another attempt of this process holds the lock. Return None if the server has to be asked."""
        with self.mutex:
            held_lease = self.held_lease
            if held_lease is None or held_lease.lost or self.turn_of is attempt or not isinstance(self.turn_of, Attempt):
                return None
            now = self.clock()
            # If `over` is set, the keeper is releasing the lock; the server still counts it as held.
            left = max(0.0, held_lease.latest - now) if held_lease.over else held_lease.remaining(now)
            return Busy(left, held_lease.last_fence, held_lease.token.partition(".")[0], False)

    @property
    def awaits_check(self) -> bool:
        """Return True if an early renewal, which checks whether the lease still exists on the server, has no reply yet."""
        return self.check.question is not None

    def answered(self, token: str, made: float, *, known: bool) -> None:
        """Note the result of a renewal that was requested at monotonic time ``made``.

        ``known``: True if the server confirmed the lease; False if it did not reply or the lease is lost. If the lease is
        lost, the caller must have notified the owner of the lease before this call.
        """
        with self.mutex:
            for caller in self.check.answered(token, made, known=known):
                now = self.clock()
                caller.until = now if caller.until is None else min(now, caller.until)
                self.untold.append((caller, None))
        self.wake_changed()

    def _await_check(self, attempt: Attempt, now: float) -> bool:
        with self.mutex:
            return self.check.join(attempt, self._in_use(), now)

    def _is_asking(self) -> bool:
        """Return True if an attempt whose event loop is open is asking the server for the lock."""
        who = self.turn_of
        slot = who.slot if isinstance(who, Attempt) else None
        return isinstance(who, Attempt) and self.held_lease is None and not (slot is not None and slot.gone())

    def has_lease(self, attempt: Attempt) -> bool:
        return self.turn_of is attempt and self.held_lease is not None

    # Called by an attempt, with the outcome of its turn

    def settle(self, attempt: Attempt, outcome: Grant | Busy | Exception | None) -> None:
        """Note the outcome of the request with which an attempt asked the server for the lock.

        A Grant means that the attempt holds the lock. The caller holds the mutex, and has registered the lease. Busy means that
        the attempt was refused, so the next waiter asks. An exception means that the request failed. Waiters without a timeout
        then fail, too, and the others ask one after the other. None means that the attempt gives up, even if it is queued or
        has just got the lock. The next waiter then gets the lock, or asks for it.
        """
        if isinstance(outcome, Grant):
            self._note_grant(attempt, outcome)
        elif outcome is None:
            self._withdraw(attempt)
        elif isinstance(outcome, Busy):
            self.last_reply, self.trouble = outcome, None
            self.on_released(attempt)
        else:
            self._failed(attempt, outcome)

    def extended(self, attempt: Attempt, held_lease: HeldLease, answer: Answer[Held] | None) -> Turn | Busy:
        """Note that the server has extended a lease, or that the lease is lost. Return the next turn of the attempt.

        ``attempt``: the waiter that had the lease extended, because no fence was left to hand it on with. Its next turn is
        usually a Grant with the first new fence, and an AskServer if the lease is lost. ``answer``: the server's reply; None:
        the lease is lost.
        """
        with self.mutex:
            if answer is None or held_lease.lost:
                held_lease.lose("its key is gone, or has the value of another client")
                return self._checked(self._may_ask(), self.clock())
            held, lasts = answer.value, held_lease.ttl - margin(held_lease.ttl)
            held_lease.deadline = max(held_lease.deadline, answer.sent + lasts)
            if held.last != held_lease.last_fence:
                held_lease.holder_fence, held_lease.last_fence = held.fence - 1, held.last
            now = self.clock()
            return self._checked(self._grant(attempt, held_lease, now, renewed=True), now)

    def _note_grant(self, attempt: Attempt, grant: Grant) -> None:
        if self.turn_of is attempt:
            self.trouble = None
            # Waiters behind this attempt in the server's queue have notified only an earlier holder, and must not be starved.
            # A notification for this attempt may also have arrived before the grant.
            self.crowded = self.node.asked_for(attempt.token) or grant.queued
            self.asked |= self.crowded
            self.held_lease = grant.held_lease

    # Leaving the queue

    def pass_on(self, attempt: Attempt, held_lease: HeldLease, now: float) -> bool | None:
        """Hand the lock on to the next waiter of this process, after its holder has released it.

        Return True if the next waiter has the lock, or the lease lingers (is kept for quick reuse). Return False if the caller
        has to release the lock on the server, and then to call `on_released`. Return None if another thread or a signal handler
        has released the lock first.
        """
        nested = self.in_change()  # True in a signal handler that may have interrupted a change of the queue
        with self.mutex:
            # Set first, because a signal handler may release the lock, too, and only one of the two releases may count.
            earlier, self.passing = self.passing, attempt
            if held_lease.over or earlier is attempt or (self.turn_of is not attempt and not held_lease.lost):
                self.passing = earlier
                return None
            kept = (
                not nested
                and bool(self.queue or attempt.spec.linger)
                and not held_lease.lost
                and self._may_keep(attempt.spec, held_lease, now)
                and (self._pass(held_lease, now) or self._linger(attempt.spec, now))
            )
            held_lease.over = not kept
            self.passing = earlier  # a signal handler may release its lease in the middle of another release
        if self.untold:
            self.wake_changed()
        return kept

    def give_back(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """Have the keeper (background thread) release the lock on the server, for a holder that cannot wait for the reply."""
        with self.mutex:
            if self.turn_of is attempt:
                self._give_back(held_lease)

    def on_released(self, attempt: Attempt | None = None) -> None:
        """Let the next waiter ask the server, because this process has released the lock or failed to acquire it.

        ``attempt``: the attempt that held the lock or asked for it; None: the keeper thread has released the lock.
        """
        if self.in_change():
            self.node.later(partial(self.on_released, attempt))
            return
        with self.mutex:
            if self.turn_of is (attempt or KEEPER_TURN):
                self.held_lease = None
                self._ask_server(None)
        self.wake_changed()

    def on_collected(self, held_lease: HeldLease) -> None:
        """Let the next waiter ask the server, because the lease's owner was garbage-collected without a release.

        The lease is not released on the server, so the next waiter gets the lock when the lease has expired.
        """
        with self.mutex:
            if self.held_lease is held_lease:
                self.held_lease = None
                self._ask_server(None)
        self.wake_changed()

    def _withdraw(self, attempt: Attempt) -> None:
        if self.in_change():
            self.node.later(partial(self._withdraw, attempt))
            return
        with self.mutex:
            self._step_out(attempt)
            turn, held_lease = attempt.turn, self.held_lease
            if self.turn_of is not attempt:
                self._nudge()
            elif held_lease is not None and not held_lease.over:
                self._hand_on(attempt, held_lease)
            elif not isinstance(turn, AskServer) or turn.place is None or not self._pass_place_on(attempt, turn.place):
                if isinstance(turn, AskServer) and turn.place is not None:
                    self.node.waiting.unregister_waiter(turn.place)
                self.held_lease = None
                self._ask_server(None)
        self.wake_changed()

    def pass_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """Move the server-queue position of an attempt that stops waiting to the next waiter of this process.

        Return True if the next waiter has the position now, and waits on the server. Return False if there is no next waiter,
        the server no longer has the position, or a signal handler has interrupted a change of the queue.
        """
        if self.in_change():
            return False
        with self.mutex:
            bequeathed = self._pass_place_on(attempt, place)
        self.wake_changed()
        return bequeathed

    def pass_abandoned_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """Move the position of an attempt whose event loop was closed, as `pass_place_on` does. The caller holds the mutex."""
        bequeathed = self._pass_place_on(attempt, place)
        self.wake_changed()
        return bequeathed

    def close(self, error: WireError) -> None:
        """End the wait of all attempts in this queue with ``error``, because this process stops.

        The caller holds the mutex.
        """
        while self.queue:
            self._fail(self.queue[0], error)
        self.wake_changed()

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """End the wait of a queued attempt with ``error``. Return False if the attempt is not queued.

        The caller holds the mutex.
        """
        if attempt not in self.queue:
            return False
        self._fail(attempt, error)
        self.wake_changed()
        return True

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        with self.mutex:
            if self.turn_of is attempt:
                for other in [*self.queue]:
                    if other.until is None:
                        self._fail(other, error)
                self._ask_server(None)
        self.wake_changed()

    # Waking waiters

    def wake_changed(self) -> None:
        """Wake the attempts in `untold`, each while the mutex is released.

        The mutex must be free, because waking an attempt of a closed event loop may destroy tasks, and their clean-up uses this
        queue. An attempt may be woken twice, which is harmless.
        """
        while self.untold:
            if self.in_change():
                self.node.later(self.wake_changed)
                return
            try:
                attempt, outcome = first = self.untold[0]
            except IndexError:
                return  # another thread has woken the last one
            slot = attempt.slot  # read once: the keeper may remove it at any moment
            woken = slot is None or slot.put(outcome) is not False
            with self.mutex:
                if not woken and self.turn_of is attempt:
                    self._pass_over()
                if self.untold and self.untold[0] is first:
                    self.untold.popleft()

    # Called by the node with the mutex held

    def on_asked(self) -> None:
        """Note that another process waits for the lock.

        If the lease lingers (is kept for quick reuse), have it released at once.
        """
        self.asked = True
        if self.turn_of is None and self.held_lease is not None:
            self._give_back(self.held_lease)

    def on_time(self, now: float) -> float:
        """Release a lease that has lingered long enough, wake waiters whose time is up, and send an early renewal that is due.

        Drivers wake these waiters, too, but their timers stop while the machine sleeps. Return the monotonic time, in seconds,
        at which to call this method again; infinity: no call is needed.
        """
        if self.turn_of is None and self.held_lease is not None and now >= self.linger_until:
            self._give_back(self.held_lease)
        if now >= self.late_at:
            for late in [one for one in self.queue if one.until is not None and one.until <= now]:
                self.untold.append((late, TimedOut()))
                self.queue.remove(late)
            self.wake_changed()
            self.late_at = min((one.until for one in self.queue if one.until is not None), default=INFINITY)
        if now >= self.check.due_at:
            self.check.due_at = INFINITY
            if self.queue:  # the event loop of the attempt with the turn may have been closed after the attempt was woken
                self.check.wait(self._in_use(), now)
                self._pass_over()
                self.wake_changed()
        until = self.linger_until if self.turn_of is None and self.held_lease is not None else INFINITY
        return min(self.late_at, until, self.check.due_at)

    # Called with the mutex held

    def _enter(self, attempt: Attempt) -> Turn | None:
        if self.turn_of is None:
            held_lease = self.held_lease
            if held_lease is None or held_lease.lost:
                self.turn_of = attempt
                return self._may_ask()
            if held_lease.compatible_with(attempt.spec):
                self.turn_of = attempt
                return self._grant(attempt, held_lease, self.clock())
            self._give_back(held_lease)
        if not self.queue:  # for the others, the first waiter has done it
            self.node.be_reachable(self.prefix)
            self.node.somebody_waits()
        self.queue.append(attempt)
        self._pass_over()
        if self.check.due_at == INFINITY:
            self.check.wait(self._in_use(), self.clock(), attempt.until)
            self.node.look_at(self, self.check.due_at)
        if attempt.until is not None and attempt.until < self.late_at:
            self.late_at = attempt.until
            self.node.look_at(self, attempt.until)
        return None

    def _received(self, attempt: Attempt) -> Turn | None:
        turn = attempt.turn
        if turn is None or isinstance(turn, Exception) or (self.queue and self.queue[0] is attempt):
            self._step_out(attempt)
        if not isinstance(turn, AskServer):  # after an interrupt, an inherited place must still be in `turn`
            attempt.turn = None
        # If an interrupt stopped the caller that gives the turn, the turn counts only once `turn_of` names the attempt.
        return turn if self.turn_of is attempt or isinstance(turn, Exception) else None

    def _checked(self, turn: Turn | Busy, now: float) -> Turn | Busy:
        """Return the next step of an attempt that takes this turn at monotonic time ``now``, which is usually the turn itself.

        If the turn is a grant that is lost, return the permission to ask the server. If it is a grant whose lease is over or
        that has no fence, return the instruction to extend the lease.
        """
        if isinstance(turn, Grant):
            held_lease = turn.held_lease
            assert held_lease is not None
            if held_lease.lost:
                turn = self._may_ask()
            elif not turn.fence or now >= held_lease.deadline:
                return Extend(held_lease, self._fences_wanted(held_lease))
        # Without a subscribed inbox, join later. If the server is down, the attempt must not wait for the inbox, but fail.
        if isinstance(turn, AskServer) and turn.place is None and self.crowded and self.reachable:
            return AskServer(crowded=self.last_reply)
        return turn

    def _fences_wanted(self, held_lease: HeldLease) -> int:
        if held_lease.holder_fence < held_lease.last_fence:
            return 0
        return BLOCK if self.asked else min(MORE_FENCES, max(BLOCK, held_lease.passes))

    def _may_ask(self) -> AskServer:
        """Drop the lease that this process believed to hold, if it is lost. Return the permission to ask the server.

        The keeper (background thread) also releases the lease on the server, where a late renewal may have extended it.
        """
        if self.held_lease is not None:
            self.node.give_back(None, self.held_lease)
        self.held_lease, self.asked = None, False
        return AskServer()

    def _in_use(self) -> HeldLease | None:
        """Return the lease that an attempt of this process holds; None if it holds none, or if the lease lingers."""
        return self.held_lease if isinstance(self.turn_of, Attempt) else None

    def _step_out(self, attempt: Attempt) -> None:
        if self.queue and self.queue[0] is attempt:
            self.queue.popleft()
        elif attempt in self.queue:
            self.queue.remove(attempt)

    def _nudge(self) -> None:
        """Wake the attempt with the turn, or begin the keeper's release, in case an interrupt has prevented this before."""
        if isinstance(self.turn_of, Attempt) and self.turn_of.turn is not None:
            self._give(self.turn_of, self.turn_of.turn)
        elif self.turn_of is KEEPER_TURN and self.held_lease is not None:
            self._give_back(self.held_lease)

    def _may_keep(self, spec: Spec, held_lease: HeldLease, now: float) -> bool:
        if not self.node.reachable(self.prefix):
            self.node.be_reachable(self.prefix)
            return False
        if now >= held_lease.since + PASS_LIMIT_S or now >= held_lease.deadline or held_lease.ttl != spec.ttl:
            return False
        if now >= self.next_look:
            self.next_look = now + UNREAD_CHECK_EVERY_S
            self.asked = self.asked or self.node.has_unread()
        return not self.asked or (held_lease.passes < spec.max_passes and now < held_lease.since + spec.max_pass_time)

    def _pass(self, held_lease: HeldLease, now: float) -> bool:
        heir = self._next()
        if heir is None or not held_lease.compatible_with(heir.spec):
            return False
        held_lease.owner = nobody
        self._give(heir, self._grant(heir, held_lease, now))
        return True

    def _hand_on(self, attempt: Attempt, held_lease: HeldLease) -> None:
        if not self._may_keep(attempt.spec, held_lease, now := self.clock()) or not self._pass(held_lease, now):
            self._give_back(held_lease)

    def _pass_over(self) -> None:
        """Move the turn to the next waiter if the event loop of the attempt with the turn is closed.

        Nothing is changed if that attempt's caller has already received the lock.
        """
        attempt, held_lease = self.turn_of, self.held_lease
        if not isinstance(attempt, Attempt) or attempt.slot is None or not attempt.slot.gone():
            return
        if held_lease is None:
            place = self.node.waiting.get(attempt.token)
            if place is None and attempt.may_be_on_server:
                # The server may have granted the lock, and nobody reads the reply. So the keeper revokes the token before
                # the next attempt asks.
                self.turn_of = KEEPER_TURN
                self.node.revoke(self, attempt)
                attempt.may_be_on_server = False
            elif place is None or not self._pass_place_on(attempt, place):
                self._ask_server(None)
        elif isinstance(attempt.turn, Grant) and not held_lease.over:
            self._hand_on(attempt, held_lease)

    def _pass_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        if self.turn_of is not attempt or self._next() is None or not self.node.waiting.is_waiting(place):
            return False
        self._ask_server(place)
        return True

    def _linger(self, spec: Spec, now: float) -> bool:
        # A lock may linger only if its token ends in "~". Otherwise ``wait=0`` in other processes does not ask for the lock.
        if self.queue or self.asked or not spec.linger or self.held_lease is None or not self.held_lease.token.endswith("~"):
            return False
        self.held_lease.owner = nobody
        self.linger_until = now + spec.linger
        self.node.look_at(self, self.linger_until)
        self.turn_of = None
        return True

    def _grant(self, attempt: Attempt, held_lease: HeldLease, now: float, *, renewed: bool = False) -> Grant:
        """Return a grant of the held lease for the attempt, with the next reserved fence.

        The grant has fence 0 if the server must be asked first, because no reserved fence is left, or the lease is valid for
        too short a time. ``renewed``: True if the lease was renewed just now. Any remaining time is then enough, because
        another renewal would bring no more.
        """
        fence, left = 0, held_lease.deadline - now
        enough = left >= USEFUL_LEFT_S or left >= held_lease.ttl / 2 or (renewed and left > 0)
        if held_lease.holder_fence < held_lease.last_fence and enough:
            fence = held_lease.holder_fence = held_lease.holder_fence + 1
            held_lease.passes += 1
        self.held_lease = held_lease
        if held_lease.label != attempt.spec.label:
            held_lease.label = attempt.spec.label
            self.node.label_changed(held_lease)
        return Grant(attempt, fence, now, held_lease.deadline, 0, held_lease)

    def _give_back(self, held_lease: HeldLease) -> None:
        """Have the keeper (background thread) release a lease that no attempt of this process uses."""
        self.turn_of = KEEPER_TURN
        self.node.give_back(self, held_lease)
        self.held_lease = None

    def _ask_server(self, place: Waiter | None) -> None:
        self.asked = False
        heir = self._next()
        if heir is None:
            self.turn_of = None
            return
        if place is not None:
            place.move_to(heir)
        self._give(heir, AskServer(place))

    def _next(self) -> Attempt | None:
        """Return the first waiter whose event loop is open; None if there is none.

        Remove the waiters before it, whose event loops are closed. They stay in `untold` until the change of the queue is
        complete, because dropping them may destroy their tasks.
        """
        while self.queue:
            first = self.queue[0]
            if first.slot is None or not first.slot.gone():
                return first
            self.untold.append((first, None))
            self.queue.popleft()
        return None

    def _give(self, attempt: Attempt, turn: Turn) -> None:
        """Give an attempt the turn, which is a grant or the permission to ask the server.

        The order of the statements matters. If an interrupt comes between two of them, `_withdraw` can make the queue
        consistent again.
        """
        attempt.turn = turn
        self.turn_of = attempt
        self._step_out(attempt)
        self.untold.append((attempt, None))

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        attempt.turn = error
        self.untold.append((attempt, None))
        self._step_out(attempt)
