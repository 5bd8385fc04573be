"""Drives transactions on the calling thread. What they ask is calls of a client of redis-py, not of a server."""

from __future__ import annotations

import random
import time

from holdfast._clock import clock
from holdfast._core.requests import AskClient, Chance, Now, Sleep, Try
from holdfast._runtime.drivers import sync


class Driver(sync.Driver):
    """Does what transactions ask."""

    def __init__(self) -> None:
        self._do = {
            AskClient: lambda request: request.call(),
            Try: lambda request: request.call(),
            Chance: lambda _: random.random(),  # noqa: S311 - no secret
            Now: lambda _: clock(),
            Sleep: lambda request: time.sleep(request.seconds),
        }


driver = Driver()
"""There is nothing in it that belongs to a thread."""
