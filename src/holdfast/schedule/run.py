"""`Run`: what a job function is given about its run, and the lease of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from holdfast._api.lease import BaseLease, Home
from holdfast._core.schedule.records import ActiveRun
from holdfast._runtime.flag import Flag
from holdfast.errors import HoldfastError


class Cancelled(HoldfastError):
    """Raised by a job that ends early because it was told to (`Run.cancelled`): its run is recorded as cancelled."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)


class RunLease(BaseLease):
    """The lease of a run: renewed while it goes on, given back by the schedule at its end."""

    def __init__(self, process: Home, endpoint: object, active_run: ActiveRun, on_lost: Callable[[], None]) -> None:
        self._event = Flag()
        self._tell = on_lost
        super().__init__(process, endpoint, active_run.grant, None)

    @property
    def lost(self) -> threading.Event:
        """An Event: set when the lease is lost."""
        self._expired()
        return self._event

    @property
    def why(self) -> str:
        """Why it is lost."""
        return self._held_lease.lost

    def notice_loss(self) -> None:
        if self._first_to_tell():
            self._event.set()
            self._tell()
        self._make_way()

    def lose(self, reason: str) -> None:
        """It is nobody's any more."""
        if self._held_lease.lose(reason):
            self._forget()
            self.notice_loss()

    def end(self) -> None:
        """It was given back."""
        self._held_lease.end()
        self._forget()


@dataclass(eq=False)
class Run:
    """One run of a job. A function with a parameter named ``run`` is given it; `current` finds it elsewhere."""

    job: str
    """Name of the job."""
    scheduled: float
    """The tick that it is, in Unix seconds by the server's clock."""
    attempt: int
    """1, or more if an earlier one crashed or was cut short."""
    fence: int
    """Greater than that of all earlier runs of the job: pass it on to what the job writes to."""
    lease: RunLease | Any = field(default=None, repr=False)
    """``check()`` raises LeaseLost, ``lost`` is an Event, ``remaining()`` says for how many seconds it can be relied on."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when it is to end: its lease is lost, ``max_runtime`` has passed, somebody cancels it, or the process stops. A
    coroutine is cancelled besides; a function has to look."""
    reason: str = ""
    """Why, in words."""
    by_hand: bool = False
    """Somebody asked for it (`Schedule.run_now`): it is no tick."""

    def check(self) -> None:
        """Raise LeaseLost if the run may have been given to somebody else, `Cancelled` if it is to end. Asks no server."""
        if self.lease is not None:
            self.lease.check()
        if self.cancelled.is_set():
            raise Cancelled(self.reason)


_current: ContextVar[Run | None] = ContextVar("holdfast_run", default=None)


def current() -> Run | None:
    """The run that the calling code is part of, or None."""
    return _current.get()


def enter(run: Run) -> None:
    """Make the calling thread or task part of this run."""
    _current.set(run)
