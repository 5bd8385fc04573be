"""The lease of a lock for threads; `holdfast._api.aio_lease` has the same for asyncio."""

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
    """Set when the lease is lost; asking notices an end that nobody has had time to notice yet."""

    def __init__(self, lease: Any) -> None:
        super().__init__()
        self._expired = lease._expired  # noqa: SLF001

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


class TellsLoss:
    """How the owner of a lease, of one lock or of several, is told that it is lost: its event is set, ``on_lost`` called."""

    name: Any
    _event: Any = None
    """None where nobody has asked for it."""
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
            # In a thread of its own: the keeper has other leases to look after.
            try:
                threading.Thread(target=self._on_lost, args=(self,), name="holdfast-on-lost", daemon=True).start()
            except RuntimeError as error:  # no more threads; or the interpreter is shutting down
                log.warning("on_lost of %r cannot be called: %s", self.name, error)


class Lease(TellsLoss, leases.BaseLease):
    """One acquisition of a lock: what ``with`` gives."""

    def __init__(self, driver: Runner, grant: Grant, on_lost: Callable[..., object] | None) -> None:
        # All of ours before: a lease that is lost already is told so while it is made.
        self._driver = driver
        super().__init__(driver.process, driver.endpoint, grant, on_lost)

    @property
    def lost(self) -> threading.Event:
        """An Event: set when the lease is lost."""
        event: threading.Event | None = self._event
        if event is None:
            # All who ask at the same moment get the same: threads, and a signal handler.
            event = self.__dict__.setdefault("_event", _Lost(self))
            if self._held_lease.lost:
                event.set()
        return event

    def renew(self, ttl: float | None = None) -> None:
        """Set the lease to ``ttl`` seconds from now (default: as long as it was last); never adds to it.

        Raises LeaseLost, NotHeld or ServerError.
        """
        self._driver.run(self._renew(ttl))

    def ticket(self, expires: float = 60.0) -> Ticket:
        """Hand the lock over: a ticket, which another process redeems (`redeem`) within ``expires`` seconds, once.
        This lease is over then, as if given back. If nobody redeems the ticket it expires, and the next in line has the lock.

        Raises LeaseLost, NotHeld, or ServerError, after which the lease goes on.
        """
        return self._ticket(expires)

    def _ticket(self, expires: float, token: str = "") -> Ticket:
        """``token``: which the ticket is to have, if that has been written down before."""
        from holdfast._api import ticket  # here: most never need it

        issue = ticket.Issue(self, expires, token)
        try:
            return self._driver.run(issue.operation())
        except HoldfastError:
            raise
        except BaseException:
            # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line.
            self._driver.run(issue.undo())
            raise

    def release(self) -> None:
        """Give the lock back. Raises LeaseLost if it was lost before, NotHeld the second time, ServerError if the server
        cannot be reached (the lock then ends with its lease)."""
        try:
            if not self._hand_on():
                self._driver.run(self._release())
        except HoldfastError:
            raise
        except BaseException:
            # Interrupted (KeyboardInterrupt, or what a signal handler raises), at whatever line.
            self._driver.run(self._abandoned())
            raise


class Term(Lease):
    """The lease of one term of a leader, from its election to its end. The fence is the number of the term."""
