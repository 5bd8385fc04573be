"""The protocols between a local queue (`_core.lock.local_queue`), its node (`_core.lock.node`) and the keeper thread.

Each protocol lists the methods that one of them needs of another; `Watched` is for the wait-for graph that finds deadlocks.
"""

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
    """An object that is notified of a release: usually a local queue."""

    def on_released(self) -> None:
        """Note that the lock was released, or that the release failed with an unknown outcome."""


class PendingUndo(NamedTuple):
    """A request that releases or revokes something unused, sent at monotonic time ``at`` and repeated until answered.

    The server may be unreachable for longer than any caller waits. Until the lease ends, no other client could acquire the
    lock.
    """

    at: float
    call: Run[int]
    again: Run[int]
    """Request to send if ``call`` got no reply; it also refuses a late copy of ``call``."""
    until: float
    """Monotonic time, in seconds, at which the lease ends by itself and the request is no longer repeated."""
    local_queue: ReleaseListener | None = None
    """Queue to notify of the first reply or failure; None: nothing waits for it."""
    failures: int = 0


Then = Callable[[Any, float], None]
"""Callback that gets the reply to a call, or the WireError, and the monotonic time, in seconds, at which the call was sent."""


class QueuePort(Protocol):
    """The interface of a node for its local queues."""

    waiting: Waiting

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that guards the local queues and the keeper's records."""

    def reachable(self, prefix: bytes) -> bool:
        """Return True if the inbox of this prefix is subscribed, so that other processes can notify this one that they wait."""

    def in_change(self) -> bool:
        """Return True if the calling thread already holds the mutex: in a signal handler, in a finaliser or in the keeper."""

    def later(self, what: Callable[[], None]) -> None:
        """Have ``what`` called soon, after the change of the local queue that is in progress."""

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def has_unread(self) -> bool:
        """Return True if messages have arrived in the inbox that are not read yet."""

    def be_reachable(self, prefix: bytes) -> None:
        """Have the inbox of this prefix subscribed; the caller holds the mutex."""

    def somebody_waits(self) -> None:
        """Note that an attempt waits in a local queue and may be part of a deadlock; the caller holds the mutex."""

    def label_changed(self, held_lease: HeldLease) -> None:
        """Note that the lease was handed on to a lock object with another label; the caller holds the mutex."""

    def asked_for(self, token: str) -> bool:
        """Return True, once, if another client asked for the lock of this token before this process knew the lease.

        The caller holds the mutex.
        """

    def look_at(self, local_queue: Queue, at: float) -> None:
        """Have `Queue.on_time` of ``local_queue`` called at monotonic time ``at``; the caller holds the mutex."""

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        """Renew a lease now, to learn whether it is lost; each reply goes to `Queue.answered`. The caller holds the mutex.

        Return the number of servers that are asked, and the number of confirmations that prove that the lease still exists.
        """

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        """Have the server revoke the token of an abandoned attempt, and then notify `Queue.on_released`.

        The caller holds the mutex.
        """

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        """Have a lease that no attempt uses released soon, and then notify `Queue.on_released`. The caller holds the mutex."""


class Line(Protocol):
    """A pipelined connection to one server, which is opened at its first use and again after a loss."""

    def call(self, call: Call, then: Then) -> None:
        """Send a call; the keeper calls ``then`` exactly once, with its result."""

    def overdue(self, now: float) -> None:
        """Close the connection if a reply is overdue, because later replies on it could not be matched with their calls."""

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which `overdue` must be called at the latest."""

    def fail(self, why: str) -> None:
        """Close the connection for this reason; the calls without a reply have an unknown outcome."""

    def has_unread(self) -> bool:
        """Return True if data has arrived that is not read yet. Any thread may call this."""

    def reclaim(self) -> None:
        """Let the keeper read messages from the socket again, after a waiter watched it instead.

        Any thread may call this, with the mutex held.
        """


class Lines(Protocol):
    def __call__(self, on_push: Callable[[list[Any]], None] | None = None, on_closed: Callable[[], None] | None = None) -> Line:
        """Return a connection to the server. ``on_push`` gets published messages; ``on_closed`` is called after a loss."""


class InboxAddress(NamedTuple):
    """The id of a node's inbox (its channel for messages); in a Cluster also rules about which keys may share a request."""

    inbox: str
    """Id of the inbox, which is part of its channel name in each prefix."""
    subscribe: str = "SUBSCRIBE"
    slot_of: Callable[[bytes], int] | None = None
    near: Callable[[bytes], bool] | None = None
    """Function that returns True if a key is on the server of the inbox; None: not a Cluster."""

    def strays(self, key: bytes) -> bool:
        """Return True if the Cluster slot of a lock has left the inbox's server, so that no message about the lock can
        arrive."""
        return self.near is not None and not self.near(key)

    def together(self, batch: list[T], spec_of: Callable[[T], Spec]) -> Iterable[list[T]]:
        """Split a batch into groups that one request can contain: one sort of lock and one prefix, and in a Cluster one
        slot."""
        parts: dict[tuple[Scripts, int, bytes], list[T]] = {}
        for one in batch:
            spec = spec_of(one)
            slot = self.slot_of(spec.keys[0]) if self.slot_of else 0
            parts.setdefault((scripts(spec), slot, spec.prefix), []).append(one)
        return parts.values()


class Wait(NamedTuple):
    """A thread or task that waits for a lock while it holds others."""

    lock: str
    """Key of the lock for which the thread or task waits."""
    owner: int
    """Id of the thread or task."""
    since: float
    """Monotonic time, in seconds, at which the wait began."""
    holds: tuple[str, ...]
    """Keys of the locks that the thread or task holds."""
    yields: bool
    """True if this wait may be ended to break a deadlock."""
    prefixes: tuple[bytes, ...] = ()
    """Prefixes of all these locks.

    The wait is published in the process record of each prefix, where other processes find it.
    """


class NodeKeeper(Protocol):
    """The interface of the keeper (background thread) for its nodes."""

    process_id: str

    def call(self, what: Callable[[], None]) -> None:
        """Have the keeper thread call ``what`` soon. Any thread may call this."""

    def wake_by(self, at: float) -> None:
        """Have `Node.turn` called at monotonic time ``at``; the caller holds the mutex."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that guards waiters, renewals and local queues, which other threads use, too."""

    def in_change(self) -> bool:
        """Return True if the calling thread holds the mutex."""

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def record(self, waits: Sequence[Wait], labels: Mapping[bytes, str]) -> str:
        """Return the text of the process record: public facts about this process, these waits, and labels by the key of the
        lock."""

    def report(self, held_lease: HeldLease) -> None:
        """Notify the owner of a lease that the lease is lost; the caller must not hold the mutex."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Run an action whose failure must not affect other leases: log an exception and return False."""


class Watched(Protocol):
    """The interface of a node for its wait-for graph (`_core.deadlock`)."""

    keeper: NodeKeeper
    waiting: Waiting
    renewing: Renewing
    commands: Line

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that guards the node."""

    def in_line(self) -> list[Attempt]:
        """Return the attempts that wait in the local queues of this process; the caller holds the mutex."""

    def labels_in_use(self) -> dict[bytes, dict[bytes, str]]:
        """Return the labels of the locks that are held or waited for, by prefix and key; the caller holds the mutex."""

    def facts_changed(self, now: float) -> None:
        """Have the process record written soon; the caller holds the mutex."""
