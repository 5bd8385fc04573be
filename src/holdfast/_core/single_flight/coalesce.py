"""Coalesce the callers in one process that wait for the same key. One of them, the leader, asks the server for all.

So a thousand waiting tasks cost the server one subscription and one request. The leader shares the reply with the callers that
waited when it sent the request. A caller that joins later does not get this reply, because the value may have been invalidated
before the caller's start.

If a load in this process fails, the callers that waited for it get its error, unless something was invalidated since the load
began. While the server is asked whether something was invalidated, these callers are held back (`Coalescer.hold_back`), which
means that they must not ask the server. Otherwise the leader would load again at once, and fail again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from holdfast._core.names import PREFIX
from holdfast._core.subscription import Listener


class CoalescedWaiter(Listener):
    """A caller in this process that waits for a key or a latch, together with the other callers that wait for it."""

    __slots__ = ("coalescer", "found", "held", "leads", "overdue")

    leads: bool
    held: bool
    overdue: bool

    def __init__(self, listener_id: str = "", prefix: bytes = PREFIX) -> None:
        super().__init__(listener_id, prefix)
        self.coalescer: Coalescer | None = None
        """Group of waiting callers that this caller joins when it waits; None before its first wait."""
        self.leads = False
        """True if this caller is the leader of its group. The leader asks the server for all callers of the group."""
        self.found: Any = None
        """Result from another caller: a value, a WireError, or a `Failed` load; None: no result yet."""
        self.held = False
        """True while this caller must not ask the server, because it may get the error of a load that has just failed."""
        self.overdue = False
        """True if this caller wanted to ask the server while it was held back, so that it must be woken afterwards."""


class Failed(NamedTuple):
    """The result of waiting for a load in this process: the load failed with ``error``."""

    error: Exception


class Coalescer:
    """All callers in this process that wait for one key. One of them, the leader, asks the server for all. Thread-safe."""

    __slots__ = ("__weakref__", "_leader", "_members", "_mutex")

    def __init__(self, mutex: AbstractContextManager[object]) -> None:
        self._mutex = mutex
        self._leader: CoalescedWaiter | None = None
        self._members: list[CoalescedWaiter] = []

    @property
    def members(self) -> tuple[CoalescedWaiter, ...]:
        """Return all waiting callers of this group except the leader."""
        with self._mutex:
            return tuple(self._members)

    def join(self, member: CoalescedWaiter) -> None:
        """Add a caller to this group. It becomes the leader if there is none, or if the leader's event loop is closed."""
        with self._mutex:
            leader = self._leader
            if leader is None or (leader.slot is not None and leader.slot.gone()):
                self._leader, member.leads = member, True
                self._drop(member)
            elif not member.leads and member not in self._members:
                self._members.append(member)

    def leave(self, member: CoalescedWaiter) -> None:
        """Remove a caller from this group. If it was the leader, the next caller becomes the leader and is woken."""
        with self._mutex:
            self._drop(member)
            if self._leader is member:
                self._leader = None
                if self._members:
                    following = self._leader = self._members.pop(0)
                    following.leads = True
                    following.wake()

    def hold_back(self, held: list[CoalescedWaiter]) -> None:
        """Hold back all callers that wait now, so that none of them asks the server before `settle` is called.

        All are appended to ``held`` before the first one is held back, so that even an interrupted caller of this method can
        settle them.
        """
        with self._mutex:
            leader = () if self._leader is None else (self._leader,)
            held += [member for member in (*leader, *self._members) if member.found is None and not member.held]
            for member in held:
                member.held = True

    def settle(self, held: list[CoalescedWaiter], failed: Failed | None) -> None:
        """Let callers that were held back go on.

        ``failed``: error for the callers that still wait; None: no error, so they ask the server themselves.
        """
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
        """Pass a result to the given callers that still wait, and wake them."""
        with self._mutex:
            told = {id(member) for member in members}
            for member in [*self._members]:  # a signal handler or a finaliser may change the list meanwhile
                if id(member) in told:
                    member.found = found
                    member.wake()
                    self._drop(member)

    def _drop(self, member: CoalescedWaiter) -> None:
        """Remove a caller from the list of those that do not lead. The mutex must be held."""
        if member in self._members:
            self._members.remove(member)
