"""The driver for asyncio that asks an endpoint: as `choice` for threads, which import no asyncio."""

from __future__ import annotations

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers import aio
from holdfast._runtime.process import Process


def aio_driver_for(process: Process, endpoint: Endpoint) -> aio.Driver:
    """Return the driver of the running loop, whose connection is shared by all tasks of the loop."""
    if endpoint.cluster is None:
        return aio.kept(process, endpoint, aio.Driver)
    from holdfast._runtime.drivers.aio_cluster import ShardDriver

    return aio.kept(process, endpoint, ShardDriver)
