"""Ending a wait for a lock that would be of no use to who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.records import Attempt

if TYPE_CHECKING:
    from holdfast._core.lock.server_queue import Waiting


def abort_wait(waiting: Waiting | None, attempt: Attempt, error: Exception) -> bool:
    """Have this raised where an attempt waits, in the line of its process or at the server (``waiting``). False: it does not
    wait just now. The keeper's mutex is held."""
    local_queue = attempt.local_queue
    if local_queue is not None and local_queue.abort_wait(attempt, error):
        return True
    waiter = None if waiting is None else waiting.get(attempt.token)
    if waiting is None or waiter is None or waiter.attempt is not attempt:
        return False
    waiting.end(waiter, error)
    return True
