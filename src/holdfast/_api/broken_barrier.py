"""The error of a broken barrier, and its reasons in words."""

from __future__ import annotations

import threading

from holdfast.errors import HoldfastError

BROKEN_BY = {
    "died": "{who} gave no sign of life while the others waited for it",
    "timeout": "the wait of {who} timed out",
    "abort": "{who} aborted it",
    "action": "the action failed in {who}",
    "lost": "the server has lost the list of waiters",
}


class BrokenBarrier(HoldfastError, threading.BrokenBarrierError):
    """Raised by `Barrier.wait` if the barrier is broken, or breaks while the caller waits. All other waiters get it too."""

    name: str
    key: str
    reason: str
    """The cause: "died", "timeout", "abort", "action", "reset", or "lost" (the server has lost the list of waiters)."""
    by: str | None
    """The client that broke the barrier, as ``host:pid (label)``; None if unknown."""
