"""How drivers of both faces wait for replicas: on connections of its own, for asyncio in a thread."""

from __future__ import annotations

from typing import Any

from holdfast._clock import clock
from holdfast._core.requests import Answer, Replicate
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_pool import Pool
from holdfast._net.wait_connection import outcome
from holdfast._runtime.process import Process


def replicate(process: Process, endpoint: Endpoint, request: Replicate) -> Answer[Any]:
    """Blocks the calling thread."""
    sent = clock()
    pool = process.pool(endpoint)
    assert isinstance(pool, Pool)  # a lock that waits for replicas is not made where there is none
    replies = pool.dedicated.replicate(request.run, request.replicas, request.timeout)
    return Answer(outcome(request.run, replies, endpoint), sent, clock())
