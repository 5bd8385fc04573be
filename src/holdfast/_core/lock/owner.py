"""The owner of a lease, which is the object that is notified of a loss. The lease has a weak reference to its owner."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Owner(Protocol):
    """The base class of the internal objects that own a lease."""

    __slots__ = ()

    owner: int = 0
    """Id of the thread or task that acquired the lease; 0 if it is not known."""
    inside: bool = False
    """True once a ``with`` statement has acquired the lease for the thread or task with the id `owner`."""

    def notice_loss(self) -> None:
        """Notify the user that the lease is lost; called once."""

    def forsaken(self) -> bool:
        """Return True if the code that uses the lease is in a closed event loop, where it never continues."""
        return False

    def end_forsaken(self) -> None:
        """Release the lease, because its event loop is closed. The keeper (background thread) calls this method."""
        return


class OwnedLease(Protocol):
    """A lease that this process holds (`HeldLease`), as far as this module uses it."""

    lost: str
    over: bool

    def holder(self) -> Owner | None:
        """Return the object that owns the lease; None if it was garbage-collected."""


def nobody() -> None:
    return None


def is_held_by(held_lease: OwnedLease, caller: int, *, inside: bool = False) -> bool:
    """Return True if the thread or task with the id ``caller`` holds this lease.

    ``inside``: True to require also that a ``with`` statement acquired the lease.
    """
    holder = held_lease.holder()
    if holder is None or not caller or held_lease.over or held_lease.lost:
        return False
    return holder.owner == caller and (holder.inside or not inside)


class Reference(weakref.ref[Any]):
    """A weak reference to the owner of a lease, with the function that the keeper calls once the owner is garbage-collected.

    At the moment of the collection, the reference is only appended to `LeaseKeeper.collected`, and no Python code runs.
    """

    __slots__ = ("on_collected",)

    on_collected: Callable[[], None]
