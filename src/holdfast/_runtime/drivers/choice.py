"""The driver for threads that asks an endpoint: that of a server, or that of the shard of a Cluster."""

from __future__ import annotations

from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Driver
from holdfast._runtime.process import Process


def driver_for(process: Process, endpoint: Endpoint) -> Driver:
    """Return the driver that asks this endpoint from threads."""
    if endpoint.cluster is None:
        return Driver(process, endpoint)
    from holdfast._runtime.drivers.sync_cluster import ShardDriver

    return ShardDriver(process, endpoint)
