"""The one source of local time: monotonic, and counting while the machine sleeps where the system offers that.

A lease goes on running on the server while a laptop is suspended; CLOCK_MONOTONIC does not.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

_read: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)

ahead = 0.0
"""Seconds by which a test has moved this process's time (`holdfast.testing.clock`): as if the machine had slept."""


def clock() -> float:
    """Local time in seconds."""
    return _read() + ahead


def wall() -> float:
    """Unix time in seconds, as this machine's clock shows it. People and NTP set it: for nothing but to be compared with what
    others read off theirs."""
    return time.time() + ahead
