"""The counts of a lock object, for both APIs: how often it was acquired, how long that took, and how long it was held."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """The counts of one lock object since it was made. Other objects of the same name, and other processes, have their own.
    Times are in seconds.

    ``acquisitions`` and all about holding are counted by the one who holds the lock, so they are exact. The others are
    counted by whoever waits, without a mutex, which would cost more than they are worth: where many threads give up at the
    same moment, one may be missing. The numbers are read one after the other, while others go on.
    """

    acquisitions: int
    """How often it was taken. Taking an `RLock` again does not count."""
    contended: int
    """Those of them that had to wait for another holder."""
    timeouts: int
    """How often it stayed busy, for ``wait`` or when asked without waiting."""
    losses: int
    """Leases that were lost while they were held."""
    total_wait: float
    """Time spent by those that had to wait, whether they got it or not; from when it was found busy."""
    longest_wait: float
    total_hold: float
    """Time for which it was held, from when it was taken until it was given back or lost."""
    longest_hold: float
    waiting: int
    """Threads or tasks that wait for another holder at this moment."""
    held: int
    """Leases of it that are held at this moment."""
