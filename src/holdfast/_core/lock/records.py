"""A lock, as all its operations see it; and the records of one acquisition, in the order of its life.

`Attempt` is one try to get it, `Waiter` its place in the queue of the server. `Grant` is what comes of it, or what it is
given in the line of its process (`Turn`); `HeldLease` is the lease, until it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, overload

from holdfast._core.lock.replies import MUTEX, Busy, Scripts
from holdfast._core.names import guard_key, prefix_of
from holdfast._core.requests import Outcome, Run, Slot, WireError
from holdfast._core.struct import Struct

INFINITY = float("inf")

CLAIM_AFTER_S = 0.05
"""Seconds after a hand-over at which the claim window is turned into the full lease; a lock held for less saves the trip."""

BOUNDED = "max_hold has passed"
"""Why a lease is lost that nobody may hold for longer."""

GRID = 16
"""Renewals are looked up in slots of 1/16 second; of leases longer than 8 s, all in a slot are due together."""


S = TypeVar("S")
V = TypeVar("V")


class cached_property(Generic[S, V]):  # noqa: N801 - as the one of functools
    """`functools.cached_property` as of Python 3.12. The older one has a mutex: a child that is forked while another thread
    holds it would wait for it for ever. Here two threads may compute the same value."""

    def __init__(self, compute: Callable[[S], V]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[S]) -> Self: ...

    @overload
    def __get__(self, instance: S, owner: type[S]) -> V: ...

    def __get__(self, instance: S | None, owner: type[S]) -> Self | V:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def margin(ttl: float) -> float:
    """Return the drift margin of a lease, for clocks of different speed: one percent and two milliseconds (as Redlock)."""
    return ttl * 0.01 + 0.002


def whole(believed: float) -> float:
    """The lease of which so many seconds can be believed in: `margin` is taken off it."""
    return (believed + 0.002) / 0.99


class Permits(NamedTuple):
    """The permits of a holder."""

    scripts: Scripts
    kind: str
    """Of the format on the server: 'semaphore 1' or 'rwlock 1'."""
    wanted: int
    limit: int | None
    """How many there are; None: as many as others have said."""
    fixed: bool = False
    """Nobody can change how many there are."""


class _Spec(NamedTuple):
    """The fields of a `Spec`, which has room for what follows from them."""

    name: str
    keys: tuple[bytes, bytes, bytes]
    ttl: float
    renew: bool
    max_hold: float | None
    timeout: float
    """Longest wait for one answer: far below the lease, so that there is time to ask again."""
    linger: float = 0.0
    """Seconds for which the lease is kept after use, unless somebody else asks for it."""
    max_passes: int = 32
    max_pass_time: float = 0.01
    """How often, and how long, it is passed on inside the process while somebody outside waits."""
    replicas: int = 0
    """How many replicas must have it before it counts as taken."""
    guard: float = 0.0
    """The longest lease: for so long a server that may have forgotten grants none. 0: it grants at once."""
    progress_within: float | None = None
    """A holder that has not checked in for so long is held to be hung."""
    yields: bool = False
    """A wait for it may be ended with Deadlock, to end a cycle of waiters."""
    permits: Permits | None = None
    """None: there is one, and one holder."""
    home: bytes = b""
    """The prefix whose inbox and record serve it, where its key does not show that: it is one of the user's own."""
    label: str | None = None
    """The label shown to other processes."""


class Spec(_Spec):
    """A lock, as all its operations see it. Times in seconds."""

    @property
    def key(self) -> str:
        """The lock's key, for messages."""
        return self.keys[0].decode(errors="backslashreplace")

    @cached_property
    def granting(self) -> tuple[bytes, ...]:
        """The keys for the scripts that may grant the lock, to this token or another one."""
        return (*self.keys, guard_key(self.prefix)) if self.guard else self.keys

    @cached_property
    def prefix(self) -> bytes:
        """The prefix whose inbox, record and marker serve it."""
        return self.home or prefix_of(self.keys[0])

    def signed(self, drawn: str) -> str:
        """Return a new token, made of one that was drawn, from which scripts see whose inbox and record serve it."""
        return drawn.replace(".", f"@{self.home.hex()}.", 1) if self.home else drawn

    def token(self, drawn: str) -> str:
        """Return the token for an attempt: the drawn one, the prefix, and the mark."""
        return self.signed(drawn) + self.token_suffix

    @cached_property
    def guarded(self) -> tuple[int, ...]:
        """Return the arguments that follow all others."""
        return (milliseconds(self.guard),) if self.guard else ()

    @cached_property
    def is_passable(self) -> bool:
        """It may be held for as long as one likes: only such a lease is passed on."""
        return self.renew and self.max_hold is None and self.progress_within is None

    @cached_property
    def token_suffix(self) -> str:
        """Return the end of its tokens, for the server: whether the holder may keep the lock, or how many permits it wants."""
        return f"*{self.permits.wanted}" if self.permits else "~" if self.linger else ""

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        """Return the arguments of an acquire that follow its own."""
        if self.permits is None:
            return ()
        return (self.permits.kind, "" if self.permits.limit is None else self.permits.limit)

    @cached_property
    def first_ttl(self) -> float:
        return self.ttl if self.max_hold is None else min(self.ttl, self.max_hold)

    @cached_property
    def renew_grid(self) -> int:
        """Renewals are due at multiples of 1/grid second, so that many leave together."""
        return GRID << int(8 / self.ttl).bit_length()

    @cached_property
    def renew_part(self) -> float:
        """The part of the lease after which it is renewed: a third, or up to an eighth less, so that leases which were taken
        together are soon renewed at different times."""
        return (1 - int.from_bytes(self.keys[0][-8:], "big") % 61 / 488) / 3

    @cached_property
    def first_ms(self) -> int:
        return milliseconds(self.first_ttl)


def answer_within(ttl: float) -> float:
    """Seconds to wait for an answer about a lease of ``ttl``: far less than it, or there would be no time to ask again."""
    return max(ttl / 10, min(ttl / 3, 0.2))


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def scripts(spec: Spec) -> Scripts:
    """The scripts that the server runs for such a lock."""
    return MUTEX if spec.permits is None else spec.permits.scripts


class Tally(Protocol):
    """Counts for the lock object that an attempt is made by."""

    acquisitions: int
    losses: int
    ended: int

    def waits(self, attempt: Attempt, /) -> None:
        """It has begun to wait for another holder; said again each time that it goes on."""

    def held(self, seconds: float, /) -> None:
        """Count a lease that has ended after so many seconds."""


class Queue(Protocol):
    """The queue of this process for a lock (`_core.lock.local_queue.LocalQueue`), as others see it."""

    trouble: Exception | None
    """Why the server said nothing, when one of us asked last."""

    @property
    def prefix(self) -> bytes:
        """Of whose inbox those outside tell something to those in here."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards all of it."""

    @property
    def turn_of(self) -> object:
        """The attempt whose turn it is: it holds the lock, or asks the server for it."""

    @property
    def held_lease(self) -> HeldLease | None:
        """The lease of this process, from the first pass on. Without `turn_of`: it lingers."""

    @property
    def last(self) -> int:
        """The last fence of the block."""

    @property
    def question(self) -> object:
        """The question about the lease that was put because somebody here wants the lock; None: it is answered."""

    def retake(self, attempt: Attempt) -> Grant | None:
        """The lease that lingers, if one does that is good for this attempt, with its next fence."""

    def enter(self, attempt: Attempt) -> Turn | None:
        """Somebody wants the lock. None: it stands in line, and will be woken when it is given something."""

    def answered(self, token: str, made: float, *, known: bool) -> None:
        """A renewal made at local time ``made`` was answered, or failed. ``known``: the server knows the lease still."""

    def has_lease(self, attempt: Attempt) -> bool:
        """It is this one's turn, and the process has the lock already."""

    def note_grant(self, attempt: Attempt, grant: Grant) -> None:
        """The server granted the lock to the attempt that asks for all."""

    def note_lease(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """The lease of what this one took."""

    def pass_on(self, attempt: Attempt, held_lease: HeldLease, now: float) -> bool | None:
        """The holder is done with the lock. True: the next one here has it, or it lingers. False: it has to go back to the
        server. None: somebody else was quicker to give it back."""

    def give_back(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """The holder is done with the lock, and cannot wait for the release: the keeper does it."""

    def on_released(self, attempt: Attempt | None = None) -> None:
        """The lock is back at the server, or was never had: the next in line asks for it. ``attempt``: whose turn it was."""

    def on_collected(self, held_lease: HeldLease) -> None:
        """The owner of the lease is gone and has not released it: the lease expires."""

    def withdraw(self, attempt: Attempt) -> None:
        """A waiter has withdrawn, even if it was given the lock just now."""

    def pass_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """The attempt that asks for all gives up its wait: the next one here inherits its place in the server's queue."""

    def pass_abandoned_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """As `pass_place_on`, for one whose event loop was closed without ending it; the mutex is held."""

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """Have this raised where an attempt stands in line. False: it does not; the mutex is held."""

    def on_asked(self) -> None:
        """Somebody outside waits; the mutex is held."""

    def on_time(self, now: float) -> float:
        """Do what is due; answers when there is more to do (local seconds); the mutex is held."""


class Attempt:
    """One try to get a lock, under one token. A token is never used for a second attempt."""

    __slots__ = (
        "hasty",
        "local_queue",
        "may_be_on_server",
        "maybe_in_flight",
        "slot",
        "spec",
        "tally",
        "token",
        "turn",
        "unclaimed",
        "until",
        "waited",
    )  # fmt: skip

    def __init__(
        self,
        spec: Spec,
        token: str = "",
        *,
        may_be_on_server: bool = False,
        maybe_in_flight: bool = False,
        until: float | None = None,
        slot: Slot | None = None,
        local_queue: Queue | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.spec = spec
        self.token = token
        self.may_be_on_server = may_be_on_server
        """Something of this attempt may be on the server: its lock, or its place in the queue."""
        self.maybe_in_flight = maybe_in_flight
        """A copy of a request of ours may still be on its way to the server."""
        self.until = until
        """Local time at which the wait ends; None: never."""
        self.waited = False
        """It has waited for others of this process: a server that is away then is ridden out."""
        self.hasty = False
        """It never waits, not even for a holder who may only linger: a signal handler cannot, where it has interrupted us."""
        self.slot = slot
        self.local_queue = local_queue
        """Queue of all attempts of this process at this lock; None: this one stands in the server's queue only."""
        self.turn: Turn | None = None
        """Turn that it was given in the local queue."""
        self.tally = tally
        self.unclaimed: Any = None
        """The lease that came of it, from its first line on until the caller has it. Without this, an interrupt in between
        would drop the lease, and the lock would have no owner for the whole ttl."""

    def waits(self) -> None:
        """It has to wait for another holder."""
        if self.tally is not None:
            self.tally.waits(self)

    @property
    def outage_budget(self) -> float:
        """Seconds for which a server that is away is ridden out."""
        return float("inf") if self.until is not None else max(self.spec.ttl, 30.0)

    @property
    def introduction(self) -> Run[int] | None:
        """The name that it tells the server with its place in the queue, for `_core.election`."""
        return None


class Waiter:
    """One attempt, while it stands in line."""

    __slots__ = (
        "asked_under",
        "attempt",
        "awaits_inbox",
        "busy",
        "down",
        "hint",
        "hinted_at",
        "in_flight",
        "last_contact",
        "late",
        "refresh_at",
        "told",
    )

    def __init__(self, attempt: Attempt, busy: Busy) -> None:
        self.attempt = attempt
        self.awaits_inbox = False
        self.told: float | None = None
        """Send time of the last request that was answered "waiting"; None before the first."""
        self.busy = busy
        """The last answer that said "waiting"."""
        self.refresh_at = 0.0
        self.hint = 0
        """Highest fence of a message that came before the answer that put us into the queue."""
        self.hinted_at = -INFINITY
        """When the server was asked last because of a message (local seconds)."""
        self.asked_under = 0
        """Which subscription of the inbox it was that listened when the last question was asked."""
        self.in_flight = False
        self.last_contact = 0.0
        self.late = False
        """It was told that its time is up."""
        self.down: WireError | None = None
        """Why the server cannot be asked just now."""

    def put(self, outcome: Outcome | None) -> None:
        assert self.attempt.slot is not None
        self.attempt.slot.put(outcome)

    def move_to(self, heir: Attempt) -> None:
        """Somebody else of this process has the place from now on."""
        former = self.attempt
        if former is not heir:
            # In this order: after an interrupt it is moved once more.
            heir.token, heir.may_be_on_server, heir.maybe_in_flight = (
                former.token,
                former.may_be_on_server,
                former.maybe_in_flight,
            )
            self.attempt, self.late = heir, False
            former.token, former.may_be_on_server, former.maybe_in_flight = "", False, False


class Grant(Struct):
    """A lock that was taken: under which token and fence, and until when (local seconds) it may be believed."""

    __slots__ = __match_args__ = (
        "attempt",
        "fence",
        "taken",
        "deadline",
        "in_claim_window",
        "queued",
        "last",
        "held_lease",
        "whole",
    )

    def __init__(
        self,
        attempt: Attempt,
        fence: int,
        taken: float,
        deadline: float,
        *,
        in_claim_window: bool = False,
        queued: bool = False,
        last: int = 0,
        held_lease: HeldLease | None = None,
    ) -> None:
        self.attempt = attempt
        self.fence = fence
        self.taken = taken
        self.deadline = deadline
        self.in_claim_window = in_claim_window
        """Handed over by the last holder: the lease is the claim window until it is renewed."""
        self.queued = queued
        """It stood in the queue at the server; or may have."""
        self.last = last
        """The last fence of the block."""
        self.held_lease = held_lease
        """The lease that it is part of, where another one of this process had it before."""
        self.whole: HeldLease | None = None
        """The lease that it is, where that is made of several: of the votes of several servers."""


class AskServer(Struct):
    """You ask the server, for all. ``place``: what an earlier one has left there."""

    __slots__ = __match_args__ = ("place",)

    def __init__(self, place: Waiter | None = None) -> None:
        self.place = place


class Failed(Struct):
    """The one who asked for all has found that the server is not there."""

    __slots__ = __match_args__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


Turn = Grant | AskServer | Failed
"""Result that an attempt in the local queue is given."""


class Owner(Protocol):
    def notice_loss(self) -> None:
        """The lease is lost; called once, by whoever notices."""


def nobody() -> None:
    return None


class HeldLease:
    """One held lock, from the grant to its end. ``lost`` is why it ended before it was given back; empty while it has not."""

    __slots__ = (
        "asked_at",
        "deadline",
        "ends_at",
        "fence",
        "hint",
        "label",
        "local_queue",
        "lost",
        "maybe_in_flight",
        "over",
        "owner",
        "question_at",
        "questioned_at",
        "renew_at",
        "shares",
        "since",
        "spec",
        "stalled_at",
        "token",
        "ttl",
    )

    def __init__(self, grant: Grant) -> None:
        spec = grant.attempt.spec
        self.spec: Spec = spec
        self.token = grant.attempt.token
        self.maybe_in_flight = grant.attempt.maybe_in_flight
        self.ttl = spec.ttl
        self.fence = grant.fence
        """That of the grant."""
        self.shares = spec.permits.wanted if spec.permits is not None and spec.permits.fixed else 0
        """How many permits it holds, where nobody can change how many there are."""
        self.since = grant.taken
        """When it was taken (local seconds)."""
        self.deadline = grant.deadline
        self.asked_at = 0.0
        """When the last renewal was made, by hand or by the keeper: its number, too."""
        self.ends_at = INFINITY if spec.max_hold is None else grant.taken + spec.max_hold
        self.stalled_at = INFINITY if spec.progress_within is None else grant.taken + spec.progress_within
        """Local time at which its holder counts as hung, unless it checks in before."""
        self.renew_at = INFINITY
        if spec.renew and grant.in_claim_window:
            self.renew_at = self.due_at(grant.taken + CLAIM_AFTER_S + 1 / spec.renew_grid)
        elif spec.renew:
            self.renew_at = self.due_at(grant.taken + (grant.deadline - grant.taken) * spec.renew_part)
        self.local_queue: Queue | None = None
        """Queue of the attempts of this process, if it is not the local queue of the key on one server."""
        self.label = spec.label
        """Of the lock object that has it now: it may be passed on to another one."""
        self.hint = ""
        """The name in the message that reported the lease as taken away; used once the server confirms."""
        self.question_at = INFINITY
        """When the server is to be asked, because of such a message;"""
        self.questioned_at = -INFINITY
        """and when it was asked last because of one (local seconds)."""
        self.lost = ""
        self.over = False
        """Given back, or not to be watched any more."""
        self.owner: Callable[[], Owner | None] = nobody
        """Weak reference to whom to tell of the loss: a lease that nobody holds on to is not kept alive by its renewal."""

    def remaining(self, now: float) -> float:
        """Seconds for which the lease may still be believed."""
        return 0.0 if self.lost or self.over else max(0.0, self.good_until - now)

    def due_at(self, at: float) -> float:
        """When a renewal is due that is wanted at ``at`` (local seconds): then, or a moment earlier."""
        grid = self.spec.renew_grid
        return int(at * grid) / grid

    @property
    def good_until(self) -> float:
        """Until when it may be believed, if nothing is heard of server and holder meanwhile (local seconds)."""
        return min(self.deadline, self.ends_at, self.stalled_at)

    @property
    def latest(self) -> float:
        """When it ends at the server by itself, as far as is known (local seconds)."""
        return self.deadline

    @property
    def wants_at(self) -> float:
        """When it wants attention next (local seconds)."""
        return min(self.renew_at, self.question_at, self.good_until)

    def progressed(self, now: float) -> None:
        """Its holder has checked in. The keeper finds that out when it looks."""
        if self.spec.progress_within is not None:
            self.stalled_at = now + self.spec.progress_within

    @property
    def why_stalled(self) -> str:
        return f"no progress for {self.spec.progress_within or 0:g} s"

    @property
    def stalled(self) -> bool:
        """Lost because its holder has not checked in: the server has it still, for the rest of the lease."""
        return self.lost == self.why_stalled

    @property
    def why_over(self) -> str:
        """Why the lease is over when it may be believed no more."""
        if self.stalled_at < min(self.deadline, self.ends_at):
            return self.why_stalled
        bounded = self.ends_at - self.deadline <= margin(self.ttl) + 0.001
        return BOUNDED if bounded else "its time ran out before a renewal was confirmed"

    def compatible_with(self, spec: Spec) -> bool:
        """It can be passed on to somebody who asked for such a lock."""
        mine = self.spec
        fits = spec.is_passable and spec.ttl == self.ttl and spec.replicas <= mine.replicas
        fits = fits and spec.guard in {0.0, mine.guard}
        return fits and (spec is mine or mine.is_passable)

    def end(self) -> None:
        """Mark the lease as released: it is no longer watched, and nobody is told of its loss."""
        self.over = True
        self.owner = nobody

    def lose(self, reason: str) -> bool:
        """Mark as lost. True for the first to notice."""
        if self.lost or self.over:
            return False
        self.lost = reason
        return True

    def holder(self) -> Owner | None:
        """Return the lease object of the user, or the one that this is a part of; None if nothing refers to it any more."""
        return self.owner()

    def lost_with_it(self) -> HeldLease | None:
        """Return the lease that its owner has lost, now that this one is lost."""
        return self

    def giving_back(self, *, revoke: bool, timeout: float) -> Run[int]:
        """The request that gives it back. ``revoke``: a copy of the one that took it may still come."""
        how = "bury" if revoke else "release"
        return Run(scripts(self.spec).release, self.spec.granting, (self.token, how, *self.spec.guarded), timeout)

    def note_request(self, now: float, ttl: float) -> float:
        """A lease of ``ttl`` seconds is about to be asked for. If that is less than what is believed now, it is what can be
        believed from now on: the answer may get lost. Answers when it is made, later than all before: its number."""
        self.asked_at = max(now, self.asked_at + 2e-6)
        self.deadline = min(self.deadline, now + ttl - margin(ttl))
        return self.asked_at

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """The server confirmed a lease of ``ttl`` seconds, asked for at ``made`` and sent at ``sent`` (local times)."""
        if made < self.asked_at:
            return  # another one is under way, or was answered: it may be shorter, and the server goes by that one
        self.deadline = sent + ttl - margin(ttl)
        if self.spec.renew:
            # The last lease that max_hold allows is not renewed again.
            self.renew_at = self.due_at(sent + ttl * self.spec.renew_part) if ttl >= self.ttl else self.deadline


class Held(Protocol):
    """Something that is held under a lease."""

    @property
    def held_lease(self) -> HeldLease:
        """The lease."""

    def notice_loss(self) -> None:
        """The lease is lost; called once, by whoever notices."""
