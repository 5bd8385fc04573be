"""The monotonic clock of this process. On systems with CLOCK_BOOTTIME, it also counts while the machine sleeps.

While a machine is suspended, its leases go on to expire on the server. On Linux, CLOCK_MONOTONIC stops during that time, but
CLOCK_BOOTTIME does not. So CLOCK_BOOTTIME is used on systems that have it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

_read: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)

ahead = 0.0
"""Seconds by which a test has moved the clock of this process forward, as if the machine had slept
(`holdfast.testing.clock`)."""


def clock() -> float:
    """Return the monotonic time in seconds since an arbitrary start."""
    return _read() + ahead


def wall() -> float:
    """Return the Unix time in seconds, as this machine's clock shows it.

    People and NTP change this clock. Use it only to compare with times that other machines read from their clocks.
    """
    return time.time() + ahead
