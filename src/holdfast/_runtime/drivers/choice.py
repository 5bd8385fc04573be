"""The choice of the driver that carries out a thread's requests to an endpoint: the driver of a single server, or that of a
Cluster shard."""

from __future__ import annotations

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import Process


def driver_for(process: Process, endpoint: Endpoint) -> Driver:
    """Return the driver that carries out requests to this endpoint on the calling thread."""
    if endpoint.cluster is None:
        return Driver(process, endpoint)
    from holdfast._runtime.drivers.sync_cluster import ShardDriver

    return ShardDriver(process, endpoint)
