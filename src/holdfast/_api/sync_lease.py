"""The lease of a lock for threads: renew it, release it, issue a ticket for it, and be notified of its loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._api import lease as leases
from holdfast._durations import Seconds
from holdfast._log import logger
from holdfast._runtime.drivers.sync import Runner
from holdfast._runtime.flag import Flag
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast._api.ticket import Ticket

T = TypeVar("T")

log = logger("holdfast")


class Lease(leases.BaseLease):
    """A lease: one acquisition of a lock, as ``with lock as lease`` returns it."""

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost."""
        event: threading.Event = self._core.lost_event()
        return event

    def renew(self, ttl: Seconds | None = None) -> None:
        """Set the lease to expire ``ttl`` seconds from now (default: its last length), or when ``max_hold`` ends, if that is
        sooner. The remaining time is not added.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._core.run(self._core.renew_on_server, ttl)

    def verify(self) -> None:
        """Ask the server whether it still has the lease. `check` does not ask it.

        Call this where a lost lease must be noticed at once, such as after the lock may have been broken by hand. The answer is
        true at the time of the request only: have the resource check the fence, too. A lease that is renewed automatically is
        renewed by this request.

        Raises LeaseLost if the lease is lost, NotHeld if it was released, ServerError if the server cannot be reached.
        """
        self._core.run(self._core.verify_on_server)

    def release(self) -> None:
        """Release the lock.

        Raises LeaseLost if the lease was lost before, NotHeld if it was released already. Raises ServerError if the server
        cannot be reached: the lock is then free when the lease expires.
        """
        self._core.release()


class LockLease(Lease):
    """The lease of a lock on one server: it can be handed over to another process by a ticket."""

    def ticket(self, expires: Seconds = 60.0) -> Ticket:
        """Return a ticket that hands the lock over to another process, which passes it to `redeem` within ``expires`` seconds.

        When the ticket is returned, this lease has ended, as after a release. If no process redeems the ticket in time, it
        expires, and the next waiter acquires the lock.

        Raises LeaseLost if the lease is lost, or if the server does not confirm the ticket: the lock is released then. Raises
        NotHeld if the lease was released. Raises ServerError if the request could not be sent: the lease stays valid.
        """
        return self._core.issue_ticket(expires)  # type: ignore[no-any-return] # in one line: an interrupt would lose a ticket


class Term(Lease):
    """The lease of an elected leader, for one term: from its election to its end. ``fence`` is the number of the term."""


class LostFlag(Flag):
    """An event that is set when the lease is lost. `is_set` also notices a lease that has expired unnoticed."""

    def __init__(self, expired: Callable[[], bool]) -> None:
        super().__init__()
        self._expired = expired

    def is_set(self) -> bool:
        return super().is_set() or self._expired()


class TellsLoss(leases.UserLease):
    """A mixin that notifies the owner of a lease of its loss: it sets ``lost`` and calls ``on_lost``."""

    name: Any
    event: Any = None
    """The event behind ``lost``; None until ``lost`` is read."""
    on_lost: Callable[..., object] | None
    first_to_tell: Callable[[], bool]
    make_way: Callable[[], None]
    driver: Runner

    def run(self, operation: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an operation of the lease."""
        return self.driver.run(operation(*args))

    def notice_loss(self) -> None:
        try:
            if self.first_to_tell():
                self.tell_owner()
        finally:
            self.make_way()

    def tell_owner(self) -> None:
        if self.event is not None:
            self.event.set()
        if self.on_lost is not None:
            # A thread of its own, because the keeper has other leases to renew while the callback runs.
            lease = self.user_lease()
            try:
                threading.Thread(target=self.on_lost, args=(lease,), name="holdfast-on-lost", daemon=True).start()
            except RuntimeError as error:  # The thread limit is reached, or the interpreter is shutting down.
                log.warning("on_lost of %r cannot be called: %s", self.name, error)


class LeaseCore(TellsLoss, leases.LeaseCore):
    """The internal object of a lease of a thread."""

    def lost_event(self) -> threading.Event:
        """Return the event that is set when the lease is lost."""
        event: threading.Event | None = self.event
        if event is None:
            # setdefault, so that threads and signal handlers that ask at the same moment get the same event.
            event = self.__dict__.setdefault("event", LostFlag(self.expired))
            if self.held_lease.lost:
                event.set()
        return event

    def issue_ticket(self, expires: Seconds, token: str = "") -> Ticket:
        """Issue a ticket, with this ``token`` if it is not empty. Callers pass a token that they have stored already."""
        from holdfast._api import ticket  # Imported late: most programs never issue a ticket.

        issue = ticket.Issue(self, expires, token)
        try:
            return self.driver.run(issue.operation())
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self.driver.run(issue.undo())
            raise

    def go_on_releasing(self, begun: bool) -> None:
        """Release the lease on the server if `try_release` could not. ``begun``: True if `try_release` returned None."""
        if begun or not self.hand_on():
            self.driver.run(self.release_on_server())

    def release(self) -> None:
        """Release the lock, as `Lease.release` does."""
        try:
            done = not self.is_over() and self.try_release()
            if not done:
                self.go_on_releasing(done is None)
        except HoldfastError:
            raise
        except BaseException:
            # An exception of an interrupt or a signal handler can come at any line.
            self.finish_interrupted_release()
            raise

    def finish_interrupted_release(self) -> None:
        """Finish a release that was interrupted at an unknown point, so that nothing of the lease is left."""
        self.driver.run(self.finish_release())
