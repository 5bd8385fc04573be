"""Those of one process who wait for the same key: one of them is told by the server, looks, and says what it has found to all.

So a thousand tasks that wait cost the server one listener, and one look. Callers that came after that look was sent are not
told: the value it found may have been invalidated before they began.

A load of this process that fails is told to those who waited meanwhile. They are held (`Coalescer.hold_back`) while the server
is asked whether anything was invalidated since that load began: it wakes the leader as soon as the load has ended, and the
leader would load, and fail, once more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from holdfast._core.names import PREFIX
from holdfast._core.subscription import Listener


class CoalescedWaiter(Listener):
    """One who waits."""

    __slots__ = ("coalescer", "found", "held", "leads", "overdue")

    def __init__(self, listener_id: str = "", prefix: bytes = PREFIX) -> None:
        super().__init__(listener_id, prefix)
        self.coalescer: Coalescer | None = None
        """With whom; None: it does not wait yet."""
        self.leads = False
        """It looks for all."""
        self.found: Any = None
        """Answer that the leading waiter shared: the value found, or the WireError instead; or `Failed`."""
        self.held = False
        """It is to learn in a moment whether it gets a failure that it has waited for: until then it must not look."""
        self.overdue = False
        """Its own time to look has come meanwhile."""


class Failed(NamedTuple):
    """Return the error of the load that the caller has waited for."""

    error: Exception


class Coalescer:
    """Its methods may be called by any thread."""

    __slots__ = ("__weakref__", "_leader", "_members", "_mutex")

    def __init__(self, mutex: AbstractContextManager[object]) -> None:
        self._mutex = mutex
        self._leader: CoalescedWaiter | None = None
        self._members: list[CoalescedWaiter] = []

    @property
    def members(self) -> tuple[CoalescedWaiter, ...]:
        """All but the leader."""
        with self._mutex:
            return tuple(self._members)

    def join(self, member: CoalescedWaiter) -> None:
        """Wait with the others; lead them, if nobody does."""
        with self._mutex:
            leader = self._leader
            if leader is None or (leader.slot is not None and leader.slot.gone()):
                self._leader, member.leads = member, True
                self._drop(member)
            elif not member.leads and member not in self._members:
                self._members.append(member)

    def leave(self, member: CoalescedWaiter) -> None:
        """Wait no more; another one leads."""
        with self._mutex:
            self._drop(member)
            if self._leader is member:
                self._leader = None
                if self._members:
                    following = self._leader = self._members.pop(0)
                    following.leads = True
                    following.wake()

    def hold_back(self, held: list[CoalescedWaiter]) -> None:
        """All who wait now are put into ``held``: none of them looks until `settle`. They are there before the first of them is
        held, so that whoever is interrupted can settle them."""
        with self._mutex:
            leader = () if self._leader is None else (self._leader,)
            held += [member for member in (*leader, *self._members) if member.found is None and not member.held]
            for member in held:
                member.held = True

    def settle(self, held: list[CoalescedWaiter], failed: Failed | None) -> None:
        """Tell those who were held, and wait still; None: they go on as if nothing had happened."""
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
        """Tell these, as far as they wait still."""
        with self._mutex:
            told = {id(member) for member in members}
            for member in [*self._members]:  # a signal handler or a finaliser may change it meanwhile
                if id(member) in told:
                    member.found = found
                    member.wake()
                    self._drop(member)

    def _drop(self, member: CoalescedWaiter) -> None:
        """The mutex is held."""
        if member in self._members:
            self._members.remove(member)
