"""What a lock is, as all its operations see it; one try to get it, and what comes of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar, overload

from holdfast._core.names import guard_key, prefix_of
from holdfast._core.requests import Outcome, Run
from holdfast._core.struct import Struct

if TYPE_CHECKING:
    from holdfast._core.lock.local_queue import Gate, Given
    from holdfast._core.lock.renewal import Tenure
    from holdfast._lua import Script

PAUSED = "guard"
"""What stands for a holder's process then: nobody is known to have the lock, and somebody may."""

UNKNOWN = "?"
"""Stands for a holder's process where no server has named one. Empty is another fact: a client of another library holds it."""

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
    """What is taken off a lease for clocks that run at different speed: one percent and two milliseconds (as Redlock)."""
    return ttl * 0.01 + 0.002


def whole(believed: float) -> float:
    """The lease of which so many seconds can be believed in: `margin` is taken off it."""
    return (believed + 0.002) / 0.99


class Scripts(NamedTuple):
    """What the server runs for a lock: to take it, to give it back, to keep a place in its line, to renew its lease."""

    acquire: Script[Any]
    release: Script[int]
    refresh: Script[Any]
    renew: Script[list[int]]


class Permits(NamedTuple):
    """What is held of something that there are several of."""

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
    """What a lock is, as all its operations see it. Times in seconds."""

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
        return self.signed(drawn) + self.mark

    @cached_property
    def guarded(self) -> tuple[int, ...]:
        """What goes with them, behind all other arguments."""
        return (milliseconds(self.guard),) if self.guard else ()

    @cached_property
    def lasts(self) -> bool:
        """It may be held for as long as one likes: only such a lease is passed on."""
        return self.renew and self.max_hold is None and self.progress_within is None

    @cached_property
    def mark(self) -> str:
        """What its tokens end in, for the server: that the holder may keep the lock after use, or how many he wants."""
        return f"*{self.permits.wanted}" if self.permits else "~" if self.linger else ""

    @cached_property
    def terms(self) -> tuple[str | int, ...]:
        """What goes with a request to take it, behind its own arguments."""
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


class Slot(Protocol):
    """Where a driver waits for what becomes of an attempt."""

    def put(self, outcome: Outcome | None, /) -> bool | None:
        """Wake it; None: to look at what it was given in line, or because the inbox listens now. False: nobody is there."""

    def gone(self) -> bool:
        """Nobody is there any more: its event loop was closed without ending it."""


class Tally(Protocol):
    """Counts for the lock object that an attempt is made by."""

    acquisitions: int
    losses: int
    ended: int

    def waits(self, attempt: Attempt, /) -> None:
        """It has begun to wait for another holder; said again each time that it goes on."""

    def held(self, seconds: float, /) -> None:
        """A lease has ended that was held for so long."""


class Attempt:
    """One try to get a lock, under one token. A token is never used for a second attempt."""

    __slots__ = (
        "doubt", "gate", "given", "hasty", "pending", "slot", "spec", "tally", "token", "unclaimed", "until", "waited",
    )  # fmt: skip

    def __init__(
        self,
        spec: Spec,
        token: str = "",
        *,
        pending: bool = False,
        doubt: bool = False,
        until: float | None = None,
        slot: Slot | None = None,
        gate: Gate | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.spec = spec
        self.token = token
        self.pending = pending
        """Something of this attempt may be on the server: its lock, or its place in the queue."""
        self.doubt = doubt
        """A copy of a request of ours may still be on its way to the server."""
        self.until = until
        """Local time at which the wait ends; None: never."""
        self.waited = False
        """It has waited for others of this process: a server that is away then is ridden out."""
        self.hasty = False
        """It never waits, not even for a holder who may only linger: a signal handler cannot, where it has interrupted us."""
        self.slot = slot
        self.gate = gate
        """Where all who want this lock in this process come together; None: it stands in nobody's line but the server's."""
        self.given: Given | None = None
        """What it was given in line there."""
        self.tally = tally
        self.unclaimed: Any = None
        """The lease that came of it, from its first line on until the caller has it. Without this, an interrupt in between
        would drop the lease, and the lock would have no owner for the whole ttl."""

    def waits(self) -> None:
        """It has to wait for another holder."""
        if self.tally is not None:
            self.tally.waits(self)

    @property
    def patience(self) -> float:
        """Seconds for which a server that is away is ridden out."""
        return float("inf") if self.until is not None else max(self.spec.ttl, 30.0)

    @property
    def introduction(self) -> Run[int] | None:
        """What it tells the server when it has a place in line: under which name, for `_core.election`."""
        return None


class Grant(Struct):
    """A lock that was taken: under which token and fence, and until when (local seconds) it may be believed."""

    __slots__ = __match_args__ = ("attempt", "fence", "taken", "deadline", "claim", "queued", "last", "tenure", "whole")

    def __init__(
        self,
        attempt: Attempt,
        fence: int,
        taken: float,
        deadline: float,
        *,
        claim: bool = False,
        queued: bool = False,
        last: int = 0,
        tenure: Tenure | None = None,
    ) -> None:
        self.attempt = attempt
        self.fence = fence
        self.taken = taken
        self.deadline = deadline
        self.claim = claim
        """Handed over by the last holder: the lease is the claim window until it is renewed."""
        self.queued = queued
        """It stood in the queue at the server; or may have."""
        self.last = last
        """The last fence of the block."""
        self.tenure = tenure
        """The lease that it is part of, where another one of this process had it before."""
        self.whole: Tenure | None = None
        """The lease that it is, where that is made of several: of the votes of several servers."""
