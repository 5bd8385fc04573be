"""Descriptions of the waiting threads and tasks of this process. Other processes read them from the server to find
deadlocks."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast._clock import clock, wall
from holdfast._core.control_records import first_of
from holdfast._core.lock.ports import LockWait
from holdfast._log import logger

if TYPE_CHECKING:
    import asyncio

log = logger("holdfast.keeper")

LONGEST = 100
"""Maximum number of characters of a thread's or task's name in a description."""


def describe_wait(wait: LockWait, loops: Sequence[asyncio.AbstractEventLoop] = ()) -> dict[str, Any]:
    """Return the description of one waiting thread or task. ``loops``: event loops in which the task may be running."""
    return {
        "lock": wait.lock,
        "since": _unix(wait.since),
        "id": f"{wait.owner:x}",
        "who": _clean(name_of(wait.owner, loops)[:LONGEST]),
        "holds": first_of(wait.holds),
        "yields": wait.yields,
    }


def warn_of_own(waits: Sequence[LockWait], warned: set[LockWait]) -> None:
    """Log a warning for each wait for a lock that the waiting thread or task holds itself, once for each wait.

    Such a wait is no error, because another thread or task may release the lock, as with a threading.Lock. ``warned``: waits
    for which a warning was logged. This function adds the new ones.
    """
    for wait in waits:
        if wait.lock in wait.holds and wait not in warned:
            warned.add(wait)
            log.warning(
                "a thread or task waits for the lock with the key %r, and holds this lock itself. The wait lasts until another "
                "thread or task releases the lock, or until its time limit, if it has one. To acquire a lock again while it is "
                "held, use holdfast.RLock",
                wait.lock,
            )


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()  # half a surrogate pair would make the record unreadable


def name_of(owner: int, loops: Sequence[asyncio.AbstractEventLoop]) -> str:
    """Return the name of the thread or task with the id ``owner``; "" if it has ended.

    ``loops``: event loops in which the task may be running.
    """
    for thread in threading.enumerate():
        if thread.ident == owner:
            return thread.name
    for loop in [loop for loop in loops if not loop.is_closed()]:
        for task in sys.modules["asyncio"].all_tasks(loop):
            if id(task) == owner:
                return str(task.get_name())
    return ""


@functools.lru_cache(1000)
def _unix(since: float) -> float:
    """Convert monotonic time to Unix time, both in seconds.

    The result for the same argument never changes, because other processes compare it.
    """
    return round(wall() - (clock() - since), 3)
