"""How both drivers wait for replicas: on connections of its own, for asyncio in a thread."""

from __future__ import annotations

from typing import Any

from holdfast._clock import clock
from holdfast._core.requests import Answer, Replicate
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_pool import Pool
from holdfast._net.wait_connection import outcome
from holdfast._runtime.process import Process


class Replicas:
    """Of one server, for one driver."""

    def __init__(self, process: Process, endpoint: Endpoint) -> None:
        self._process = process
        self._endpoint = endpoint

    def ask(self, request: Replicate) -> Answer[Any]:
        """Blocks the calling thread."""
        sent = clock()
        pool = self._process.pool(self._endpoint)
        assert isinstance(pool, Pool)  # a lock that waits for replicas is not made where there is none
        replies = pool.dedicated.replicate(request.run, request.replicas, request.timeout)
        return Answer(outcome(request.run, replies, self._endpoint), sent, clock())

    async def ask_in_thread(self, request: Replicate) -> Answer[Any]:
        """Such a lock can afford that. If the task is cancelled, the thread goes on to its end: the script only renews, and
        finds nothing to renew when the lock was given up meanwhile."""
        import asyncio  # here: a command does without

        return await asyncio.get_running_loop().run_in_executor(None, self.ask, request)
