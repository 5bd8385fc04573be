"""The interfaces between a local queue (`_core.lock.local_queue`), its node (`_core.lock.node`) and the keeper thread.

A local queue is the queue of a process for one lock. A node is the part of the keeper (background thread) for one server. Each
protocol lists those methods of one object that the other objects call. `Watched` is for the search for deadlocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast._core.lock.owner import Owner
from holdfast._core.lock.records import Attempt, Queue
from holdfast._core.lock.renewal import LeaseKeeper
from holdfast._core.lock.replies import Scripts
from holdfast._core.lock.spec import Spec, scripts
from holdfast._core.requests import Call, RunScript
from holdfast._core.struct import NamedTuple

if TYPE_CHECKING:
    from holdfast._core.lock.records import HeldLease
    from holdfast._core.lock.renewal import Renewing
    from holdfast._core.lock.server_queue import Waiting

T = TypeVar("T")


class ReleaseListener(Protocol):
    """An object that is notified when a lock has been released, usually the queue of this process for the lock."""

    def on_released(self) -> None:
        """Note that the lock was released on the server, or that the outcome of the release is unknown."""


class PendingUndo(NamedTuple):
    """A request that releases or revokes an unused lock. It has to be sent, or sent again, at monotonic time ``at``.

    The keeper (background thread) repeats it until the server replies, because no caller waits for as long as the server may be
    unreachable. Without the request, no client could acquire the lock until the lease ends.
    """

    at: float
    call: RunScript[int]
    again: RunScript[int]
    """Request to send after ``call`` got no reply. It also makes the server refuse a late copy of ``call``."""
    until: float
    """Monotonic time, in seconds, at which the lease ends. The request is not repeated after that."""
    local_queue: ReleaseListener | None = None
    """Object to notify of the first reply or failure; None: no object."""
    failures: int = 0


Then = Callable[[Any, float], None]
"""Callback for the result of a call. It gets the reply or a WireError, and the monotonic time of sending, in seconds."""


class QueuePort(Protocol):
    """The methods of a node (the keeper's state for one server) that local queues call.

    The caller of `be_reachable` and of all methods below it holds the mutex.
    """

    waiting: Waiting

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that protects the local queues, waiters and leases of this process."""

    def reachable(self, prefix: bytes) -> bool:
        """Return True if the inbox of this prefix is subscribed, so that messages of waiters in other processes arrive."""

    def in_change(self) -> bool:
        """Return True if the calling thread already holds the mutex, for example in a signal handler or a finaliser."""

    def later(self, what: Callable[[], None]) -> None:
        """Have the keeper (background thread) call ``what`` soon, after the present change of a local queue is complete."""

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def has_unread(self) -> bool:
        """Return True if the inbox (pub/sub channel) has received messages that the keeper thread has not read yet."""

    def be_reachable(self, prefix: bytes) -> None:
        """Have the keeper (background thread) subscribe the inbox (pub/sub channel) of this prefix."""

    def somebody_waits(self) -> None:
        """Note that an attempt waits in a local queue, so that the search for deadlocks includes it."""

    def label_changed(self, held_lease: HeldLease) -> None:
        """Note that handing a lease on has changed its label."""

    def asked_for(self, token: str) -> bool:
        """Return True if a client has reported that it waits for this token's lock, before the lease was known here.

        The report is then forgotten, so that a second call returns False.
        """

    def look_at(self, local_queue: Queue, at: float) -> None:
        """Have the keeper (background thread) call `Queue.on_time` of ``local_queue`` at monotonic time ``at``."""

    def question(self, held_lease: HeldLease) -> tuple[int, int]:
        """Renew a lease now, to learn whether it is lost. `Queue.answered` is called for each reply.

        Return the number of servers that are asked, and the number of them whose confirmation proves that the lease still
        exists.
        """

    def revoke(self, local_queue: Queue, attempt: Attempt) -> None:
        """Have the server revoke the token of an attempt that nobody waits for any more. Then call `Queue.on_released`."""

    def give_back(self, local_queue: Queue | None, held_lease: HeldLease) -> None:
        """Have the keeper (background thread) release a lease that no attempt uses. Then call `Queue.on_released`.

        ``local_queue``: queue to notify; None: none.
        """


class LeaseOwner(Owner, Protocol):
    """An object that owns a lease, such as a load of a cache. The keeper notifies it if the lease is lost."""

    __slots__ = ()

    @property
    def held_lease(self) -> HeldLease:
        """Return the lease that this object owns."""


class Line(Protocol):
    """A connection of the keeper to one server, which sends calls without waiting for the replies to earlier calls.

    The connection is opened at its first use, and again after it was lost.
    """

    def call(self, call: Call, then: Then) -> None:
        """Send a call. The keeper (background thread) calls ``then`` exactly once, with the reply or the error."""

    def overdue(self, now: float) -> None:
        """Close the connection if a reply is overdue at ``now``: later replies could not be matched with their calls."""

    def next_at(self) -> float:
        """Return the monotonic time, in seconds, at which `overdue` must be called next; infinity: no reply is outstanding."""

    def fail(self, why: str) -> None:
        """Close the connection for the reason ``why``. Calls without a reply fail with an unknown outcome."""

    def has_unread(self) -> bool:
        """Return True if the connection has received data that nobody has read yet. Any thread may call this method."""

    def reclaim(self) -> None:
        """Let the keeper (background thread) read this connection again, instead of a waiting thread that reads it now.

        Any thread may call this method, with the mutex held.
        """


class Lines(Protocol):
    def __call__(self, on_push: Callable[[list[Any]], None] | None = None, on_closed: Callable[[], None] | None = None) -> Line:
        """Return a new connection to the server.

        ``on_push``: called with each published message. ``on_closed``: called after the connection was lost. None: not called.
        """


class InboxAddress(NamedTuple):
    """The id of a node's inbox, and the rules of a Cluster for the keys that one request may contain."""

    inbox: str
    """Id of the inbox. The name of the pub/sub channel is the key prefix, followed by ``inbox:`` and this id."""
    subscribe: str = "SUBSCRIBE"
    slot_of: Callable[[bytes], int] | None = None
    near: Callable[[bytes], bool] | None = None
    """Function that returns True if a key is on the same server as the inbox; None outside a Cluster."""

    def strays(self, key: bytes) -> bool:
        """Return True if no message about this lock can arrive: its Cluster slot is on another server than the inbox."""
        return self.near is not None and not self.near(key)

    def together(self, batch: list[T], spec_of: Callable[[T], Spec]) -> Iterable[list[T]]:
        """Split a batch into groups, each of which one request can contain.

        All locks in a group are of one kind (plain locks or permits), of one prefix, and in a Cluster in one slot.
        """
        parts: dict[tuple[Scripts, int, bytes], list[T]] = {}
        for one in batch:
            spec = spec_of(one)
            slot = self.slot_of(spec.keys[0]) if self.slot_of else 0
            parts.setdefault((scripts(spec), slot, spec.prefix), []).append(one)
        return parts.values()


class LockWait(NamedTuple):
    """A wait for a lock that may be part of a deadlock, because the waiting thread or task holds other locks."""

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
    """Key prefixes of the lock waited for and of the locks held. Each prefix has a process record that lists this wait."""


class NodeKeeper(LeaseKeeper, Protocol):
    """The methods of the keeper (background thread) that nodes call. A node is the keeper's state for one server."""

    process_id: str
    closing: bool
    """True once the keeper was told to stop. From then on, no lease is registered for renewal."""

    def call(self, what: Callable[[], None]) -> None:
        """Have the keeper thread call ``what`` soon. Any thread may call this method."""

    def wake_by(self, at: float) -> None:
        """Have the keeper thread call `Node.turn` at monotonic time ``at``. The caller holds the mutex."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that protects the waiters, leases and local queues, which other threads use, too."""

    def in_change(self) -> bool:
        """Return True if the calling thread holds the mutex."""

    def clock(self) -> float:
        """Return the monotonic time in seconds."""

    def record(self, waits: Sequence[LockWait], labels: Mapping[bytes, str]) -> str:
        """Return the text of the process record: facts about this process, these waits, and the labels of locks by key."""

    def nodes_at(self, address: str) -> Sequence[Watched]:
        """Return the nodes of all endpoints with this address, which may have other settings. The caller holds the mutex."""

    def report(self, held_lease: HeldLease) -> None:
        """Notify the owner of a lease that the lease is lost; the caller must not hold the mutex."""

    def safely(self, action: Callable[..., object], *args: Any) -> bool:
        """Call ``action``. If the call raises, log the exception and return False, so that other leases are unaffected."""


class Watched(Protocol):
    """The methods of a node (the keeper's state for one server) that the search for deadlocks uses (`_core.deadlock`)."""

    keeper: NodeKeeper
    waiting: Waiting
    renewing: Renewing
    commands: Line

    @property
    def waits(self) -> Sequence[LockWait]:
        """Return the waits of this process that may be part of a deadlock, and have lasted long enough to be published."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """Return the mutex that protects the waiters, leases and local queues of this process."""

    def in_line(self) -> list[Attempt]:
        """Return the attempts that wait in the local queues of this process. The caller holds the mutex."""

    def labels_in_use(self) -> dict[bytes, dict[bytes, str]]:
        """Return the labels of the locks that this process holds or waits for, by prefix and key. The caller holds the
        mutex."""

    def facts_changed(self, now: float) -> None:
        """Have the process record (facts about this process on the server) written soon. The caller holds the mutex."""
