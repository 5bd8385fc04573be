"""`LockStatistics` counts how often a lock object was acquired, and how long it waited for the lock and held it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """Counts and times of one lock object since its creation. Times are in seconds.

    Other objects of the same name, and other processes, have their own counts. ``acquisitions``, ``losses``, ``held`` and the
    times of holding are exact. Waiters change the other counts without a mutex, so those may be slightly too low if many
    threads stop waiting at the same moment. The values are read one after the other.
    """

    acquisitions: int
    """Number of acquisitions. Acquiring an `RLock` again does not count."""
    contended: int
    """Number of acquisitions that had to wait for another holder."""
    timeouts: int
    """Number of attempts that ended because the lock stayed busy, with or without waiting."""
    losses: int
    """Number of leases that were lost while they were held."""
    total_wait: float
    """Seconds spent waiting by all attempts that found the lock busy, whether or not they acquired it."""
    longest_wait: float
    """Longest wait of one attempt for a busy lock, in seconds."""
    total_hold: float
    """Seconds for which the lock was held, from each acquisition to its release or loss."""
    longest_hold: float
    """Longest time for which one acquisition held the lock, in seconds."""
    waiting: int
    """Number of threads or tasks that wait for another holder now."""
    held: int
    """Number of leases acquired by this object that are held now."""
