"""The driver for transactions in threads. It carries out each request by calling a method of a redis-py client."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, assert_never

from holdfast._clock import clock
from holdfast._core.requests import CallClient, CallUser, Now, RandomFraction, Sleep
from holdfast._runtime.drivers.sync import Runner

if TYPE_CHECKING:
    from holdfast._core.requests import ClientRequest


class Driver(Runner):
    def do(self, request: ClientRequest) -> Any:
        match request:
            case CallClient() | CallUser():
                return request.call()
            case Now():
                return clock()
            case RandomFraction():
                return random.random()  # noqa: S311 - no secret
            case Sleep():
                return time.sleep(request.seconds)
            case _:
                assert_never(request)


driver = Driver()
"""The one driver of transactions for all threads, because it has no state."""
