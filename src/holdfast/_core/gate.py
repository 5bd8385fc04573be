"""One contender per process: tasks and threads that want the same lock stand in a line of their own, and one of them asks the
server for all. What it gets is passed on along the line, with the next fences of the block that the server has reserved.

Nobody outside is kept waiting for it: once somebody is known to wait there, the lease goes back to the server after a bounded
number of passes, and a bounded time. Lock cohorting: D. Dice, V. Marathe, N. Shavit, "Lock Cohorting", PPoPP 2012.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._core.attempt import Attempt, Grant, Spec, margin
from holdfast._core.mutex import BLOCK, Busy, Held
from holdfast._core.renewing import nobody
from holdfast._core.requests import TimedOut, WireError

if TYPE_CHECKING:
    from holdfast._core.renewing import Tenure
    from holdfast._core.surroundings import Surroundings
    from holdfast._core.waiting import Waiter

LIMIT = 1.0
"""Seconds after which a lease goes back to the server in any case: the message that somebody waits there may be lost."""

USEFUL = 1.0
"""Seconds that are left at least of a lease that is passed on, or half of its length; what is shorter is renewed first."""

LOOK = 0.0002
"""Seconds between looks for a sign that somebody outside wants it: in a busy interpreter the keeper waits 5 ms to read it."""

MORE = 1000
"""Fences that are asked for at most when the block is used up and nobody waits outside: as many as were used since the lock was
taken, or numbers that nobody uses would run ahead of the server's clock."""


@dataclass(slots=True)
class Lead:
    """You ask the server, for all. ``place``: what an earlier one has left there."""

    place: Waiter | None = None


@dataclass(slots=True)
class Failed:
    """The one who asked for all has found that the server is not there."""

    error: Exception


class _KeepersTurn:
    """In the place of whose turn it is: the keeper's, which is giving the lock back."""


KEEPER = _KeepersTurn()


Given = Grant | Lead | Failed
"""What one in line is given."""


class Gate:
    """Who of this process has a lock, and who wants it. All methods may be called from any thread."""

    __slots__ = (
        "__weakref__",
        "asked",
        "clock",
        "crowded",
        "fence",
        "heard",
        "last",
        "late_at",
        "line",
        "linger_until",
        "mutex",
        "next_look",
        "node",
        "passes",
        "taken",
        "tenure",
        "trouble",
        "who",
    )

    def __init__(self, node: Surroundings) -> None:
        self.node = node
        self.mutex = node.mutex
        self.clock = node.clock
        self.who: Attempt | _KeepersTurn | None = None
        """Whose turn it is: it holds the lock, or asks the server for it."""
        self.line: deque[Attempt] = deque()
        """Who waits for that one, in order of arrival."""
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
        self.heard = Busy(0.0, 0, "", lingers=False)
        """What the server said last to one of us who had to wait."""
        self.trouble: Exception | None = None
        """Why it said nothing, when one of us asked last."""

    # Coming

    def retake(self, attempt: Attempt) -> Grant | None:
        """The lease that lingers, if one does that is good for this attempt, with its next fence. None: see `enter`."""
        tenure = self.tenure
        if tenure is None or self.who is not None:
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
            who = self.who
            if isinstance(who, Attempt) and self.tenure is None and who.slot is not None and who.slot.gone():
                place = self.node.waiting.get(who.token)  # who asks the server for all was left behind by a closed loop
                if place is None or not self.bequeath(who, place):
                    self._lead(None)
            self.node.be_reachable()
            if attempt.until is not None and attempt.until < self.late_at:
                self.late_at = attempt.until
                self.node.look_at(self, attempt.until)
            return None

    def received(self, attempt: Attempt) -> Given | None:
        """What somebody in line was given; None: nothing, and he stands in line no more."""
        with self.mutex:
            given = attempt.given
            if given is None or isinstance(given, Failed) or (self.line and self.line[0] is attempt):
                self._step_out(attempt)
            if not isinstance(given, Lead):  # a place in the queue is to be found again when this is interrupted
                attempt.given = None
            # What an interrupted one had begun to give is not ours until our name is there.
            return given if self.who is attempt or isinstance(given, Failed) else None

    def busy(self, attempt: Attempt) -> Busy | None:
        """What somebody is told who does not wait. None: the server has to be asked."""
        with self.mutex:
            tenure = self.tenure
            if tenure is None or tenure.lost or self.who is attempt or not isinstance(self.who, Attempt):
                return None
            return Busy(tenure.remaining(self.clock()), self.last, tenure.token.partition(".")[0], False)

    def leads(self) -> bool:
        """Somebody of this process is asking the server."""
        return isinstance(self.who, Attempt) and self.tenure is None

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
        """What was passed on, or kept, is lost: ask the server anew. A late renewal may have made it longer there."""
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
        """Who leads was given the lock by the server."""
        with self.mutex:
            self.fence, self.last, self.taken, self.passes, self.trouble = grant.fence, grant.last, grant.taken, 0, None
            # Others behind us in the queue have told an earlier holder. What was heard while we asked may be meant for us.
            self.crowded = grant.queued or self.node.asked_for(attempt.token)
            self.asked |= self.crowded

    # Going

    def pass_on(self, attempt: Attempt, tenure: Tenure, now: float) -> bool | None:
        """Who has the lock is done with it. True: the next one here has it, or it lingers. False: it has to go back to the
        server, and `left` says when it has. None: somebody else was quicker to give it back."""
        with self.mutex:
            if tenure.over or (self.who is not attempt and not tenure.lost):
                return None
            if (
                (self.line or attempt.spec.linger)
                and not tenure.lost
                and self._may_keep(attempt.spec, tenure, now)
                and (self._pass(tenure, now) or self._linger(attempt.spec, now))
            ):
                return True
            tenure.over = True
            return False

    def left(self, attempt: Attempt | None = None) -> None:
        """The lock is back at the server, or was never had: the next in line asks for it. ``attempt``: whose turn it was."""
        with self.mutex:
            if self.who is (attempt or KEEPER):
                self.tenure = None
                self._lead(None)

    def dropped(self, tenure: Tenure) -> None:
        """Who had the lease is no more, and has not given it back: it ends by itself."""
        with self.mutex:
            if self.tenure is tenure:
                self.tenure = None
                self._lead(None)

    def withdraw(self, attempt: Attempt) -> None:
        """Somebody wants it no more, whatever he was given just now. What he has at the server himself, he gives up himself."""
        with self.mutex:
            self._step_out(attempt)
            given, tenure = attempt.given, self.tenure
            if self.who is not attempt:
                self._nudge()
            elif tenure is not None and not tenure.over:
                if not self._may_keep(attempt.spec, tenure, now := self.clock()) or not self._pass(tenure, now):
                    self._give_back(tenure)
            elif not isinstance(given, Lead) or given.place is None or not self.bequeath(attempt, given.place):
                if isinstance(given, Lead) and given.place is not None:
                    self.node.waiting.delist(given.place)
                self.tenure = None
                self._lead(None)

    def bequeath(self, attempt: Attempt, place: Waiter) -> bool:
        """Who leads stands in the queue at the server, and gives up: the next one here inherits the place. False: there is
        nobody, or the place is no more."""
        with self.mutex:
            if self.who is not attempt or not self.line or not self.node.waiting.stands(place):
                return False
            self._lead(place)
            if self.who is None:
                self.who = attempt
                place.move_to(attempt)
                return False
            return True

    def close(self, error: WireError) -> None:
        """This process stops: nobody waits any more. Called with the mutex held."""
        line, self.line = self.line, deque()
        for attempt in line:
            attempt.given = Failed(error)
            self._wake(attempt)

    def failed(self, attempt: Attempt, error: Exception) -> None:
        """Who leads could not reach the server. All who would wait for ever are told; the others try for themselves."""
        with self.mutex:
            if self.who is attempt:
                for other in [other for other in self.line if other.until is None]:
                    other.given = Failed(error)
                    self._wake(other)
                    self.line.remove(other)
                self._lead(None)

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
                self.line.remove(late)
                if late.slot is not None:
                    late.slot.put(TimedOut())
            self.late_at = min((one.until for one in self.line if one.until is not None), default=float("inf"))
        return min(self.late_at, self.linger_until if self.who is None and self.tenure is not None else float("inf"))

    # With the mutex held

    def _step_out(self, attempt: Attempt) -> None:
        if attempt in self.line:
            self.line.remove(attempt)

    def _nudge(self) -> None:
        """Wake whose turn it is, in case that an interrupt has hit just before that was done."""
        if isinstance(self.who, Attempt) and self.who.given is not None:
            self._give(self.who, self.who.given)
        elif self.who is KEEPER and self.tenure is not None:
            self._give_back(self.tenure)

    def _may_keep(self, spec: Spec, tenure: Tenure, now: float) -> bool:
        if not self.node.reachable:
            self.node.be_reachable()
            return False
        if now >= min(self.taken + LIMIT, tenure.deadline) or not tenure.suits(spec):
            return False
        if now >= self.next_look:
            self.next_look = now + LOOK
            self.asked = self.asked or self.node.stirs()
        return not self.asked or (self.passes < spec.max_passes and now < self.taken + spec.max_pass_time)

    def _pass(self, tenure: Tenure, now: float) -> bool:
        holder = self.who
        while self.line and tenure.suits(self.line[0].spec):
            heir = self.line[0]
            tenure.owner = nobody
            given = self._give(heir, self._grant(heir, tenure, now))
            self.line.popleft()
            if given:
                return True
        self.who = holder
        return False

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
        return Grant(attempt, fence, now, tenure.deadline, tenure=tenure)

    def _give_back(self, tenure: Tenure) -> None:
        """Nobody here has it: the keeper gives it back."""
        self.who = KEEPER
        self.node.give_back(self, tenure)
        self.tenure = None

    def _lead(self, place: Waiter | None) -> None:
        self.asked = False
        while self.line:
            heir = self.line[0]
            if place is not None:
                place.move_to(heir)
            given = self._give(heir, Lead(place))
            self.line.popleft()
            if given:
                return
        self.who = None

    def _give(self, attempt: Attempt, given: Given) -> bool:
        """It is this one's turn. False: its event loop is closed."""
        attempt.given = given
        self.who = attempt
        return self._wake(attempt)

    @staticmethod
    def _wake(attempt: Attempt) -> bool:
        return attempt.slot is None or attempt.slot.put(None) is not False
