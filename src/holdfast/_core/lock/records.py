"""The records of one acquisition of a lock, which all lock operations share.

An `Attempt` is one try to acquire a lock. A `Waiter` is the position of an attempt in the server's queue. A `Grant` is the
result of a successful attempt. A `Turn` is the next step of an attempt, which the queue of its process decides. A `HeldLease`
is the lease. It lasts from the grant to the end of the lease, even if the process hands it on to several holders.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast._core.lock.owner import Owner, nobody
from holdfast._core.lock.replies import Busy
from holdfast._core.lock.spec import Spec, margin, scripts
from holdfast._core.requests import Answer, Outcome, RunScript, Slot, WireError
from holdfast._core.struct import Struct

INFINITY = float("inf")

CLAIM_AFTER_S = 0.05
"""Seconds from a hand-over to the first renewal of the new lease.

A hand-over grants only a short lease, the claim window. The renewal extends it to a full lease. A lock that is released
earlier is never renewed.
"""

BOUNDED = "max_hold has passed"


class Tally(Protocol):
    """The counters of a lock object, updated by its attempts."""

    acquisitions: int
    losses: int
    ended: int
    total_hold: float
    longest_hold: float

    def waits(self, attempt: Attempt, now: float, /) -> None:
        """Count an attempt that begins to wait at monotonic time ``now``, because another client holds the lock.

        Later calls for this attempt count nothing.
        """


def count_hold(tally: Tally, seconds: float) -> None:
    tally.ended += 1
    tally.total_hold += seconds
    if seconds > tally.longest_hold:  # noqa: PLR1730 - takes half the time of max(), and runs on every release
        tally.longest_hold = seconds


class Queue(Protocol):
    """The queue inside this process for one lock, as other modules use it.

    The class is `_core.lock.local_queue.LocalQueue`.
    """

    trouble: Exception | None
    """Error of the last request with which this process asked for the lock; None: the server replied to that request."""

    @property
    def queue(self) -> Sized:
        """Return the attempts of this process that wait for the turn."""

    @property
    def prefix(self) -> bytes:
        """Return the prefix of the inbox, the pub/sub channel on which other processes report that they wait."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that protects this queue."""

    @property
    def held_lease(self) -> HeldLease | None:
        """Return the lease that this process holds; None: no lease.

        A lease that no attempt uses lingers, which means that it was released and is kept for quick reuse.
        """

    @property
    def awaits_check(self) -> bool:
        """Return True if an early renewal, which checks whether the lease still exists on the server, has no reply yet."""

    def retake(self, attempt: Attempt) -> Grant | None:
        """Return a grant of the lease that lingers (was released and is kept for quick reuse).

        Return None if no lease lingers, if its options differ, or if the server must be asked. The attempt then enters the
        queue.
        """

    def answered(self, token: str, made: float, *, known: bool) -> None:
        """Note the result of a renewal that was requested at monotonic time ``made``.

        ``known``: True if the server confirmed the lease; False if it did not reply or the lease is lost.
        """

    def has_lease(self, attempt: Attempt) -> bool:
        """Return True if this process has the lease, and ``attempt`` has the turn."""

    def pass_on(self, attempt: Attempt, held_lease: HeldLease, now: float) -> bool | None:
        """Hand the lock on to the next waiter of this process, after its holder has released it; see `LocalQueue.pass_on`."""

    def give_back(self, attempt: Attempt, held_lease: HeldLease) -> None:
        """Have the keeper (background thread) release the lock on the server, for a holder that cannot wait for the reply."""

    def on_released(self, attempt: Attempt | None = None) -> None:
        """Let the next waiter ask the server, because this process has released the lock or failed to acquire it.

        ``attempt``: the attempt that held the lock or asked for it; None: the keeper thread has released the lock.
        """

    def on_collected(self, held_lease: HeldLease) -> None:
        """Let the next waiter ask the server, because the lease's owner was garbage-collected without a release."""

    @property
    def is_free(self) -> bool:
        """Return True if no attempt of this process holds the lock or asks for it, and no lease lingers."""

    def lead(self, attempt: Attempt) -> None:
        """Let an attempt ask the server for the lock. The queue must be free (`is_free`). The caller holds the mutex."""

    def settle(self, attempt: Attempt, outcome: Grant | Busy | Exception | None) -> None:
        """Note the outcome of the request with which an attempt asked the server for the lock; see `LocalQueue.settle`."""

    def pass_abandoned_place_on(self, attempt: Attempt, place: Waiter) -> bool:
        """Move the position of an attempt whose event loop was closed to the next waiter of this process, if there is one.

        Return True if the next waiter has the position now. The caller holds the mutex.
        """

    def abort_wait(self, attempt: Attempt, error: Exception) -> bool:
        """End the wait of a queued attempt with ``error``. Return False if the attempt is not queued.

        The caller holds the mutex.
        """

    def on_asked(self) -> None:
        """Note that another process waits for the lock.

        If the lease lingers (is kept for quick reuse), have it released at once.

        The caller holds the mutex.
        """

    def on_time(self, now: float) -> float:
        """Do what is due at monotonic time ``now``, as described in `LocalQueue.on_time`. The caller holds the mutex."""


class Registrar(Protocol):
    """The part of the keeper (background thread) that renews the leases of a lock.

    It is a `_core.lock.node.Node` for a lock on one server, and a `_core.quorum.nodes.QuorumNodes` for a lock on several.
    """

    @property
    def keeper(self) -> Any:
        """Return the keeper (background thread). It may have been told to stop."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that protects the leases of this process."""

    def register(self, held_lease: HeldLease, now: float, *, hurry: bool = True) -> list[HeldLease]:
        """Renew a lease from monotonic time ``now`` on, until `forget` is called. The caller holds the mutex.

        Return the older leases that the grant of this one proves to be lost. ``hurry``: as in `_core.lock.renewal.register`.
        """

    def forget(self, held_lease: HeldLease) -> None:
        """Stop renewing a lease."""


class Attempt:
    """One try to acquire a lock. The server knows the attempt by its token."""

    __slots__ = (
        "began",
        "entered",
        "first",
        "hasty",
        "held_lease",
        "held_since",
        "is_direct",
        "led",
        "local_queue",
        "may_be_on_server",
        "maybe_in_flight",
        "node",
        "slot",
        "spec",
        "tally",
        "token",
        "turn",
        "unclaimed",
        "until",
        "waited",
        "waits_since",
    )  # fmt: skip

    spec: Spec
    tally: Tally | None
    token: str
    slot: Slot | None

    may_be_on_server: bool
    """True if the server may store the lock or a position in its queue for this attempt."""
    maybe_in_flight: bool
    """True if a copy of a request of this attempt may still be on its way to the server."""
    until: float | None
    """Monotonic time, in seconds, at which the wait ends; None: never."""
    waited: bool
    """True once the attempt has waited for the lock. From then on, it repeats its requests during an outage."""
    hasty: bool
    """True if a signal handler made this attempt with ``wait=0``, and had interrupted a change of the local queue.

    Such an attempt must not wait, because the interrupted code may hold the lock.
    """
    local_queue: Queue | None
    """Queue of all attempts of this process for the lock; None: this attempt is in the server's queue only."""
    turn: Turn | None
    """Turn that the attempt got in the local queue; None: none yet."""
    node: Registrar | None
    """The part of the keeper that renews the lease; None for an attempt that acquires nothing, such as an undo."""
    is_direct: bool
    """True if the attempt may use `_core.lock.uncontended`. Its `node` is a `Node` then, its `local_queue` a `LocalQueue`."""
    began: float
    """Monotonic time, in seconds, at which `_core.lock.uncontended` began this attempt."""
    led: bool
    """True once `_core.lock.uncontended` has let this attempt ask the server."""
    entered: bool
    """True once `_core.lock.uncontended` has put this attempt into the local queue."""
    first: Answer[Any] | WireError | None
    """Reply or error of the request that `_core.lock.uncontended` sent; None: no such request, or an operation has used it."""
    held_lease: HeldLease | None
    """Lease of this attempt, registered with the keeper; None before the server grants the lock."""
    held_since: float | None
    """Monotonic time, in seconds, of the acquisition; None before it, and after the statistics have counted the hold."""
    waits_since: float | None
    """Monotonic time, in seconds, at which the attempt began to wait, for the statistics; None: it does not wait."""
    unclaimed: Any
    """Lease that this attempt acquired, from its creation until the caller has received it; None: no lease.

    Without this reference, an interrupt in between would drop the lease, and nobody could release the lock for its whole ttl.
    """

    def __init__(  # noqa: PLR0917 - CPython collects the keyword arguments of a class in a dictionary
        self,
        spec: Spec,
        token: str = "",
        local_queue: Queue | None = None,
        tally: Tally | None = None,
        node: Registrar | None = None,
        is_direct: bool = False,
        *,
        may_be_on_server: bool = False,
        maybe_in_flight: bool = False,
        until: float | None = None,
        slot: Slot | None = None,
    ) -> None:
        self.spec, self.token, self.tally, self.node, self.is_direct = spec, token, tally, node, is_direct
        self.may_be_on_server, self.maybe_in_flight = may_be_on_server, maybe_in_flight
        self.until, self.slot, self.local_queue = until, slot, local_queue
        self.began = 0.0
        self.waited = self.hasty = self.led = self.entered = False
        self.turn = self.first = self.held_lease = self.held_since = self.waits_since = self.unclaimed = None

    def count_hold(self, now: float) -> None:
        """Add the seconds from the acquisition to monotonic time ``now`` to the statistics of the lock object, once."""
        since, tally, self.held_since = self.held_since, self.tally, None
        if since is not None and tally is not None:
            count_hold(tally, now - since)

    def waits(self, now: float) -> None:
        if self.tally is not None:
            self.tally.waits(self, now)

    @property
    def outage_budget(self) -> float:
        """Return the seconds for which the attempt retries while the server is unreachable; infinity if `until` is set."""
        return float("inf") if self.until is not None else max(self.spec.ttl, 30.0)

    @property
    def introduction(self) -> RunScript[int] | None:
        """Return the request that stores the candidate's name on the server, for an attempt of an election; otherwise None."""
        return None


class Waiter:
    """The position of one attempt in the server's queue, and what the server last said about it."""

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

    awaits_inbox: bool
    busy: Busy
    refresh_at: float
    requested_ttl: float
    hint: int
    hinted_at: float
    asked_under: int
    in_flight: bool
    last_contact: float
    attempt: Attempt
    late: bool

    def __init__(self, attempt: Attempt, busy: Busy) -> None:
        self.attempt = attempt
        self.awaits_inbox = False
        self.told: float | None = None
        """Monotonic time, in seconds, at which the last request with the reply "waiting" was sent; None: no such reply."""
        self.busy = busy
        """The server's last reply that another client holds the lock."""
        self.refresh_at = 0.0
        self.requested_ttl = 0.0
        """Length of the lease, in seconds, that the latest refresh asked for.

        If another attempt has inherited this position, that attempt may want a lease of another length.
        """
        self.hint = 0
        """Highest fence in a hand-over message that arrived before the reply that put this waiter into the queue; 0: no such
        message."""
        self.hinted_at = -INFINITY
        """Monotonic time, in seconds, of the last request to the server that a hand-over message caused; -infinity: no such
        request."""
        self.asked_under = 0
        """Number of times that the inbox had been subscribed when the last request was sent.

        If the number has grown since, messages may have been missed in between.
        """
        self.in_flight = False
        self.last_contact = 0.0
        self.late = False
        """True if the waiting attempt was woken by its timeout or by an error, such as a deadlock.

        The position stays in the server's queue until the attempt runs, so that another attempt can inherit it.
        """
        self.down: WireError | None = None
        """Error of the last request about this waiter or its inbox; None: the server replied to that request."""

    def put(self, outcome: Outcome | None) -> None:
        assert self.attempt.slot is not None
        self.attempt.slot.put(outcome)

    def move_to(self, heir: Attempt) -> None:
        """Move this server-queue position, together with its token, from its attempt to another attempt of this process."""
        former = self.attempt
        if former is not heir:
            # An interrupt may come between any two of these steps. In this order, moving the place once more completes them.
            heir.token, heir.may_be_on_server, heir.maybe_in_flight = (
                former.token,
                former.may_be_on_server,
                former.maybe_in_flight,
            )
            self.attempt, self.late = heir, False
            former.token, former.may_be_on_server, former.maybe_in_flight = "", False, False


class Grant(Struct):
    """A granted lock, with its attempt, its fence, and the monotonic time until which the holder may rely on the lock.

    If ``fence`` is 0, the attempt has to ask the server for fences, and to renew the lease, before it holds the lock.
    """

    __slots__ = __match_args__ = (
        "attempt",
        "fence",
        "taken",
        "deadline",
        "in_claim_window",
        "queued",
        "last",
        "held_lease",
    )

    attempt: Attempt
    deadline: float
    fence: int
    taken: float

    in_claim_window: bool
    """True if the lease is only the short one that a hand-over grants (the claim window). The first renewal extends it."""
    queued: bool
    """True if others may wait for the lock, for example because the attempt itself waited in the server's queue."""
    last: int
    """Last of the fences that the server reserved with this grant."""
    held_lease: HeldLease | None
    """Lease of this grant, or one that another attempt of this process acquired and handed on; None until it is created."""

    def __init__(  # noqa: PLR0917 - CPython collects the keyword arguments of a class in a dictionary
        self,
        attempt: Attempt,
        fence: int,
        taken: float,
        deadline: float,
        last: int = 0,
        held_lease: HeldLease | None = None,
        *,
        in_claim_window: bool = False,
        queued: bool = False,
    ) -> None:
        self.attempt, self.fence, self.taken, self.deadline = attempt, fence, taken, deadline
        self.in_claim_window, self.queued, self.last = in_claim_window, queued, last
        self.held_lease = held_lease


class AskServer(Struct):
    """The permission for an attempt to ask the server for the lock.

    ``place``: server-queue position that the attempt inherits from another attempt of this process; None: no position.
    ``crowded``: the server's last reply that the lock is busy, if clients of other processes probably still wait for it. An
    attempt that waits then joins the server's queue with its first request. None: the lock may be free.
    """

    __slots__ = __match_args__ = ("place", "crowded")

    place: Waiter | None
    crowded: Busy | None

    def __init__(self, place: Waiter | None = None, crowded: Busy | None = None) -> None:
        self.place = place
        self.crowded = crowded


class Extend(Struct):
    """The instruction to extend a lease on the server before its use, because it has no fence left or is near its end.

    ``fences``: number of further fences to reserve for this process; 0: none.
    """

    __slots__ = __match_args__ = ("held_lease", "fences")

    held_lease: HeldLease
    fences: int

    def __init__(self, held_lease: HeldLease, fences: int) -> None:
        self.held_lease, self.fences = held_lease, fences


Turn = Grant | Extend | AskServer | Exception
"""The next step of an attempt, which the queue of its process decides."""


class HeldLease:
    """A lease that this process holds, from its grant to its end.

    ``lost``: the reason why the lease was lost; empty while it is not lost.
    """

    __slots__ = (
        "asked_at",
        "deadline",
        "ends_at",
        "fence",
        "hint",
        "holder_fence",
        "label",
        "last_fence",
        "latest",
        "local_queue",
        "lost",
        "maybe_in_flight",
        "over",
        "owner",
        "passes",
        "question_at",
        "questioned_at",
        "renew_at",
        "shares",
        "shortest",
        "since",
        "spec",
        "stalled_at",
        "token",
        "ttl",
    )

    maybe_in_flight: bool
    token: str
    ttl: float
    ends_at: float
    lost: str
    deadline: float
    renew_at: float

    spec: Spec
    fence: int
    """Fence of the grant. Each time the lease is handed on inside the process, the new holder gets a higher fence."""
    holder_fence: int
    """Fence of the present or last holder in this process."""
    last_fence: int
    """Highest of the fences that the server has reserved for this process with the lease."""
    passes: int
    """Number of times that the lease was handed on in this process since the grant."""
    shares: int
    """Number of permits that the lease holds, if the total number of permits is fixed; otherwise 0."""
    since: float
    """Monotonic time, in seconds, of the grant."""
    asked_at: float
    """Monotonic time, in seconds, of the last renewal request (by the user or the keeper); also its sequence number."""
    shortest: float
    """Length, in seconds, of the shortest lease requested since the server last recorded the number of a renewal.

    Until the server records a later number, a late copy of the request may still shorten the lease to this length.
    """
    latest: float
    """Latest monotonic time, in seconds, at which a server may still keep the lease. A release is repeated until then."""
    stalled_at: float
    """Monotonic time, in seconds, at which the holder counts as hung unless it reports progress before."""
    local_queue: Queue | None
    """Local queue of a lock on several servers; None: the lock is on one server, and its queue is found by the key."""
    label: str | None
    """Label of the lock object that holds the lease now; handing the lease on may change it."""
    hint: str
    """Name of the person who broke the lock, from a message; empty: no message. The reason for a later loss contains it."""
    question_at: float
    """Monotonic time, in seconds, at which to ask the server whether the lease still exists; infinity: never."""
    questioned_at: float
    """Monotonic time, in seconds, at which the server was last asked whether the lease still exists; -infinity: never."""
    over: bool
    """True once the lease is released, or this process has given it up for another reason. It is then no longer renewed."""
    owner: Callable[[], Owner | None]
    """Weak reference to the object that is notified of a loss, so that the lease does not keep a dropped owner alive."""

    def __init__(self, grant: Grant) -> None:
        attempt, spec = grant.attempt, grant.attempt.spec
        self.spec, self.token, self.maybe_in_flight = spec, attempt.token, attempt.maybe_in_flight
        self.ttl, self.label = spec.ttl, spec.label
        self.fence, self.holder_fence, self.last_fence, self.passes = grant.fence, grant.fence, grant.last, 0
        self.shares = spec.permits.wanted if spec.permits is not None and spec.permits.fixed else 0
        self.since, self.deadline, self.asked_at = grant.taken, grant.deadline, 0.0
        self.ends_at = INFINITY if spec.max_hold is None else grant.taken + spec.max_hold
        self.stalled_at = INFINITY if spec.progress_within is None else grant.taken + spec.progress_within
        self.renew_at = self.shortest = INFINITY
        if spec.renew:
            after = (grant.deadline - grant.taken) * spec.renew_part
            if grant.in_claim_window:
                after = min(after, CLAIM_AFTER_S + 1 / spec.renew_grid)
            self.renew_at = int((grant.taken + after) * spec.renew_grid) / spec.renew_grid  # as `due_at`
        self.local_queue, self.owner, self.over, self.hint, self.lost = None, nobody, False, "", ""
        self.question_at, self.questioned_at, self.latest = INFINITY, -INFINITY, grant.taken + spec.last_after
        if grant.in_claim_window:
            self.may_extend(grant.taken, grant.deadline - grant.taken)

    def remaining(self, now: float) -> float:
        """Return the seconds for which the holder may still rely on the lease; 0 if the lease has ended."""
        return 0.0 if self.lost or self.over else max(0.0, self.good_until - now)

    def due_at(self, at: float) -> float:
        """Return the start of the time slot that contains monotonic time ``at``. One request renews all leases of a slot."""
        grid = self.spec.renew_grid
        return int(at * grid) / grid

    @property
    def good_until(self) -> float:
        """Return the monotonic time, in seconds, at which the lease ends without a renewal or report of progress."""
        return min(self.deadline, self.ends_at, self.stalled_at)

    def is_good(self, now: float) -> bool:
        """Return True if monotonic time ``now`` is before `good_until`. It takes a fifth of the time of that property."""
        return now < self.deadline and now < self.ends_at and now < self.stalled_at

    def wants_at(self) -> float:
        """Return the monotonic time, in seconds, at which the keeper (background thread) has to renew or check the lease."""
        at = self.renew_at
        return at if at < self.question_at and self.is_good(at) else min(at, self.question_at, self.good_until)

    def progressed(self, now: float) -> None:
        if self.spec.progress_within is not None:
            self.stalled_at = now + self.spec.progress_within

    @property
    def why_stalled(self) -> str:
        return f"no progress for {self.spec.progress_within or 0:g} s"

    @property
    def stalled(self) -> bool:
        """Return True if the lease was lost because its holder reported no progress.

        The server keeps such a lease until it expires.
        """
        return self.lost == self.why_stalled

    @property
    def why_over(self) -> str:
        """Return the reason for the loss of this lease, now that its time is up by the monotonic clock of this process."""
        if self.stalled_at < min(self.deadline, self.ends_at):
            return self.why_stalled
        bounded = self.ends_at - self.deadline <= margin(self.ttl) + 0.001
        return BOUNDED if bounded else "its time ran out before a renewal was confirmed"

    def compatible_with(self, spec: Spec) -> bool:
        """Return True if the lease can be handed on to an attempt for ``spec``.

        The lease's lock and ``spec`` must both allow handing on, and have the same ttl. The lease must have at least as many
        replicas as ``spec`` asks for. If ``spec`` has a quarantine, the lease must have the same.
        """
        if spec.ttl != self.ttl or not spec.is_passable:
            return False
        mine = self.spec
        return spec is mine or (
            mine.is_passable and spec.replicas <= mine.replicas and spec.quarantine in (0.0, mine.quarantine)
        )

    def end(self) -> None:
        """Mark the lease as released. It is then no longer renewed, and its loss is no longer reported."""
        self.over = True
        self.owner = nobody

    def lose(self, reason: str) -> bool:
        """Mark the lease as lost for this reason. Return True if it was neither lost nor ended before, so that the loss is
        reported."""
        if self.lost or self.over:
            return False
        self.lost = reason
        return True

    def holder(self) -> Owner | None:
        return self.owner()

    def lost_with_it(self) -> HeldLease | None:
        """Return the lease whose loss the user is notified of; None if the user has lost nothing.

        For a vote of one server, return the lease on all servers, if no majority is left. For any other lease, return itself.
        """
        return self

    def giving_back(self, *, revoke: bool, timeout: float) -> RunScript[int]:
        """Return the request that releases the lock.

        ``revoke``: True if a copy of the acquire request may still arrive. The server then refuses that copy. ``timeout``:
        maximum seconds to wait for the reply.
        """
        how = "bury" if revoke else "release"
        return RunScript(scripts(self.spec).release, self.spec.granting, (self.token, how, *self.spec.quarantine_args), timeout)

    def may_extend(self, now: float, ttl: float) -> None:
        """Note that a request sent at ``now`` may extend the lease to ``ttl`` seconds, whether or not its reply arrives."""
        self.latest = max(self.latest, now + self.spec.timeout + ttl + margin(ttl))

    def note_request(self, now: float, ttl: float) -> float:
        """Note that a lease of ``ttl`` seconds is about to be requested. Return the monotonic time of the request.

        That time is also the sequence number of the request, so it is later than that of each earlier request. If the request
        makes the lease shorter, the deadline is brought forward at once, because the reply may get lost.
        """
        self.asked_at = max(now, self.asked_at + 2e-6)
        self.may_extend(now, ttl)
        self.deadline = min(self.deadline, now + ttl - margin(ttl))
        self.shortest = min(self.shortest, ttl)
        return self.asked_at

    def renewed(self, made: float, sent: float, ttl: float, *, numbered: bool = True) -> None:
        """Note that the server confirmed a lease of ``ttl`` seconds.

        ``made``: sequence number of the renewal. ``sent``: monotonic time, in seconds, at which the renewal was sent.
        ``numbered``: False if the server did not record the number (`codes.UNNUMBERED`).
        """
        if made < self.asked_at:
            return  # the server follows a later request, which is under way or answered, and may be for a shorter lease
        if numbered:
            # The server ignores earlier renewals from now on. A late copy of this renewal leaves a lease of the same length.
            length = self.shortest = ttl
            self.deadline = sent + length - margin(length)
        else:
            # An earlier renewal that is carried out after this one shortens the lease to its own length, counted from then on.
            length = min(ttl, self.shortest)
            self.deadline = max(self.deadline, sent + length - margin(length))
        if self.spec.renew:
            # The last lease that max_hold allows is not renewed again.
            again = ttl >= self.ttl or length < ttl
            self.renew_at = self.due_at(sent + length * self.spec.renew_part) if again else self.deadline
