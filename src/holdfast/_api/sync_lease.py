"""The lease of a lock for threads: renew it, release it, issue a ticket for it, and be notified of its loss."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._api import lease as leases
from holdfast._core.lock.records import Grant
from holdfast._log import logger
from holdfast._runtime.drivers.sync import Runner
from holdfast._runtime.flag import Flag
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket

log = logger("holdfast")


class _Lost(Flag):
    """An event that is set when the lease is lost. `is_set` also notices a lease that has expired unnoticed."""

    def __init__(self, lease: Any) -> None:
        super().__init__()
        self._expired = lease._expired  # noqa: SLF001

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


class TellsLoss:
    """A mixin that tells the owner of a lease, of one or several locks, of its loss: it sets ``lost`` and calls ``on_lost``."""

    name: Any
    _event: Any = None
    """The event behind `lost`; None until it is asked for."""
    _on_lost: Callable[..., object] | None
    _first_to_tell: Callable[[], bool]
    _make_way: Callable[[], None]

    def notice_loss(self) -> None:
        try:
            if self._first_to_tell():
                self._tell_owner()
        finally:
            self._make_way()

    def _tell_owner(self) -> None:
        if self._event is not None:
            self._event.set()
        if self._on_lost is not None:
            # A thread of its own, because the keeper has other leases to renew while the callback runs.
            try:
                threading.Thread(target=self._on_lost, args=(self,), name="holdfast-on-lost", daemon=True).start()
            except RuntimeError as error:  # The thread limit is reached, or the interpreter is shutting down.
                log.warning("on_lost of %r cannot be called: %s", self.name, error)


class Lease(TellsLoss, leases.BaseLease):
    """A lease: one acquisition of a lock, as ``with lock as lease`` returns it."""

    def __init__(self, driver: Runner, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        # All attributes before super().__init__(), which reports a lease that is lost already.
        self._driver = driver
        super().__init__(driver.process, driver.endpoint, grant, on_lost)

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost."""
        event: threading.Event | None = self._event
        if event is None:
            # setdefault, so that threads and signal handlers that ask at the same moment get the same event.
            event = self.__dict__.setdefault("_event", _Lost(self))
            if self._held_lease.lost:
                event.set()
        return event

    def renew(self, ttl: float | None = None) -> None:
        """Set the lease to expire ``ttl`` seconds from now (default: its last length); the remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._driver.run(self._renew(ttl))

    def ticket(self, expires: float = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, which calls `redeem` within ``expires`` seconds, once.

        This lease has ended then, as after a release. If no process redeems the ticket in time, it expires, and the next waiter
        acquires the lock.

        Raises LeaseLost if the lease is lost, NotHeld if it was released. Raises ServerError if the server cannot be reached:
        the lease stays valid.
        """
        return self._ticket(expires)

    def _ticket(self, expires: float, token: str = "") -> Ticket:
        """Issue a ticket, under this ``token`` if it is not empty: the caller may have stored the ticket's text before."""
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        issue = ticket.Issue(self, expires, token)
        try:
            return self._driver.run(issue.operation())
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._driver.run(issue.undo())
            raise

    def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached: the lock is then free when the lease expires.
        """
        try:
            if not self._hand_on():
                self._driver.run(self._release())
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self._driver.run(self._abandoned())
            raise


class Term(Lease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""
