"""The choice of the asyncio driver for an endpoint, which is a single server or a Cluster shard."""

from __future__ import annotations

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers import aio
from holdfast._runtime.process import Process


def aio_driver_for(process: Process, endpoint: Endpoint) -> aio.Driver:
    """Return the running loop's driver for this endpoint. All tasks of the loop share the driver's connection."""
    if endpoint.cluster is None:
        return aio.kept(process, endpoint, aio.Driver)
    from holdfast._runtime.drivers.aio_cluster import ShardDriver

    return aio.kept(process, endpoint, ShardDriver)
