"""The records of a lock and of one acquisition, which all lock operations share.

`Spec` describes a lock. An `Attempt` is one try to acquire the lock, and a `Waiter` is the attempt's position in the queue of
the server. A `Grant` is the result of a successful attempt. A `Turn` is the result that an attempt gets from the queue of its
process. A `HeldLease` is the lease, from its grant to its end.
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
"""Seconds after a hand-over at which the short claim window is renewed to the full lease, unless the lock is released
before."""

BOUNDED = "max_hold has passed"
"""Reason of the loss of a lease that was held for as long as ``max_hold`` allows."""

GRID = 16
"""Number of time slots per second: renewals of leases longer than 8 s that fall into one slot are sent together."""


S = TypeVar("S")
V = TypeVar("V")


class cached_property(Generic[S, V]):  # noqa: N801 - as the one of functools
    """A replacement of `functools.cached_property` without a mutex, like that of Python 3.12.

    The `cached_property` of Python 3.11 has a mutex. If another thread holds the mutex during a fork, the child waits forever.
    Without a mutex, two threads may compute the same value.
    """

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
    """Return the drift margin of a lease, in seconds, for clocks of different speed: 1% plus 2 ms (as in Redlock)."""
    return ttl * 0.01 + 0.002


def whole(believed: float) -> float:
    """Return the full length, in seconds, of a lease of which ``believed`` seconds remain after `margin` was subtracted."""
    return (believed + 0.002) / 0.99


class Permits(NamedTuple):
    """The permits of a semaphore or read-write lock that one attempt acquires."""

    scripts: Scripts
    kind: str
    """Format of the permits on the server: 'semaphore 1' or 'rwlock 1'."""
    wanted: int
    limit: int | None
    """Total number of permits; None: the number that other clients have set."""
    fixed: bool = False
    """True if the total number of permits can never change, as for a read-write lock."""


class _Spec(NamedTuple):
    """The fields of a `Spec`; the subclass adds the values computed from them."""

    name: str
    keys: tuple[bytes, bytes, bytes]
    ttl: float
    renew: bool
    max_hold: float | None
    timeout: float
    """Longest wait for one reply, in seconds: much less than the lease, so that there is time to ask again."""
    linger: float = 0.0
    """Seconds for which the lease is kept after its release, for quick reuse, unless another client wants the lock."""
    max_passes: int = 32
    """Maximum number of times that the lock is handed on inside this process while other processes wait for it."""
    max_pass_time: float = 0.01
    """Seconds for which the lock may be handed on inside this process while other processes wait for it."""
    replicas: int = 0
    """Number of replicas that must acknowledge the lock before it counts as acquired; 0: none."""
    guard: float = 0.0
    """Seconds of quarantine, in which a server that may have lost its data grants no lock; 0: no quarantine."""
    progress_within: float | None = None
    """Seconds without a call of ``progress()`` after which the holder counts as hung and loses the lease; None: never."""
    yields: bool = False
    """True if a wait for this lock may be ended with Deadlock, to break a cycle of waiters."""
    permits: Permits | None = None
    """Permits to acquire, of a semaphore or read-write lock; None: a plain lock with one holder."""
    home: bytes = b""
    """Prefix of the keys of the holder's inbox and process record, for a lock whose ``key=`` does not show a prefix."""
    label: str | None = None
    """Label of the lock's user, shown to other processes; None: the label of the process."""


class Spec(_Spec):
    """A lock with its options, as all operations on the lock see it. Times are in seconds."""

    @property
    def key(self) -> str:
        """Return the key of the lock as text, for messages."""
        return self.keys[0].decode(errors="backslashreplace")

    @cached_property
    def granting(self) -> tuple[bytes, ...]:
        """Return the keys for scripts that may grant the lock to any token: with the key of the quarantine, if there is one."""
        return (*self.keys, guard_key(self.prefix)) if self.guard else self.keys

    @cached_property
    def prefix(self) -> bytes:
        """Return the prefix under which the inbox, process record and quarantine key of this lock are stored."""
        return self.home or prefix_of(self.keys[0])

    def signed(self, drawn: str) -> str:
        """Return the random token ``drawn``, extended by `home` if set: scripts derive inbox and process record from the
        result."""
        return drawn.replace(".", f"@{self.home.hex()}.", 1) if self.home else drawn

    def token(self, drawn: str) -> str:
        """Return the token for an attempt: the random text ``drawn`` with the prefix (see `signed`) and `token_suffix`."""
        return self.signed(drawn) + self.token_suffix

    @cached_property
    def guarded(self) -> tuple[int, ...]:
        """Return the quarantine in milliseconds as the last script argument; an empty tuple without a quarantine."""
        return (milliseconds(self.guard),) if self.guard else ()

    @cached_property
    def is_passable(self) -> bool:
        """Return True if renewals may continue without limit (no ``max_hold``): only such a lease is handed on inside the
        process."""
        return self.renew and self.max_hold is None and self.progress_within is None

    @cached_property
    def token_suffix(self) -> str:
        """Return the end of each token: ``~`` if the holder may keep the lock after release; for permits, ``*`` and their
        number."""
        return f"*{self.permits.wanted}" if self.permits else "~" if self.linger else ""

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        """Return the script arguments for permits (their format and limit); an empty tuple for a plain lock."""
        if self.permits is None:
            return ()
        return (self.permits.kind, "" if self.permits.limit is None else self.permits.limit)

    @cached_property
    def first_ttl(self) -> float:
        return self.ttl if self.max_hold is None else min(self.ttl, self.max_hold)

    @cached_property
    def renew_grid(self) -> int:
        """Return the number of points in time per second at which renewals may be due, so that many renewals are sent
        together."""
        return GRID << int(8 / self.ttl).bit_length()

    @cached_property
    def renew_part(self) -> float:
        """Return the fraction of the lease after which it is renewed: a third, or up to an eighth less, depending on the key.

        So leases that were acquired together are soon renewed at different times.
        """
        return (1 - int.from_bytes(self.keys[0][-8:], "big") % 61 / 488) / 3

    @cached_property
    def first_ms(self) -> int:
        return milliseconds(self.first_ttl)


def answer_within(ttl: float) -> float:
    """Return the seconds to wait for a reply about a lease of ``ttl`` seconds, so that enough time is left for retries."""
    return max(ttl / 10, min(ttl / 3, 0.2))


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def scripts(spec: Spec) -> Scripts:
    """Return the server scripts for a lock: those of a plain lock, or those of its permits."""
    return MUTEX if spec.permits is None else spec.permits.scripts


class Tally(Protocol):
    """The counters of a lock object, updated by its attempts."""

    acquisitions: int
    losses: int
    ended: int

    def waits(self, attempt: Attempt, /) -> None:
        """Count an attempt that begins to wait for another holder; repeated calls for one attempt count once."""

    def held(self, seconds: float, /) -> None:
        """Count a lease that ended after it was held for this many seconds."""


class Queue(Protocol):
    """The queue of this process for one lock, as other modules use it; see `_core.lock.local_queue.LocalQueue`."""

    trouble: Exception | None
    """Error of the last request that this process sent for the lock; None: the server replied."""

    @property
    def prefix(self) -> bytes:
        """Return the prefix of the inbox through which other processes notify this queue."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that guards the whole queue."""

    @property
    def turn_of(self) -> object:
        """Return the attempt that has the turn, so holds the lock or asks the server for it; None: no attempt has it."""

    @property
    def held_lease(self) -> HeldLease | None:
        """Return the lease that this process holds, or None; if no attempt has the turn, the lease lingers (is kept for
        reuse)."""

    @property
    def last(self) -> int:
        """Return the last fence that the server has reserved for this lease."""

    @property
    def question(self) -> object:
        """Return the early renewal that checks whether the lease still exists on the server; None: none is under way."""

    def retake(self, attempt: Attempt) -> Grant | None:
        """Return a grant of the lease that lingers (is kept after release), if it fits; None: the attempt has to call
        `enter`."""

    def enter(self, attempt: Attempt) -> Turn | None:
        """Return the turn for an attempt: a grant, or permission to ask the server.

        None: the attempt is queued, and is woken later.
        """

    def answered(self, token: str, made: float, *, known: bool) -> None:
        """Note the result of a renewal made at monotonic time ``made``. ``known``: True if the server confirmed the lease."""

    def has_lease(self, attempt: Attempt) -> bool:
        """Return True if this attempt has the turn and the process already holds the lock."""

    def note_grant(self, attempt: Attempt, grant: Grant) -> None:
        """Note that the server has granted the lock to the attempt that asked for it."""

    def note_lease(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """Note the lease that was created from the attempt's grant, as the lease that this process holds."""

    def pass_on(self, attempt: Attempt, held_lease: HeldLease, now: float) -> bool | None:
        """Hand the lock on inside this process, after its holder has released it.

        Return True if the next waiter has the lock, or the lease lingers (is kept for quick reuse). Return False if the caller
        has to release the lock on the server. Return None if another caller released it first.
        """

    def give_back(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """Have the keeper (background thread) release the lock, for a holder that cannot wait for the release."""

    def on_released(self, attempt: Attempt | None = None) -> None:
        """Let the next waiter ask the server: the lock was released there, or was not acquired.

        ``attempt``: the attempt that had the lock or asked the server; None: the keeper thread released the lock.
        """

    def on_collected(self, held_lease: HeldLease) -> None:
        """Let the next waiter ask the server, after the lease's owner was garbage-collected without a release.

        The lease expires.
        """

    def withdraw(self, attempt: Attempt) -> None:
        """Remove an attempt that gives up, even if it just got the lock.

        The next waiter gets the lock, or asks the server for it.
        """

    def pass_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """Pass the position in the server's queue from an attempt that stops waiting to the next waiter.

        Return False if there is no waiter, or the position is lost.
        """

    def pass_abandoned_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """Pass on the position in the server's queue as `pass_place_on` does, for an attempt whose event loop was closed.

        The caller holds the mutex.
        """

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """End the wait of a queued attempt with ``error``. Return False if the attempt is not queued.

        The caller holds the mutex.
        """

    def on_asked(self) -> None:
        """Note that another process waits for the lock; the caller holds the mutex."""

    def on_time(self, now: float) -> float:
        """Do the work of the timers that are due; return the monotonic time, in seconds, of the next timer.

        The caller holds the mutex.
        """


class Attempt:
    """One try to acquire a lock, under a token of its own."""

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
        """True if the server may store the lock or a position in its queue for this attempt."""
        self.maybe_in_flight = maybe_in_flight
        """True if a copy of a request of this attempt may still be on its way to the server."""
        self.until = until
        """Monotonic time, in seconds, at which the wait ends; None: never."""
        self.waited = False
        """True if the attempt has waited for other attempts of this process; an outage of the server is then tolerated."""
        self.hasty = False
        """True if the attempt never waits, because it runs in a signal handler, which cannot wait for the code that it
        interrupted."""
        self.slot = slot
        self.local_queue = local_queue
        """Queue of all attempts of this process for the lock; None: this attempt is in the server's queue only."""
        self.turn: Turn | None = None
        """Turn that the attempt got in the local queue: a grant, an error, or permission to ask the server; None: no turn
        yet."""
        self.tally = tally
        self.unclaimed: Any = None
        """Lease that this attempt acquired, from its creation until the caller has received it; None: no lease.

        Without this reference, an interrupt in between would drop the lease, and nobody could release the lock for its whole
        ttl.
        """

    def waits(self) -> None:
        """Count in the lock's statistics that this attempt waits for another holder."""
        if self.tally is not None:
            self.tally.waits(self)

    @property
    def outage_budget(self) -> float:
        """Return the seconds for which an outage of the server is tolerated; infinity if the attempt has a deadline."""
        return float("inf") if self.until is not None else max(self.spec.ttl, 30.0)

    @property
    def introduction(self) -> Run[int] | None:
        """Return the request that tells the server a candidate's name (`_core.election`); None: the attempt has no name."""
        return None


class Waiter:
    """The position of one attempt in the server's queue."""

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
        "requested_ttl",
        "told",
    )

    def __init__(self, attempt: Attempt, busy: Busy) -> None:
        self.attempt = attempt
        self.awaits_inbox = False
        self.told: float | None = None
        """Monotonic time, in seconds, at which the last request was sent that the server answered with "waiting"; None: none
        yet."""
        self.busy = busy
        """Last reply that said "waiting"."""
        self.refresh_at = 0.0
        self.requested_ttl = 0.0
        """Lease, in seconds, that the latest refresh requested.

        An attempt that inherits the position may want another lease.
        """
        self.hint = 0
        """Highest fence in a hand-over message that arrived before the reply that put this waiter into the queue; 0: none."""
        self.hinted_at = -INFINITY
        """Monotonic time, in seconds, of the last request that was sent because of a message."""
        self.asked_under = 0
        """How often the inbox had been subscribed when the last request was sent: a later subscription may have missed
        messages."""
        self.in_flight = False
        self.last_contact = 0.0
        self.late = False
        """True if the waiter was notified that its wait has ended."""
        self.down: WireError | None = None
        """Error because of which the server cannot be asked at present; None: it can be asked."""

    def put(self, outcome: Outcome | None) -> None:
        assert self.attempt.slot is not None
        self.attempt.slot.put(outcome)

    def move_to(self, heir: Attempt) -> None:
        """Move this position in the server's queue, with its token, to another attempt of the process."""
        former = self.attempt
        if former is not heir:
            # An interrupt may come between any two of these steps: in this order, moving the place once more completes them.
            heir.token, heir.may_be_on_server, heir.maybe_in_flight = (
                former.token,
                former.may_be_on_server,
                former.maybe_in_flight,
            )
            self.attempt, self.late = heir, False
            former.token, former.may_be_on_server, former.maybe_in_flight = "", False, False


class Grant(Struct):
    """A granted lock: its token and fence, and the monotonic time until which its holder may rely on it."""

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
        """True if the last holder handed the lock over: the lease is only the short claim window until its first renewal."""
        self.queued = queued
        """True if the attempt waited in the server's queue, or may have."""
        self.last = last
        """Last of the fences that the server reserved with this grant."""
        self.held_lease = held_lease
        """Lease that another attempt of this process acquired before, and that was handed on with this grant; None: a new
        lease."""
        self.whole: HeldLease | None = None
        """Lease that consists of the votes of several servers; None: the lock is on one server."""


class AskServer(Struct):
    """The permission for an attempt to ask the server for the lock.

    ``place``: inherited position in the server's queue, or None.
    """

    __slots__ = __match_args__ = ("place",)

    def __init__(self, place: Waiter | None = None) -> None:
        self.place = place


class Failed(Struct):
    """The result for an attempt in the local queue if its process could not reach the server."""

    __slots__ = __match_args__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


Turn = Grant | AskServer | Failed
"""The result that an attempt gets in the queue of its process: a grant, the permission to ask the server, or an error."""


class Owner(Protocol):
    def notice_loss(self) -> None:
        """Notify the user that the lease is lost; called once."""


def nobody() -> None:
    return None


class HeldLease:
    """A lease that this process holds, from its grant to its end. ``lost``: reason why it was lost; empty while it is not."""

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
        """Fence of the grant. Each time the lease is handed on inside the process, the new holder gets a later fence."""
        self.shares = spec.permits.wanted if spec.permits is not None and spec.permits.fixed else 0
        """Number of permits that the lease holds, if the total number of permits is fixed; otherwise 0."""
        self.since = grant.taken
        """Monotonic time, in seconds, of the grant."""
        self.deadline = grant.deadline
        self.asked_at = 0.0
        """Monotonic time, in seconds, at which the last renewal was requested (by the user or the keeper); also its sequence
        number."""
        self.ends_at = INFINITY if spec.max_hold is None else grant.taken + spec.max_hold
        self.stalled_at = INFINITY if spec.progress_within is None else grant.taken + spec.progress_within
        """Monotonic time, in seconds, at which the holder counts as hung unless it reports progress before."""
        self.renew_at = INFINITY
        if spec.renew:
            after = (grant.deadline - grant.taken) * spec.renew_part
            if grant.in_claim_window:
                after = min(after, CLAIM_AFTER_S + 1 / spec.renew_grid)
            self.renew_at = self.due_at(grant.taken + after)
        self.local_queue: Queue | None = None
        """Local queue of a lock on several servers; None: the lock is on one server, and its queue is found by the key."""
        self.label = spec.label
        """Label of the lock object that holds the lease now; handing the lease on may change it."""
        self.hint = ""
        """Name of the person that broke the lock, according to a message; used once the server confirms the loss.

        Empty: none.
        """
        self.question_at = INFINITY
        """Monotonic time, in seconds, at which to ask the server whether the lease still exists; infinity: never."""
        self.questioned_at = -INFINITY
        """Monotonic time, in seconds, at which the server was last asked whether the lease still exists; -infinity: never."""
        self.lost = ""
        self.over = False
        """True once the lease is released, or is no longer renewed and watched for another reason."""
        self.owner: Callable[[], Owner | None] = nobody
        """Weak reference to the object that is notified of a loss: an owner that the program has dropped is not kept alive."""

    def remaining(self, now: float) -> float:
        """Return the seconds for which the holder may still rely on the lease; 0 if the lease has ended."""
        return 0.0 if self.lost or self.over else max(0.0, self.good_until - now)

    def due_at(self, at: float) -> float:
        """Return the monotonic time, in seconds, of a renewal wanted at ``at``: rounded down, so that many share a request."""
        grid = self.spec.renew_grid
        return int(at * grid) / grid

    @property
    def good_until(self) -> float:
        """Return the monotonic time, in seconds, until which the lease is valid without another renewal or progress report."""
        return min(self.deadline, self.ends_at, self.stalled_at)

    @property
    def latest(self) -> float:
        """Return the monotonic time, in seconds, at which the lease expires on the server, as far as is known."""
        return self.deadline

    @property
    def wants_at(self) -> float:
        """Return the monotonic time, in seconds, at which the keeper (background thread) has to renew or check the lease
        next."""
        return min(self.renew_at, self.question_at, self.good_until)

    def progressed(self, now: float) -> None:
        """Note that the holder reported progress; the keeper thread takes the new time into account when it next checks the
        lease."""
        if self.spec.progress_within is not None:
            self.stalled_at = now + self.spec.progress_within

    @property
    def why_stalled(self) -> str:
        return f"no progress for {self.spec.progress_within or 0:g} s"

    @property
    def stalled(self) -> bool:
        """Return True if the lease was lost because its holder reported no progress; the server keeps it until it expires."""
        return self.lost == self.why_stalled

    @property
    def why_over(self) -> str:
        """Return the reason why a lease that is no longer valid by the monotonic clock was lost."""
        if self.stalled_at < min(self.deadline, self.ends_at):
            return self.why_stalled
        bounded = self.ends_at - self.deadline <= margin(self.ttl) + 0.001
        return BOUNDED if bounded else "its time ran out before a renewal was confirmed"

    def compatible_with(self, spec: Spec) -> bool:
        """Return True if the lease can be handed on to an attempt for ``spec``: the ttl is equal and the options fit."""
        mine = self.spec
        fits = spec.is_passable and spec.ttl == self.ttl and spec.replicas <= mine.replicas
        fits = fits and spec.guard in {0.0, mine.guard}
        return fits and (spec is mine or mine.is_passable)

    def end(self) -> None:
        """Mark the lease as released: it is no longer watched, and its loss is no longer reported."""
        self.over = True
        self.owner = nobody

    def lose(self, reason: str) -> bool:
        """Mark the lease as lost for this reason. Return True for the first caller, which has to report the loss."""
        if self.lost or self.over:
            return False
        self.lost = reason
        return True

    def holder(self) -> Owner | None:
        """Return the object that owns the lease; None if it was garbage-collected."""
        return self.owner()

    def lost_with_it(self) -> HeldLease | None:
        """Return the lease that the user loses together with this one; None if enough other servers still grant it."""
        return self

    def giving_back(self, *, revoke: bool, timeout: float) -> Run[int]:
        """Return the request that releases the lock.

        ``revoke``: True if a copy of the acquire request may still arrive, which the server must then refuse.
        """
        how = "bury" if revoke else "release"
        return Run(scripts(self.spec).release, self.spec.granting, (self.token, how, *self.spec.guarded), timeout)

    def note_request(self, now: float, ttl: float) -> float:
        """Note that a lease of ``ttl`` seconds is about to be requested; return the monotonic time of the request.

        That time is also the sequence number of the request, so it is higher than all before. If ``ttl`` is less than the time
        that is left, the deadline is brought forward now: the reply may get lost.
        """
        self.asked_at = max(now, self.asked_at + 2e-6)
        self.deadline = min(self.deadline, now + ttl - margin(ttl))
        return self.asked_at

    def renewed(self, made: float, sent: float, ttl: float) -> None:
        """Note that the server confirmed a lease of ``ttl`` seconds.

        ``made``: monotonic time at which the renewal was created, also its sequence number; ``sent``: monotonic time at which
        it was sent.
        """
        if made < self.asked_at:
            return  # a later request is under way or answered: its lease may be shorter, and the server follows the later one
        self.deadline = sent + ttl - margin(ttl)
        if self.spec.renew:
            # The last lease that max_hold allows is not renewed again.
            self.renew_at = self.due_at(sent + ttl * self.spec.renew_part) if ttl >= self.ttl else self.deadline


class Held(Protocol):
    """An object that is held under a lease."""

    @property
    def held_lease(self) -> HeldLease:
        """Return the lease."""

    def notice_loss(self) -> None:
        """Notify the user that the lease is lost; called once."""
