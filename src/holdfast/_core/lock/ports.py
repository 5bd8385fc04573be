"""Protocols: what a local queue (`_core.lock.local_queue`) needs of its node (`_core.lock.node`), a node of its keeper, and the
wait-for graph of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from holdfast._core.lock.records import Attempt, Queue, Spec, scripts
from holdfast._core.lock.replies import Scripts
from holdfast._core.requests import Call, Run

if TYPE_CHECKING:
    from holdfast._core.lock.records import HeldLease
    from holdfast._core.lock.renewal import Renewing
    from holdfast._core.lock.server_queue import Waiting

T = TypeVar("T")


class ReleaseListener(Protocol):
    """A listener for a release: a local queue, as a rule."""

    def on_released(self) -> None:
        """It is; or nobody knows."""


class PendingUndo(NamedTuple):
    """Something that nobody uses any more, to be given back at local time ``at``. The server may be away for longer than
    anybody waits for the answer, and until the lease ends nobody else could have the lock."""

    at: float
    call: Run[int]
    again: Run[int]
    """Call that is sent if ``call`` was not answered: a copy of that one may still arrive."""
    until: float
    """Local time at which it ends by itself."""
    local_queue: ReleaseListener | None = None
    """Told of the first answer, whatever it is."""
    failures: int = 0


Then = Callable[[Any, float], None]
"""Callback for the typed reply to a call (or the WireError instead of one) and the time at which the call was sent."""


class QueuePort(Protocol):
    """A node, as its local queues see it."""

    waiting: Waiting

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards the local queue, and the books of the keeper."""

    def reachable(self, prefix: bytes) -> bool:
        """The inbox of this prefix listens: who waits outside can say so."""

    def in_change(self) -> bool:
        """This thread holds the mutex: a signal handler or a finaliser asks, or the keeper in the middle of its work."""

    def later(self, what: Callable[[], None]) -> None:
        """Do this soon, when that change is done."""

    def clock(self) -> float:
        """Local time in seconds."""

    def has_unread(self) -> bool:
        """Something has come to the inbox that nobody has read yet."""

    def be_reachable(self, prefix: bytes) -> None:
        """Open the inbox of this prefix; the mutex is held."""

    def somebody_waits(self) -> None:
        """Somebody of this process stands in line, and may be in a cycle; the mutex is held."""

    def label_changed(self, held_lease: HeldLease) -> None:
        """The lease was passed on to a lock with another label; the mutex is held."""

    def asked_for(self, token: str) -> bool:
        """Somebody outside has asked for what this token holds before anybody here knew of it. Said once; the mutex is held."""

    def look_at(self, local_queue: Queue, at: float) -> None:
        """Call `Queue.on_time` at local time ``at``; the mutex is held."""

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        """Renew a lease now, to learn whether it is lost: `Queue.answered` is told of each answer. Answers how many servers are
        asked, and how many that know it still settle the question; the mutex is held."""

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        """Give back whatever an attempt has got that nobody makes any more, and refuse what may come of it yet; say so to
        `Queue.on_released`. The mutex is held."""

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        """Give back a lease that nobody holds, soon, and say so to `Queue.on_released` of the local queue that waits for it;
        the mutex is held."""


class Line(Protocol):
    """A pipelined connection to one server, opened when it is first used and again after it was lost."""

    def call(self, call: Call, then: Then) -> None:
        """Send a call; ``then`` is called exactly once, by the keeper."""

    def overdue(self, now: float) -> None:
        """Close the connection if an answer is overdue: nobody knows what would come on it."""

    def next_at(self) -> float:
        """When `overdue` has something to do, at the latest (local seconds)."""

    def fail(self, why: str) -> None:
        """Close the connection; everything under way has an unknown outcome."""

    def has_unread(self) -> bool:
        """Something has come that nobody has read yet. Any thread may ask."""

    def reclaim(self) -> None:
        """Read what comes: a waiter may have been listening instead. Any thread may say so; the keeper's mutex is held."""


class Lines(Protocol):
    def __call__(self, on_push: Callable[[list[Any]], None] | None = None, on_closed: Callable[[], None] | None = None) -> Line:
        """A line to the server. ``on_push``: gets the published messages. ``on_closed``: called when the line is lost."""


class InboxAddress(NamedTuple):
    """The inbox of a node; and, in a Cluster, the keys that one request can have."""

    inbox: str
    """The id under which it does, in each prefix."""
    subscribe: str = "SUBSCRIBE"
    slot_of: Callable[[bytes], int] | None = None
    near: Callable[[bytes], bool] | None = None
    """The inbox is on the server that has this key."""

    def strays(self, key: bytes) -> bool:
        """A lock whose slot has left the server of our inbox: nobody there can tell us anything."""
        return self.near is not None and not self.near(key)

    def together(self, batch: list[T], spec_of: Callable[[T], Spec]) -> Iterable[list[T]]:
        """Split by requests: one script each, one prefix whose inbox tells of all, and in a Cluster one slot for all keys."""
        parts: dict[tuple[Scripts, int, bytes], list[T]] = {}
        for one in batch:
            spec = spec_of(one)
            slot = self.slot_of(spec.keys[0]) if self.slot_of else 0
            parts.setdefault((scripts(spec), slot, spec.prefix), []).append(one)
        return parts.values()


class Wait(NamedTuple):
    """A thread or task waits for a lock while holding others."""

    lock: str
    """Its key."""
    owner: int
    """Which thread or task."""
    since: float
    """Local time."""
    holds: tuple[str, ...]
    """Keys of those that it holds."""
    yields: bool
    """Its wait may be ended to end a cycle."""
    prefixes: tuple[bytes, ...] = ()
    """Of all these locks: in each of them it is told: who follows a cycle looks there."""


class NodeKeeper(Protocol):
    """The keeper, as its nodes see it."""

    process_id: str

    def call(self, what: Callable[[], None]) -> None:
        """Have the keeper do this soon; any thread may."""

    def wake_by(self, at: float) -> None:
        """Have `Node.turn` called at local time ``at``; the mutex is held."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards `waiting`, `renewing` and the local queues, which other threads use too."""

    def in_change(self) -> bool:
        """This thread holds the mutex."""

    def clock(self) -> float:
        """Local time in seconds."""

    def record(self, waits: Sequence[Wait], labels: Mapping[bytes, str]) -> str:
        """Return the public facts about this process, with these waits and the labels of locks by their keys."""

    def report(self, held_lease: HeldLease) -> None:
        """Tell the owner that its lease is lost; the mutex is not held."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action`` and log what it raises, so that it cannot harm other leases. Return False if it failed."""


class Watched(Protocol):
    """A node, as its wait-for graph (`_core.deadlock`) sees it."""

    keeper: NodeKeeper
    waiting: Waiting
    renewing: Renewing
    commands: Line

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Guards all of this."""

    def in_line(self) -> list[Attempt]:
        """Those who stand in the lines of this process; the mutex is held."""

    def labels_in_use(self) -> dict[bytes, dict[bytes, str]]:
        """Of the locks that are held or waited for, by prefix and key; the mutex is held."""

    def facts_changed(self, now: float) -> None:
        """Have the record of the process written soon; the mutex is held."""
