"""The clocks of this process, for all modules of holdfast. `tests/house/test_one_clock.py` lists the few exceptions.

`clock` measures leases and waits, `wall` compares with other machines, and `monotonic` limits input and output.

While a machine is suspended, its leases go on to expire on the server. On Linux, CLOCK_MONOTONIC stops during that time, but
CLOCK_BOOTTIME does not. So `clock` reads CLOCK_BOOTTIME on systems that have it.
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
    """Return the monotonic time in seconds. On systems with CLOCK_BOOTTIME, it also counts while the machine sleeps."""
    return _read() + ahead


monotonic = time.monotonic
"""Return the seconds since an arbitrary start, without those during which the machine slept, and without `ahead`.

Time limits of sockets and event loops count these seconds, so use it for limits of input and output, and never for a lease.
"""


def wall() -> float:
    """Return the Unix time in seconds, as this machine's clock shows it.

    People and NTP change this clock. Use it only to compare with times that other machines read from their clocks.
    """
    return time.time() + ahead
