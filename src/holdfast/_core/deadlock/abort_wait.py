"""End the wait of one attempt for a lock with an error, for example Deadlock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core.lock.records import Attempt

if TYPE_CHECKING:
    from holdfast._core.lock.server_queue import Waiting


def abort_wait(waiting: Waiting | None, attempt: Attempt, error: Exception) -> bool:
    """Raise ``error`` in the thread or task that waits for a lock with this attempt. Return False if it does not wait.

    ``waiting``: the waiters of this process in the server's queue; None: there are none, so search only the local queue. The
    caller holds the keeper's mutex.
    """
    local_queue = attempt.local_queue
    if local_queue is not None and local_queue.abort_wait(attempt, error):
        return True
    waiter = None if waiting is None else waiting.get(attempt.token)
    if waiting is None or waiter is None or waiter.attempt is not attempt:
        return False
    waiting.end(waiter, error)
    return True
