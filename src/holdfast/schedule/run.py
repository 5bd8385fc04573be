"""What a job is told about the run that it is."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


class Cancelled(Exception):
    """Raised by a job that has ended early because it was told to (`Run.cancelled`): the run is recorded as cancelled."""


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
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when it is to end: its lease is lost, `max_runtime` has passed, somebody cancels it, or the process stops. A coroutine
    is cancelled besides; a function has to look."""
    reason: str = ""
    """Why, in words."""
    by_hand: bool = False
    """Somebody asked for it (`Schedule.run_now`): it is no tick."""
    lease: Any = None
    """``check()`` raises LeaseLost, ``lost`` is an Event, ``remaining()`` says for how many seconds it can be relied on."""

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
