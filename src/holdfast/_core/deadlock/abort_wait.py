"""End one attempt's wait for a lock with an exception, for example Deadlock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.records import Attempt

if TYPE_CHECKING:
    from holdfast._core.lock.server_queue import Waiting


def abort_wait(waiting: Waiting | None, attempt: Attempt, error: Exception) -> bool:
    """Raise an error in the thread or task where an attempt waits; return False if the attempt is not waiting now.

    The attempt waits in the queue of its process, or in the server's queue, of which ``waiting`` has the local waiters (None:
    there are none). The caller must hold the keeper's mutex.
    """
    local_queue = attempt.local_queue
    if local_queue is not None and local_queue.abort_wait(attempt, error):
        return True
    waiter = None if waiting is None else waiting.get(attempt.token)
    if waiting is None or waiter is None or waiter.attempt is not attempt:
        return False
    waiting.end(waiter, error)
    return True
