"""The protocol of the objects that own a lease and are notified of its loss."""

from __future__ import annotations

from typing import Protocol


class Owner(Protocol):
    """The internal object that owns a lease. Its class inherits from this one."""

    __slots__ = ()

    owner: int = 0
    """Id of the thread or task that acquired the lease; 0 if it is not known."""

    def notice_loss(self) -> None:
        """Notify the user that the lease is lost; called once."""

    def forsaken(self) -> bool:
        """Return True if the code that uses the lease is in a closed event loop, where it never continues."""
        return False

    def end_forsaken(self) -> None:
        """Release a lease whose event loop is closed, in the keeper (background thread)."""
        return
