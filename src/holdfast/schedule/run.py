"""`Run`, which tells a job function about its run, and the lease of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from holdfast._api.lease import BaseLease
from holdfast._api.lease_core import Home, LeaseCore
from holdfast._core.lock.acquire import register_lease
from holdfast._core.lock.records import Registrar
from holdfast._core.schedule.records import ActiveRun
from holdfast._runtime.flag import Flag
from holdfast.errors import HoldfastError


class Cancelled(HoldfastError):
    """Raised by a job function, or by `Run.check`, to end a run early because `Run.cancelled` is set.

    The run is then recorded as cancelled.
    """

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)


class RunLease(BaseLease):
    """The lease of a job's run. It is renewed while the run goes on, and the schedule releases it at the end."""

    @property
    def lost(self) -> threading.Event:
        """Event that is set when the lease is lost."""
        event: threading.Event = self._core.lost_event()
        return event

    @property
    def why(self) -> str:
        """Reason why the lease is lost; empty if the lease is not lost."""
        why: str = self._core.held_lease.lost
        return why


class RunCore(LeaseCore):
    """The state of a `RunLease` that the schedule uses and users do not see."""

    def __init__(
        self, process: Home, endpoint: object, node: Registrar, active_run: ActiveRun, on_lost: Callable[[], None]
    ) -> None:
        self._event = Flag()
        self._tell = on_lost
        grant = active_run.grant
        grant.attempt.node = node
        super().__init__(process, endpoint, register_lease(grant.attempt, grant), user_type=RunLease)

    def lost_event(self) -> threading.Event:
        self.expired()
        return self._event

    def notice_loss(self) -> None:
        if self.first_to_tell():
            self._event.set()
            self._tell()
        self.make_way()

    def lose(self, reason: str) -> None:
        """Mark the lease as lost, so that it is not renewed any more, and notify the run."""
        if self.held_lease.lose(reason):
            self.forget()
            self.notice_loss()

    def end(self) -> None:
        """Stop renewing the lease in this process, because the run is over or the process stops serving the schedule."""
        self.held_lease.end()
        self.forget()


@dataclass(eq=False)
class Run:
    """One run of a job. A job function with a parameter named ``run`` receives this object; other code calls `current`."""

    job: str
    """Name of the job."""
    scheduled: float
    """Scheduled time of the run, in Unix seconds by the server's clock."""
    attempt: int
    """Number of this attempt, from 1; above 1 if an earlier attempt at the same run crashed or was ended."""
    fence: int
    """Fence of the run, greater than that of all earlier runs of the job. Send it with every write of the job."""
    lease: RunLease | Any = field(default=None, repr=False)
    """Lease of the run, with ``check()``, ``remaining()`` (seconds) and the event ``lost``."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    """Event that is set when the run must end, because its lease is lost, ``max_runtime`` has passed, a person cancelled it, or
    the process stops.

    A plain function has to check the event and return. A coroutine is also cancelled.
    """
    reason: str = ""
    """Reason why the run was told to end, as text; empty if it was not told to end."""
    by_hand: bool = False
    """True if `Schedule.run_now` started the run, instead of a tick of the timetable."""

    def check(self) -> None:
        """Raise LeaseLost if the lease of the run is lost, or `Cancelled` if the run was told to end. Needs no round trip."""
        if self.lease is not None:
            self.lease.check()
        if self.cancelled.is_set():
            raise Cancelled(self.reason)


_current: ContextVar[Run | None] = ContextVar("holdfast_run", default=None)


def current() -> Run | None:
    """Return the run of a job that the calling code is part of; None outside a run."""
    return _current.get()


def enter(run: Run) -> None:
    _current.set(run)
