"""Wait by the command WAIT until replicas have acknowledged a lock. The drivers for threads and asyncio use this module."""

from __future__ import annotations

from typing import Any

from holdfast._clock import clock
from holdfast._core.requests import Answer, Replicate
from holdfast._net.endpoint import Endpoint
from holdfast._net.sync_pool import Pool
from holdfast._net.wait_connection import outcome
from holdfast._runtime.process import Process


def replicate(process: Process, endpoint: Endpoint, request: Replicate) -> Answer[Any]:
    """Run a script and wait until replicas have acknowledged its writes. Blocks the calling thread."""
    sent = clock()
    pool = process.pool(endpoint)
    assert isinstance(pool, Pool)  # a lock that waits for replicas cannot be created with another transport
    replies = pool.dedicated.replicate(request.run, request.replicas, request.timeout)
    return Answer(outcome(request.run, replies, endpoint), sent, clock())
