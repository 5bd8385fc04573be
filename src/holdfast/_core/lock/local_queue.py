"""One contender per process: tasks and threads that want the same lock stand in a line of their own, and one of them asks the
server for all. The lease is handed on along the queue, with the next fences of the block that the server has reserved.

The queue changes under the mutex, and only our own code runs there. The change records whose turn it is; `tell` wakes that
attempt after the mutex is free. If `tell` is interrupted, the next caller repeats it. A signal handler or finaliser may run in
the middle of a change, in the thread that makes it: what it asks for is done after the change.

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

from holdfast._core.lock.records import Attempt, Failed, Given, Grant, Lead, Spec, margin, nobody
from holdfast._core.lock.renewal import QUESTION_EVERY
from holdfast._core.lock.replies import BLOCK, UNHEARD, Busy, Held
from holdfast._core.requests import Outcome, TimedOut, WireError
from holdfast._core.struct import Struct

if TYPE_CHECKING:
    from holdfast._core.lock.ports import Surroundings
    from holdfast._core.lock.records import Tenure, Waiter

LIMIT = 1.0
"""Seconds after which a lease goes back to the server in any case: the message that somebody waits there may be lost."""

USEFUL = 1.0
"""Seconds that are left at least of a lease that is passed on, or half of its length; what is shorter is renewed first."""

LOOK = 0.0002
"""Seconds between looks for a sign that somebody outside wants it: in a busy interpreter the keeper waits 5 ms to read it."""

MORE = 1000
"""Fences that are asked for at most when the block is used up and nobody waits outside: as many as were used since the lock was
taken, or numbers that nobody uses would run ahead of the server's clock."""


class _KeepersTurn:
    """In the place of whose turn it is: the keeper's, which is giving the lock back."""


KEEPER = _KeepersTurn()


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


class Gate:
    """The holder of a lock in this process, and the queue of those that want it. All methods may be called from any thread."""

    __slots__ = (
        "__weakref__",
        "asked",
        "clock",
        "crowded",
        "fence",
        "in_change",
        "last",
        "last_reply",
        "late_at",
        "line",
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
        "taken",
        "tenure",
        "trouble",
        "untold",
        "who",
    )

    def __init__(self, node: Surroundings, prefix: bytes) -> None:
        self.node = node
        self.prefix = prefix
        """Of whose inbox those outside tell something to those in here."""
        self.mutex = node.mutex
        self.in_change = node.in_change
        self.clock = node.clock
        self.who: Attempt | _KeepersTurn | None = None
        """Whose turn it is: it holds the lock, or asks the server for it."""
        self.line: deque[Attempt] = deque()
        """Who waits for that one, in order of arrival."""
        self.untold: deque[tuple[Attempt, Outcome | None]] = deque()
        """Attempts to wake after the change, each with its outcome."""
        self.passing: Attempt | None = None
        """The attempt that is passing the lock on."""
        self.tenure: Tenure | None = None
        """The lease of this process, from the first pass on. Without `who`: it lingers."""
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
        self.last_reply = UNHEARD
        """What the server said last to one of us who had to wait."""
        self.trouble: Exception | None = None
        """Why it said nothing, when one of us asked last."""

    @property
    def reachable(self) -> bool:
        """Those outside can say that they wait."""
        return self.node.reachable(self.prefix)

    # Coming

    def retake(self, attempt: Attempt) -> Grant | None:
        """The lease that lingers, if one does that is good for this attempt, with its next fence. None: see `enter`."""
        tenure = self.tenure
        if tenure is None or self.who is not None or self.in_change():
            return None
        with self.mutex:
            if self.who is not None or self.tenure is not tenure or tenure.lost or not tenure.suits(attempt.spec):
                return None
            grant = self._grant(attempt, tenure, self.clock())
            if not grant.fence:
                return None
            self.who = attempt
            return grant

    def enter(self, attempt: Attempt) -> Given | None:
        """Somebody wants the lock. None: it stands in line, and will be woken when it is given something."""
        with self.mutex:
            given = self._enter(attempt)
        self.tell()
        return given

    def received(self, attempt: Attempt) -> Given | None:
        """Return what a waiter was given; None: nothing, and it is not in the queue any more."""
        with self.mutex:
            given = attempt.given
            if given is None or isinstance(given, Failed) or (self.line and self.line[0] is attempt):
                self._step_out(attempt)
            if not isinstance(given, Lead):  # a place in the queue is to be found again when this is interrupted
                attempt.given = None
            # A turn that an interrupted caller had begun to give is ours only when our name is there.
            return given if self.who is attempt or isinstance(given, Failed) else None

    def busy(self, attempt: Attempt) -> Busy | None:
        """Return the answer for a caller that does not wait. None: the server has to be asked."""
        with self.mutex:
            tenure = self.tenure
            if tenure is None or tenure.lost or self.who is attempt or not isinstance(self.who, Attempt):
                return None
            now = self.clock()
            left = max(0.0, tenure.latest - now) if tenure.over else tenure.remaining(now)  # over: it is on its way back
            return Busy(left, self.last, tenure.token.partition(".")[0], False)

    def questions(self, attempt: Attempt, now: float) -> bool:
        """Have the server asked, for a caller that does not wait, whether it knows the lease still. True: the caller stands in
        line until `Attempt.until`, which is brought forward when the server has said yes. False: nothing is asked; a question
        was put less than a second ago."""
        with self.mutex:
            question = self.question
            if question is not None and self.tenure is not None and question.token == self.tenure.token:
                question.callers.append(attempt)
                return True
            if now < self.questioned_at + QUESTION_EVERY or not self._put_question(now):
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
        self.tell()

    def leads(self) -> bool:
        """Somebody of this process is asking the server, in an event loop that is not closed."""
        who = self.who
        slot = who.slot if isinstance(who, Attempt) else None
        return isinstance(who, Attempt) and self.tenure is None and not (slot is not None and slot.gone())

    def has_lease(self, attempt: Attempt) -> bool:
        """It is this one's turn, and the process has the lock already."""
        return self.who is attempt and self.tenure is not None

    def wanted(self) -> int:
        """How many fences to ask for besides more time: none as long as there are some."""
        if self.fence < self.last:
            return 0
        return BLOCK if self.asked else min(MORE, max(BLOCK, self.passes))

    def freshened(self, attempt: Attempt, tenure: Tenure, held: Held, sent: float) -> Grant:
        """The server has given more fences and time to what was passed on."""
        with self.mutex:
            tenure.deadline = max(tenure.deadline, sent + tenure.ttl - margin(tenure.ttl))
            if held.last != self.last:
                self.fence, self.last = held.fence - 1, held.last
            return self._grant(attempt, tenure, self.clock(), renewed=True)

    def lost(self) -> Lead:
        """Forget the local lease, which is lost, and return a turn that asks the server.

        A late renewal may have made it longer there.
        """
        with self.mutex:
            if self.tenure is not None:
                self.node.give_back(None, self.tenure)
            self.tenure, self.asked = None, False
            return Lead()

    def had(self, attempt: Attempt, tenure: Tenure) -> None:
        """The lease of what this one took."""
        if self.who is attempt:
            with self.mutex:
                self.tenure, self.asked = tenure, self.asked or self.node.asked_for(tenure.token)

    def took(self, attempt: Attempt, grant: Grant) -> None:
        """The server granted the lock to the attempt that asks for all."""
        with self.mutex:
            self.fence, self.last, self.taken, self.passes, self.trouble = grant.fence, grant.last, grant.taken, 0, None
            # Others behind us in the queue have told an earlier holder. A notification that came meanwhile may be meant for us.
            self.crowded = grant.queued or self.node.asked_for(attempt.token)
            self.asked |= self.crowded

    # Going

    def pass_on(self, attempt: Attempt, tenure: Tenure, now: float) -> bool | None:
        """The holder is done with the lock. True: the next one here has it, or it lingers. False: it has to go back to the
        server, and `left` says when it has. None: somebody else was quicker to give it back."""
        nested = self.in_change()  # a signal handler: what it has interrupted may be about to change the queue
        with self.mutex:
            # First of all: a signal handler may release it, too, and of the two who do one is told that it was given back.
            earlier, self.passing = self.passing, attempt
            if tenure.over or earlier is attempt or (self.who is not attempt and not tenure.lost):
                self.passing = earlier
                return None
            kept = (
                not nested
                and bool(self.line or attempt.spec.linger)
                and not tenure.lost
                and self._may_keep(attempt.spec, tenure, now)
                and (self._pass(tenure, now) or self._linger(attempt.spec, now))
            )
            tenure.over = not kept
            self.passing = earlier  # a signal handler may have released another one, in the middle of a release
        if self.untold:
            self.tell()
        return kept

    def give_back(self, attempt: Attempt, tenure: Tenure) -> None:
        """The holder is done with the lock, and cannot wait for the release: the keeper does it."""
        with self.mutex:
            if self.who is attempt:
                self._give_back(tenure)

    def left(self, attempt: Attempt | None = None) -> None:
        """The lock is back at the server, or was never had: the next in line asks for it. ``attempt``: whose turn it was."""
        if self.in_change():
            self.node.later(partial(self.left, attempt))
            return
        with self.mutex:
            if self.who is (attempt or KEEPER):
                self.tenure = None
                self._lead(None)
        self.tell()

    def dropped(self, tenure: Tenure) -> None:
        """The owner of the lease is gone and has not released it: the lease expires."""
        with self.mutex:
            if self.tenure is tenure:
                self.tenure = None
                self._lead(None)
        self.tell()

    def withdraw(self, attempt: Attempt) -> None:
        """A waiter has withdrawn, even if it was given the lock just now.

        The waiter itself gives up what it has at the server.
        """
        if self.in_change():
            self.node.later(partial(self.withdraw, attempt))
            return
        with self.mutex:
            self._step_out(attempt)
            given, tenure = attempt.given, self.tenure
            if self.who is not attempt:
                self._nudge()
            elif tenure is not None and not tenure.over:
                self._hand_on(attempt, tenure)
            elif not isinstance(given, Lead) or given.place is None or not self._bequeath(attempt, given.place):
                if isinstance(given, Lead) and given.place is not None:
                    self.node.waiting.delist(given.place)
                self.tenure = None
                self._lead(None)
        self.tell()

    def bequeath(self, attempt: Attempt, place: Waiter) -> bool:
        """The attempt that asks for all gives up its wait: the next one here inherits its place in the server's queue. False:
        there is nobody, or the place is no more."""
        if self.in_change():
            return False
        with self.mutex:
            bequeathed = self._bequeath(attempt, place)
        self.tell()
        return bequeathed

    def left_behind(self, attempt: Attempt, place: Waiter) -> bool:
        """As `bequeath`, for one whose event loop was closed without ending it. Called with the mutex held, as is `tell`."""
        bequeathed = self._bequeath(attempt, place)
        self.tell()
        return bequeathed

    def close(self, error: WireError) -> None:
        """This process stops: nobody waits any more. Called with the mutex held."""
        while self.line:
            self._fail(self.line[0], error)
        self.tell()

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """Have this raised where an attempt stands in line. False: it does not. Called with the mutex held."""
        if attempt not in self.line:
            return False
        self._fail(attempt, error)
        self.tell()
        return True

    def failed(self, attempt: Attempt, error: Exception) -> None:
        """The attempt that asks for all could not reach the server.

        All who would wait for ever are told; the others try for themselves.
        """
        with self.mutex:
            if self.who is attempt:
                for other in [*self.line]:
                    if other.until is None:
                        self._fail(other, error)
                self._lead(None)
        self.tell()

    # Telling

    def tell(self) -> None:
        """Wake those for whom something has changed, with the mutex free: an event loop that is closed may destroy its tasks at
        that, which give up what they wait for. To wake somebody twice does no harm."""
        while self.untold:
            if self.in_change():
                self.node.later(self.tell)
                return
            with self.mutex:
                first = self.untold[0] if self.untold else None
            if first is None:
                return
            attempt, outcome = first
            slot = attempt.slot  # the keeper may take it away just now
            woken = slot is None or slot.put(outcome) is not False
            with self.mutex:
                if not woken and self.who is attempt:
                    self._pass_over()
                if self.untold and self.untold[0] is first:
                    self.untold.popleft()

    # Asked by others; the mutex is held

    def on_asked(self) -> None:
        """Somebody outside waits."""
        self.asked = True
        if self.who is None and self.tenure is not None:
            self._give_back(self.tenure)

    def on_time(self, now: float) -> float:
        """Give back what has lingered long enough, and wake who has waited long enough: drivers do that, too, but their timers
        stand still while the machine sleeps. When there is more to do (local seconds; infinity: never)."""
        if self.who is None and self.tenure is not None and now >= self.linger_until:
            self._give_back(self.tenure)
        if now >= self.late_at:
            for late in [one for one in self.line if one.until is not None and one.until <= now]:
                self.untold.append((late, TimedOut()))
                self.line.remove(late)
            self.tell()
            self.late_at = min((one.until for one in self.line if one.until is not None), default=float("inf"))
        if now >= self.question_at:
            self.question_at = self._question_due(now) if self.line else float("inf")
            if self.line:  # its loop may have been closed after it was woken
                self._pass_over()
                self.tell()
        until = self.linger_until if self.who is None and self.tenure is not None else float("inf")
        return min(self.late_at, until, self.question_at)

    # With the mutex held

    def _enter(self, attempt: Attempt) -> Given | None:
        if self.who is None:
            tenure = self.tenure
            if tenure is None or tenure.lost:
                self.who, self.asked = attempt, False
                return self.lost()
            if tenure.suits(attempt.spec):
                self.who = attempt
                return self._grant(attempt, tenure, self.clock())
            self._give_back(tenure)
        self.line.append(attempt)
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
        if self.tenure is not None and (until is None or until > now + QUESTION_EVERY):
            known = max(known, self.taken, self.tenure.asked_at)
        if now >= known + QUESTION_EVERY:
            self._put_question(now)
            return now + QUESTION_EVERY
        return known + QUESTION_EVERY

    def _put_question(self, now: float) -> bool:
        """Renew the lease now, to learn whether the server knows it still. False: there is nothing to ask."""
        tenure = self.tenure
        if tenure is None or tenure.lost or tenure.over or not isinstance(self.who, Attempt):
            return False
        asked, enough = self.node.question(tenure)
        if not asked:
            return False
        self.question, self.questioned_at = Question(tenure.token, now, asked, enough), now
        return True

    def _step_out(self, attempt: Attempt) -> None:
        if self.line and self.line[0] is attempt:
            self.line.popleft()
        elif attempt in self.line:
            self.line.remove(attempt)

    def _nudge(self) -> None:
        """Wake whose turn it is, in case that an interrupt has hit just before that was done."""
        if isinstance(self.who, Attempt) and self.who.given is not None:
            self._give(self.who, self.who.given)
        elif self.who is KEEPER and self.tenure is not None:
            self._give_back(self.tenure)

    def _may_keep(self, spec: Spec, tenure: Tenure, now: float) -> bool:
        if not self.reachable:
            self.node.be_reachable(self.prefix)
            return False
        if now >= min(self.taken + LIMIT, tenure.deadline) or not tenure.suits(spec):
            return False
        if now >= self.next_look:
            self.next_look = now + LOOK
            self.asked = self.asked or self.node.has_unread()
        return not self.asked or (self.passes < spec.max_passes and now < self.taken + spec.max_pass_time)

    def _pass(self, tenure: Tenure, now: float) -> bool:
        heir = self._next()
        if heir is None or not tenure.suits(heir.spec):
            return False
        tenure.owner = nobody
        self._give(heir, self._grant(heir, tenure, now))
        return True

    def _hand_on(self, attempt: Attempt, tenure: Tenure) -> None:
        """The waiter whose turn it is withdraws: the next one has the turn, or the keeper releases the lock."""
        if not self._may_keep(attempt.spec, tenure, now := self.clock()) or not self._pass(tenure, now):
            self._give_back(tenure)

    def _pass_over(self) -> None:
        """Hand the turn on if its owner's event loop is closed and the owner has not taken the lock yet."""
        attempt, tenure = self.who, self.tenure
        if not isinstance(attempt, Attempt) or attempt.slot is None or not attempt.slot.gone():
            return
        if tenure is None:
            place = self.node.waiting.get(attempt.token)
            if place is None and attempt.pending:
                # The server may have granted what it asked for, and nobody reads the answer: the next one asks after that.
                self.who = KEEPER
                self.node.bury(self, attempt)
                attempt.pending = False
            elif place is None or not self._bequeath(attempt, place):
                self._lead(None)
        elif isinstance(attempt.given, Grant) and not tenure.over:
            self._hand_on(attempt, tenure)

    def _bequeath(self, attempt: Attempt, place: Waiter) -> bool:
        if self.who is not attempt or self._next() is None or not self.node.waiting.stands(place):
            return False
        self._lead(place)
        return True

    def _linger(self, spec: Spec, now: float) -> bool:
        # Those outside who do not wait ask again only where the token says that this may be.
        if self.line or self.asked or not spec.linger or self.tenure is None or not self.tenure.token.endswith("~"):
            return False
        self.tenure.owner = nobody
        self.linger_until = now + spec.linger
        self.node.look_at(self, self.linger_until)
        self.who = None
        return True

    def _grant(self, attempt: Attempt, tenure: Tenure, now: float, *, renewed: bool = False) -> Grant:
        """The next fence; 0 where the server has to be asked first, because there is none left, or too little time.
        ``renewed``: just now, so what the trip has left of it is enough, or one would ask again for ever."""
        fence, left = 0, tenure.deadline - now
        if self.fence < self.last and (left >= min(USEFUL, tenure.ttl / 2) or (renewed and left > 0)):
            fence = self.fence = self.fence + 1
            self.passes += 1
        self.tenure = tenure
        if tenure.label != attempt.spec.label:
            tenure.label = attempt.spec.label
            self.node.label_changed(tenure)
        return Grant(attempt, fence, now, tenure.deadline, tenure=tenure)

    def _give_back(self, tenure: Tenure) -> None:
        """Nobody here has it: the keeper gives it back."""
        self.who = KEEPER
        self.node.give_back(self, tenure)
        self.tenure = None

    def _lead(self, place: Waiter | None) -> None:
        self.asked = False
        heir = self._next()
        if heir is None:
            self.who = None
            return
        if place is not None:
            place.move_to(heir)
        self._give(heir, Lead(place))

    def _next(self) -> Attempt | None:
        """Return the first in the queue. Those whose event loop is closed stand there no more; they are kept until the change
        is done, because their tasks may be destroyed when they are dropped."""
        while self.line:
            first = self.line[0]
            if first.slot is None or not first.slot.gone():
                return first
            self.untold.append((first, None))
            self.line.popleft()
        return None

    def _give(self, attempt: Attempt, given: Given) -> None:
        """It is this one's turn. In this order: an interrupt may come in between, and `withdraw` makes up for it."""
        attempt.given = given
        self.who = attempt
        self._step_out(attempt)
        self.untold.append((attempt, None))

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        attempt.given = Failed(error)
        self.untold.append((attempt, None))
        self._step_out(attempt)
