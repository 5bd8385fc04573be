"""The one source of local time: monotonic, and counting while the machine sleeps where the system offers that.

A lease goes on running on the server while a laptop is suspended; CLOCK_MONOTONIC does not.
"""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def clock() -> float:
        """Local time in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:
    clock = time.monotonic
