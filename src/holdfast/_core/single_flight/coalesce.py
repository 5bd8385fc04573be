"""Coalesce the waiters of one process for the same key: one of them, the leader, asks the server and shares the answer.

A thousand waiting tasks cost the server one subscription and one request. A waiter that joins after the leader's request was
sent does not get that answer, because the value may have been invalidated before the waiter began.

If a load in this process fails, its error is shared with those who waited meanwhile. They are held back (`Coalescer.hold_back`)
while the server is asked whether anything was invalidated since the load began. Otherwise the leader, which is woken as soon as
the load has ended, would load and fail again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from holdfast._core.names import PREFIX
from holdfast._core.subscription import Listener


class CoalescedWaiter(Listener):
    """One waiter of this process for a key or a latch."""

    __slots__ = ("coalescer", "found", "held", "leads", "overdue")

    def __init__(self, listener_id: str = "", prefix: bytes = PREFIX) -> None:
        super().__init__(listener_id, prefix)
        self.coalescer: Coalescer | None = None
        """Coalescer that this waiter has joined; None while it does not wait."""
        self.leads = False
        """True if this waiter is the leader, which asks the server for all."""
        self.found: Any = None
        """Result that another waiter shared: a found value, a WireError, or a `Failed` load; None if nothing was shared."""
        self.held = False
        """True while this waiter may still get the error of a failed load; it must not ask the server then."""
        self.overdue = False
        """True if this waiter's own time to ask came while it was held back."""


class Failed(NamedTuple):
    """The error of a load that failed while the waiter waited for it."""

    error: Exception


class Coalescer:
    """The group of all waiters of this process for one key, with a leader. Thread-safe."""

    __slots__ = ("__weakref__", "_leader", "_members", "_mutex")

    def __init__(self, mutex: AbstractContextManager[object]) -> None:
        self._mutex = mutex
        self._leader: CoalescedWaiter | None = None
        self._members: list[CoalescedWaiter] = []

    @property
    def members(self) -> tuple[CoalescedWaiter, ...]:
        """Return all waiters of the group except the leader."""
        with self._mutex:
            return tuple(self._members)

    def join(self, member: CoalescedWaiter) -> None:
        """Add a waiter to the group; it becomes the leader if there is none."""
        with self._mutex:
            leader = self._leader
            if leader is None or (leader.slot is not None and leader.slot.gone()):
                self._leader, member.leads = member, True
                self._drop(member)
            elif not member.leads and member not in self._members:
                self._members.append(member)

    def leave(self, member: CoalescedWaiter) -> None:
        """Remove a waiter from the group; if it led, the next waiter leads and is woken."""
        with self._mutex:
            self._drop(member)
            if self._leader is member:
                self._leader = None
                if self._members:
                    following = self._leader = self._members.pop(0)
                    following.leads = True
                    following.wake()

    def hold_back(self, held: list[CoalescedWaiter]) -> None:
        """Hold back all present waiters, so that none asks the server before `settle` is called; append them to ``held``.
        They are in the list before the first is held back, so that an interrupted caller can settle them."""
        with self._mutex:
            leader = () if self._leader is None else (self._leader,)
            held += [member for member in (*leader, *self._members) if member.found is None and not member.held]
            for member in held:
                member.held = True

    def settle(self, held: list[CoalescedWaiter], failed: Failed | None) -> None:
        """Let waiters that were held back go on; if ``failed`` is not None, share it with those that still wait."""
        with self._mutex:
            here = {id(self._leader), *map(id, self._members)}
            for member in held:
                if failed is not None and id(member) in here and member.found is None:
                    member.found = failed
                member.held = False
                if member.found is not None or member.leads or member.overdue:
                    member.wake()
                if member.found is not None:
                    self._drop(member)

    def tell(self, members: tuple[CoalescedWaiter, ...], found: Any) -> None:
        """Share a result with those of the given waiters that still wait, and wake them."""
        with self._mutex:
            told = {id(member) for member in members}
            for member in [*self._members]:  # a signal handler or a finaliser may change the list meanwhile
                if id(member) in told:
                    member.found = found
                    member.wake()
                    self._drop(member)

    def _drop(self, member: CoalescedWaiter) -> None:
        """Remove a waiter from the list of non-leaders. The mutex must be held."""
        if member in self._members:
            self._members.remove(member)
