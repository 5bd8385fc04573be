"""One contender per process: tasks and threads that want the same lock stand in a line of their own, and one of them asks the
server for all. The lease is handed on along the queue, with the next fences of the block that the server has reserved.

The queue changes under the mutex, and only our own code runs there. The change records whose turn it is; `wake_changed` wakes
that attempt after the mutex is free. If `wake_changed` is interrupted, the next caller repeats it. A signal handler or
finaliser may run in the middle of a change, in the thread that makes it: what it asks for is done after the change.

A lease that the server has forgotten (FLUSHDB, DEL) is believed here until its next renewal. So the first in the queue, and a
caller that does not wait, have it renewed early, at most once a second: a lease that turns out to be lost is lost first, its
owner is told, and only then the next one asks the server for the lock.

Nobody outside is kept waiting for it: once somebody is known to wait there, the lease goes back to the server after a bounded
number of passes, and a bounded time. Lock cohorting: D. Dice, V. Marathe, N. Shavit, "Lock Cohorting", PPoPP 2012.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from holdfast._core.lock.records import AskServer, Attempt, Failed, Grant, Spec, Turn, margin, nobody
from holdfast._core.lock.renewal import QUESTION_EVERY_S
from holdfast._core.lock.replies import BLOCK, NO_ANSWER, Busy, Held
from holdfast._core.requests import Outcome, TimedOut, WireError
from holdfast._core.struct import Struct

if TYPE_CHECKING:
    from holdfast._core.lock.ports import QueuePort
    from holdfast._core.lock.records import HeldLease, Waiter

PASS_LIMIT_S = 1.0
"""Seconds after which a lease goes back to the server in any case: the message that somebody waits there may be lost."""

USEFUL_LEFT_S = 1.0
"""Seconds that are left at least of a lease that is passed on, or half of its length; what is shorter is renewed first."""

UNREAD_CHECK_EVERY_S = 0.0002
"""Seconds between looks for a sign that somebody outside wants it: in a busy interpreter the keeper waits 5 ms to read it."""

MORE_FENCES = 1000
"""Fences that are asked for at most when the block is used up and nobody waits outside: as many as were used since the lock was
taken, or numbers that nobody uses would run ahead of the server's clock."""


class _KeeperTurn:
    """In the place of whose turn it is: the keeper's, which is giving the lock back."""


KEEPER_TURN = _KeeperTurn()


class Question(Struct):
    """Whether the server knows the lease still: an early renewal of it."""

    __slots__ = __match_args__ = ("token", "at", "unanswered", "enough", "callers")

    def __init__(self, token: str, at: float, unanswered: int, enough: int) -> None:
        self.token = token
        self.at = at
        """Local time: renewals that were made earlier say nothing about it."""
        self.unanswered = unanswered
        """Servers that have not answered yet."""
        self.enough = enough
        """So many that know it still settle the question."""
        self.callers: list[Attempt] = []
        """Those that do not wait for the lock, only for the answer."""


class LocalQueue:
    """The holder of a lock in this process, and the queue of those that want it. All methods may be called from any thread."""

    __slots__ = (
        "__weakref__",
        "asked",
        "clock",
        "crowded",
        "fence",
        "held_lease",
        "in_change",
        "last",
        "last_reply",
        "late_at",
        "linger_until",
        "mutex",
        "next_look",
        "node",
        "passes",
        "passing",
        "prefix",
        "question",
        "question_at",
        "questioned_at",
        "queue",
        "taken",
        "trouble",
        "turn_of",
        "untold",
    )

    def __init__(self, node: QueuePort, prefix: bytes) -> None:
        self.node = node
        self.prefix = prefix
        """Of whose inbox those outside tell something to those in here."""
        self.mutex = node.mutex
        self.in_change = node.in_change
        self.clock = node.clock
        self.turn_of: Attempt | _KeeperTurn | None = None
        """Owner of the turn: it holds the lock, or asks the server for it."""
        self.queue: deque[Attempt] = deque()
        """Attempts that wait for the owner of the turn, in order of arrival."""
        self.untold: deque[tuple[Attempt, Outcome | None]] = deque()
        """Attempts to wake after the change, each with its outcome."""
        self.passing: Attempt | None = None
        """The attempt that is passing the lock on."""
        self.held_lease: HeldLease | None = None
        """The lease of this process, from the first pass on. Without `turn_of`: it lingers."""
        self.fence = 0
        """The last one given to anybody here."""
        self.last = 0
        """The last one of the block."""
        self.passes = 0
        self.taken = 0.0
        """When it was taken from the server."""
        self.asked = False
        """Somebody outside waits, as far as is known."""
        self.crowded = False
        """Others wanted it, too, when it was taken last."""
        self.late_at = float("inf")
        """When the first in line has waited long enough, or somebody who stands there no more."""
        self.linger_until = self.next_look = 0.0
        self.question: Question | None = None
        """The last one that was put because somebody here wants the lock, until it is answered."""
        self.questioned_at = float("-inf")
        """When that was (local seconds)."""
        self.question_at = float("inf")
        """When the first in the queue puts one, if it is still there then."""
        self.last_reply = NO_ANSWER
        """Last reply of the server to an attempt of this process that had to wait."""
        self.trouble: Exception | None = None
        """Error that the last request of this process got instead of a reply; None: it got one."""

    @property
    def reachable(self) -> bool:
        """Those outside can say that they wait."""
        return self.node.reachable(self.prefix)

    # Coming

    def retake(self, attempt: Attempt) -> Grant | None:
        """Return the lingering lease with its next fence if this attempt can use it; None: the attempt has to `enter`."""
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

    def enter(self, attempt: Attempt) -> Turn | None:
        """Somebody wants the lock. None: it stands in line, and will be woken when it is given something."""
        with self.mutex:
            turn = self._enter(attempt)
        self.wake_changed()
        return turn

    def received(self, attempt: Attempt) -> Turn | None:
        """Return what a waiter was given; None: nothing, and it is not in the queue any more."""
        with self.mutex:
            turn = attempt.turn
            if turn is None or isinstance(turn, Failed) or (self.queue and self.queue[0] is attempt):
                self._step_out(attempt)
            if not isinstance(turn, AskServer):  # a place in the queue is to be found again when this is interrupted
                attempt.turn = None
            # A turn that an interrupted caller had begun to give is ours only when our name is there.
            return turn if self.turn_of is attempt or isinstance(turn, Failed) else None

    def busy(self, attempt: Attempt) -> Busy | None:
        """Return the answer for a caller that does not wait. None: the server has to be asked."""
        with self.mutex:
            held_lease = self.held_lease
            if held_lease is None or held_lease.lost or self.turn_of is attempt or not isinstance(self.turn_of, Attempt):
                return None
            now = self.clock()
            # over: it is on its way back
            left = max(0.0, held_lease.latest - now) if held_lease.over else held_lease.remaining(now)
            return Busy(left, self.last, held_lease.token.partition(".")[0], False)

    def start_question(self, attempt: Attempt, now: float) -> bool:
        """Have the server asked, for a caller that does not wait, whether it knows the lease still. True: the caller stands in
        line until `Attempt.until`, which is brought forward when the server has said yes. False: nothing is asked; a question
        was put less than a second ago."""
        with self.mutex:
            question = self.question
            if question is not None and self.held_lease is not None and question.token == self.held_lease.token:
                question.callers.append(attempt)
                return True
            if now < self.questioned_at + QUESTION_EVERY_S or not self._put_question(now):
                return False
            assert self.question is not None
            self.question.callers.append(attempt)
            return True

    def answered(self, token: str, made: float, *, known: bool) -> None:
        """A renewal made at local time ``made`` was answered, or failed. ``known``: the server knows the lease still. Otherwise
        its owner has been told before this is called."""
        with self.mutex:
            question = self.question
            if question is None or question.token != token or made < question.at:
                return
            question.unanswered -= 1
            question.enough -= known
            if question.unanswered and question.enough > 0:
                return
            self.question, now = None, self.clock()
            for caller in question.callers:
                caller.until = now if caller.until is None else min(now, caller.until)
                self.untold.append((caller, None))
        self.wake_changed()

    def is_asking(self) -> bool:
        """Somebody of this process is asking the server, in an event loop that is not closed."""
        who = self.turn_of
        slot = who.slot if isinstance(who, Attempt) else None
        return isinstance(who, Attempt) and self.held_lease is None and not (slot is not None and slot.gone())

    def has_lease(self, attempt: Attempt) -> bool:
        """It is this one's turn, and the process has the lock already."""
        return self.turn_of is attempt and self.held_lease is not None

    def fences_wanted(self) -> int:
        """How many fences to ask for besides more time: none as long as there are some."""
        if self.fence < self.last:
            return 0
        return BLOCK if self.asked else min(MORE_FENCES, max(BLOCK, self.passes))

    def note_more_fences(self, attempt: Attempt, held_lease: HeldLease, held: Held, sent: float) -> Grant:
        """The server has given more fences and time to what was passed on."""
        with self.mutex:
            held_lease.deadline = max(held_lease.deadline, sent + held_lease.ttl - margin(held_lease.ttl))
            if held.last != self.last:
                self.fence, self.last = held.fence - 1, held.last
            return self._grant(attempt, held_lease, self.clock(), renewed=True)

    def drop_lease(self) -> AskServer:
        """Forget the local lease, which is lost, and return a turn that asks the server.

        A late renewal may have made it longer there.
        """
        with self.mutex:
            if self.held_lease is not None:
                self.node.give_back(None, self.held_lease)
            self.held_lease, self.asked = None, False
            return AskServer()

    def note_lease(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """The lease of what this one took."""
        if self.turn_of is attempt:
            with self.mutex:
                self.held_lease, self.asked = held_lease, self.asked or self.node.asked_for(held_lease.token)

    def note_grant(self, attempt: Attempt, grant: Grant) -> None:
        """The server granted the lock to the attempt that asks for all."""
        with self.mutex:
            self.fence, self.last, self.taken, self.passes, self.trouble = grant.fence, grant.last, grant.taken, 0, None
            # Others behind us in the queue have told an earlier holder. A notification that came meanwhile may be meant for us.
            self.crowded = grant.queued or self.node.asked_for(attempt.token)
            self.asked |= self.crowded

    # Going

    def pass_on(self, attempt: Attempt, held_lease: HeldLease, now: float) -> bool | None:
        """Hand the lock on when its holder has released it. Return True if the next waiter of this process has it, or it
        lingers. False: the caller has to release it on the server, and then to call `on_released`. None: another thread or a
        signal handler has released it before."""
        nested = self.in_change()  # a signal handler: what it has interrupted may be about to change the queue
        with self.mutex:
            # First of all: a signal handler may release it, too, and of the two who do one is told that it was given back.
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
            self.passing = earlier  # a signal handler may have released another one, in the middle of a release
        if self.untold:
            self.wake_changed()
        return kept

    def give_back(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """The holder is done with the lock, and cannot wait for the release: the keeper does it."""
        with self.mutex:
            if self.turn_of is attempt:
                self._give_back(held_lease)

    def on_released(self, attempt: Attempt | None = None) -> None:
        """The lock is back at the server, or was never had: the next in line asks for it. ``attempt``: whose turn it was."""
        if self.in_change():
            self.node.later(partial(self.on_released, attempt))
            return
        with self.mutex:
            if self.turn_of is (attempt or KEEPER_TURN):
                self.held_lease = None
                self._ask_server(None)
        self.wake_changed()

    def on_collected(self, held_lease: HeldLease) -> None:
        """The owner of the lease is gone and has not released it: the lease expires."""
        with self.mutex:
            if self.held_lease is held_lease:
                self.held_lease = None
                self._ask_server(None)
        self.wake_changed()

    def withdraw(self, attempt: Attempt) -> None:
        """A waiter has withdrawn, even if it was given the lock just now.

        The waiter itself gives up what it has at the server.
        """
        if self.in_change():
            self.node.later(partial(self.withdraw, attempt))
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
        """The attempt that asks for all gives up its wait: the next one here inherits its place in the server's queue. False:
        there is nobody, or the place is no more."""
        if self.in_change():
            return False
        with self.mutex:
            bequeathed = self._pass_place_on(attempt, place)
        self.wake_changed()
        return bequeathed

    def pass_abandoned_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """As `pass_place_on`, for one whose event loop was closed without ending it. Called with the mutex held, as is
        `wake_changed`."""
        bequeathed = self._pass_place_on(attempt, place)
        self.wake_changed()
        return bequeathed

    def close(self, error: WireError) -> None:
        """This process stops: nobody waits any more. Called with the mutex held."""
        while self.queue:
            self._fail(self.queue[0], error)
        self.wake_changed()

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """Have this raised where an attempt stands in line. False: it does not. Called with the mutex held."""
        if attempt not in self.queue:
            return False
        self._fail(attempt, error)
        self.wake_changed()
        return True

    def failed(self, attempt: Attempt, error: Exception) -> None:
        """The attempt that asks for all could not reach the server.

        All who would wait for ever are told; the others try for themselves.
        """
        with self.mutex:
            if self.turn_of is attempt:
                for other in [*self.queue]:
                    if other.until is None:
                        self._fail(other, error)
                self._ask_server(None)
        self.wake_changed()

    # Telling

    def wake_changed(self) -> None:
        """Wake those for whom something has changed, with the mutex free: an event loop that is closed may destroy its tasks at
        that, which give up what they wait for. To wake somebody twice does no harm."""
        while self.untold:
            if self.in_change():
                self.node.later(self.wake_changed)
                return
            with self.mutex:
                first = self.untold[0] if self.untold else None
            if first is None:
                return
            attempt, outcome = first
            slot = attempt.slot  # the keeper may take it away just now
            woken = slot is None or slot.put(outcome) is not False
            with self.mutex:
                if not woken and self.turn_of is attempt:
                    self._pass_over()
                if self.untold and self.untold[0] is first:
                    self.untold.popleft()

    # Asked by others; the mutex is held

    def on_asked(self) -> None:
        """Somebody outside waits."""
        self.asked = True
        if self.turn_of is None and self.held_lease is not None:
            self._give_back(self.held_lease)

    def on_time(self, now: float) -> float:
        """Give back what has lingered long enough, and wake who has waited long enough: drivers do that, too, but their timers
        stand still while the machine sleeps. When there is more to do (local seconds; infinity: never)."""
        if self.turn_of is None and self.held_lease is not None and now >= self.linger_until:
            self._give_back(self.held_lease)
        if now >= self.late_at:
            for late in [one for one in self.queue if one.until is not None and one.until <= now]:
                self.untold.append((late, TimedOut()))
                self.queue.remove(late)
            self.wake_changed()
            self.late_at = min((one.until for one in self.queue if one.until is not None), default=float("inf"))
        if now >= self.question_at:
            self.question_at = self._question_due(now) if self.queue else float("inf")
            if self.queue:  # its loop may have been closed after it was woken
                self._pass_over()
                self.wake_changed()
        until = self.linger_until if self.turn_of is None and self.held_lease is not None else float("inf")
        return min(self.late_at, until, self.question_at)

    # With the mutex held

    def _enter(self, attempt: Attempt) -> Turn | None:
        if self.turn_of is None:
            held_lease = self.held_lease
            if held_lease is None or held_lease.lost:
                self.turn_of, self.asked = attempt, False
                return self.drop_lease()
            if held_lease.compatible_with(attempt.spec):
                self.turn_of = attempt
                return self._grant(attempt, held_lease, self.clock())
            self._give_back(held_lease)
        self.queue.append(attempt)
        self._pass_over()
        self.node.be_reachable(self.prefix)
        self.node.somebody_waits()
        if self.question_at == float("inf"):
            self.question_at = self._question_due(self.clock(), attempt.until)
            self.node.look_at(self, self.question_at)
        if attempt.until is not None and attempt.until < self.late_at:
            self.late_at = attempt.until
            self.node.look_at(self, attempt.until)
        return None

    def _question_due(self, now: float, until: float | None = None) -> float:
        """Put a question for the first in the queue if it is time to; when to look again (local seconds). The queue asks about
        a lease of which nothing was heard for a second, so a lock that is passed on quickly causes no question. ``until``: when
        its wait ends; one that ends within that second asks at once."""
        known = self.questioned_at
        if self.held_lease is not None and (until is None or until > now + QUESTION_EVERY_S):
            known = max(known, self.taken, self.held_lease.asked_at)
        if now >= known + QUESTION_EVERY_S:
            self._put_question(now)
            return now + QUESTION_EVERY_S
        return known + QUESTION_EVERY_S

    def _put_question(self, now: float) -> bool:
        """Renew the lease now, to learn whether the server knows it still. False: there is nothing to ask."""
        held_lease = self.held_lease
        if held_lease is None or held_lease.lost or held_lease.over or not isinstance(self.turn_of, Attempt):
            return False
        asked, enough = self.node.question(held_lease)
        if not asked:
            return False
        self.question, self.questioned_at = Question(held_lease.token, now, asked, enough), now
        return True

    def _step_out(self, attempt: Attempt) -> None:
        if self.queue and self.queue[0] is attempt:
            self.queue.popleft()
        elif attempt in self.queue:
            self.queue.remove(attempt)

    def _nudge(self) -> None:
        """Wake whose turn it is, in case that an interrupt has hit just before that was done."""
        if isinstance(self.turn_of, Attempt) and self.turn_of.turn is not None:
            self._give(self.turn_of, self.turn_of.turn)
        elif self.turn_of is KEEPER_TURN and self.held_lease is not None:
            self._give_back(self.held_lease)

    def _may_keep(self, spec: Spec, held_lease: HeldLease, now: float) -> bool:
        if not self.reachable:
            self.node.be_reachable(self.prefix)
            return False
        if now >= min(self.taken + PASS_LIMIT_S, held_lease.deadline) or not held_lease.compatible_with(spec):
            return False
        if now >= self.next_look:
            self.next_look = now + UNREAD_CHECK_EVERY_S
            self.asked = self.asked or self.node.has_unread()
        return not self.asked or (self.passes < spec.max_passes and now < self.taken + spec.max_pass_time)

    def _pass(self, held_lease: HeldLease, now: float) -> bool:
        heir = self._next()
        if heir is None or not held_lease.compatible_with(heir.spec):
            return False
        held_lease.owner = nobody
        self._give(heir, self._grant(heir, held_lease, now))
        return True

    def _hand_on(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """The waiter whose turn it is withdraws: the next one has the turn, or the keeper releases the lock."""
        if not self._may_keep(attempt.spec, held_lease, now := self.clock()) or not self._pass(held_lease, now):
            self._give_back(held_lease)

    def _pass_over(self) -> None:
        """Hand the turn on if its owner's event loop is closed and the owner has not taken the lock yet."""
        attempt, held_lease = self.turn_of, self.held_lease
        if not isinstance(attempt, Attempt) or attempt.slot is None or not attempt.slot.gone():
            return
        if held_lease is None:
            place = self.node.waiting.get(attempt.token)
            if place is None and attempt.may_be_on_server:
                # The server may have granted what it asked for, and nobody reads the answer: the next one asks after that.
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
        # Those outside who do not wait ask again only where the token says that this may be.
        if self.queue or self.asked or not spec.linger or self.held_lease is None or not self.held_lease.token.endswith("~"):
            return False
        self.held_lease.owner = nobody
        self.linger_until = now + spec.linger
        self.node.look_at(self, self.linger_until)
        self.turn_of = None
        return True

    def _grant(self, attempt: Attempt, held_lease: HeldLease, now: float, *, renewed: bool = False) -> Grant:
        """The next fence; 0 where the server has to be asked first, because there is none left, or too little time.
        ``renewed``: just now, so what the trip has left of it is enough, or one would ask again for ever."""
        fence, left = 0, held_lease.deadline - now
        if self.fence < self.last and (left >= min(USEFUL_LEFT_S, held_lease.ttl / 2) or (renewed and left > 0)):
            fence = self.fence = self.fence + 1
            self.passes += 1
        self.held_lease = held_lease
        if held_lease.label != attempt.spec.label:
            held_lease.label = attempt.spec.label
            self.node.label_changed(held_lease)
        return Grant(attempt, fence, now, held_lease.deadline, held_lease=held_lease)

    def _give_back(self, held_lease: HeldLease) -> None:
        """Nobody here has it: the keeper gives it back."""
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
        """Return the first in the queue. Those whose event loop is closed stand there no more; they are kept until the change
        is done, because their tasks may be destroyed when they are dropped."""
        while self.queue:
            first = self.queue[0]
            if first.slot is None or not first.slot.gone():
                return first
            self.untold.append((first, None))
            self.queue.popleft()
        return None

    def _give(self, attempt: Attempt, turn: Turn) -> None:
        """It is this one's turn. In this order: an interrupt may come in between, and `withdraw` makes up for it."""
        attempt.turn = turn
        self.turn_of = attempt
        self._step_out(attempt)
        self.untold.append((attempt, None))

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        attempt.turn = Failed(error)
        self.untold.append((attempt, None))
        self._step_out(attempt)
